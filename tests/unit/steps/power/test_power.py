"""Stopping, starting, suspending and resuming machines; the guests are fakes."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import libvirt
import plans
import pytest
import sites
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from lab_fakes import Api
from switched import NOW, Guest, Played, lab
from writing import Writing

from winlab import stopping
from winlab.adapters.kube import expiry
from winlab.adapters.vm import domains, power
from winlab.design.plan.tags import Tag
from winlab.engine.step import Step
from winlab.errors import ClusterError, GuestError, HostError, StalledError
from winlab.events import Quiet
from winlab.steps import paused
from winlab.steps.power import answer, clock, ready, shutdown, switch
from winlab.steps.power.subject import Subject

LINUX, WINDOWS = "controller-1", "node-1"


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    with lab(monkeypatch) as made:
        yield made


@pytest.mark.parametrize(
    ("node", "asked"), [(LINUX, "sudo systemctl --no-block poweroff"), (WINDOWS, "shutdown.exe /s /f /t 0")]
)
def test_a_guest_is_asked_to_shut_down(played: Played, node: str, asked: str) -> None:
    subject = played.subject(node)
    step = shutdown.step(subject)
    assert not step.done()
    step.run(Quiet())
    assert step.done()
    assert played.log == [f"{node}: {asked}"]
    assert subject.state == "off"


def test_a_suspended_one_is_resumed_for_that(played: Played) -> None:
    subject = played.subject(LINUX)
    switch.suspend(subject).run(Quiet())
    assert subject.state == "suspended"
    shutdown.step(subject).run(Quiet())
    assert subject.state == "off"


def test_a_guest_that_refuses_the_login_gets_the_power_button(played: Played) -> None:
    played.problem = lambda: GuestError("it refuses")
    shutdown.step(played.subject(LINUX)).run(Quiet())
    assert played.log == [f"{LINUX}: power button"]


def test_a_guest_that_does_not_stop_is_asked_again_and_then_given_up(played: Played) -> None:
    played.obeys = False
    with pytest.raises(StalledError, match="does not shut down") as caught:
        shutdown.step(played.subject(LINUX)).run(Quiet())
    assert f"winlab stop {LINUX} --lab lab --force" in caught.value.cure
    assert len(played.log) == 4  # in 180 s, with 45 s between
    shutdown.step(played.subject(LINUX), force=True).run(Quiet())
    assert played.subject(LINUX).state == "off"


def test_start_starts_and_resumes(played: Played) -> None:
    subject = played.subject(LINUX)
    step = switch.start(subject)
    assert step.done()
    switch.suspend(subject).run(Quiet())
    assert not step.done()
    step.run(Quiet())
    assert step.done()
    assert (subject.since, subject.booted) == (NOW, False)
    played.domain(LINUX).destroy()
    step.run(Quiet())
    assert (subject.state, subject.booted) == ("running", True)


def test_a_full_disk_is_named_before_anything_is_resumed(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domains, "disk_trouble", lambda *_: "full")
    played.domain(LINUX).suspend()
    for step in (switch.start(played.subject(LINUX)), shutdown.step(played.subject(LINUX))):
        with pytest.raises(HostError, match="pool is full"):
            step.run(Quiet())
    assert played.subject(LINUX).state == "suspended"
    played.pool.free_bytes = paused.ROOM
    switch.start(played.subject(LINUX)).run(Quiet())
    assert played.subject(LINUX).state == "running"


@pytest.mark.parametrize(("verb", "after"), [(switch.start, "running"), (shutdown.step, "off")])
def test_a_machine_whose_memory_is_still_being_written_is_waited_for(
    played: Played, monkeypatch: pytest.MonkeyPatch, verb: Callable[[Subject], Step], after: str
) -> None:
    """A 'snapshot save' was killed; libvirt was not."""
    played.domain(LINUX).suspend()
    writing = Writing(monkeypatch, f"winlab-lab.{LINUX}")
    verb(played.subject(LINUX)).run(writing)
    assert played.subject(LINUX).state == after
    assert writing.said == [
        f"waiting for libvirt, which is still writing the memory of {LINUX}: {done} of 512 MiB, {part}%"
        for done, part in ((212, 41), (312, 61), (412, 80))
    ]


def test_waiting_for_libvirt_ends_as_soon_as_the_user_interrupts(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    played.domain(LINUX).suspend()
    writing, stop = Writing(monkeypatch, f"winlab-lab.{LINUX}", left=1 << 30), threading.Event()
    monkeypatch.setattr(writing, "say", lambda *_: stop.set())
    with stopping.by(stop), pytest.raises(stopping.Stopped):
        switch.start(played.subject(LINUX)).run(writing)
    assert played.subject(LINUX).state == "suspended"


def test_only_running_machines_are_suspended(played: Played) -> None:
    subject = played.subject(LINUX)
    played.domain(LINUX).destroy()
    with pytest.raises(GuestError, match="is off"):
        switch.suspend(subject).run(Quiet())
    assert played.subject(LINUX).state == "off"


@pytest.mark.parametrize(
    ("node", "line"),
    [
        (LINUX, "sudo date --set='{:+.3f} seconds'"),
        (WINDOWS, "FromMilliseconds({:.0f}))"),
    ],
)
@pytest.mark.parametrize("behind", [7200.25, -86400.5])
def test_a_wrong_clock_is_set(played: Played, node: str, line: str, behind: float) -> None:
    played.behind[node] = behind
    subject = played.subject(node)
    step = answer.step(subject)
    assert not step.done()
    step.run(Quiet())
    assert step.done()
    assert len(played.log) == 1
    assert line.format(behind * (1000 if node == WINDOWS else 1)) in played.log[0]
    assert subject.stepped == behind


def test_a_right_clock_is_left_alone(played: Played) -> None:
    played.behind[LINUX] = clock.TOLERANCE - 0.1
    assert answer.step(played.subject(LINUX)).done()
    assert played.log == []


def test_a_clock_that_can_not_be_set_is_reported(played: Played) -> None:
    played.behind[LINUX], played.stuck = 3600.0, True
    with pytest.raises(GuestError, match="can't be set") as caught:
        answer.step(played.subject(LINUX)).run(Quiet())
    assert "3600 s behind" in caught.value.why


def test_a_malformed_time_is_refused(played: Played) -> None:
    class Strange(Guest):
        def execute(self, command: object, stdout: Any = None, *_: object) -> int:
            stdout(b"\x1b[31mlater\n")
            return 0

    tag: Tag = played.subject(LINUX).machine.tag
    with pytest.raises(GuestError, match="can't be read"):
        clock.difference(Strange(played, tag), tag)


def test_one_that_is_switched_off_meanwhile_ends_the_wait(played: Played) -> None:
    subject = played.subject(LINUX)
    played.domain(LINUX).destroy()
    assert not answer.step(subject).done()
    with pytest.raises(GuestError, match="is off, but"):
        answer.step(subject).run(Quiet())


def test_an_emulated_kernel_that_panics_is_reset(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    """But not by the panic of an earlier boot, which ends the log until the firmware writes something."""
    resets: list[str] = []

    def reset(*_: object) -> None:
        resets.append("reset")
        played.problem = lambda: None

    played.pool.log = b"---[ end Kernel panic - not syncing: Fatal exception ]---\n"
    monkeypatch.setattr(power, "reset", reset)
    answer.step(played.subject(LINUX)).run(Quiet())
    assert resets == []
    played.problem = lambda: answer.UnreachableError("gone")
    with pytest.raises(GuestError, match="panicked"):  # with KVM that is not a fault of the emulator
        answer.step(played.subject(LINUX)).run(Quiet())
    played.lab = sites.lab("lab", sites.hypervisor(played.conn, played.pool, facts=plans.TCG.machine))
    answer.step(played.subject(LINUX)).run(Quiet())
    assert resets == ["reset"]


# -- Ready again


def _node(*, ready: str = "True", reported: float = NOW) -> dict[str, Any]:
    row = {"type": "Ready", "status": ready, "lastHeartbeatTime": _time(reported), "message": "x", "reason": "y"}
    return {"metadata": {"name": LINUX}, "status": {"conditions": [row]}}


def _lease(renewed: float) -> dict[str, Any]:
    return {"spec": {"renewTime": _time(renewed)}}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@pytest.mark.parametrize(
    ("since", "booted", "reported", "renewed", "is_ready"),
    [
        (None, False, NOW - 250, NOW - 9, True),  # it ran all the time
        (None, False, NOW - 250, NOW - 60, False),  # its kubelet is silent
        (NOW, False, NOW - 250, NOW + 1, True),  # resumed
        (NOW, False, NOW - 250, NOW - 30, False),  # the last renewal was before it was suspended
        (NOW, True, NOW + 9, NOW + 9, True),  # started
        (NOW, True, NOW - 20, NOW + 9, False),  # the report is from before the start
    ],
)
def test_reports_from_before_do_not_count(
    played: Played, since: float | None, booted: bool, reported: float, renewed: float, is_ready: bool
) -> None:
    subject = played.subject(LINUX)
    subject.since, subject.booted = since, booted
    api = Api({"get node": _node(reported=reported), "get lease": _lease(renewed)})
    assert ready.step(subject, api).done() is is_ready


def test_the_wait_ends_when_the_node_is_ready(played: Played) -> None:
    subject = played.subject(LINUX)
    subject.since, subject.booted = NOW, True
    api = Api(
        {
            "get node": [ClusterError("busy"), _node(reported=NOW - 9), _node(ready="False"), _node()],
            "get lease": _lease(NOW),
        }
    )
    ready.step(subject, api).run(Quiet())
    assert len([asked for asked, _ in api.asked if asked.startswith("get node")]) == 4


def test_a_node_that_never_joined_is_not_waited_for(played: Played) -> None:
    assert ready.step(played.subject(LINUX), Api({"get node": ""})).done()


def test_a_node_that_stays_unready_is_given_up_with_the_reason(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready.diagnose, "explain", lambda *_: "the facts")
    api = Api({"get node": _node(ready="False"), "get lease": _lease(NOW)})
    with pytest.raises(ClusterError, match="does not become Ready again") as caught:
        ready.step(played.subject(LINUX), api).run(Quiet())
    assert caught.value.why == "the facts"
    assert f"winlab restart {LINUX} --lab lab" in caught.value.cure


# -- their other calls


def test_a_suspended_machine_is_distinguished_from_one_that_qemu_paused(played: Played) -> None:
    domain = played.domain(LINUX)
    domain.suspend()
    assert domain.state()[1] == libvirt.VIR_DOMAIN_PAUSED_USER
    assert [one.state for one in domains.machines(played.conn)] == ["suspended", "running"]


def test_autostart_is_libvirts_flag(played: Played) -> None:
    machine = played.subject(LINUX).machine
    assert power.set_autostart(played.conn, machine, wanted=True)
    assert not power.set_autostart(played.conn, machine, wanted=True)
    assert [one.autostart for one in domains.machines(played.conn)] == [True, False]
    assert power.set_autostart(played.conn, machine, wanted=False)


def test_when_a_certificate_expires(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "admin")])
    end = datetime.fromtimestamp(NOW, UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(end - timedelta(days=365)).not_valid_after(end).sign(key, hashes.SHA256())
    )  # fmt: skip
    coded = base64.b64encode(made.public_bytes(Encoding.PEM)).decode()
    assert expiry.of(json.dumps({"users": [{"user": {"client-certificate-data": coded}}]})) == end
    for other in (
        '{"users": [{"user": {"token": "x"}}]}',
        "{}",
        '{"users": [{"user": {"client-certificate-data": 7}}]}',
    ):
        assert expiry.of(other) is None
