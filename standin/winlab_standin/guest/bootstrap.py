"""Simulates winlab's bootstrap.ps1. It must be exactly that script: its digest must be known."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import time
from pathlib import Path

from winlab_standin.guest import accounts, driverstore, firewall, registry
from winlab_standin.guest.base import run
from winlab_standin.guest.paths import match
from winlab_standin.guest.place import STATE, C
from winlab_standin.guest.releases import NO_OPENSSH
from winlab_standin.guest.world import World

KNOWN = Path("/usr/lib/standin/known.json")
OWN_KEYS = Path("Users/Administrator/.ssh/authorized_keys")  # sshd may also read them there
SSH_FILES = ("ssh_host_ed25519_key", "ssh_host_ed25519_key.pub", "administrators_authorized_keys")
ANSWERS = ("unattend.xml", "unattend-original.xml")  # the copies that Setup leaves in Panther
CONFIG = Path("Windows/System32/config")
_POLICIES = r"HKEY_LOCAL_MACHINE\SOFTWARE\Microsoft\Windows\CurrentVersion\Policies\System"
_WINLOGON = r"HKEY_LOCAL_MACHINE\SOFTWARE\Microsoft\Windows NT\CurrentVersion\Winlogon"


class RefusedError(Exception):
    """The script is not the one that the media know, or something that it needs is missing."""


def known(script: bytes, facts: dict[str, str]) -> None:
    """Compare a script with the one that the media know.

    :raises RefusedError: it is different.
    """
    if hashlib.sha256(script).hexdigest() != facts.get("bootstrap_sha256"):
        raise RefusedError(
            "bootstrap.ps1 : this is not the script that these stand-in media know; build the media again"
        )


def pem(pfx: bytes, password: str) -> tuple[bytes, bytes]:
    """The certificate chain and the key in a PKCS #12 file, as PEM.

    :raises RefusedError: wrong password, or no key or certificate in it.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        key, certificate, others = pkcs12.load_key_and_certificates(pfx, password.encode())
    except ValueError as error:
        raise RefusedError(f"Import-PfxCertificate : The PFX file can't be opened: {error}") from error
    if key is None or certificate is None:
        raise RefusedError("Import-PfxCertificate : The PFX file holds no key with a certificate")
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    chain = b"".join(item.public_bytes(serialization.Encoding.PEM) for item in (certificate, *others))
    return chain, key.private_bytes(serialization.Encoding.PEM, *plain)


def keep_certificate(config: Path, chain: bytes, key: bytes) -> None:
    """Have WinRM's listener use this certificate from its next start. *config*: System32\\config."""
    (config / "standin-winrm.crt").write_bytes(chain)
    (config / "standin-winrm.key").write_bytes(key)


def play(folder: Path, world: World, root: Path = C) -> None:
    """Do what ``winlab\\bootstrap.ps1`` in *folder* does.

    :raises RefusedError: see above; it was reported on the serial port.
    """
    try:
        known((folder / "bootstrap.ps1").read_bytes(), json.loads(KNOWN.read_text()))
    except RefusedError as error:
        world.serial(f"winlab: error=bootstrap: {error}\r\n")
        raise
    log = root / "winlab"
    log.mkdir(exist_ok=True)
    with (log / "bootstrap.log").open("a", newline="") as transcript:
        transcript.write("Windows PowerShell transcript start (winlab's stand-in)\r\n")
        try:
            _play(folder, world, root)
        except Exception as error:  # the script, too, catches every error
            text = " ".join(str(error).split())
            world.serial(f"winlab: error=bootstrap: {text}\r\n")
            world.serial("winlab: BEGIN dump\r\nwinlab: END dump\r\n")
            transcript.write(f"{text}\r\n")
            raise RefusedError(text) from error
        finally:
            _tidy(world, root)
            transcript.write("Windows PowerShell transcript end\r\n")
            world.log_off()


def _play(folder: Path, world: World, root: Path) -> None:
    world.serial("winlab: phase=bootstrap\r\n")
    node = json.loads((folder / "node.json").read_text(encoding="utf-8-sig"))
    mtu = int(node["mtu"])
    config = root / CONFIG
    accounts.rename(config, world.windows, world.name())
    firewall.set_category(world.registry, firewall.PRIVATE)
    for name in (driverstore.SEARCHED, "drv2"):
        driverstore.stage(driverstore.packages(folder.parent / name), root)
    if not world.adapters():
        raise RefusedError("Windows has no network adapter: its driver is missing")
    for name, phase in (("qemu-ga-x86_64.msi", "guest-agent"), ("virtio-win-guest-tools.exe", "guest-tools")):
        if (folder / name).exists():
            world.serial(f"winlab: phase={phase}\r\n")  # the stand-in has the guest agent already
    (config / "standin-mtu").write_text(f"{mtu}\n")
    for adapter in world.adapters():
        run(["ip", "link", "set", "dev", adapter.name, "mtu", str(mtu)])

    world.serial("winlab: phase=winrm\r\n")
    chain, key = pem((folder / "winrm.pfx").read_bytes(), str(node["pfx_password"]))
    keep_certificate(config, chain, key)
    firewall.add_rule(world.registry, "winlab-winrm", "5986", "winlab: WinRM over HTTPS")
    restart("WinRM")
    world.registry.add(registry.WINRM, registry.DELAYED, "REG_DWORD", "0")  # sc.exe config WinRM start= auto

    world.serial("winlab: phase=ssh\r\n")
    try:
        _install_sshd(folder, world, root)
    except (OSError, RefusedError) as error:  # winlab itself uses WinRM
        world.serial(f"winlab: warning=ssh: {' '.join(str(error).split())}\r\n")

    world.registry.add(_POLICIES, "LocalAccountTokenFilterPolicy", "REG_DWORD", "1")
    if (folder / "files").is_dir():
        world.serial("winlab: phase=files\r\n")
        _copy(folder / "files", root)
    if (folder / "scripts").is_dir():
        world.serial("winlab: phase=scripts\r\n")
        names = ", ".join(path.name for path in sorted((folder / "scripts").iterdir()))
        raise RefusedError(f"the stand-in runs no PowerShell but winlab's own: {names}")
    if closed := firewall.closed(world.registry):
        raise RefusedError(
            f"the firewall takes no inbound rules in the profile {' and '.join(closed)}: WinRM and ssh can't be reached"
        )
    (root / "winlab/ready.txt").write_bytes(f"{node['node']}\r\n".encode("ascii"))
    run(["sync"])
    if not world.port_is_taken():  # otherwise the script warns in its log, and continues
        world.serial("winlab: phase=ready\r\n")


def _install_sshd(folder: Path, world: World, root: Path) -> None:
    if NO_OPENSSH in world.windows.traps and not (folder / "OpenSSH-Win64.zip").exists():
        raise RefusedError("OpenSSH is not available (workers.openssh=FILE brings it): Error code = 0x800f0954")
    ssh = root / "ProgramData/ssh"
    ssh.mkdir(parents=True, exist_ok=True)
    for name in SSH_FILES:
        shutil.copyfile(folder / name, ssh / name)
    own = root / OWN_KEYS
    own.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(folder / SSH_FILES[-1], own)
    firewall.add_rule(world.registry, "winlab-sshd", "22", "winlab: OpenSSH")
    restart("sshd")


def _copy(source: Path, target: Path) -> None:
    """Copy a tree to C:; the case of existing names does not matter."""
    for path in sorted(source.iterdir()):
        place = match(target, path.name)
        if path.is_dir():
            place.mkdir(exist_ok=True)
            _copy(path, place)
        else:
            shutil.copyfile(path, place)


def _tidy(world: World, root: Path) -> None:
    """In any case, end automatic logon, and remove all copies of the answer file."""
    with contextlib.suppress(OSError):
        world.registry.add(_WINLOGON, "AutoAdminLogon", "REG_SZ", "0")
        world.registry.add(_WINLOGON, "AutoLogonCount", "REG_DWORD", "0")
        world.registry.delete(_WINLOGON, "DefaultPassword")
    for name in ANSWERS:
        with contextlib.suppress(OSError):
            (root / "Windows/Panther" / name).unlink(missing_ok=True)


def restart(service: str, limit: float = 90.0) -> None:
    """Have the first process restart a service, and wait until it runs.

    :raises RefusedError: it does not start, or the first process does not answer within *limit* seconds.
    """
    request, failed = STATE / f"reload.{service.lower()}", STATE / f"failed.{service.lower()}"
    failed.unlink(missing_ok=True)
    request.write_text("\n")
    end = time.monotonic() + limit
    while request.exists():
        if time.monotonic() > end:
            raise RefusedError(f"Start-Service : Service '{service}' cannot be started")
        time.sleep(0.1)
    if failed.exists():
        raise RefusedError(f"Start-Service : Service '{service}' cannot be started: {failed.read_text().strip()}")
