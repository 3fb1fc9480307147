"""Whose a lab is, whether there is one, and whether its API server can answer: known before anything is done."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import plans
import pytest
from lab_fakes import machine
from sites import FakeSite, hypervisor

from winlab import Lab, Proposal, Site, account
from winlab.adapters.vm import domains
from winlab.adapters.vm.domains import Machine
from winlab.design.spec.model import Spec
from winlab.errors import ConflictError, NotFoundError, OffError
from winlab.events import Quiet
from winlab.lab_folder import LabFolder
from winlab.operations import planning, power
from winlab.operations.join import Joining


@functools.cache
def proposal() -> Proposal:
    return planning.make(Spec.load("1-0-1"), "lab", plans.TCG, Quiet())


# What changes a lab, by the method's name
CHANGES: dict[str, Callable[[Lab], object]] = {
    "create": lambda lab: lab.create(proposal()),
    "apply": lambda lab: lab.apply(proposal()),
    "join": lambda lab: lab.join(Joining(proposal(), None, "")),  # type: ignore[arg-type]
    "push": lambda lab: lab.push("node-1", "kubelet"),
    "load": lambda lab: lab.load("web.tar"),
    "stop": lambda lab: lab.stop(),
    "start": lambda lab: lab.start(),
    "restart": lambda lab: lab.restart(["node-1"]),
    "suspend": lambda lab: lab.suspend(),
    "resume": lambda lab: lab.resume(),
    "autostart": lambda lab: lab.autostart(wanted=True),
    "protect": lambda lab: lab.protect(),
    "repair": lambda lab: lab.repair(),
    "add_fault": lambda lab: lab.add_fault("partition", "node-1"),
    "clear_faults": lambda lab: lab.clear_faults(),
    "destroy": lambda lab: lab.destroy(),
}
CHANGES_NOTHING = {
    *("plan", "plan_join", "check_join", "bundle", "build_golden", "lock", "support", "test_readiness", "test_smoke"),
    "copy",  # files in guests only, as commands there can do
}
NEEDS_A_LAB: dict[str, Callable[[Lab], object]] = {
    "kubectl": lambda lab: lab.kubectl("get", "nodes"),
    "become_kubectl": lambda lab: lab.become_kubectl(["get", "nodes"]),
    "kubeconfig": lambda lab: lab.kubeconfig(),
    "merge_kubeconfig": lambda lab: lab.merge_kubeconfig(),
    "spec": lambda lab: lab.spec(),
    "grown": lambda lab: lab.grown(),
    "shrunk": lambda lab: lab.shrunk("node-1"),
    "unchanged": lambda lab: lab.unchanged(),
    "diff": lambda lab: lab.diff(proposal()),
    "repair": lambda lab: lab.repair(check=True),
    "events": lambda lab: lab.events(),
    "timeline": lambda lab: lab.timeline(),
    "faults": lambda lab: lab.faults(),
    "support": lambda lab: lab.support(),
}


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> list[Machine]:
    """The machines of the host; this is the user 1234567."""
    made: list[Machine] = []

    def machines(_conn: object, lab: str | None = None) -> list[Machine]:
        return [one for one in made if lab in (None, one.tag.lab)]

    monkeypatch.setattr(domains, "machines", machines)
    monkeypatch.setattr(account, "uid", lambda: 1234567)
    return made


def site(*networks: str) -> Site:
    """A site with what is left of these labs."""
    return FakeSite(hypervisor(pool=SimpleNamespace(names=list)), overlay=SimpleNamespace(labs=lambda: list(networks)))


def owned(one: Machine, uid: int | None) -> Machine:
    return replace(one, tag=one.tag.model_copy(update={"uid": uid}))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_lab_of_another_user_is_not_changed(there: list[Machine], change: Callable[[Lab], object]) -> None:
    """ux N3: everyone's first lab is called 'lab'."""
    there += [owned(machine("controller-1", "linux"), 0), owned(machine("node-1"), 0)]
    lab = Lab("lab", site())
    with pytest.raises(ConflictError, match="'lab' belongs to root") as refused:
        change(lab)
    assert "--anyone" in refused.value.cure
    assert not lab.site.folder("lab").path.exists()


def test_every_method_that_changes_a_lab_is_among_them() -> None:
    listening = {
        name
        for name, one in inspect.getmembers(Lab, inspect.isfunction)
        if "listener" in inspect.signature(one).parameters
    }
    assert listening - CHANGES_NOTHING == CHANGES.keys() - {"autostart", "protect"}


@pytest.mark.parametrize(("uid", "anyone"), [(0, True), (1234567, False), (None, False)])
def test_it_is_changed_if_the_user_says_so_and_so_is_the_user_s_own(
    there: list[Machine], monkeypatch: pytest.MonkeyPatch, uid: int | None, anyone: bool
) -> None:
    there.append(owned(machine("node-1"), uid))
    monkeypatch.setattr(power, "suspend", lambda *_: ["suspended"])
    assert Lab("lab", site(), anyone=anyone).suspend() == ["suspended"]


def test_without_libvirt_the_command_itself_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "suspend", lambda *_: ["suspended"])
    assert Lab("lab", Site()).suspend() == ["suspended"]


@pytest.mark.parametrize("ask", NEEDS_A_LAB.values(), ids=NEEDS_A_LAB)
def test_a_lab_that_does_not_exist_is_named(there: list[Machine], ask: Callable[[Lab], Any]) -> None:
    """ux N10: an archive was made, "no faults" was reported, or another user was blamed."""
    there.append(machine("node-1"))
    with pytest.raises(NotFoundError, match="There is no lab 'nosuch'") as refused:
        ask(Lab("nosuch", site("remains")))
    assert refused.value.cure.endswith("Labs on this host: lab, remains.")


def test_what_is_left_of_a_lab_is_a_lab(there: list[Machine]) -> None:
    """A network, or a folder of a create that failed early."""
    LabFolder("early").make()
    for name in ("remains", "early"):
        with pytest.raises(NotFoundError, match="no record of what the lab"):
            Lab(name, site("remains")).spec()


def test_without_libvirt_it_is_not_said_that_there_is_no_lab(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no record of what the lab"):
        Lab("nosuch", Site(state=tmp_path)).spec()


@pytest.mark.parametrize(("state", "verb"), [("off", "start"), ("suspended", "resume"), ("crashed", "start")])
def test_an_api_server_that_does_not_run_is_not_asked(there: list[Machine], state: str, verb: str) -> None:
    """ux N14: kubectl waited for half a minute."""
    there += [machine("controller-1", "linux", state), machine("node-1")]
    with pytest.raises(OffError, match=f"does not run: 'controller-1' is {state}") as refused:
        Lab("lab", site()).kubectl("get", "nodes")
    assert refused.value.cure == f"Run 'winlab {verb} --lab lab'."


@pytest.mark.parametrize("names", [("controller-1", "controller-2"), ("node-2",)])
def test_one_controller_is_enough_and_an_external_cluster_has_none_here(
    there: list[Machine], names: tuple[str, ...]
) -> None:
    states = ["running", "off"]
    there += [machine(name, "linux", state) for name, state in zip(names, states, strict=False)]
    with pytest.raises(NotFoundError, match="no cluster that this account can use"):
        Lab("lab", site()).kubectl("get", "nodes")
