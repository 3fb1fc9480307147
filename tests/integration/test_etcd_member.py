"""A controller whose join was interrupted is taken out of etcd: two real members, kubeadm's own keys, on loopback."""

from __future__ import annotations

import json
import subprocess  # noqa: TID251 - runs etcd and kubeadm
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from winlab.design.catalog import versions
from winlab.design.catalog.artifact import Program
from winlab.events import Quiet
from winlab.supply.artifacts.build.source import BuildSource
from winlab_node import __main__ as program
from winlab_node import etcd
from winlab_node.node import Node, NodeError

LIMIT = 600  # seconds; a bound for a test that hangs, no expectation
KEYS = "etc/kubernetes/pki"
CERTS = ("etcd-ca", "etcd-server", "etcd-healthcheck-client")
PORTS = {"127.0.0.1": 23791, "127.0.0.2": 23792}  # for clients; members meet at 2380, as kubeadm has it


@pytest.fixture(autouse=True)
def _first_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd, "ENDPOINT", ("127.0.0.1", PORTS["127.0.0.1"]))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str, str], subprocess.Popen[bytes]]]:
    """Starts a member: its address, and all members that it should know (``--initial-cluster``)."""
    chosen = versions.get()
    wanted = [
        Program("kubeadm", chosen.kubernetes, "linux"),
        Program("etcd", chosen.etcd.partition("-")[0], "linux"),
    ]
    rows = BuildSource(chosen.kubernetes).obtain_all(wanted, Quiet())
    programs = {row.artifact.name: row.path for row in rows}
    for cert in CERTS:
        words = ["init", "phase", "certs", cert, "--cert-dir", tmp_path / KEYS, "--kubernetes-version"]
        subprocess.run([programs["kubeadm"], *words, chosen.kubernetes], check=True, capture_output=True)
    keys, running = tmp_path / KEYS / "etcd", []

    def begin(address: str, cluster: str) -> subprocess.Popen[bytes]:
        words = {
            "name": address,
            "data-dir": tmp_path / address,
            "listen-peer-urls": f"https://{address}:2380",
            "initial-advertise-peer-urls": f"https://{address}:2380",
            "listen-client-urls": f"https://{address}:{PORTS[address]}",
            "advertise-client-urls": f"https://{address}:{PORTS[address]}",
            "initial-cluster": cluster,
            "initial-cluster-state": "existing" if "," in cluster else "new",
            "cert-file": keys / "server.crt",
            "key-file": keys / "server.key",
            "trusted-ca-file": keys / "ca.crt",
            "client-cert-auth": "true",
            "peer-auto-tls": "true",
            "unsafe-no-fsync": "true",
        }
        with (tmp_path / f"{address}.log").open("wb") as log:
            command = [programs["etcd"], *(f"--{name}={value}" for name, value in words.items())]
            running.append(subprocess.Popen(command, stderr=log))
        return running[-1]

    yield begin
    for process in running:
        process.kill()
        process.wait()


def ask(root: Path, capsys: pytest.CaptureFixture[str], address: str) -> tuple[int, Any]:
    """Run the verb as winlab does; its exit code, and its result or what it said."""
    code = program.main(["forget-member"], json.dumps({"address": address}), Node(root))
    out, err = capsys.readouterr()
    return code, json.loads(out.splitlines()[-1]) if code == 0 else err


def until(root: Path, count: int) -> None:
    """Until etcd answers, and has so many members that have started."""
    end = time.monotonic() + LIMIT
    while True:
        try:
            told = etcd.ask(Node(root), "list", {})
            if len([row for row in told["members"] if row.get("name")]) == count:
                return
        except NodeError:
            assert time.monotonic() < end
        assert time.monotonic() < end
        time.sleep(0.3)


def test_an_interrupted_member_is_removed(
    start: Callable[[str, str], subprocess.Popen[bytes]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = "127.0.0.1=https://127.0.0.1:2380"
    start("127.0.0.1", first)
    until(tmp_path, 1)
    assert ask(tmp_path, capsys, "127.0.0.2") == (0, {"changed": False})
    etcd.ask(Node(tmp_path), "add", {"peerURLs": ["https://127.0.0.2:2380"]})
    second = start("127.0.0.2", f"{first},127.0.0.2=https://127.0.0.2:2380")
    until(tmp_path, 2)
    assert ask(tmp_path, capsys, "127.0.0.2") == (0, {"changed": True})
    second.kill()
    second.wait()
    until(tmp_path, 1)  # a list of members needs a majority
    assert ask(tmp_path, capsys, "127.0.0.2") == (0, {"changed": False})


def test_a_missing_majority_is_reported(
    start: Callable[[str, str], subprocess.Popen[bytes]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = "127.0.0.1=https://127.0.0.1:2380"
    start("127.0.0.1", first)
    until(tmp_path, 1)
    etcd.ask(Node(tmp_path), "add", {"peerURLs": ["https://127.0.0.2:2380"]})
    monkeypatch.setattr(etcd, "SECONDS", 15)
    code, said = ask(tmp_path, capsys, "127.0.0.2")
    assert code == 1
    assert "has etcd lost its majority?" in said
