"""The services of the installed system: WinRM, OpenSSH, the guest agent."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from winlab_standin.guest import accounts, firewall, winrmd
from winlab_standin.guest.base import StandinError, start
from winlab_standin.guest.place import REGISTRY, STATE, C
from winlab_standin.guest.registry import DELAYED, WINRM, Registry
from winlab_standin.guest.releases import LOCKOUT, STOPPED_WINRM, Windows
from winlab_standin.guest.report import write_port
from winlab_standin.guest.shell import Shell
from winlab_standin.guest.winrm import Service

PID = Path("/run/sshd.pid")
SSHD_LOG = STATE / "sshd.log"
# Seconds after the start of Windows until services with a delayed start begin (Microsoft, Win32:
# SERVICE_DELAYED_AUTO_START_INFO)
LATE = 120.0
SSHD_CONFIG_FILE = Path("/etc/ssh/sshd_config")
SSHD_CONFIG = """\
HostKey /run/standin/ssh_host_ed25519_key
AuthorizedKeysFile {keys}
PidFile /run/sshd.pid
StrictModes no
PermitRootLogin yes
PasswordAuthentication yes
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
PrintLastLog no
PerSourcePenalties no
AllowUsers Administrator administrator
Subsystem sftp internal-sftp -d /
"""
# The account has the number 0, so sshd calls it root, and "PermitRootLogin" applies to it
KEYS, OWN_KEYS = "/c/ProgramData/ssh/administrators_authorized_keys", "/c/Users/Administrator/.ssh/authorized_keys"


def gone(number: int) -> bool:
    """Whether a process that this one started has ended."""
    try:
        return os.waitpid(number, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def _until(true: Callable[[], bool], limit: float) -> bool:
    """Wait until something is true, *limit* seconds at most; returns whether it is."""
    end = time.monotonic() + limit
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _line(text: object) -> str:
    return " ".join(str(text).split())


class Services:
    """Starts the services; *make* gives a new cmd.exe, *config* is System32\\config."""

    def __init__(self, make: Callable[[], Shell], config: Path, windows: Windows | None = None) -> None:
        self.windows = windows or Windows()
        self.lockout = accounts.Lockout() if LOCKOUT in self.windows.traps else None
        self.service = Service(make, windows)
        self.config = config
        self.registry = Registry(config / REGISTRY, windows)
        self.listener: winrmd.Server | None = None
        self.back = 0.0  # when WinRM, which was cut off or starts late, starts (time.monotonic)
        self.sshd = 0

    def start_configured(self) -> None:
        """Start what has been set up. A service that does not start is reported on the serial port; others continue.

        WinRM starts minutes late, unless someone has changed how it starts.
        """
        late = int(self.registry.get(WINRM, DELAYED) or "0", 0) != 0
        for name, kept, act in (
            ("winrm", self.config / "standin-winrm.crt", self.start_winrm_late if late else self.start_winrm),
            ("sshd", C / "ProgramData/ssh/ssh_host_ed25519_key", self.start_sshd),
        ):
            is_trap = name == "winrm" and STOPPED_WINRM in self.windows.traps
            if kept.is_file() and not is_trap:
                try:
                    act()
                except (StandinError, OSError, ValueError) as error:
                    write_port(f"setup: service {name} did not start: {_line(error)}\r\n")

    def serve_requests(self) -> None:
        """Restart what other processes have requested. A service that does not start leaves the reason in failed.NAME,
        which the other process reads when its request is gone."""
        for name, act in (("winrm", self.start_winrm), ("sshd", self.start_sshd)):
            request = STATE / f"reload.{name}"
            if request.exists():
                try:
                    act()
                except (StandinError, OSError, ValueError) as error:
                    (STATE / f"failed.{name}").write_text(_line(error))
                request.unlink()

    def drop_if_asked(self) -> None:
        """Cut WinRM off for some seconds when a network is made (clusterplayers.py); what runs in it continues."""
        wish = STATE / "drop"
        if self.back and time.monotonic() > self.back:
            self.back = 0.0
            self.start_winrm()
        if wish.is_file() and (text := wish.read_text().strip()):
            wish.unlink()
            if self.listener is not None:
                self.back = time.monotonic() + float(text)
                self.listener.cut()
                self.listener = None

    def start_winrm_late(self) -> None:
        """Have WinRM start with the services that have a delayed start."""
        self.back = time.monotonic() + LATE

    def start_winrm(self) -> None:
        """Open the HTTPS listener with the certificate in *config*."""
        os.environ["NTLM_USER_FILE"] = str(accounts.NTLM)
        (STATE / "winrm").unlink(missing_ok=True)
        if self.listener is not None:
            self.listener.shutdown()
            self.listener.server_close()
            self.listener = None
        self.listener = winrmd.listen(
            self.service,
            self.config / "standin-winrm.crt",
            self.config / "standin-winrm.key",
            allowed=lambda: firewall.allows(self.registry, winrmd.PORT),
            lockout=self.lockout,
        )
        threading.Thread(target=self.listener.serve_forever, daemon=True).start()
        # The first request should not wait for these
        threading.Thread(target=__import__, args=("spnego",), daemon=True).start()
        (STATE / "winrm").write_text("running\n")

    def start_sshd(self) -> None:
        """Start OpenSSH's server with the host key on C:, and wait until it listens.

        :raises OSError: it does not; the text has the end of its log.
        """
        if self.sshd and not gone(self.sshd):
            os.kill(self.sshd, signal.SIGTERM)
            if not _until(lambda: gone(self.sshd), 10):
                raise OSError("sshd does not end")
        self.sshd = 0
        PID.unlink(missing_ok=True)
        SSHD_LOG.unlink(missing_ok=True)
        key = STATE / "ssh_host_ed25519_key"
        # The private key must end with a newline and be readable by no one else: a file on C: can have neither
        shutil.copyfile(C / "ProgramData/ssh/ssh_host_ed25519_key", key)
        key.chmod(0o600)
        SSHD_CONFIG_FILE.write_text(SSHD_CONFIG.format(keys=OWN_KEYS if self.windows.own_keys else KEYS))
        # sshd knows no firewall: if Windows' lets no one in, sshd listens to this machine only
        words = [] if firewall.allows(self.registry, 22) else ["-o", "ListenAddress=127.0.0.1"]
        self.sshd = start(["/usr/sbin/sshd", "-D", "-e", *words], log=SSHD_LOG)
        # sshd writes its process id when it listens, not before
        ended = _until(lambda: PID.is_file() or gone(self.sshd), 60)
        if not PID.is_file():
            tail = SSHD_LOG.read_text(errors="replace")[-400:] if SSHD_LOG.is_file() else ""
            raise OSError(f"sshd {'has ended' if ended else 'does not listen'}: {_line(tail) or 'it said nothing'}")

    def guest_agent(self) -> None:
        """Start QEMU's guest agent if its channel is there."""
        for path in Path("/sys/class/virtio-ports").glob("*/name"):
            if path.read_text().strip() == "org.qemu.guest_agent.0":
                start(
                    ["qemu-ga", "-m", "virtio-serial", "-p", f"/dev/{path.parent.name}", "-t", "/run"],
                    log=STATE / "qemu-ga.log",
                )
                (STATE / "qemu-ga").write_text("running\n")
