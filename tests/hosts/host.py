"""One host of a test: its power, its cables, and commands that run in it."""

from __future__ import annotations

import subprocess  # noqa: TID251 - starts the host's namespaces, and commands in them
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hosts.lan import MANAGEMENT, NETWORKS, TUNNELS, Space, Switch

INIT = Path(__file__).with_name("init.sh")
WINLAB = ("/opt/winlab/bin/python", "-m", "winlab")
LIMIT = 1200  # seconds for a boot or a command: only a hang exceeds it
FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BRIDGE = "br-phy"  # an OVS bridge with the tunnels' card: Geneve on the userspace datapath needs its address there


class Host:
    """A host, off at first. Its disk survives that it is off."""

    def __init__(self, name: str, number: int, base: Path, binds: list[str], switch: Switch) -> None:
        self.name = name
        self.address = f"{NETWORKS[MANAGEMENT]}.{number}"
        self.tunnel_address = f"{NETWORKS[TUNNELS]}.{number}"
        self._switch = switch
        self._words = [str(INIT), str(base), name, str(number), *binds]
        self._log = base / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.pid = 0  # of its first process; 0: it is off
        self.spaces: list[Space] = []  # the namespaces of the processes of all its boots

    def on(self) -> None:
        """Power on, and wait until it has booted: sshd runs, and nothing of winlab's."""
        spaces = ("--mount", "--uts", "--pid", "--ipc", "--net", "--fork", "--kill-child")
        with self._log.open("ab") as log:
            null = subprocess.DEVNULL
            # the host goes if the tests are killed
            words = ["setpriv", "--pdeathsig", "KILL", "unshare", *spaces, *self._words]
            self._process = subprocess.Popen(words, stdin=null, stdout=log, stderr=log)
        self.pid = self._wait(self._child)
        self.spaces.append(Space(Path(f"/proc/{self.pid}/ns/pid")))
        self._switch.plug(self.name, self.pid)
        self._wait(lambda: Path(f"/proc/{self.pid}/root/run/booted").exists())

    def off(self) -> None:
        """Cut the power. The cables go first, or its processes would still take leave of their peers."""
        self._switch.unplug(self.name)
        if self._process is not None:
            self._process.kill()  # --kill-child: the first process goes with it, and all others with that
            self._process.wait()
            while Path(f"/proc/{self.pid}").exists():
                time.sleep(0.02)
        self._process, self.pid = None, 0

    def cut(self, card: str) -> None:
        """Cut the cable of a network card."""
        self._switch.cut(self.name, card)

    def join(self, card: str) -> None:
        """Repair the cable of a network card."""
        self._switch.join(self.name, card)

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Neither ssh nor OVN's databases reach it for the length of a with-block."""
        self.cut(MANAGEMENT)
        try:
            yield
        finally:
            self.join(MANAGEMENT)

    @contextmanager
    def stuck(self) -> Iterator[None]:
        """Its libvirt takes connections and does not answer for the length of a with-block."""
        self.run("pkill", "-STOP", "-x", "libvirtd")
        try:
            yield
        finally:
            self.run("pkill", "-CONT", "-x", "libvirtd")

    def words(self, *words: str, user: str = "root") -> list[str]:
        """A command that runs the words in this host, as a login of *user* does."""
        home = "/root" if user == "root" else f"/home/{user}"
        enter = ["nsenter", "-t", str(self.pid), "-m", "-u", "-i", "-n", "-p", "-r", f"--wd=/proc/{self.pid}/root"]
        become = [] if user == "root" else ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        variables = [f"HOME={home}", f"USER={user}", f"PATH={FOLDERS}", "LANG=C.UTF-8", "TERM=dumb"]
        return [*enter, "--", "env", "-i", *variables, "WINLAB_SUPPORT_SECONDS=0", *become, *words]

    def run(
        self, *words: str, user: str = "root", check: bool = True, timeout: float = LIMIT, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in this host; the assertion shows what it printed, if it fails."""
        done = subprocess.run(
            self.words(*words, user=user), input=stdin, capture_output=True, text=True, timeout=timeout, check=False
        )
        shown = f"{self.name}: {words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert not check or done.returncode == 0, shown
        return done

    def winlab(self, *words: str, user: str = "root", check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run winlab in this host, through sudo if *user* is not root."""
        return self.run(*([] if user == "root" else ["sudo"]), *WINLAB, *words, user=user, check=check)

    def add_tunnel_bridge(self) -> None:
        """What an administrator does once on the userspace datapath; the address comes by itself (init.sh)."""
        add = ("--may-exist", "add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev")
        self.run("ovs-vsctl", *add, "--", "--may-exist", "add-port", BRIDGE, TUNNELS)
        self._wait(lambda: self.tunnel_address in self.run("ip", "address", "show", "dev", BRIDGE).stdout)

    def chassis(self) -> str:
        """Its name in OVN, once it is set up."""
        words = ("ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids:system-id")
        return self.run(*words).stdout.strip().strip('"')

    def processes(self) -> list[str]:
        """The names of its processes."""
        return self.run("ps", "-e", "-o", "comm=").stdout.split()

    def _child(self) -> int:
        """Its first process."""
        assert self._process is not None
        pid = self._process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().strip() or 0)

    def _wait(self, look: Callable[[], int]) -> int:
        """Wait for something other than zero; the assertion shows what the first process printed."""
        end = time.monotonic() + LIMIT
        while not (found := look()):
            alive = self._process is not None and self._process.poll() is None
            if not alive or time.monotonic() > end:
                pytest.fail(f"{self.name} did not boot: {self._log.read_text()}")
            time.sleep(0.02)
        return found
