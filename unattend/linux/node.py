"""What winlab does inside a Linux node, as root: ``python3 node.py VERB``, with settings as JSON on the standard input.

winlab copies this file into the guest by ssh. Only Python's standard library (3.10 and newer). The last line of the
standard output is the result, one line of JSON; a failure is a message on the standard error and exit code 1.
docs/worker-scripts.md has the contract. Every verb looks at what is there and does only what is missing. Written for
emulated CPUs, too: few processes are started, and no file is read twice to learn its digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import socket
import subprocess  # noqa: TID251 - this file runs in guests, where there is no winlab
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

Settings = dict[str, Any]
LABEL = b"WINLAB_K8S"
STORE_LABEL = b"WINLAB_STORE"
STORE = "var/lib/containerd"
STORE_ROW = "LABEL=WINLAB_STORE /var/lib/containerd ext4 defaults,nofail,x-systemd.before=containerd.service 0 2\n"
MODULES = ("overlay", "br_netfilter")
SYSCTLS = {
    "net.bridge.bridge-nf-call-iptables": "1",
    "net.bridge.bridge-nf-call-ip6tables": "1",
    "net.ipv4.ip_forward": "1",
}
# systemd-networkd would remove routes that CNI plug-ins and winlab made when it is restarted
NETWORKD = "[Network]\nManageForeignRoutes=no\nManageForeignRoutingPolicyRules=no\n"
ETCD_KEYS = "etc/kubernetes/pki/etcd"
ETCD_SECONDS = 120  # a member is taken out when a majority knows it
ROUTES_PROTOCOL = "171"  # by which winlab's routes are known; no routing daemon in rtnetlink.h has it
MASQUERADE_UNIT = """\
[Unit]
Description=winlab: pods talk to the outside under the node's address
After=network-pre.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=nft -f /var/lib/winlab/masquerade.nft

[Install]
WantedBy=multi-user.target
"""
ROUTES_UNIT = """\
[Unit]
Description=winlab: routes to other nodes' pods
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=ip -force -batch /var/lib/winlab/routes

[Install]
WantedBy=multi-user.target
"""
PROGRAMS, PLUGINS, NETWORKS = "usr/local/bin", "opt/cni/bin", "etc/cni/net.d"
KUBELET_CONF, CLIENT = "etc/kubernetes/kubelet.conf", "var/lib/kubelet/pki/kubelet-client-current.pem"
KUBEADM_LOG = "var/log/winlab/kubeadm.log"
SOCKET = "run/containerd/containerd.sock"
ORIGINAL = ".winlab-original"
SECRET = re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b|\b[0-9a-f]{64}\b")  # bootstrap tokens, certificate keys
PINNED = "io.cri-containerd.pinned=pinned"  # the kubelet's clean-up leaves such images alone


class NodeError(Exception):
    """A message for winlab's user."""


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    output: str


def run(command: list[str], text: str = "", heard: Callable[[str], None] | None = None) -> Ended:
    """Run a command with *text* as its input; what it says on both outputs, line by line to *heard*, too."""
    pipe = subprocess.PIPE
    merged = subprocess.STDOUT
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=merged, encoding="utf-8", errors="replace"
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(text)
            process.stdin.close()
        lines = []
        for line in process.stdout:
            lines.append(line)
            if heard is not None:
                heard(line.rstrip("\n"))
        return Ended(process.wait(), "".join(lines))


def say(text: str) -> None:
    """Tell winlab what is going on."""
    print(text, flush=True)


def digest_of(path: Path) -> str:
    """A file's SHA-256."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


class Node:
    """The node's file system below *root*, and how commands are run in it."""

    etcd = ("127.0.0.1", 2379)

    def __init__(self, root: Path = Path("/"), runner: Callable[..., Ended] = run) -> None:
        self.root = root
        self._runner = runner
        self.record = self.path("var/lib/winlab/files.json")
        self.known: dict[str, list[Any]] = {}
        with contextlib.suppress(OSError, ValueError):
            self.known = json.loads(self.record.read_text())

    def path(self, name: str) -> Path:
        """A path of the node."""
        return self.root / name.lstrip("/")

    def call(self, *command: str, text: str = "", fine: tuple[int, ...] = (0,)) -> str:
        """Run a command; what it printed.

        :raises NodeError: it failed.
        """
        ended = self._runner(list(command), text)
        if ended.code not in fine:
            told = "\n".join(ended.output.splitlines()[-8:])
            raise NodeError(f"'{' '.join(command[:3])}' ended with exit code {ended.code}: {told}")
        return ended.output

    def follow(self, command: list[str], heard: Callable[[str], None]) -> int:
        """Run a command and hear it line by line; its exit code."""
        return self._runner(command, "", heard).code

    # -- files

    def write(self, name: str, content: str, mode: int = 0o644) -> bool:
        """Write a file, whole or not at all; whether something changed."""
        path = self.path(name)
        with contextlib.suppress(OSError):
            if path.read_bytes() == content.encode() and path.stat().st_mode & 0o777 == mode:
                return False
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.winlab-new")
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content.encode())
        new.replace(path)
        return True

    def sha256(self, path: Path) -> str:
        """A file's digest, from the record if the file is still the one of then; empty if there is none."""
        try:
            stat = path.stat()
        except OSError:
            return ""
        row = self.known.get(str(path))
        if row is None or row[:2] != [stat.st_size, stat.st_mtime_ns]:
            row = self.known[str(path)] = [stat.st_size, stat.st_mtime_ns, digest_of(path)]
        return str(row[2])

    def install(self, source: Path, target: Path, sha256: str, crc32: int | None = None) -> None:
        """Copy a program, and see on the way that what is read is right.

        winlab checked the SHA-256 of what it put on the CD. Here *crc32* will do, by which a fault in between shows: an
        emulated CPU works out some 10 MB of SHA-256 a second, and a node has half a gigabyte to copy.

        :raises NodeError: it is not what it should be.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.with_name(f".{target.name}.winlab-new")
        digest, check = hashlib.sha256(), 0
        try:
            with source.open("rb") as old, new.open("wb") as file:
                while piece := old.read(1 << 20):
                    if crc32 is None:
                        digest.update(piece)
                    else:
                        check = zlib.crc32(piece, check)
                    file.write(piece)
        except FileNotFoundError:
            raise NodeError(f"'{source.name}' is missing on winlab's CD.") from None
        if digest.hexdigest() != sha256 if crc32 is None else check != crc32:
            new.unlink()
            raise NodeError(f"'{source.name}' on winlab's CD is not what payload.json says: its checksum differs.")
        new.chmod(0o755)
        new.replace(target)  # a program that runs keeps its old file
        stat = target.stat()
        self.known[str(target)] = [stat.st_size, stat.st_mtime_ns, sha256]

    def remember(self) -> None:
        """Keep the record, once what it is about is safe on the disk."""
        os.sync()
        self.write(str(self.record.relative_to(self.root)), json.dumps(self.known))

    def note(self, name: str, default: Any) -> Any:
        """What winlab noted in this node before."""
        try:
            return json.loads(self.path(f"var/lib/winlab/{name}.json").read_text())
        except (OSError, ValueError):
            return default

    def keep(self, name: str, value: Any) -> None:
        """Note something for a later run."""
        self.write(f"var/lib/winlab/{name}.json", json.dumps(value))

    # -- the CD

    @contextlib.contextmanager
    def payload(self, seconds: float = 40.0) -> Iterator[Path]:
        """The payload CD, mounted while it is used: a mounted CD can't be taken out of its drive.

        :raises NodeError: there is none, even after *seconds*.
        """
        place = self.path("run/winlab/payload")
        place.mkdir(parents=True, exist_ok=True)
        if f" {place} " in self.path("proc/self/mounts").read_text():
            self.call("umount", "-l", str(place))  # a run before was killed; what it started may still read there
        end = time.monotonic() + seconds
        while (device := self.drive()) is None:
            if time.monotonic() > end:
                raise NodeError("No drive has winlab's payload CD (label WINLAB_K8S).")
            time.sleep(1)
        self.call("mount", "-t", "iso9660", "-o", "ro,nosuid,nodev", str(device), str(place))
        try:
            yield place
        finally:
            self.call("umount", str(place), fine=(0, 32))  # 32: another run has done it

    def drive(self) -> Path | None:
        """The drive with the payload CD, by the label in its primary volume descriptor: udev may be late."""
        for block in sorted(self.path("sys/block").glob("sr*")):
            device = self.path("dev") / block.name
            with contextlib.suppress(OSError), device.open("rb", buffering=0) as disc:  # no disc: an OSError
                disc.seek(16 * 2048)
                sector = disc.read(2048)
                if sector[1:6] == b"CD001" and sector[40:72].rstrip(b" \0") == LABEL:
                    return device
        return None

    # -- what is there

    def service(self, *names: str) -> list[str]:
        """The states of services: running, stopped or absent."""
        folders = [self.path(f"{at}/systemd/system") for at in ("etc", "lib")]
        units = [any((folder / f"{name}.service").exists() for folder in folders) for name in names]
        answers = self.call("systemctl", "is-active", *names, fine=(0, 1, 2, 3, 4)).split()
        states = ["running" if answer in ("active", "reloading") else "stopped" for answer in answers]
        return [state if there else "absent" for state, there in zip(states, units, strict=True)]

    def joined(self) -> bool:
        """Whether the node is part of a cluster: kubeadm ended well, and the kubelet has its certificate."""
        there = self.path(KUBELET_CONF).exists() and self.path(CLIENT).exists()
        return there and not self.started()

    def started(self) -> bool:
        """Whether kubeadm began to make this a node and has not ended well."""
        return bool(self.note("kubeadm", {}).get("state") == "begun")

    def same_programs(self) -> bool:
        """Whether all that ``prepare`` brought last is there as it was."""
        wanted = self.note("prepared", {})
        return bool(wanted) and all(
            self.sha256(self.path(name)) == digest or self.path(name + ORIGINAL).exists()
            for name, digest in wanted.items()
        )


def status(node: Node, _settings: Settings) -> Settings:
    """What this node has so far. Changes nothing."""
    booted = re.search(r"^btime (\d+)$", node.path("proc/stat").read_text(), re.MULTILINE)
    programs = {path.name: node.sha256(path) for path in _programs(node) if not path.name.endswith(ORIGINAL)}
    containerd, kubelet = node.service("containerd", "kubelet")
    networks = node.path(NETWORKS)
    return {
        "boot_time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(booted[1]) if booted else 0)),
        "boot_id": node.path("proc/sys/kernel/random/boot_id").read_text().strip(),
        "programs": programs,
        "pushed": [path.name[: -len(ORIGINAL)] for path in _programs(node) if path.name.endswith(ORIGINAL)],
        "prepared": node.same_programs(),
        "containerd": {"service": containerd},
        "kubelet": {"service": kubelet},
        "joined": node.joined(),
        "started": node.started(),
        "cni": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in _files(networks)},
    }


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.is_file()) if folder.is_dir() else []


def _programs(node: Node) -> list[Path]:
    names = {Path(name).name for name in node.note("prepared", {}) if name.startswith(PROGRAMS)}
    folder = node.path(PROGRAMS)
    return [path for path in _files(folder) if path.name.removesuffix(ORIGINAL) in names]


def prepare(node: Node, settings: Settings) -> Settings:
    """Bring everything that a node has before kubeadm: kernel settings, programs, files, services, images."""
    files, services = settings["files"], settings["services"]
    for name in files:
        if not name.startswith("/") or ".." in Path(name).parts:
            raise NodeError(f"'{name}' is no absolute path.")
    with node.payload() as cd:
        listed = json.loads((cd / "payload.json").read_text())
        _check_units(node, files, listed["programs"])
        changed = _kernel(node)
        changed = _store(node) or changed
        touched = _copy(node, cd, listed)
        if touched:
            node.remember()  # now: what follows takes long, and may be interrupted
        for name, row in files.items():
            if node.write(name, row["content"], int(row["mode"], 8)):
                touched.append(name.lstrip("/"))
        _services(node, services, touched)
        imported = _import(node, cd, settings.get("images"))
    wanted = {f"{PROGRAMS}/{name}": row["sha256"] for name, row in listed["programs"].items()}
    wanted |= {f"{PLUGINS}/{name}": row["sha256"] for name, row in listed["cni"].items()}
    node.keep("prepared", wanted)
    if touched:
        node.remember()
    return {"changed": bool(changed or touched or imported)}


def _check_units(node: Node, files: dict[str, Settings], programs: dict[str, Settings]) -> None:
    """A unit that starts one of our programs must know where it is."""
    for name, row in files.items():
        for program in re.findall(r"^ExecStart=(/\S+)", row["content"], re.MULTILINE):
            path = Path(program)
            if path.name in programs and path.parent != Path("/", PROGRAMS) and not node.path(program).exists():
                raise NodeError(f"'{name}' starts '{program}', but winlab installs it as '/{PROGRAMS}/{path.name}'.")


def _kernel(node: Node) -> bool:
    changed = node.write("etc/modules-load.d/winlab.conf", "".join(f"{name}\n" for name in MODULES))
    missing = [name for name in MODULES if not node.path(f"sys/module/{name}").exists()]
    if missing:
        node.call("modprobe", "-a", *missing)
    lines = "".join(f"{key} = {value}\n" for key, value in SYSCTLS.items())
    changed = node.write("etc/sysctl.d/90-winlab.conf", lines) or changed
    for key, value in SYSCTLS.items():
        knob = node.path("proc/sys/" + key.replace(".", "/"))
        if knob.read_text().strip() != value:
            knob.write_text(value)
            changed = True
    changed = node.write("etc/systemd/networkd.conf.d/90-winlab.conf", NETWORKD) or changed
    return _no_swap(node) or bool(missing) or changed


def _store(node: Node) -> bool:
    """Mount the disk that has containerd's store with the images in it, where winlab gave the node one."""
    if not any(
        _ext4_label(node.path("dev") / block.name) == STORE_LABEL for block in node.path("sys/block").glob("sd*")
    ):
        return False
    place = node.path(STORE)
    if f" {place} " in node.path("proc/self/mounts").read_text():
        return False
    table = node.path("etc/fstab")
    old = table.read_text() if table.exists() else ""
    if STORE_ROW not in old:
        node.write("etc/fstab", f"{old.rstrip()}\n{STORE_ROW}".lstrip())
    place.mkdir(parents=True, exist_ok=True)
    say("mounting containerd's store")
    node.call("systemctl", "daemon-reload")
    node.call("mount", str(place))
    return True


def _ext4_label(device: Path) -> bytes:
    """The label of an ext4 file system, from its superblock (Linux, Documentation/filesystems/ext4); empty: none."""
    with contextlib.suppress(OSError), device.open("rb", buffering=0) as disk:
        disk.seek(1024)
        block = disk.read(1024)
        if block[56:58] == b"\x53\xef":
            return block[120:136].rstrip(b"\0")
    return b""


def _no_swap(node: Node) -> bool:
    """The kubelet refuses to start with swap on."""
    changed = False
    table = node.path("etc/fstab")
    if table.exists():
        old = table.read_text()
        new = re.sub(r"^(?=[^#\s]\S*\s+\S+\s+swap\s)", "# winlab: ", old, flags=re.MULTILINE)
        if new != old:
            changed = node.write("etc/fstab", new)
    if len(node.path("proc/swaps").read_text().splitlines()) > 1:
        node.call("swapoff", "-a")
        changed = True
    return changed


def _copy(node: Node, cd: Path, listed: dict[str, dict[str, Settings]]) -> list[str]:
    """The programs and plug-ins that were not yet there as they are on the CD."""
    touched = []
    for part, source, folder in (("programs", "programs", PROGRAMS), ("cni", "cni", PLUGINS)):
        for name, row in listed[part].items():
            target = node.path(f"{folder}/{name}")
            if target.with_name(name + ORIGINAL).exists():  # what was pushed stays
                continue
            if node.sha256(target) != row["sha256"]:
                say(f"copying {name}")
                node.install(cd / source / name, target, row["sha256"], row.get("crc32"))
                touched.append(f"{folder}/{name}")
    return touched


def _services(node: Node, services: list[str], touched: list[str]) -> None:
    """Enable services and start them, those whose files changed anew. The kubelet has nothing to do before the join."""
    if any(name.startswith("etc/systemd/") for name in touched):
        node.call("systemctl", "daemon-reload")
    node.call("systemctl", "enable", *services)
    for name, state in zip(services, node.service(*services), strict=True):
        concerned = any(f"/{name}" in path for path in touched)
        if name == "kubelet" and not node.joined():
            continue
        if state != "running" or concerned:
            say(f"starting {name}")
            node.call("systemctl", "restart", name)
    if "containerd" in services:
        _await_socket(node)


def _await_socket(node: Node, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
            client.connect(str(node.path(SOCKET)))
            return
        if time.monotonic() > end:
            raise NodeError(f"containerd does not answer on '/{SOCKET}': see 'journalctl -u containerd'.")
        time.sleep(0.5)


def _import(node: Node, cd: Path, wanted: list[str] | None) -> bool:
    """Import the CD's images that containerd has not (of *wanted*, if given); it checks every blob's digest."""
    archives = sorted((cd / "images").glob("*.tar"))
    if not archives:
        return False
    ctr = [str(node.path(f"{PROGRAMS}/ctr")), "-n", "k8s.io", "images"]
    rows = [line.split() for line in node.call(*ctr, "ls").splitlines()]
    have = {row[0]: row[2] for row in rows if len(row) > 2 and row[2].startswith("sha256:")}
    changed = False
    for archive in archives:
        inside = archive_images(archive)
        if wanted is not None and not inside.keys() & set(wanted):
            continue
        if not inside or any(have.get(name) != digest for name, digest in inside.items()):
            say(f"importing {archive.name}")
            try:
                node.call(*ctr, "import", "--local", "--label", PINNED, str(archive))
            except NodeError as error:
                raise NodeError(f"containerd does not take '{archive.name}' from winlab's CD: {error}") from None
            changed = True
    return changed


def archive_images(path: Path) -> dict[str, str]:
    """The images of an OCI archive: digests by names. Docker's older archives have no index: nothing is known."""
    import tarfile

    try:
        with tarfile.open(path) as archive:
            found = archive.extractfile("index.json")
            rows = json.load(found)["manifests"] if found is not None else []
    except KeyError:
        return {}
    except (tarfile.TarError, ValueError) as error:
        raise NodeError(f"'{path.name}' is no archive of images: {error}") from None
    names = [(row.get("annotations", {}).get("io.containerd.image.name"), row["digest"]) for row in rows]
    return {name: digest for name, digest in names if name}


def run_kubeadm(node: Node, settings: Settings) -> Settings:
    """Run kubeadm and pass on what it says; the configuration is on the disk only meanwhile, for root alone."""
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
    open_talk = arguments[0] in ("token", "certs")  # whoever asks for a token is to see it; no log is
    log = node.path(KUBEADM_LOG)
    log.parent.mkdir(parents=True, exist_ok=True)
    last: list[str] = []
    try:
        with os.fdopen(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a") as file:

            def heard(line: str) -> None:
                hidden = SECRET.sub("<secret>", line)
                print(line if open_talk else hidden, flush=True)
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
        node.path("var/lib/winlab/kubeadm.json").unlink(missing_ok=True)
    return {"changed": True}


def _is_done(node: Node, about: dict[str, str]) -> bool:
    """Whether this init or join was done before.

    :raises NodeError: kubeadm would meet something else than a clean node.
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


def forget_member(node: Node, settings: Settings) -> Settings:
    """Take a controller, by its address, out of etcd's members; asked of another one, where etcd runs.

    A member that is gone counts for etcd's majority until then. By etcd's own HTTP interface (etcd.io, "gRPC gateway"):
    its command-line program is not on every node.
    """
    peer = f"https://{settings['address']}:2380"
    found = [row for row in _etcd(node, "list", {}).get("members", []) if peer in row.get("peerURLs", [])]
    for row in found:
        say(f"etcd forgets the member {row.get('name') or peer}")
        end = time.monotonic() + ETCD_SECONDS
        while True:
            try:
                _etcd(node, "remove", {"ID": row["ID"]})
                break
            except NodeError as error:  # it refuses for 5 s after it has met a member
                if "unhealthy cluster" not in str(error) or time.monotonic() > end:
                    raise
                time.sleep(1)
    return {"changed": bool(found)}


def _etcd(node: Node, verb: str, question: Settings) -> Settings:
    # here, since an emulated CPU takes seconds to load them
    import http.client
    import ssl

    keys = node.path(ETCD_KEYS)
    context = ssl.create_default_context(cafile=str(keys / "ca.crt"))
    context.load_cert_chain(str(keys / "healthcheck-client.crt"), str(keys / "healthcheck-client.key"))
    connection = http.client.HTTPSConnection(*node.etcd, timeout=ETCD_SECONDS, context=context)
    try:
        connection.request("POST", f"/v3/cluster/member/{verb}", json.dumps(question))
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
        if answer.status != http.client.OK:
            raise NodeError(f"etcd member {verb}: {text}")
        told: Settings = json.loads(text)
        return told
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NodeError(f"etcd member {verb}: {error}; has etcd lost its majority?") from error
    finally:
        connection.close()


def cni(node: Node, settings: Settings) -> Settings:
    """Write CNI configurations; those that winlab wrote before and that are not named any more go."""
    files, before = settings["files"], node.note("cni", [])
    for name, content in files.items():
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*\.(conf|conflist|json)", name):
            raise NodeError(f"'{name}' is no name of a CNI configuration.")
        try:
            json.loads(content)
        except ValueError:
            raise NodeError(f"'{name}' is no JSON.") from None
    node.keep("cni", sorted({*before, *files}))  # before anything is written, so that nothing is forgotten
    changed = False
    for name, content in files.items():
        changed = node.write(f"{NETWORKS}/{name}", content) or changed
    for name in set(before) - set(files):
        path = node.path(f"{NETWORKS}/{name}")
        changed = path.exists() or changed
        path.unlink(missing_ok=True)
    node.keep("cni", sorted(files))
    return {"changed": changed}


def masquerade(source: str, exceptions: list[str]) -> str:
    """A ruleset for nft(8): what *source* sends to others than *exceptions* leaves under the node's address.

    Made, emptied and filled in one go, so that loading it again changes nothing.
    """
    return (
        "table ip winlab\n"
        "delete table ip winlab\n"
        "table ip winlab {\n"
        "  chain postrouting {\n"
        "    type nat hook postrouting priority srcnat; policy accept;\n"
        f"    ip saddr {source} ip daddr != {{ {', '.join(sorted(exceptions))} }} masquerade\n"
        "  }\n"
        "}\n"
    )


def _masquerade(node: Node, wanted: Settings | None) -> bool:
    """Have this translation, or none of winlab's, now and after a restart."""
    import ipaddress

    unit, file = "winlab-masquerade.service", "var/lib/winlab/masquerade.nft"
    if wanted is None:
        if not node.path(file).exists():
            return False
        node.call("systemctl", "disable", unit)
        node.path(f"etc/systemd/system/{unit}").unlink(missing_ok=True)
        node.call("nft", "-f", "-", text="table ip winlab\ndelete table ip winlab\n")
        node.path(file).unlink()
        return True
    try:
        source = str(ipaddress.IPv4Network(wanted["source"]))
        exceptions = [str(ipaddress.IPv4Network(one)) for one in wanted["exceptions"]]
    except ValueError as error:
        raise NodeError(f"settings.masquerade: {error}") from None
    changed = node.write(file, masquerade(source, exceptions))
    if node.write(f"etc/systemd/system/{unit}", MASQUERADE_UNIT):
        node.call("systemctl", "daemon-reload")
        node.call("systemctl", "enable", unit)
        changed = True
    node.call("nft", "-f", str(node.path(file)))
    return changed


def routes(node: Node, settings: Settings) -> Settings:
    """Have these routes and this translation of sources, and no others of winlab's, now and after a restart."""
    import ipaddress

    translated = _masquerade(node, settings.get("masquerade"))

    try:
        wanted = {str(ipaddress.IPv4Network(r["to"])): str(ipaddress.IPv4Address(r["via"])) for r in settings["routes"]}
    except ValueError as error:
        raise NodeError(f"settings.routes: {error}") from None
    lines = [f"route replace {to} via {via} proto {ROUTES_PROTOCOL}\n" for to, via in sorted(wanted.items())]
    changed = node.write("var/lib/winlab/routes", "".join(lines)) or translated
    unit = "winlab-routes.service"
    if node.write(f"etc/systemd/system/{unit}", ROUTES_UNIT):
        node.call("systemctl", "daemon-reload")
        node.call("systemctl", "enable", unit)
        changed = True
    shown = node.call("ip", "-4", "-json", "route", "show", "proto", ROUTES_PROTOCOL).strip()
    # a single address is shown without its prefix
    have = {str(ipaddress.IPv4Network(row["dst"])): row.get("gateway") for row in json.loads(shown or "[]")}
    if have == wanted:
        return {"changed": changed}
    gone = [f"route del {to} proto {ROUTES_PROTOCOL}\n" for to in sorted(have.keys() - wanted.keys())]
    node.call("ip", "-batch", "-", text="".join(gone + lines))
    return {"changed": True}


def push(node: Node, settings: Settings) -> Settings:
    """Swap a program with the one on the CD under push/, or bring the original back."""
    name = settings["program"]
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*", name):
        raise NodeError(f"'{name}' is no name of a program.")
    target = next((path for at in (PROGRAMS, PLUGINS) if (path := node.path(f"{at}/{name}")).exists()), None)
    if target is None:
        raise NodeError(f"'{name}' is not installed here: there is nothing to swap.")
    original = target.with_name(name + ORIGINAL)
    if settings.get("restore"):
        if not original.exists():
            return {"changed": False, "sha256": node.sha256(target)}
        original.replace(target)
    else:
        with node.payload() as cd:
            source = cd / "push" / name
            if not source.exists():
                raise NodeError(f"winlab's CD has no push/{name}.")
            digest = digest_of(source)
            if digest == node.sha256(target):
                return {"changed": False, "sha256": digest}
            if not original.exists():
                os.link(target, original)  # the new one takes the name, not the file
            node.install(source, target, digest)
    if name in ("kubelet", "containerd"):
        node.call("systemctl", "restart", name)
    digest = node.sha256(target)
    node.remember()
    return {"changed": True, "sha256": digest}


def load(node: Node, settings: Settings) -> Settings:
    """Import the CD's images into containerd: those of ``images`` (references), or all."""
    with node.payload() as cd:
        return {"changed": _import(node, cd, settings.get("images"))}


def logs(node: Node, settings: Settings) -> Settings:
    """The last lines of what matters when a node does not become Ready. Changes nothing."""
    count = int(settings.get("lines", 60))
    if not 1 <= count <= 10000:
        raise NodeError(f"settings.lines is {count}, not between 1 and 10000.")
    found = {
        unit: node.call("journalctl", "--no-pager", "-o", "cat", "-n", str(count), "-u", unit, fine=(0, 1))
        for unit in ("kubelet", "containerd")
    }
    log = node.path(KUBEADM_LOG)
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    states = zip(("containerd", "kubelet"), node.service("containerd", "kubelet"), strict=True)
    services = "\n".join(f"{name}: {state}" for name, state in states)
    return {"logs": {**found, "kubeadm": "\n".join(lines[-count:]), "services": services}}


VERBS: dict[str, Callable[[Node, Settings], Settings]] = {
    "status": status,
    "prepare": prepare,
    "run-kubeadm": run_kubeadm,
    "forget-member": forget_member,
    "cni": cni,
    "routes": routes,
    "push": push,
    "load": load,
    "logs": logs,
}


def main(arguments: list[str], text: str, node: Node) -> int:
    """Run a verb; its exit code."""
    try:
        if len(arguments) != 1 or arguments[0] not in VERBS:
            raise NodeError(f"usage: node.py {' | '.join(VERBS)}")
        try:
            settings = json.loads(text or "{}")
        except ValueError as error:
            raise NodeError(f"the settings are no JSON: {error}") from None
        if not isinstance(settings, dict):
            raise NodeError("the settings are no JSON object.")
        try:
            result = VERBS[arguments[0]](node, settings)
        except KeyError as error:
            raise NodeError(f"{arguments[0]}: {error} is missing in the settings or on the CD.") from None
    except (NodeError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], "" if sys.stdin.isatty() else sys.stdin.read(), Node()))
