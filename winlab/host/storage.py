"""The storage pool of the labs' disks, and /dev/kvm's owner: what libvirt needs besides running."""

from __future__ import annotations

import grp
import os
from pathlib import Path

from winlab import settings
from winlab.design.plan import volume_names
from winlab.errors import ConflictError, HostError
from winlab.events import Progress
from winlab.host.changes import Record
from winlab.run import Result, run

KVM = Path("/dev/kvm")


def virsh(*words: str, check: bool = True, stdin: str | None = None) -> Result:
    """Run virsh against this host's system libvirt."""
    return run(["virsh", "-q", "-c", "qemu:///system", *words], check=check, stdin=stdin, timeout=120)


def pool_xml() -> str:
    """The pool's XML. The folder can be traversed but not listed, like libvirt's own images folder."""
    return f"""\
<pool type='dir'>
  <name>{settings.POOL}</name>
  <target>
    <path>{settings.POOL_PATH}</path>
    <permissions><mode>0711</mode><owner>0</owner><group>0</group></permissions>
  </target>
</pool>
"""


def pool_path(xml: str) -> str:
    """The path in a dir pool's XML as ``virsh pool-dumpxml`` prints it."""
    return xml.partition("<path>")[2].partition("</path>")[0]


def ensure_pool(record: Record, progress: Progress) -> None:
    """Make sure that the pool exists, runs, and is started with libvirt.

    :raises ConflictError: a pool of that name has another folder.
    """
    pool = virsh("pool-dumpxml", settings.POOL, check=False)
    if pool.returncode == 0 and pool_path(pool.stdout) != str(settings.POOL_PATH):
        raise ConflictError(
            f"libvirt has a storage pool '{settings.POOL}' at '{pool_path(pool.stdout)}' that winlab did not create.",
            cure=f"Rename or undefine it: 'virsh pool-undefine {settings.POOL}'.",
        )
    if pool.returncode != 0:
        progress.say(f"making the storage pool {settings.POOL}")
        record.mark("pool")
        record.add("folders", str(settings.POOL_PATH))
        settings.POOL_PATH.mkdir(mode=0o711, parents=True, exist_ok=True)
        settings.POOL_PATH.chmod(0o711)
        virsh("pool-define", "/dev/stdin", stdin=pool_xml())
    info = _info(virsh("pool-info", settings.POOL).stdout)
    if info.get("State") != "running":
        settings.POOL_PATH.mkdir(mode=0o711, parents=True, exist_ok=True)
        virsh("pool-start", settings.POOL)
    if info.get("Autostart") != "yes":
        virsh("pool-autostart", settings.POOL)


def _info(text: str) -> dict[str, str]:
    """``virsh pool-info``'s lines as a mapping."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def undo_pool(record: Record, progress: Progress) -> None:
    """Remove the pool and winlab's volumes in it; other files in its folder stay."""
    if not record.changes.pool:
        return
    progress.say(f"removing the storage pool {settings.POOL}")
    if settings.POOL_PATH.is_dir():
        for path in settings.POOL_PATH.iterdir():
            of_lab = volume_names.is_made(path.name) or volume_names.snapshot_of(path.name) is not None
            if not path.is_dir() and (of_lab or path.name.startswith("base-")):
                path.unlink()
            else:
                progress.say(f"{path} is left alone: winlab did not make it")
    virsh("pool-destroy", settings.POOL, check=False)
    virsh("pool-undefine", settings.POOL, check=False)
    record.changes.pool = False
    record.save()


def ensure_kvm_mode(record: Record, progress: Progress, path: Path = KVM) -> None:
    """Open /dev/kvm to the group that QEMU runs in.

    Without udev it belongs to root alone. libvirt then probes QEMU again at every look-up of its capabilities, and
    starting any guest takes a minute.

    :raises HostError: there is no group ``kvm``, which the distribution's QEMU package creates.
    """
    if not path.exists():
        return
    try:
        group = grp.getgrnam("kvm").gr_gid
    except KeyError as error:
        raise HostError(
            "There is no group 'kvm'.", cure="Install QEMU: 'sudo winlab host setup --install'.", causes=[error]
        ) from error
    was = path.stat()
    open_to_all = was.st_mode & 0o006 == 0o006
    if open_to_all or (was.st_gid == group and was.st_mode & 0o060 == 0o060):
        return
    progress.say(f"opening {path} to the group kvm")
    record.keep_mode(path)
    os.chown(path, -1, group)
    path.chmod(0o660)
