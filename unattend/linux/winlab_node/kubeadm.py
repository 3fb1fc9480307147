"""kubeadm, run in this node."""

from __future__ import annotations

import os
import re
from pathlib import Path

from winlab_node.node import PROGRAMS, Node, NodeError, say
from winlab_node.state import KUBELET_CONF

TYPE_CHECKING = False
if TYPE_CHECKING:
    from winlab_node.node import Settings

LOG = "var/log/winlab/kubeadm.log"
SECRET = re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b|\b[0-9a-f]{64}\b")  # bootstrap tokens, certificate keys


def run_kubeadm(node: Node, settings: Settings) -> Settings:
    """Run kubeadm and pass on its output; the configuration is on disk only while it runs, readable only by root."""
    arguments, configuration = settings["arguments"], settings.get("configuration", "")
    if not arguments or not all(isinstance(word, str) for word in arguments):
        raise NodeError("settings.arguments must be a list of words, a command of kubeadm first.")
    whole = arguments[0] in ("init", "join") and arguments[1:2] != ["phase"]
    server = re.search(r"^\s*apiServerEndpoint:\s*[\"']?([^\s\"']+)", configuration, re.MULTILINE)
    about = {"command": arguments[0], "server": server[1] if server else ""}
    if whole:
        if _is_done(node, about):
            return {"changed": False}
        node.keep("kubeadm", {**about, "state": "begun"})
    command = [str(node.path(f"{PROGRAMS}/kubeadm")), *arguments]
    place = "run/winlab/kubeadm.yaml"
    if configuration:
        node.write(place, configuration, 0o600)
        command += ["--config", str(node.path(place))]
    open_talk = arguments[0] in ("token", "certs")  # the caller must see a token that it asked for, a log must not
    if arguments[0] == "reset":
        # kubeadm stops it only after it has removed etcd's data: until then it starts etcd again, which makes new data
        node.call("systemctl", "stop", "kubelet", fine=(0, 5))
    log = node.path(LOG)
    log.parent.mkdir(parents=True, exist_ok=True)
    last: list[str] = []
    try:
        with os.fdopen(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a") as file:

            def heard(line: str) -> None:
                hidden = SECRET.sub("<secret>", line)
                say(line if open_talk else hidden)
                print(hidden, file=file, flush=True)
                last[:] = [*last[-11:], hidden]

            print(f"winlab: kubeadm {arguments[0]}", file=file)
            code = node.follow(command, heard)
    finally:
        node.path(place).unlink(missing_ok=True)
        if arguments[0] == "join":
            node.path("etc/kubernetes/bootstrap-kubelet.conf").unlink(missing_ok=True)
    if code != 0:
        raise NodeError(f"kubeadm {arguments[0]} ended with exit code {code}:\n" + "\n".join(last))
    if whole:
        node.keep("kubeadm", {**about, "state": "done"})
    if arguments[0] == "reset":
        _empty(node.path("var/lib/etcd"))  # kubeadm would find it by etcd's manifest, which may be damaged
        node.path("var/lib/winlab/kubeadm.json").unlink(missing_ok=True)
    return {"changed": True}


def _empty(folder: Path) -> None:
    """Remove what is in a folder, if there is one."""
    import shutil  # here: it is slow to load

    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _is_done(node: Node, about: dict[str, str]) -> bool:
    """Whether this init or join was already done.

    :raises NodeError: the node is not clean, so kubeadm would fail.
    """
    noted = node.note("kubeadm", {})
    if noted.get("state") == "begun":
        raise NodeError(f"'kubeadm {noted['command']}' was interrupted here before: 'kubeadm reset' comes first.")
    if not node.path(KUBELET_CONF).exists():
        return False
    if noted and {key: noted[key] for key in about} == about:
        return True
    where = f" by 'kubeadm {noted['command']}' {noted['server']}".rstrip() if noted else ", and not by winlab"
    raise NodeError(f"This node is part of a cluster already{where}.")
