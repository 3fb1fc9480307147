"""The guest that tries KVM, under emulation; and the systemd unit, to systemd's own judgement. Neither needs root."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from winlab.host import kvmprobe, units
from winlab.run import run

pytestmark = pytest.mark.integration


def test_the_kvm_probe_itself_works_under_emulation() -> None:
    found = kvmprobe.probe("tcg", kvmprobe.TCG_LIMIT)
    assert found.works, found.why


def test_the_kvm_probe_notices_a_guest_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kvmprobe, "payload", lambda: bytes(kvmprobe.SIZE - 16) + b"\xeb\xfe" + bytes(14))
    found = kvmprobe.probe("tcg", 2)
    assert not found.works
    assert "was not done after" in found.why


def test_the_kvm_probe_notices_a_guest_that_resets(monkeypatch: pytest.MonkeyPatch) -> None:
    # mov $0xfe, %al; out %al, $0x64: by the keyboard's controller; and wait for it
    monkeypatch.setattr(
        kvmprobe, "payload", lambda: bytes(kvmprobe.SIZE - 16) + b"\xb0\xfe\xe6\x64\xeb\xfe" + bytes(10)
    )
    found = kvmprobe.probe("tcg", kvmprobe.TCG_LIMIT)
    assert not found.works
    assert "exit code" in found.why


def test_the_unit_s_command_finds_winlab_in_a_checkout() -> None:
    """By the virtual environment alone: neither PYTHONPATH nor the current folder lead to it."""
    (line,) = [line for line in units.unit_text(sys.executable).splitlines() if line.startswith("ExecStart=")]
    python, *options, module = line.removeprefix("ExecStart=").replace('"', "").partition(" host setup")[0].split()
    done = run([python, *options, module, "--version"], check=False, timeout=60, cwd=Path("/"))
    assert (done.returncode, options) == (0, ["-I", "-m"]), done.stderr


@pytest.mark.parametrize("trust", [False, True])
def test_systemd_accepts_the_unit(tmp_path: Path, trust: bool) -> None:
    path = tmp_path / units.UNIT.name
    path.write_text(units.unit_text(sys.executable, trust=trust))
    # systemd-analyze comes with systemd, on which Debian's libvirt depends, whether it is started or not
    done = run(["systemd-analyze", "verify", path], check=False, timeout=60)
    assert done.returncode == 0, done.stderr
