"""libvirt's hook for the memory of clones: the program as it is installed, its installation, and what doctor says."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from winlab import settings
from winlab.adapters.remote import Remote
from winlab.errors import WinlabError
from winlab.host import checks_services, daemons, hook_program, memory_hook, teardown
from winlab.host.changes import Record
from winlab.host.check import Host, Status
from winlab.run import Result, run

KIB = 64
NAME = "winlab-copy.controller-1"
VOLUME = "lab@ready.controller-1.memory"
ASKS = f'<memory xmlns="urn:winlab:memory:1" lab="copy" volume="{VOLUME}"/>'
XML = f"""\
<domain type='kvm' id='7'>
  <name>{NAME}</name>
  <metadata>{ASKS}</metadata>
  <memory unit='KiB'>{KIB}</memory>
  <memoryBacking>
    <source type='file'/>
    <access mode='private'/>
  </memoryBacking>
  <cpu mode='host-passthrough'/>
  <devices><memballoon model='none'/></devices>
</domain>
"""
QEMU = 64055 if os.geteuid() == 0 else os.geteuid()  # who owns the folder of the domain's memory


class Here:
    """A pool with a snapshot's memory, libvirt's folder for a domain, and the hook, installed for both."""

    def __init__(self, path: Path) -> None:
        self.pool, self.ram = path / "the pool", path / "ram"
        self.hook, self.folder = path / "hooks/qemu.d/winlab", self.ram / "7-winlab-copy.controll"
        self.volume, self.linked = self.pool / VOLUME, self.folder / "pc.ram"
        for folder, mode in ((self.pool, 0o711), (self.folder, 0o700), (self.hook.parent, 0o755)):
            folder.mkdir(parents=True)
            folder.chmod(mode)
        self.volume.write_bytes(b"m" * KIB * 1024)
        self.volume.chmod(0o640)
        os.chown(self.folder, QEMU, -1)
        self.hook.write_text(memory_hook.text(self.pool, self.ram))
        self.hook.chmod(0o755)

    def call(self, xml: str = XML, *words: str, name: str = NAME) -> Result:
        """Call the hook as libvirt does."""
        return run([self.hook, name, *(words or ("start", "begin")), "-"], check=False, stdin=xml, timeout=60)


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def test_a_clone_gets_the_memory_of_its_snapshot(here: Here) -> None:
    said = here.call()
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")
    about = here.linked.stat()
    assert about.st_ino == here.volume.stat().st_ino
    assert (about.st_uid, about.st_mode & 0o777) == (QEMU, 0o600)
    second = here.ram / "8-winlab-copy.controll"
    second.mkdir(mode=0o700)
    os.chown(second, QEMU, -1)
    assert here.call(XML.replace("id='7'", "id='8'")).returncode == 0  # several at once, from QEMU's own file
    assert here.volume.stat().st_nlink == 3


@pytest.mark.parametrize(
    "words",
    [("prepare", "begin"), ("restore", "begin"), ("started", "begin"), ("start", "end"), ("release", "end")],
)
def test_it_acts_just_before_qemu_starts(here: Here, words: tuple[str, str]) -> None:
    said = here.call(XML, *words)
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")  # what 'restore' prints would be the new XML
    assert not here.linked.exists()


@pytest.mark.parametrize(
    "xml",
    [
        XML.replace(ASKS, ""),
        XML.replace(ASKS, "<!-- urn:winlab:memory:1 -->"),
        XML.replace(ASKS, '<memory xmlns="urn:others:memory:1" volume="../../etc/shadow"/>'),
        XML.replace(ASKS, f"<x>{ASKS}</x>"),
        "",
        "no XML",
        "x" * (2 << 20),
    ],
)
def test_other_machines_of_the_host_start_as_before(here: Here, xml: str) -> None:
    said = here.call(xml)
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")
    assert not here.linked.exists()


def test_python_starts_only_for_who_asks(here: Here) -> None:
    """Python may be missing, or be installed again right now."""
    here.hook.write_text(here.hook.read_text().replace(str(memory_hook.PYTHON), "/nonexistent/python"))
    assert here.call(XML.replace(ASKS, "")).returncode == 0
    assert here.call(XML, "stopped", "end").returncode == 0
    assert here.call().returncode != 0


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("lab@ready", "../lab@ready", "is not the name of a snapshot's memory"),
        (VOLUME, "lab.controller-1.disk.qcow2", "is not the name of a snapshot's memory"),
        (VOLUME, f"{VOLUME}&#10;", "is not the name of a snapshot's memory"),
        (VOLUME, "lab@gone.controller-1.memory", "No such file or directory: 'lab@gone.controller-1.memory'"),
        ('lab="copy"', 'lab="other"', "is not that node of the lab 'other'"),
        ('lab="copy"', "", "is not that node of the lab ''"),
        (f"<name>{NAME}", "<name>winlab-copy.node-1", "is not that node of the lab 'copy'"),
        (" id='7'", "", "no id"),
        (" id='7'", " id='../7'", "no id"),
        (" id='7'", " id='9'", "No such file or directory: '9-winlab-copy.controll'"),
        (f">{KIB}<", f">{KIB + 4}<", "has 65536 bytes, the machine's memory 69632"),
        (f">{KIB}<", "><", "size of the machine's memory is unknown"),
        ("'KiB'", "'MiB'", "size of the machine's memory is unknown"),
        ("mode='private'", "mode='shared'", "not just a file with private access"),
        ("<source type='file'/>", "<source type='memfd'/>", "not just a file with private access"),
        ("<access mode='private'/>", "", "not just a file with private access"),
        ("<access", "<hugepages/><access", "not just a file with private access"),
        ("<access", "<discard/><access", "not just a file with private access"),
        ("<cpu mode='host-passthrough'/>", "<cpu><numa><cell id='0'/></numa></cpu>", "cpu/numa"),
        ("<devices>", "<devices><memory model='dimm'/>", "devices/memory"),
        ("<cpu", "<maxMemory slots='4' unit='KiB'>128</maxMemory><cpu", "maxMemory"),
        ("model='none'", "model='virtio'", "a memory balloon"),
        ("<memballoon model='none'/>", "", "a memory balloon"),
        ("<domain", "<!DOCTYPE domain [<!ENTITY x SYSTEM 'file:///etc/hostname'>]><domain", "a document type"),
        ("</domain>", "", "no element found"),
        ("<cpu", f"<!--{'x' * (1 << 20)}--><cpu", "XML is too long"),
    ],
)
def test_a_machine_that_fails_a_check_does_not_start(here: Here, old: str, new: str, why: str) -> None:
    assert old in XML
    said = here.call(XML.replace(old, new))
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr.startswith(f"winlab's hook gives '{NAME}' no memory of a snapshot: ")
    assert why in said.stderr
    assert not here.linked.exists()


def test_a_machine_of_another_name_does_not_start(here: Here) -> None:
    assert "is not that node" in here.call(name="winlab-copy.node-1").stderr


def test_only_a_regular_file_of_root_or_qemu_is_linked(here: Here) -> None:
    secret = here.pool / "secret"
    here.volume.rename(secret)
    here.volume.symlink_to(secret)
    assert "symbolic link" in here.call().stderr
    here.volume.unlink()
    os.mkfifo(here.volume)
    assert "not a regular file" in here.call().stderr
    here.volume.unlink()
    secret.rename(here.volume)
    if os.geteuid() == 0:
        os.chown(here.volume, 1234, -1)
        assert "belongs to another user" in here.call().stderr
    assert not here.linked.exists()


def test_the_folders_are_those_that_setup_knew(here: Here, tmp_path: Path) -> None:
    here.pool.chmod(0o777)
    assert "others than root can change" in here.call().stderr
    here.pool.chmod(0o711)
    (here.folder / "pc.ram").touch()
    assert "is not empty" in here.call().stderr
    here.linked.unlink()
    here.ram.rename(tmp_path / "elsewhere")
    here.ram.symlink_to("elsewhere")
    assert str(here.ram) in here.call().stderr
    assert not here.linked.exists()


def test_the_label_of_the_linked_file_is_that_of_shared_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[Any, ...]] = []
    context = b"system_u:object_r:svirt_image_t:s0:c1,c2\0"
    monkeypatch.setattr(os, "getxattr", lambda _folder, _name: context)
    monkeypatch.setattr(os, "setxattr", lambda *words: given.append(words))
    hook_program.label(3, 4)
    assert given == [(3, "security.selinux", b"system_u:object_r:svirt_image_t:s0\0")]


def test_libvirts_folder_of_memory_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = tmp_path / "qemu.conf"
    monkeypatch.setattr(memory_hook, "QEMU_CONF", conf)
    assert memory_hook.memory_folder() == memory_hook.RAM
    conf.write_text('#memory_backing_dir = "/old"\nuser = "x"\n')
    assert memory_hook.memory_folder() == memory_hook.RAM
    conf.write_text('memory_backing_dir = "/srv/ram"\n')
    assert memory_hook.memory_folder() == Path("/srv/ram/libvirt/qemu")


class Installing:
    """A host without the folder of hooks, where setup can install it."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hook, self.pool, self.path = path / "hooks/qemu.d/winlab", path / "pool", path / "changes.yaml"
        self.said: list[str] = []
        self.reloads = 0
        self.pool.mkdir()
        monkeypatch.setattr(memory_hook, "HOOK", self.hook)
        monkeypatch.setattr(memory_hook, "QEMU_CONF", path / "qemu.conf")
        monkeypatch.setattr(memory_hook, "RAM", path / "ram")
        monkeypatch.setattr(memory_hook, "PYTHON", path)
        monkeypatch.setattr(settings, "POOL_PATH", self.pool)
        monkeypatch.setattr(daemons, "reload_libvirt", self.reload)
        monkeypatch.setattr(daemons, "has_systemd", lambda: False)

    def reload(self) -> None:
        assert os.access(self.hook, os.X_OK)
        self.reloads += 1

    def say(self, text: str, fraction: float | None = None) -> None:
        self.said.append(text)

    def ensure(self) -> None:
        memory_hook.ensure(Record(self.path), self)


@pytest.fixture
def installing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installing:
    return Installing(tmp_path, monkeypatch)


def test_setup_installs_the_hook_once_and_teardown_removes_it(installing: Installing) -> None:
    assert "can't be read" in memory_hook.trouble()
    for _ in range(2):
        installing.ensure()
    assert installing.reloads == 1
    assert installing.hook.read_text() == memory_hook.text(installing.pool, memory_hook.RAM)
    assert installing.hook.stat().st_mode & 0o777 == 0o755
    assert [path.name for path in installing.hook.parents[1].iterdir()] == ["qemu.d"]
    assert memory_hook.trouble() == ""
    teardown._restore_files(Record(installing.path))
    assert not installing.hook.parents[1].exists()


def test_hooks_of_others_stay(installing: Installing) -> None:
    others = installing.hook.with_name("others")
    others.parent.mkdir(parents=True)
    others.write_text("#!/bin/sh\n")
    installing.ensure()
    teardown._restore_files(Record(installing.path))
    assert list(others.parent.iterdir()) == [others]
    installing.hook.write_text("#!/bin/sh\n")
    installing.ensure()
    assert installing.hook.read_text() == "#!/bin/sh\n"
    assert not Record(installing.path).changes.files
    assert "is left alone" in installing.said[-1]
    assert "did not write" in memory_hook.trouble()


def test_another_version_or_folder_is_installed_again(installing: Installing) -> None:
    installing.ensure()
    installing.hook.write_text(installing.hook.read_text() + "# older\n")
    assert "is not the one of this winlab" in memory_hook.trouble()
    installing.ensure()
    (installing.path.with_name("qemu.conf")).write_text('memory_backing_dir = "/srv/ram"\n')
    installing.ensure()
    assert "/srv/ram/libvirt/qemu" in installing.hook.read_text()
    installing.hook.chmod(0o644)
    installing.ensure()
    assert installing.hook.stat().st_mode & 0o777 == 0o755
    assert installing.reloads == 4


def test_a_setup_that_was_interrupted_reloads_libvirt_later(
    installing: Installing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(daemons, "reload_libvirt", killed)
        with pytest.raises(KeyboardInterrupt):
            installing.ensure()
    installing.ensure()
    assert installing.reloads == 1


def test_doctor_says_how_clones_get_their_memory(installing: Installing, monkeypatch: pytest.MonkeyPatch) -> None:
    def row() -> str:
        (requirement,) = checks_services.clones(Host())
        assert requirement.state is Status.OK  # either way works
        return requirement.detail

    assert row().startswith("each clone restores the whole memory: libvirt's hook")
    installing.ensure()
    assert row() == "copy-on-write"
    monkeypatch.setattr(memory_hook, "_device", lambda path: hash(path.name))
    assert row().endswith("are on different file systems")
    monkeypatch.setattr(memory_hook, "PYTHON", installing.path / "none")
    assert row().endswith("is missing")


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Remote:
    """Another host: its shell is this one's."""

    def call(self: Remote, script: str) -> str:
        program = tmp_path / "look"
        program.write_text(f"#!/bin/sh\n{script}")
        program.chmod(0o755)
        return run([program]).stdout

    monkeypatch.setattr(Remote, "call", call)
    return Remote("host2")


def test_another_host_is_asked_by_its_shell(
    installing: Installing, there: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = memory_hook.LOOK.replace("/var/lib/winlab/pool", str(installing.pool))
    look = look.replace("/etc/libvirt/hooks/qemu.d/winlab", str(installing.hook))
    monkeypatch.setattr(memory_hook, "LOOK", look)
    assert "can't be read" in memory_hook.trouble_on(there)
    installing.ensure()
    assert memory_hook.trouble_on(there) == ""
    installing.hook.chmod(0o644)
    assert "is not the one of this winlab" in memory_hook.trouble_on(there)
    installing.hook.chmod(0o755)
    installing.hook.write_text(installing.hook.read_text() + "# older\n")
    assert "is not the one of this winlab" in memory_hook.trouble_on(there)
    installing.path.with_name("qemu.conf").write_text('memory_backing_dir = "/proc"\n')
    installing.ensure()
    assert memory_hook.trouble_on(there).endswith("are on different file systems")
    installing.hook.write_text("#!/bin/sh\n")
    assert "did not write" in memory_hook.trouble_on(there)


def test_a_host_that_can_not_be_asked_has_no_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Remote, _: str) -> str:
        raise WinlabError("ssh can't connect.", why="No route to host")

    monkeypatch.setattr(Remote, "call", fail)
    assert "can't be read: No route to host" in memory_hook.trouble_on(Remote("host2"))
    monkeypatch.setattr(Remote, "call", lambda *_: "one line")
    assert "can't be read" in memory_hook.trouble_on(Remote("host2"))


def test_a_file_system_is_that_of_the_nearest_folder_that_can_be_seen(tmp_path: Path) -> None:
    assert memory_hook._device(tmp_path / "not/there") == tmp_path.stat().st_dev


@pytest.mark.parametrize("active", ["libvirtd.service", "virtqemud.service"])
def test_libvirt_is_sent_a_signal_to_reload(active: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With systemd, the daemon that runs is: the units of the other one may be installed, too."""
    done: list[Any] = []

    def systemctl(args: Sequence[str], **_more: Any) -> Result:
        if args[1].startswith("try-"):
            done.append(" ".join(args[1:]))
        return Result(tuple(args), int(args[1] == "is-active" and active not in args), "", "", 0.0)

    monkeypatch.setattr(daemons, "run", systemctl)
    monkeypatch.setattr(daemons, "running", lambda _path, _name: 42)
    monkeypatch.setattr(os, "kill", lambda *words: done.append(words))
    for systemd in (True, False):
        monkeypatch.setattr(daemons, "has_systemd", lambda systemd=systemd: systemd)
        daemons.reload_libvirt()
    assert done == [f"try-reload-or-restart {active}", (42, signal.SIGHUP)]


def test_the_program_needs_nothing_of_winlab() -> None:
    text = memory_hook.text(Path("/pool"), Path("/ram"))
    compile(text, "hook", "exec", dont_inherit=True)
    assert "import winlab" not in text
    assert "from winlab" not in text
