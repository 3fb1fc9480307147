"""Simulates the scripts that make the worker a node: join, cni, proxy, push, load, logs (see scripts.py).

kubeadm.exe, kubelet.exe and ctr.exe really run. Two things are not real. The network of HNS is only recorded, although
the connection is really dropped as in Windows. kube-proxy's program runs only once, to check that it accepts its flags
and its configuration; then it ends on Wine. The same is true of the runner of its logs.
"""

from __future__ import annotations

import ipaddress
import json
import re
import shutil
import time
import uuid
from pathlib import Path
from typing import Any

from winlab_standin.guest import routes as routes_
from winlab_standin.guest import wine
from winlab_standin.guest.base import StandinError
from winlab_standin.guest.machine import Machine, Player, ScriptError, Settings
from winlab_standin.guest.players import (
    CONTAINERD,
    CONTAINERD_LOG,
    NETWORKS,
    PLUGINS,
    PROGRAMS,
    PROXY_CONFIG,
    PROXY_NETWORK,
    RECOVERY,
    confirm_command,
    import_images,
    joined,
    need,
    proxy_network,
    proxy_stale,
    stop_running,
    wait_for_cri,
)
from winlab_standin.guest.winservices import Unit
from winlab_standin.guest.workerfiles import ORIGINAL, Listed, digest, install, write

JOIN = "k/join.yaml"
BOOTSTRAP = "etc/kubernetes/bootstrap-kubelet.conf"
JOINED_BY = "winlab/joined.txt"
ROUTES = "winlab/routes.json"
CNI_RECORD = "winlab/cni.json"
KUBEADM_LOG = "var/log/kubeadm/join.log"
TOKEN = re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b")
NO_KERNEL = "kernel is not compatible"  # what kube-proxy.exe prints on Wine when everything else is right
LOGS = {
    "kubelet": "var/log/kubelet/kubelet.log",
    "containerd": CONTAINERD_LOG,
    "kubeadm": KUBEADM_LOG,
    "kube-proxy": "var/log/kube-proxy/kube-proxy.log",
    "network": "winlab/network.log",
}
# What an interrupted join leaves
LEFTOVERS = (
    BOOTSTRAP,
    "etc/kubernetes/kubelet.conf",
    "etc/kubernetes/pki/ca.crt",
    "var/lib/kubelet/config.yaml",
    "var/lib/kubelet/kubeadm-flags.env",
    "var/lib/kubelet/instance-config.yaml",
    "var/lib/kubelet/pki",
    JOINED_BY,
)
# In the order in which they must be stopped
SERVICES = {
    "kubelet.exe": ["kubelet"],
    "kube-proxy.exe": ["kube-proxy"],
    "kube-log-runner.exe": ["kube-proxy", "kubelet"],
    "containerd.exe": ["kubelet", "containerd"],
}


def endpoint(configuration: str) -> str:
    """The server of a JoinConfiguration.

    :raises ScriptError: it is not one, or names no server.
    """
    if not re.search(r"^kind:\s*JoinConfiguration\s*$", configuration, re.MULTILINE):
        raise ScriptError("settings.configuration is no JoinConfiguration.")
    found = re.search(r'^\s*apiServerEndpoint:\s*"?([^\s"]+)', configuration, re.MULTILINE)
    if not found:
        raise ScriptError("settings.configuration names no apiServerEndpoint.")
    return found[1]


def servers(machine: Machine) -> list[str]:
    """The servers that this node has joined through: its kubeconfig's, and the one that was requested."""
    text = machine.c("etc/kubernetes/kubelet.conf").read_text()
    found = re.findall(r'^\s*server:\s*"?https://([^\s"]+)', text, re.MULTILINE)
    noted = machine.c(JOINED_BY)
    return [*found[:1], *([noted.read_text().strip()] if noted.is_file() else [])]


def clear_half_join(machine: Machine) -> None:
    """Remove what an interrupted join left, because kubeadm's checks would fail."""
    there = [machine.c(name) for name in LEFTOVERS if machine.c(name).exists()]
    if not there:
        return
    machine.tell("winlab: removing what an unfinished join left")
    stop_running(machine, ["kubelet"])
    for path in there:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def join(machine: Machine, given: Settings) -> dict[str, Any]:
    """join.ps1: kubeadm.exe really joins; its configuration, which has the token, is always removed."""
    if machine.services.state("kubelet") == "absent":
        raise ScriptError("The kubelet is no service yet: kubelet.ps1 comes first.")
    if machine.services.state("containerd") != "running":
        raise ScriptError("containerd does not run: containerd.ps1 comes first.")
    configuration = str(given.get("configuration", ""))
    server, name = endpoint(configuration), machine.world.name()
    if name.lower() != str(given.get("name", "")).lower():
        raise ScriptError(f"This is '{name}', not '{given.get('name', '')}'.")
    if joined(machine):
        before = servers(machine)
        if server not in before:
            raise ScriptError(f"'{name}' has joined '{', '.join(before)}' already, not '{server}'.")
        if machine.services.state("kubelet") != "running":
            machine.services.start("kubelet")
        return {"joined": True, "changed": False}
    clear_half_join(machine)
    wait_for_cri(machine)  # on Wine the first client of a pipe may be cut off, and kubeadm.exe tries only once
    log = machine.c(KUBEADM_LOG)
    log.parent.mkdir(parents=True, exist_ok=True)
    secret = machine.c(JOIN)
    try:
        with log.open("a", encoding="utf-8") as file:
            file.write(f"winlab: join of {server}\n")
            secret.touch(mode=0o600)
            secret.write_text(configuration, encoding="utf-8")

            def tell(line: str) -> None:
                shown = TOKEN.sub("<token>", line)
                machine.tell(shown)
                file.write(f"{shown}\n")
                file.flush()

            words = [r"C:\k\kubeadm.exe", "join", "--config", r"C:\k\join.yaml", "--v=1"]
            code = wine.pass_through(words, tell, search_path(machine))
    finally:
        secret.unlink(missing_ok=True)
        machine.c(BOOTSTRAP).unlink(missing_ok=True)
    if code:
        raise ScriptError(f"kubeadm.exe join ended with exit code {code}: {tail(log, 8)}")
    if not joined(machine):
        raise ScriptError("kubeadm says that the node has joined, but the kubelet has no certificate.")
    write(machine.c(JOINED_BY), server)
    end = time.monotonic() + 60
    while machine.services.state("kubelet") != "running":
        if time.monotonic() > end:
            raise ScriptError("The node has joined, but the kubelet does not run: see its log.")
        time.sleep(1)
    return {"joined": True, "changed": True}


def search_path(machine: Machine) -> str:
    """What the scripts add to PATH: exactly that, because kubeadm.exe looks for kubelet.exe there, and refuses to join
    without it."""
    texts = [(machine.cd / "scripts" / name).read_text(encoding="utf-8") for name in ("common.ps1", "join.ps1")]
    return r"C:\k" if any("$env:PATH" in text for text in texts) else ""


def need_joined(machine: Machine) -> None:
    """Refuse on a node that has not joined."""
    if not joined(machine):
        raise ScriptError("This node has not joined a cluster: join.ps1 comes first.")


def confirm_network(network: dict[str, Any]) -> None:
    """Refuse a network that cni.ps1 refuses."""
    if network.get("type") not in ("L2Bridge", "Overlay"):
        raise ScriptError(f"settings.network.type is '{network.get('type', '')}', not L2Bridge or Overlay.")
    for field in ("name", "subnet", "gateway"):
        if not network.get(field):
            raise ScriptError(f"settings.network.{field} is missing.")
    if not re.fullmatch(r"\d+\.\d+\.\d+\.\d+/\d+", str(network["subnet"])):
        raise ScriptError(f"settings.network.subnet is no IPv4 network: '{network['subnet']}'.")
    if network["type"] == "Overlay" and int(network.get("vni", 0)) < 4096:
        raise ScriptError("settings.network.vni must be 4096 or more on Windows.")


def cni(machine: Machine, given: Settings) -> dict[str, Any]:
    """cni.ps1: the files are real, the network is only recorded."""
    need_joined(machine)
    folder, kept = machine.c(NETWORKS), machine.c(CNI_RECORD)
    files = {str(name): str(text) for name, text in (given.get("files") or {}).items()}
    for name, text in files.items():
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*\.(conf|conflist|json)", name, re.IGNORECASE):
            raise ScriptError(f"'{name}' is no name of a CNI configuration.")
        try:
            json.loads(text)
        except ValueError as error:
            raise ScriptError(f"'{name}' is no JSON.") from error
    network = given.get("network")
    changed = False
    if network:
        confirm_network(network)
        changed = make_network(machine, network)
    before = json.loads(kept.read_text())["files"] if kept.is_file() else []
    for name, text in files.items():
        changed = write(folder / name, text) or changed
    for name in before:
        if name not in files and (folder / name).is_file():
            (folder / name).unlink()
            changed = True
    write(kept, json.dumps({"files": sorted(files)}))
    return {"changed": changed}


def make_network(machine: Machine, network: dict[str, Any]) -> bool:
    """Record a network of HNS with a new ID, and drop the connection, if it is new; returns whether it is."""
    row = {**network, "ID": str(uuid.uuid4()), "Name": network["name"]}
    there = machine.node.networks().get(network["name"])
    if there and {**there, "ID": row["ID"]} == row:
        return False
    machine.tell(f"winlab: making the network '{network['name']}'; the connection may be lost for some seconds")
    machine.node.make_network(row)
    write(machine.c("winlab/network.log"), f"the stand-in has written the network '{network['name']}' down\n")
    return True


def proxy(machine: Machine, given: Settings) -> dict[str, Any]:
    """proxy.ps1: the files are real; kube-proxy.exe is tried once, and its service only pretends to run."""
    need_joined(machine)
    if not machine.c("k/kube-proxy.exe").is_file():
        raise ScriptError("C:\\k\\kube-proxy.exe is missing: binaries.ps1 comes first.")
    command, kubeconfig, config = (need(given.get(name), name) for name in ("command", "kubeconfig", "config"))
    if "client-key" in kubeconfig:
        raise ScriptError("settings.kubeconfig has a client key: a token is expected.")
    confirm_command(machine, command)
    if name := given.get("source_endpoint"):
        raise ScriptError(f"There is no HNS endpoint '{name}': the stand-in has no HNS.")
    folder = machine.c(PROXY_CONFIG).parent
    changed = proxy_stale(machine)
    changed = write(folder / "config.yaml", config) or changed
    changed = write(folder / "kubeconfig", kubeconfig) or changed
    (folder / "kubeconfig").chmod(0o600)
    unit = Unit("kube-proxy", command, recovery=RECOVERY, pretence=True)
    if changed or machine.services.units().get("kube-proxy") != unit:
        try_proxy(command)
        machine.services.create(unit)
        changed = True
    machine.services.start("kube-proxy")
    if changed:
        write(machine.c(PROXY_NETWORK), proxy_network(machine))
    return {"changed": changed, "service": machine.services.state("kube-proxy")}


def try_proxy(command: str) -> None:
    """Run a service's command, not as a service, and without a log file, so that its output can be checked.

    On Wine kube-proxy.exe ends. Neither it nor the runner of its logs may report anything else.

    :raises ScriptError: a flag or the configuration is refused.
    """
    words = [word for word in command.split() if word != "--windows-service" and not word.startswith("--log-file=")]
    if not any(word.lower().endswith("kube-proxy.exe") for word in words):
        raise ScriptError("settings.command starts no kube-proxy.exe.")
    code, text = wine.call(words, limit=120)
    if code and NO_KERNEL not in text:
        program = words[0].rpartition("\\")[2]
        raise ScriptError(f"{program} ended with exit code {code}: {text.strip()[-600:]}")


def routes(machine: Machine, given: Settings) -> dict[str, Any]:
    """routes.ps1: the routes are real, in the Linux that runs the stand-in."""
    need_joined(machine)
    wanted: dict[str, str] = {}
    for row in given.get("routes") or []:
        try:
            network = ipaddress.IPv4Network(str(row.get("to")))
        except ValueError as error:
            raise ScriptError(f"settings.routes: '{row.get('to')}' is no IPv4 network.") from error
        try:
            wanted[str(network)] = str(ipaddress.IPv4Address(str(row.get("via"))))
        except ValueError as error:
            raise ScriptError(f"settings.routes: '{row.get('via')}' is no IPv4 address.") from error
    path = machine.c(ROUTES)
    noted = json.loads(path.read_text())["routes"] if path.is_file() else []
    before = {row["to"]: row["via"] for row in noted}
    if before == wanted:
        return {"changed": False}
    try:
        routes_.have(wanted, [to for to in before if to not in wanted])
    except StandinError as error:
        raise ScriptError(f"route.exe ADD ended with exit code 1: {error}") from error
    others = {to: via for to, via in routes_.kept(machine.config).items() if to not in before}
    routes_.keep(machine.config, others | wanted)
    write(path, json.dumps({"routes": [{"to": to, "via": via} for to, via in sorted(wanted.items())]}))
    return {"changed": True}


def push(machine: Machine, given: Settings) -> dict[str, Any]:
    """push.ps1: install another build of one program, or restore the original."""
    name = str(given.get("program", ""))
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*\.exe", name):
        raise ScriptError(f"'{name}' is no name of a program.")
    places = [machine.c(f"{folder}/{name}") for folder in (PROGRAMS, CONTAINERD, PLUGINS)]
    target = next((path for path in places if path.is_file()), None)
    if target is None:
        raise ScriptError(f"'{name}' is not installed here: there is nothing to swap.")
    original = target.with_name(name + ORIGINAL)
    services = SERVICES.get(name, [])
    if given.get("restore"):
        if not original.is_file():
            return {"changed": False, "sha256": digest(target)}
        ran = stop_running(machine, services)
        original.replace(target)
    else:
        source = machine.cd / "push" / name
        if not source.is_file():
            raise ScriptError(f"winlab's CD has no push\\{name}.")
        wanted = digest(source)
        if digest(target) == wanted:
            return {"changed": False, "sha256": wanted}
        ran = stop_running(machine, services)
        if not original.is_file():
            target.rename(original)
        install(source, target, Listed(wanted))
    for service in ran:
        machine.services.start(service)
    return {"changed": True, "sha256": digest(target)}


def load(machine: Machine, given: Settings) -> dict[str, Any]:
    """load.ps1: import the CD's images into containerd's store."""
    del given
    if machine.services.state("containerd") != "running":
        raise ScriptError("containerd does not run: containerd.ps1 comes first.")
    return {"changed": import_images(machine)}


def tail(path: Path, lines: int) -> str:
    """The last lines of a file."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 400 * lines))
        return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-lines:])


def logs(machine: Machine, given: Settings) -> dict[str, Any]:
    """logs.ps1: the ends of the logs, and the services' states."""
    count = int(given.get("lines") or 60)
    if not 1 <= count <= 10000:
        raise ScriptError(f"settings.lines is {count}, not between 1 and 10000.")
    found = {name: tail(machine.c(path), count) if machine.c(path).is_file() else "" for name, path in LOGS.items()}
    names = ("containerd", "kubelet", "kube-proxy", "hns")
    found["services"] = "\n".join(f"{name}: {machine.services.state(name)}" for name in names)
    if given.get("everything"):
        units = machine.services.units()
        found["commands"] = "\n".join(f"{name}: {units[name].command if name in units else ''}" for name in names)
        found |= {f"winlab-{path.stem}": tail(path, count) for path in machine.c("winlab").glob("*.log")}
    return {"logs": found}


PLAYERS: dict[str, Player] = {
    "join.ps1": join,
    "cni.ps1": cni,
    "proxy.ps1": proxy,
    "routes.ps1": routes,
    "push.ps1": push,
    "load.ps1": load,
    "logs.ps1": logs,
}
