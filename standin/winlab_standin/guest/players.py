"""Simulates the scripts that prepare a worker: status, features, containerd, binaries, kubelet (see scripts.py).

Files are really copied, services really made in Wine's service manager, containerd.exe really started. Not real, only
recorded: Windows' features, registry fixes for the network, Defender, the firewall, Windows Update.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
import time
from pathlib import Path
from typing import Any

from winlab_standin.guest import configplayers, wine
from winlab_standin.guest.machine import Machine, Player, ScriptError, Settings
from winlab_standin.guest.node import AVAILABLE, INSTALLED
from winlab_standin.guest.registry import LINES, full
from winlab_standin.guest.releases import RELEASES
from winlab_standin.guest.winservices import NEEDS, Unit
from winlab_standin.guest.workerfiles import ORIGINAL, digest, install, listed, stale, write

BOOTS = "standin-boots"  # how often the system has been started
PROGRAMS = "k"  # the folders of common.ps1, on C:
CONTAINERD = "Program Files/containerd"
PLUGINS = "opt/cni/bin"
NETWORKS = "etc/cni/net.d"
INSTALLED_FROM = "winlab/payload.sha256"
IMAGES_FROM = "winlab/images.sha256"
FEATURES_SET = "winlab/features.txt"
ENVIRONMENT_MARK = "winlab/containerd-environment.txt"
SERVICE_KEY = str(full(r"HKLM\SYSTEM\CurrentControlSet\Services\containerd"))
PROXY_CONFIG = "var/lib/kube-proxy/config.yaml"
PROXY_NETWORK = "winlab/proxy-network.txt"
CONTAINERD_LOG = "var/log/containerd/containerd.log"
CONTAINERD_COMMAND = (
    r'"C:\Program Files\containerd\containerd.exe" --run-service --log-file C:\var\log\containerd\containerd.log'
)
KUBERNETES = ("kubeadm.exe", "kubelet.exe", "kubectl.exe", "kube-proxy.exe", "kube-log-runner.exe")
FOLDERS = (
    NETWORKS,
    "etc/kubernetes/pki",
    "etc/kubernetes/manifests",
    "var/lib/kubelet",
    "var/log/kubelet",
    "var/log/kube-proxy",
    "var/log/kubeadm",
)
PIPE = "npipe:////./pipe/containerd-containerd"
RECOVERY = (5.0, 5.0, 5.0)  # seconds, as common.ps1 sets them with sc.exe failure
CRI_LIMIT = 300.0  # seconds; the script's 90 tries are for a real machine


def feature_state(machine: Machine) -> str:
    """``absent``, ``pending`` (a restart is due), or ``installed``."""
    if machine.node.pending():
        return "pending"
    return "installed" if machine.node.feature("Containers") == INSTALLED else "absent"


def joined(machine: Machine) -> bool:
    """Whether this node has joined a cluster, and has its certificate."""
    certificate = machine.c("var/lib/kubelet/pki/kubelet-client-current.pem")
    wanted = {machine.c("etc/kubernetes/kubelet.conf"): b"server:", certificate: b"BEGIN CERTIFICATE"}
    return all(path.is_file() and words in path.read_bytes() for path, words in wanted.items())


def proxy_network(machine: Machine) -> str:
    """The ID of the HNS network that kube-proxy's configuration names; empty if there is none."""
    config = machine.c(PROXY_CONFIG)
    found = re.search(r"^[ \t]+networkName:[ \t]*(\S+)", config.read_text() if config.is_file() else "", re.MULTILINE)
    return str(machine.node.networks().get(found[1], {}).get("ID", "")) if found else ""


def proxy_stale(machine: Machine) -> bool:
    """Whether that network was created again after kube-proxy started."""
    noted, now = machine.c(PROXY_NETWORK), proxy_network(machine)
    return bool(now) and not (noted.is_file() and noted.read_text() == now)


def need(text: Any, name: str) -> str:
    """A setting that must not be empty."""
    if not isinstance(text, str) or not text.strip():
        raise ScriptError(f"settings.{name} is empty.")
    return text


def status(machine: Machine, given: Settings) -> dict[str, Any]:
    """status.ps1: what the worker has so far; changes nothing."""
    del given
    units = machine.services.units()
    homes = [machine.c(folder) for folder in (PROGRAMS, CONTAINERD, PLUGINS)]
    networks = machine.c(NETWORKS)
    number = machine.config / BOOTS

    def service(name: str) -> dict[str, Any]:
        command = units[name].command if name in units else ""
        return {"service": machine.services.state(name), "command": command}

    return {
        "boot_time": machine.world.booted(),
        "boot_id": number.read_text().strip() if number.is_file() else "",
        "build": machine.world.windows.build,
        "containers_feature": feature_state(machine),
        "features_set": done.read_text() if (done := machine.c(FEATURES_SET)).is_file() else "",
        "restart_pending": feature_state(machine) == "pending",
        "containerd": {
            "service": machine.services.state("containerd"),
            "sha256": digest(machine.c(f"{CONTAINERD}/containerd.exe")),
            "config_sha256": digest(machine.c(f"{CONTAINERD}/config.toml")),
            "environment_sha256": hashlib.sha256(own.encode()).hexdigest() if (own := environment(machine)) else "",
        },
        "images_from": kept.read_text() if (kept := machine.c(IMAGES_FROM)).is_file() else "",
        "binaries": {path.name: digest(path) for path in sorted(homes[0].glob("*.exe"))},
        "installed_from": kept.read_text() if (kept := machine.c(INSTALLED_FROM)).is_file() else "",
        "cd": payload(machine),
        "pushed": [path.name.removesuffix(ORIGINAL) for home in homes for path in sorted(home.glob(f"*{ORIGINAL}"))],
        "kubelet": {**service("kubelet"), "joined": joined(machine)},
        "cni": {path.name: digest(path) for path in sorted(networks.glob("*")) if path.is_file()},
        "files": configplayers.files(machine),
        "registry": configplayers.values(machine),
        "proxy": {**service("kube-proxy"), "stale": proxy_stale(machine)},
        "endpoints": [],  # it has no HNS
    }


def payload(machine: Machine) -> str:
    """The SHA-256 of the CD's payload.json. It is small, and not cached: another CD's may have its size and time."""
    path = machine.cd / "payload.json"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def features(machine: Machine, given: Settings) -> dict[str, Any]:
    """features.ps1: record Windows' features; they work after a restart."""
    release, wanted = str(given.get("release", "")), [str(name) for name in given.get("features", [])]
    if release not in RELEASES:
        raise ScriptError(f"settings.release is '{release}', not 2019, 2022 or 2025.")
    build, asked = machine.world.windows.release.build, RELEASES[release].build
    if asked != build:
        raise ScriptError(f"This is Windows build {build}, not Windows Server {release} (build {asked}).")
    if "Containers" not in wanted:
        raise ScriptError("settings.features has no Containers; nothing runs without it.")
    missing = [name for name in wanted if machine.node.feature(name) == AVAILABLE]
    if missing:
        machine.tell(f"winlab: installing {', '.join(missing)}")
        machine.node.install(missing)
    restart = feature_state(machine) == "pending"
    if not restart:
        write(machine.c(FEATURES_SET), ",".join(sorted(wanted)))
    return {"restart": restart}


def need_features(machine: Machine) -> None:
    """Refuse while the feature Containers is not installed, or a restart is due."""
    state = feature_state(machine)
    if state == "absent":
        raise ScriptError("The feature Containers is not installed: features.ps1 comes first.")
    if state == "pending":
        raise ScriptError("Windows must be restarted before containerd is set up.")


def need_containerd(machine: Machine) -> None:
    """Refuse while there is no service containerd."""
    if machine.services.state("containerd") == "absent":
        raise ScriptError("containerd is not set up: containerd.ps1 comes first.")


def stop_running(machine: Machine, names: list[str]) -> list[str]:
    """Stop those services that run; returns them in the order in which to start them again."""
    ran = [name for name in names if machine.services.state(name) == "running"]
    for name in ran:
        machine.services.stop(name)
    return ran[::-1]


def containerd(machine: Machine, given: Settings) -> dict[str, Any]:
    """containerd.ps1: containerd.exe really registers itself as a service, and answers on its pipe."""
    need_features(machine)
    text, home = str(given.get("config", "")), machine.c(CONTAINERD)
    if not text.strip():
        raise ScriptError("settings.config is empty: it must be the text of config.toml.")
    if not text.isascii():
        raise ScriptError("settings.config has characters outside ASCII.")
    programs = {
        name: value
        for name, value in listed(machine, "programs").items()
        if re.fullmatch(r"(containerd.*|ctr|crictl|runhcs)\.exe", name)
    }
    for name in ("containerd.exe", "ctr.exe"):
        if name not in programs:
            raise ScriptError(f"winlab's CD has no {name}.")
    old = [name for name, value in programs.items() if stale(home / name, value)]
    unit = machine.services.units().get("containerd")
    config = home / "config.toml"
    same = config.is_file() and config.read_bytes() == text.encode("ascii")
    variables = "\n".join(map(str, given.get("environment") or []))
    stray = environment(machine) != variables
    changed = bool(old) or not same or unit is None or unit.command != CONTAINERD_COMMAND or stray
    ran = stop_running(machine, ["kube-proxy", "kubelet", "containerd"]) if changed else []
    for folder in (NETWORKS, PLUGINS, str(Path(CONTAINERD_LOG).parent)):
        machine.c(folder).mkdir(parents=True, exist_ok=True)
    for name in old:
        machine.tell(f"winlab: copying {name}")
        install(machine.cd / "programs" / name, home / name, programs[name])
    write(config, text)
    crictl = machine.c("Users/Administrator/.crictl/crictl.yaml")
    changed = write(crictl, f"runtime-endpoint: {PIPE}\nimage-endpoint: {PIPE}\n") or changed
    changed = remove_stray(machine) or changed
    if unit is None or unit.command != CONTAINERD_COMMAND:
        register_containerd(machine)
    if stray:
        set_environment(machine, variables)
    if machine.services.state("containerd") != "running":
        machine.services.start("containerd")
        changed = True
    wait_for_cri(machine)
    for name in ran:
        machine.services.start(name)
    changed = import_images(machine) or changed
    write(machine.c(IMAGES_FROM), payload(machine))
    return {"changed": changed}


def environment(machine: Machine) -> str:
    """The variables of containerd's service that winlab has set, as lines. Wine's containerd does not get them."""
    if not machine.c(ENVIRONMENT_MARK).is_file():
        return ""
    return (machine.world.registry.get(SERVICE_KEY, "Environment") or "").replace(LINES, "\n")


def set_environment(machine: Machine, variables: str) -> None:
    """Set these variables, or remove those that winlab has set."""
    registry, mark = machine.world.registry, machine.c(ENVIRONMENT_MARK)
    if variables:
        write(mark, "set by winlab")
        registry.add(SERVICE_KEY, "Environment", "REG_MULTI_SZ", variables.replace("\n", LINES))
    else:
        registry.delete(SERVICE_KEY, "Environment")
        mark.unlink()


def remove_stray(machine: Machine) -> bool:
    """Remove CNI configurations of the type "nat", which Windows' tools leave; returns whether there were any."""
    found = []
    for path in machine.c(NETWORKS).glob("*"):
        try:
            network = json.loads(path.read_text(encoding="utf-8"))
            kinds = [network.get("name"), network.get("type"), *(row.get("type") for row in network.get("plugins", []))]
        except (ValueError, AttributeError):
            machine.tell(f"winlab: {path.name} is no JSON, and stays")
            continue
        if "nat" in kinds:
            found.append(path)
    for path in found:
        path.unlink()
    return bool(found)


def register_containerd(machine: Machine) -> None:
    """``containerd.exe --register-service``; then the service is recorded as Wine's registry has it.

    :raises ScriptError: containerd.exe refuses, or makes a service that the script does not expect.
    """
    log = "C:\\" + CONTAINERD_LOG.replace("/", "\\")
    program = r"C:\Program Files\containerd\containerd.exe"
    code, text = wine.call([program, "--register-service", "--log-file", log])
    if code:
        raise ScriptError(f"containerd.exe --register-service ended with exit code {code}: {text.strip()[-400:]}")
    command = wine.query(r"HKLM\SYSTEM\CurrentControlSet\Services\containerd", "ImagePath")
    if command != CONTAINERD_COMMAND:
        raise ScriptError(f"containerd.exe made a service with the command '{command}'.")
    machine.services.record(Unit("containerd", command, recovery=RECOVERY))


def ctr(*words: str) -> tuple[int, str]:
    """Call ctr.exe: its exit code and what it printed."""
    return wine.call([r"C:\Program Files\containerd\ctr.exe", *words])


def wait_for_cri(machine: Machine) -> None:
    """Wait until containerd answers. Under Wine the first client of a new pipe may be cut off.

    :raises ScriptError: it does not answer.
    """
    end = time.monotonic() + CRI_LIMIT
    while True:
        code, text = ctr("version")
        if not code:
            return
        if time.monotonic() > end:
            state = machine.services.state("containerd")
            raise ScriptError(f"containerd does not answer (service: {state}): {text.strip()[-400:]}")
        machine.tell("winlab: containerd does not answer yet")
        time.sleep(1)


def archive_images(path: Path) -> list[str]:
    """The names of the images in an OCI archive."""
    with tarfile.open(path) as archive:
        try:
            index = archive.extractfile("index.json")
        except KeyError:
            return []
        rows = json.load(index)["manifests"] if index else []
    names = [row.get("annotations", {}).get("io.containerd.image.name") for row in rows]
    return [str(name) for name in names if name]


def import_images(machine: Machine) -> bool:
    """Import the CD's images into containerd's store, without unpacking them, which needs Windows. Returns whether
    there were new ones.

    :raises ScriptError: ctr.exe fails.
    """
    files = sorted((machine.cd / "images").glob("*.tar"))
    if not files:
        return False
    code, text = ctr("-n", "k8s.io", "images", "ls", "-q")
    have = set(text.split()) if not code else set()
    changed = False
    for path in files:
        names = archive_images(path)
        if names and set(names) <= have:
            continue
        machine.tell(f"winlab: importing {path.name}")
        source = f"{machine.letter}:\\images\\{path.name}"
        words = ["images", "import", "--local", "--no-unpack", "--label", "io.cri-containerd.pinned=pinned", source]
        code, text = ctr("-n", "k8s.io", *words)
        if code:
            raise ScriptError(f"ctr.exe images import ended with exit code {code}: {text.strip()[-400:]}")
        changed = True
    return changed


def binaries(machine: Machine, given: Settings) -> dict[str, Any]:
    """binaries.ps1: copy Kubernetes' programs to C:\\k, the CNI plug-ins to C:\\opt\\cni\\bin."""
    del given
    need_containerd(machine)
    programs, plugins = listed(machine, "programs"), listed(machine, "cni")
    for name in ("kubeadm.exe", "kubelet.exe", "kube-proxy.exe"):
        if name not in programs:
            raise ScriptError(f"winlab's CD has no {name}.")
    for folder in (PROGRAMS, PLUGINS, *FOLDERS):
        machine.c(folder).mkdir(parents=True, exist_ok=True)
    home, target = machine.c(PROGRAMS), machine.c(PLUGINS)
    old = [name for name in KUBERNETES if name in programs and stale(home / name, programs[name])]
    touched = []
    for service in ("kube-proxy", "kubelet"):
        if {f"{service}.exe", "kube-log-runner.exe"} & set(old):
            touched.append(service)
    ran = stop_running(machine, touched)
    for name in old:
        machine.tell(f"winlab: copying {name}")
        install(machine.cd / "programs" / name, home / name, programs[name])
    older = [name for name, value in plugins.items() if stale(target / name, value)]
    for name in older:
        install(machine.cd / "cni" / name, target / name, plugins[name])
    for name in ran:
        machine.services.start(name)
    write(machine.c(INSTALLED_FROM), payload(machine))
    return {"changed": bool(old or older)}


def confirm_command(machine: Machine, command: str) -> None:
    """Refuse a service's command that names programs which are not there; make the folder of its log."""
    programs = re.findall(r'[A-Za-z]:[\\/][^\s"]*?\.exe', command)
    if not programs:
        raise ScriptError(f"settings.command names no program: '{command}'.")
    for program in programs:
        path = machine.world.drives.real(program)
        if path is None or not path.is_file():
            raise ScriptError(f"'{program}' is missing: binaries.ps1 comes first.")
    for log in re.findall(r'--log-file=([^\s"]+)', command):
        path = machine.world.drives.real(log)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)


def kubelet(machine: Machine, given: Settings) -> dict[str, Any]:
    """kubelet.ps1: the service, not started before the node has joined."""
    need_containerd(machine)
    for name in ("kubelet.exe", "kubeadm.exe"):
        if not machine.c(f"{PROGRAMS}/{name}").is_file():
            raise ScriptError(f"C:\\k\\{name} is missing: binaries.ps1 comes first.")
    command = str(given.get("command", ""))
    confirm_command(machine, command)
    unit = Unit("kubelet", command, ("containerd",), RECOVERY, needs=NEEDS["kubelet"])
    changed = machine.services.units().get("kubelet") != unit
    if changed:
        machine.services.create(unit)
    if joined(machine):
        if changed:
            stop_running(machine, ["kubelet"])
        if machine.services.state("kubelet") != "running":
            machine.services.start("kubelet")
            changed = True
    return {"changed": changed}


def probe(machine: Machine, given: Settings) -> dict[str, Any]:
    """probe.ps1: what the other scripts stand on."""
    return {
        "text": str(given.get("text", "")),
        "sha256": hashlib.sha256(str(given.get("block", "")).encode()).hexdigest(),
        "elevated": True,
        "language": "FullLanguage",
        "version": f"5.1.{machine.world.windows.build}",
        "clock": round(machine.world.clock() * 1000),
    }


PLAYERS: dict[str, Player] = {
    "probe.ps1": probe,
    "status.ps1": status,
    "features.ps1": features,
    "containerd.ps1": containerd,
    "binaries.ps1": binaries,
    "kubelet.ps1": kubelet,
}
