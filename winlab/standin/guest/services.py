"""The services of the installed system: WinRM, OpenSSH, the guest agent."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from winlab.run import start
from winlab.standin.guest import accounts, winrmd
from winlab.standin.guest.shell import Shell
from winlab.standin.guest.winrm import Service
from winlab.standin.guest.world import STATE, C, write_port

SSHD_CONFIG = """\
HostKey /run/standin/ssh_host_ed25519_key
AuthorizedKeysFile /c/ProgramData/ssh/administrators_authorized_keys
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
# The account has number 0, so sshd calls it root; "PermitRootLogin" is about it


class Services:
    """Starts the services; *make* gives a new cmd.exe, *config* is System32\\config."""

    def __init__(self, make: Callable[[], Shell], config: Path) -> None:
        self.service = Service(make)
        self.config = config
        self.listener: winrmd.Server | None = None
        self.sshd = 0

    def start_configured(self) -> None:
        """Start what has been set up."""
        if (self.config / "standin-winrm.crt").is_file():
            self.start_winrm()
        if (C / "ProgramData/ssh/ssh_host_ed25519_key").is_file():
            self.start_sshd()

    def serve_requests(self) -> None:
        """Start anew what other processes have asked for."""
        for name, act in (("winrm", self.start_winrm), ("sshd", self.start_sshd)):
            request = STATE / f"reload.{name}"
            if request.exists():
                try:
                    act()
                except (OSError, ValueError) as error:
                    write_port(f"winlab: error={name}: {' '.join(str(error).split())}\r\n")
                    request.rename(STATE / f"failed.{name}")
                    continue
                request.unlink()

    def start_winrm(self) -> None:
        """Open the HTTPS listener with the certificate kept in *config*."""
        os.environ["NTLM_USER_FILE"] = str(accounts.NTLM)
        if self.listener is not None:
            self.listener.shutdown()
            self.listener.server_close()
        self.listener = winrmd.listen(
            self.service, self.config / "standin-winrm.crt", self.config / "standin-winrm.key"
        )
        threading.Thread(target=self.listener.serve_forever, daemon=True).start()
        # The first request should not wait for these
        threading.Thread(target=__import__, args=("spnego",), daemon=True).start()
        (STATE / "winrm").write_text("running\n")

    def start_sshd(self) -> None:
        """Start OpenSSH's server with the host key on C:."""
        if self.sshd:
            os.kill(self.sshd, signal.SIGTERM)
            time.sleep(0.2)
        key = STATE / "ssh_host_ed25519_key"
        # The private key must end with a newline and be nobody else's: a file on C: can have neither
        shutil.copyfile(C / "ProgramData/ssh/ssh_host_ed25519_key", key)
        key.chmod(0o600)
        path = Path("/etc/ssh/sshd_config")
        path.write_text(SSHD_CONFIG)
        self.sshd = start(["/usr/sbin/sshd", "-D", "-e"], log=STATE / "sshd.log")

    def guest_agent(self) -> None:
        """Start QEMU's guest agent if its channel is there."""
        for path in Path("/sys/class/virtio-ports").glob("*/name"):
            if path.read_text().strip() == "org.qemu.guest_agent.0":
                start(
                    ["qemu-ga", "-m", "virtio-serial", "-p", f"/dev/{path.parent.name}", "-t", "/run"],
                    log=STATE / "qemu-ga.log",
                )
                (STATE / "qemu-ga").write_text("running\n")
