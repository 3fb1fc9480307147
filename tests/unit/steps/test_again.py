"""A connection that is cut in the middle of a script that may be run twice: winlab waits for the node and does so."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import answers
import plans
import pytest
import runs

from winlab.adapters.vm import domains
from winlab.design.cni.model import NodeNetwork
from winlab.design.contract.call import Call, R
from winlab.design.distribution.kubeadm.config import JoinCredentials
from winlab.design.plan.node_plan import NodePlan
from winlab.engine.step import Step
from winlab.errors import GuestError, UnreachableError
from winlab.events import Quiet
from winlab.steps import amendment, control_plane, golden, pod_network, pods
from winlab.steps.distribution.kubeadm import administrator, credentials
from winlab.steps.linux import node as linux_node
from winlab.steps.sources import Supply

CUT = UnreachableError("The ssh connection to the node was lost.", why="cut off", cure="Look.")

LATE = "[ERROR ContainerRuntimeVersion]: could not connect: rpc error: code = DeadlineExceeded desc = x"


class Voice(Quiet):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str, fraction: float | None = None) -> None:
        self.said.append(text)


class There:
    """The nodes. The connection is cut in the middle of the scripts in ``cut``, once for each entry."""

    def __init__(self, *cut: str) -> None:
        self.cut = list(cut)
        self.is_on = True
        self.deaf: list[Exception] = []  # how it answers at first, when it is asked for anything
        self.ran: list[str] = []
        self.started = False
        self.late = 0  # how often kubeadm's checks find containerd too slow

    def of(self, node: NodePlan) -> Any:
        return Login(self, node.name)


class Login:
    def __init__(self, there: There, name: str) -> None:
        self.there = there
        self.tag = SimpleNamespace(node=name)
        self.scale = 1.0

    def run(self, call: Call[R], *_: Any) -> R:
        settings = vars(call)
        what = call.script if call.script != "run-kubeadm" else settings["arguments"][0]
        what += " begins" if settings.get("begin") else ""
        if call.script != "status":
            self.there.ran.append(f"{self.tag.node}: {what}")
        here = f"{self.tag.node}: {what}"
        if here in self.there.cut:
            self.there.cut.remove(here)
            self.there.started = what == "join"
            raise CUT
        if what == "join" and self.there.late:
            self.there.late -= 1
            self.there.started = True
            raise GuestError("'run-kubeadm' failed.", why=f"kubeadm join ended with exit code 1:\n\t{LATE}")
        facts: dict[str, Any] = {"started": self.there.started} if call.script == "status" else {"restart": False}
        self.there.started = self.there.started and what != "reset"
        return answers.result(call, facts)

    def execute(self, command: list[str], _stdin: bytes = b"") -> str:
        assert command == ["hostname"]
        self.there.ran.append(f"{self.tag.node}: hostname")
        if self.there.deaf:
            raise self.there.deaf.pop(0)
        return self.tag.node

    def disconnect(self) -> None:
        pass


Perform = Callable[[There, str], list[str]]


@pytest.fixture
def perform(monkeypatch: pytest.MonkeyPatch) -> Perform:
    """Run a step in these nodes; what was said."""
    runs.clock(monkeypatch)
    monkeypatch.setattr(credentials, "lent", lambda *_: nullcontext(JoinCredentials("a.b", ("x",), "0")))
    monkeypatch.setattr(administrator, "hand_over", lambda *_: None)
    monkeypatch.setattr(pod_network, "await_share", lambda _run, node, _: own(node))
    monkeypatch.setattr(pod_network, "shares", lambda run: [own(node) for node in run.plan.nodes])
    monkeypatch.setattr(pod_network, "share", lambda _run, node: own(node))
    northbound = SimpleNamespace(set_pod_routes=lambda *_: None)

    def own(node: NodePlan) -> NodeNetwork:
        last = node.address.rpartition(".")[2]
        return NodeNetwork(node.name, node.os, node.address, f"10.244.{last}.0/24")

    def steps(there: There) -> list[Step]:
        plan = plans.make(plans.KVM, "mixed", "controllers.count=3", "network.cni=host-gw")
        run = runs.run(plan, guests=there.of, overlay=northbound)
        linux = [step for node in plan.linux_nodes() for step in linux_node.steps(run, node)]
        loads = [amendment._load(run, node) for node in (plan.node("win22-1"), plan.node("controller-1"))]
        making = [*linux, *control_plane.steps(run), *pods.steps(run, Supply(None)), *loads]  # type: ignore[arg-type]
        builder = plans.make(plans.TCG, "1-1-1", "workers.os=windows-2022").builders[0]
        run = runs.run(builder, guests=there.of)
        return [*making, *golden.steps(run, "base-x-0.qcow2", "key", run.on(builder.nodes[0]))]

    def go(there: There, title: str) -> list[str]:
        monkeypatch.setattr(domains, "is_running", lambda *_: there.is_on)
        monkeypatch.setattr(domains, "state", lambda *_: "off")
        monkeypatch.setattr(domains, "was_shut_down", lambda *_: True)
        voice = Voice()
        runs.titled(steps(there), title).run(voice)
        return voice.said

    return go


@pytest.mark.parametrize(
    ("title", "script", "node"),
    [
        ("pod routes", "routes", "controller-1"),
        ("pod routes", "routes", "win22-1"),
        ("load win22-1", "load", "win22-1"),
        ("load controller-1", "load", "controller-1"),
        ("prepare controller-2", "prepare", "controller-2"),
        ("cni linux-1", "cni", "linux-1"),
        ("join controller-2", "init", "controller-1"),
        ("init controller-1", "init", "controller-1"),
        ("seal golden", "seal", "golden"),
    ],
)
def test_it_is_run_again_when_the_node_answers(perform: Perform, title: str, script: str, node: str) -> None:
    there = There(*[f"{node}: {script}"] * 2)
    there.deaf = [CUT, GuestError("it refuses")]
    said = perform(there, title)
    assert [line for line in there.ran if line.startswith(f"{node}: {script}") and "begins" not in line] == (
        [f"{node}: {script}"] * 3
    )
    told = [line for line in said if "was lost" in line]
    assert [line.partition("(")[2] for line in told] == ["2/3)", "3/3)"]
    assert told[0].startswith(f"the connection to {node} was lost: ")
    assert f"waiting for {node} to answer again; it says: it refuses" in said
    assert there.ran.count(f"{node}: hostname") == 4


def test_a_join_that_was_cut_off_is_undone_first(perform: Perform) -> None:
    """Unless it has ended well meanwhile: then kubeadm's own record says so."""
    there = There("linux-1: join")
    perform(there, "join linux-1")
    assert there.ran == [f"linux-1: {what}" for what in ("join", "hostname", "reset", "join")]


def test_kubeadm_is_run_again_on_a_clean_node_when_containerd_was_too_slow(perform: Perform) -> None:
    there = There()
    there.late = 2
    said = perform(there, "join linux-1")
    assert there.ran == [f"linux-1: {what}" for what in ("join", "reset", "join", "reset", "join")]
    assert [text for text in said if "too late" in text][-1].endswith("it is run again (3/4)")
    there.late = 9
    with pytest.raises(GuestError) as failed:
        perform(there, "join linux-1")
    assert failed.value.why.endswith("and the machine is busy.")  # the known cause


@pytest.mark.parametrize("title", ["pod routes", "prepare controller-1", "seal golden"])
def test_a_machine_that_does_not_run_is_not_waited_for(perform: Perform, title: str) -> None:
    there = There("controller-1: routes", "controller-1: prepare", "golden: seal")
    there.is_on = False
    with pytest.raises(UnreachableError, match="was lost"):
        perform(there, title)
    assert len(there.ran) == 1


def test_a_node_that_stays_unresponsive_is_reported(perform: Perform) -> None:
    there = There("controller-1: prepare")
    there.deaf = [CUT] * 1000
    with pytest.raises(UnreachableError, match="'controller-1' has not answered again for 5 min") as caught:
        perform(there, "prepare controller-1")
    assert caught.value.why == f"{CUT.what}\n{CUT.why}"
    assert caught.value.cure == CUT.cure
    assert 90 < len(there.deaf) < 1000


def test_a_sysprep_that_may_have_begun_is_not_begun_twice(perform: Perform) -> None:
    there = There("golden: seal begins")
    perform(there, "seal golden")
    assert there.ran == ["golden: seal", "golden: seal begins"]


def test_a_failure_s_known_cause_is_named(perform: Perform, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise GuestError("'load' failed in 'node-1'.", why="Commands run with a filtered token.")

    monkeypatch.setattr(Login, "run", fail)
    for title in ("load win22-1", "pod routes", "prepare controller-1", "seal golden"):
        with pytest.raises(GuestError) as caught:
            perform(There(), title)
        assert "\n" in caught.value.why, title
        assert caught.value.cure
