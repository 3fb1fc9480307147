"""Fresh root file systems of distributions, and commands in them: what a container would be, without its engine.

A root is made by mmdebstrap and entered by chroot, in namespaces that end with the command: no mount or process is
left. Commands use the network of this host.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess  # noqa: TID251 - runs what users type
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from winlab.supply.images.apt import debian_mirror

TOP = Path(__file__).resolve().parents[2]
SUITES = {"debian:12": "bookworm", "debian:13": "trixie", "ubuntu:24.04": "noble"}
UBUNTU = "WINLAB_TEST_UBUNTU"  # the variable that names a mirror of Ubuntu's archive
LIMIT = 3600  # seconds for one command: a bound for a hang
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
HOST_CERTIFICATES = "/etc/host-certificates.crt"  # this host may reach registries through a proxy of its own
ENTER = 'mount -t proc proc "$0/proc"; mount --rbind /dev "$0/dev"; exec chroot "$0" /bin/sh -ec "$1"'


def bases() -> list[str]:
    """The images of :data:`SUITES` that can be made here: Ubuntu's only with a mirror that the user names."""
    return [base for base in SUITES if not base.startswith("ubuntu") or os.environ.get(UBUNTU)]


@dataclass
class Root:
    """A root file system: commands run in it as root, with the variables of *env*."""

    path: Path
    env: dict[str, str] = field(default_factory=dict)

    def run(self, script: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a script of the shell; AssertionError with its output if it fails and *check* is set."""
        env = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
            "PIP_CERT": HOST_CERTIFICATES,
            "SSL_CERT_FILE": HOST_CERTIFICATES,
            **self.env,
        }
        words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", ENTER, str(self.path), script]
        done = subprocess.run(
            words, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, check=False
        )
        if check:
            assert done.returncode == 0, f"{script}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done

    def host_path(self, path: str) -> Path:
        """Where a path of the root is on this host."""
        return self.path / path.lstrip("/")

    def add(self, source: Path, path: str) -> None:
        """Copy a file, or the contents of a folder, to *path*."""
        subprocess.run(
            ["cp", "-a", "--", f"{source}/." if source.is_dir() else source, self.host_path(path)], check=True
        )


class Roots:
    """Makes fresh roots: one archive a base, unpacked as often as needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0

    def fresh(self, base: str) -> Root:
        """A new root of a base, such as ``debian:13``, as small as a container image."""
        archive = self._folder / f"{SUITES[base]}.tar"
        if not archive.exists():
            self._bootstrap(base, archive)
        self._made += 1
        path = self._folder / f"root-{self._made}"
        path.mkdir()
        subprocess.run(["tar", "-xf", archive, "-C", path], check=True)
        shutil.copy("/etc/resolv.conf", path / "etc/resolv.conf")
        shutil.copy(CERTIFICATES, path / HOST_CERTIFICATES.lstrip("/"))
        no_services = path / "usr/sbin/policy-rc.d"  # as in container images: installing starts nothing
        no_services.write_text("#!/bin/sh\nexit 101\n")
        no_services.chmod(0o755)
        return Root(path)

    def _bootstrap(self, base: str, archive: Path) -> None:
        ubuntu = base.startswith("ubuntu")
        mirror = os.environ[UBUNTU] if ubuntu else debian_mirror()
        components = "main universe" if ubuntu else "main"
        words = ["mmdebstrap", "--quiet", "--variant=minbase", SUITES[base], str(archive)]
        subprocess.run([*words, f"deb {mirror} {SUITES[base]} {components}"], check=True)


def checkout(folder: Path) -> Path:
    """A copy of this checkout in *folder*, as a clone would be, with what is not committed yet."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=TOP, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (TOP / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(TOP / name, folder / name)
    return folder


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """The instructions of a Containerfile with their arguments; a line that ends with a backslash continues."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in lines.replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name.upper(), rest.strip()


def build(text: str, base: str, roots: Roots, context: Path) -> dict[str, Root]:
    """Run a Containerfile: the roots of its stages by their names; the last one is called ``""``.

    It knows the instructions of winlab's own file. ValueError: another instruction.
    """
    stages: dict[str, Root] = {}
    at = ""
    for name, rest in instructions(text):
        words = shlex.split(rest) if name != "RUN" else []
        if name == "FROM":
            assert words[0] == "${BASE}"
            at = words[2] if words[1:] else ""
            stages[at] = roots.fresh(base)
        elif name == "COPY" and (source := re.fullmatch(r"--from=(\w+)", words[0])):
            stages[at].add(stages[source[1]].host_path(words[1]), _made(stages[at], words[2]))
        elif name == "COPY":
            stages[at].add(context / words[0], _made(stages[at], words[1]))
        elif name == "RUN":
            stages[at].run(rest)
        elif name == "ENV":
            stages[at].env.update(word.split("=", 1) for word in words)
        elif name not in ("ARG", "VOLUME", "CMD"):
            raise ValueError(f"{name} is not known here")
    return stages


def _made(root: Root, path: str) -> str:
    root.host_path(path).mkdir(parents=True, exist_ok=True)
    return path
