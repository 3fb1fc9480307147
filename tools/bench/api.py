"""Whether a lab's API server answers, asked without kubectl: starting that takes longer than what is measured."""

from __future__ import annotations

import base64
import ssl
import tempfile
import threading
import time
from pathlib import Path

import httpx
import yaml

PAUSE = 0.1  # seconds between two tries


def until_ready(kubeconfig: Path, over: threading.Event) -> float | None:
    """Wait until the API server lists only Ready nodes; returns the time (monotonic), None if *over* is set first."""
    while not over.wait(PAUSE):
        try:
            if _all_ready(kubeconfig):
                return time.monotonic()
        except (OSError, httpx.HTTPError):  # there is no kubeconfig, or no answer, yet
            continue
    return None


def _all_ready(kubeconfig: Path) -> bool:
    config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    with tempfile.NamedTemporaryFile() as file:  # ssl reads files only
        file.writelines(base64.b64decode(user[f"client-{part}-data"]) for part in ("certificate", "key"))
        file.flush()
        context.load_cert_chain(file.name)
    with httpx.Client(verify=context, trust_env=False, timeout=2) as client:
        name = {"sni_hostname": cluster["tls-server-name"]}
        answer = client.get(f"{cluster['server']}/api/v1/nodes", extensions=name)
    nodes = answer.json().get("items", []) if answer.status_code == httpx.codes.OK else []
    return bool(nodes) and all(_is_ready(node["status"]["conditions"]) for node in nodes)


def _is_ready(conditions: list[dict[str, str]]) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
