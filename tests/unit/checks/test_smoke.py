from __future__ import annotations

import json
from typing import Any

import pytest
import runs
from checks_fakes import (
    CONTROLLER,
    HYBRID,
    LINUX,
    NAMESPACE,
    STANDIN,
    WINDOWS,
    Cluster,
    access,
    ready,
    refuse,
    rows,
    tag,
)

from winlab.checks import smoke, testpods
from winlab.checks.model import Outcome, is_standin
from winlab.checks.report import Report
from winlab.checks.rows import ROWS
from winlab.errors import ClusterError, UsageError
from winlab.events import Event, Note
from winlab.stopping import Stopped

REHEARSAL = (CONTROLLER, LINUX, STANDIN)


def sandbox(pod: str, message: str) -> dict[str, Any]:
    about = {"kind": "Pod", "name": pod}
    return {
        "kind": "Event",
        "metadata": {"name": "e"},
        "involvedObject": about,
        "type": "Warning",
        "reason": "FailedCreatePodSandBox",
        "message": message,
    }


def rehearsal(message: str = "HcnCreateNamespace: not implemented") -> Cluster:
    cluster = Cluster(*REHEARSAL)
    cluster.events = [sandbox("smoke-windows-1", message)]

    def status(pod: dict[str, Any]) -> dict[str, Any]:
        if pod["spec"]["os"]["name"] == "windows":
            return {"phase": "Pending", **ready("False")}
        return cluster.running(pod)

    cluster.pod_status = status
    return cluster


def test_every_row_of_a_hybrid_lab_that_works() -> None:
    found = rows(Cluster(*HYBRID))
    assert list(found) == [row.id for row in ROWS]
    others = {name: result for name, result in found.items() if result[0] is not Outcome.PASSED}
    assert {name: result[0] for name, result in others.items()} == {
        "13": Outcome.UNSUPPORTED,
        "14": Outcome.NOT_APPLICABLE,
    }
    assert "timed out" in found["13"][1]
    assert "--only 14" in found["14"][1]
    assert "1080" in found["12"][1]
    assert "both on node-1" in found["3"][1]  # one Windows node has both pods


def test_a_rehearsal_says_what_it_can_not_prove_and_proves_the_rest() -> None:
    found = rows(rehearsal())
    assert {name for name, result in found.items() if result[0] is Outcome.REHEARSAL} == {
        row.id for row in ROWS if row.id[0].isdigit()
    }
    assert {name for name, result in found.items() if result[0] is Outcome.PASSED} == {
        row.id for row in ROWS if not row.id[0].isdigit()
    }
    assert (
        found["N7"][1] == "on node-1 by windows-2022, up to containerd, which says: HcnCreateNamespace: not implemented"
    )


def test_in_a_rehearsal_an_unknown_handler_fails() -> None:
    found = rows(rehearsal('no runtime for "runhcs-wcow-process" is configured'), "N7")
    assert found["N7"][0] is Outcome.FAILED
    assert "does not know the handler" in found["N7"][1]


def test_in_a_rehearsal_a_pod_that_containerd_never_saw_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoke, "STANDIN_SECONDS", 30.0)
    cluster = rehearsal()
    cluster.events = []
    assert rows(cluster, "N7")["N7"] == (Outcome.FAILED, "on node-1 by windows-2022, and does not run: Pending")


def test_with_a_real_windows_a_pod_without_sandbox_fails() -> None:
    cluster = Cluster(*HYBRID)
    cluster.events = [sandbox("smoke-windows-1", "no CNI")]
    cluster.pod_status = lambda pod: {"phase": "Pending", **ready("False")}
    found = rows(cluster, "N7,1")
    assert found["N7"][0] is Outcome.FAILED
    assert found["1"][1].endswith("does not run: Pending (FailedCreatePodSandBox: no CNI)")


def test_a_lab_with_one_linux_node() -> None:
    found = rows(Cluster(CONTROLLER))
    assert {name for name, result in found.items() if result[0] is Outcome.PASSED} == {
        "L4", "L5", "L6", "L6b", "L7", "L10", "L11", "N8",
    }  # fmt: skip
    assert found["L1"] == (Outcome.NOT_APPLICABLE, "the lab does not have two Linux nodes")
    assert found["N1"] == found["1"] == (Outcome.NOT_APPLICABLE, "the lab has no Windows node")


def test_a_lab_that_added_only_windows_to_an_external_cluster() -> None:
    found = rows(Cluster(WINDOWS))
    for row in ("1", "4", "8", "L1", "L4", "L7", "L11"):
        assert found[row][0] is Outcome.NOT_APPLICABLE, (row, found[row])
    assert found["L7"][1] == "the lab has no Linux node"
    assert {found[row][0] for row in ("7", "11", "N4")} == {Outcome.PASSED}


def test_without_a_way_out_the_outside_is_not_asked() -> None:
    found = rows(Cluster(*HYBRID), "10,6b,L10", reaches=lambda host, port: False)
    assert {result[0] for result in found.values()} == {Outcome.NOT_APPLICABLE}


@pytest.mark.parametrize(
    ("said", "name", "tcp"),
    [
        ("DNS: lookup registry.k8s.io: no such host", Outcome.FAILED, Outcome.FAILED),
        ("TIMEOUT", Outcome.PASSED, Outcome.FAILED),
    ],
)
def test_an_unreachable_name_that_resolves_is_not_a_dns_failure(said: str, name: Outcome, tcp: Outcome) -> None:
    calls = []

    def in_pod(namespace: str, pod: str, command: list[str]) -> str:
        calls.append(command)
        raise smoke.CheckFailed(said)

    rows(Cluster(*HYBRID), "L10", in_pod=in_pod)
    alone = len(calls)
    assert alone > 2  # tried again
    calls.clear()
    found = rows(Cluster(*HYBRID), "L6b,L10", in_pod=in_pod)
    assert (found["L6b"][0], found["L10"][0]) == (name, tcp)
    assert len(calls) == alone  # once for both rows


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_a_slow_outside_is_waited_for_while_something_changes(clock: runs.Clock, scale: float) -> None:
    begun, silence = clock.now, testpods.SILENCE * scale

    def in_pod(namespace: str, pod: str, command: list[str]) -> str:
        seen = int((clock.now - begun) // (silence * 0.8))
        if seen < 3:
            raise smoke.CheckFailed(("DNS: no such host", "REFUSED", "TIMEOUT")[seen])
        return ""

    assert rows(Cluster(*HYBRID), "L10", in_pod=in_pod, scale=scale)["L10"][0] is Outcome.PASSED
    assert clock.now - begun > 2 * silence


def test_another_port_or_identifier_in_an_error_is_not_progress(clock: runs.Clock) -> None:
    begun = clock.now

    def in_pod(namespace: str, pod: str, command: list[str]) -> str:
        passing = int(clock.now)
        raise smoke.CheckFailed(f"exec {passing:064x}: read tcp 10.244.1.3:{passing}->10.96.0.10:53: i/o timeout")

    assert "i/o timeout" in rows(Cluster(*HYBRID), "L10", in_pod=in_pod)["L10"][1]
    assert clock.now - begun < 2 * testpods.SILENCE


def test_a_pod_that_is_not_reached() -> None:
    cluster = Cluster(*HYBRID)
    cluster.broken = {("smoke-windows-1", "*")}
    found = rows(cluster, "1,2,5,6,12,L1")
    assert {name for name, result in found.items() if result[0] is Outcome.FAILED} == {"2", "5", "6", "12"}
    assert found["2"][1] == f"{cluster.address('smoke-linux-1')}:80 from smoke-windows-1: dial tcp: i/o timeout"


def test_a_pod_that_the_api_server_does_not_reach() -> None:
    cluster = Cluster(*HYBRID)
    cluster.broken = {("smoke-windows-1", "api")}
    found = rows(cluster, "1,2,7")
    assert [result[0] for result in found.values()] == [Outcome.PASSED, Outcome.FAILED, Outcome.FAILED]
    assert "trying to reach service" in found["7"][1]


def test_a_name_that_is_not_resolved() -> None:
    cluster = Cluster(*HYBRID)
    cluster._who = lambda pod, host: None  # type: ignore[method-assign]
    assert rows(cluster, "L6")["L6"][1] == "smoke-linux-1 can't resolve smoke-linux-2.winlab-smoke.svc.cluster.local"


def test_another_pod_that_answers() -> None:
    cluster = Cluster(*HYBRID)
    cluster._who = lambda pod, host: "smoke-linux-1"  # type: ignore[method-assign]
    assert "answered 'smoke-linux-1' instead of 'smoke-linux-2'" in rows(cluster, "L4")["L4"][1]


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda answer: answer.replace("5feceb", "5fece0", 1), "1 of 9 pieces are damaged"),
        (lambda answer: answer[:5000], "only 5000 of 1080000 bytes"),
        (lambda answer: '{"responses": []}' if answer[0] == "{" else answer, "only 0 of 9 pieces of 120000 bytes"),
    ],
)
def test_a_transfer_that_arrives_corrupted(damage: Any, why: str) -> None:
    cluster = Cluster(*HYBRID)
    cluster.damage = lambda answer: damage(answer) if answer[0] == "{" else answer
    assert why in rows(cluster, "L12")["L12"][1]


def test_the_port_of_a_windows_node_is_recorded_only() -> None:
    found = rows(Cluster(*HYBRID), "8,9", fetch=refuse)
    assert found == {"8": (Outcome.FAILED, "it does not answer"), "9": (Outcome.RECORDED, "it does not answer")}


def test_a_windows_node_that_reaches_services_passes_and_says_so() -> None:
    asked = []

    def execute(to: Any, command: list[str]) -> str:
        asked.append(command[-1])
        return "SMOKE-WINDOWS-1\n"

    outcome, detail = rows(Cluster(*HYBRID), "13", execute=execute)["13"]
    assert outcome is Outcome.PASSED
    assert "not expected" in detail
    assert asked[1].startswith("http://10.77.0.101:3")


def test_logs_and_exec() -> None:
    cluster = Cluster(*HYBRID)
    cluster.log = ""
    assert "it is empty" in rows(cluster, "11")["11"][1]
    assert rows(Cluster(*HYBRID), "11", in_pod=refuse)["11"] == (Outcome.FAILED, "it does not answer")


@pytest.mark.parametrize("back", [True, False])
def test_the_restart_of_a_windows_node(back: bool) -> None:
    cluster = Cluster(*HYBRID)
    asked = []

    def execute(to: Any, command: list[str]) -> str:
        asked.append((to.node, command[0]))
        if back:
            cluster.nodes["node-1"]["status"]["nodeInfo"]["bootID"] = "b2"
        return ""

    # the object at the beginning is another than the one that is read later
    cluster._list = _copying(cluster._list)  # type: ignore[method-assign]
    outcome, detail = rows(cluster, "14", execute=execute)["14"]
    assert asked == [("node-1", "shutdown.exe")]
    assert outcome is (Outcome.PASSED if back else Outcome.FAILED)
    assert ("rows 1 to 6 pass" in detail) == back


def _copying(function: Any) -> Any:
    import copy

    return lambda *args: copy.deepcopy(function(*args))


def test_leftovers_are_removed_first_and_everything_at_the_end() -> None:
    cluster = Cluster(*HYBRID)
    cluster.namespace = True
    rows(cluster, "L1")
    order = [words[0] for words in cluster.calls if words[0] in ("apply", "delete")]
    assert order == ["delete", "apply", "delete"]
    assert not cluster.namespace


def test_rows_that_need_no_pod_create_none() -> None:
    cluster = Cluster(*HYBRID)
    rows(cluster, "N1,N8")
    assert not [words for words in cluster.calls if words[0] != "get"]


def test_only_the_pods_that_are_needed_are_made() -> None:
    cluster = Cluster(*HYBRID)
    rows(cluster, "L7", keep=True)
    assert sorted(cluster.own) == [
        "Namespace winlab-smoke",
        "Pod smoke-linux-1",
        "Service smoke-linux-1",
        "ServiceAccount smoke",
    ]
    assert cluster.namespace


def test_pods_of_a_dead_node_are_removed_by_force() -> None:
    cluster = Cluster(*HYBRID)
    cluster.namespace, cluster.stuck = True, 1000
    rows(cluster, "L7")
    assert any("--force" in words for words in cluster.calls)


def test_leftovers_that_can_t_be_removed_are_an_error() -> None:
    cluster = Cluster(*HYBRID)
    cluster.namespace = True
    cluster._still_there = lambda: json.dumps(NAMESPACE)  # type: ignore[method-assign]
    with pytest.raises(ClusterError, match="is still there"):
        rows(cluster, "L7")
    assert not any(words[0] == "apply" for words in cluster.calls)


def test_a_namespace_that_stays_at_the_end_does_not_cost_the_results() -> None:
    cluster = Cluster(*HYBRID)
    looks = iter([""])
    cluster._still_there = lambda: next(looks, json.dumps(NAMESPACE))  # type: ignore[method-assign]
    told: list[Event] = []
    report: Report = smoke.run("lab", HYBRID, access(cluster), told.append, only="L7")
    assert [result.outcome for result in report.results] == [Outcome.PASSED]
    assert any(isinstance(event, Note) and "is still there" in event.text for event in told)


def test_an_unavailable_image_is_given_up_early() -> None:
    cluster = Cluster(*HYBRID)
    waiting = {"reason": "ImagePullBackOff", "message": "not found"}
    cluster.pod_status = lambda pod: {
        "phase": "Pending",
        **ready("False"),
        "containerStatuses": [{"name": "c", "image": "i", "state": {"waiting": waiting}}],
    }
    clocked = access(cluster)
    report = smoke.run("lab", HYBRID, clocked, lambda _event: None, only="1")
    assert "ImagePullBackOff: not found" in report.results[0].detail
    assert clocked.clock() < 2 * smoke.PULL_SECONDS < WINDOWS.system.ready_silence


def test_a_row_that_does_not_exist_touches_nothing() -> None:
    cluster = Cluster(*HYBRID)
    with pytest.raises(UsageError, match="no check 'L99'"):
        rows(cluster, "L1,L99")
    with pytest.raises(UsageError, match="names no check"):
        rows(cluster, " , ")
    assert not cluster.calls


def test_an_api_server_that_is_down() -> None:
    cluster = Cluster(*HYBRID)
    cluster.down = "connection refused"
    with pytest.raises(ClusterError):
        rows(cluster)


def test_a_stand_in_is_known_by_its_image() -> None:
    assert is_standin(STANDIN)
    assert not is_standin(WINDOWS)
    assert not is_standin(LINUX)
    assert not is_standin(tag("node-1", "windows", image="gone-from-the-catalog"))


def test_pods_that_make_progress_are_waited_for(clock: runs.Clock) -> None:
    cluster = Cluster(*HYBRID)
    begun, silence = clock.now, LINUX.system.ready_silence
    cluster.pod_status = lambda pod: {"phase": "Pending", **ready("False")}

    def progress() -> None:
        pulled = int((clock.now - begun) // (silence * 0.8))
        for pod in (item for item in cluster.own.values() if item["kind"] == "Pod"):
            done = [{"name": str(n), "state": {"terminated": {"reason": "Completed"}}} for n in range(pulled)]
            pod["status"] = {"phase": "Pending", **ready("False"), "initContainerStatuses": done}
            if pulled == 4:
                pod["status"] = cluster.running(pod)

    clock.sleeping = progress
    assert rows(cluster, "L1")["L1"][0] is Outcome.PASSED
    assert clock.now - begun > 3 * silence


def test_a_namespace_that_empties_slowly_is_left_alone(clock: runs.Clock) -> None:
    cluster = Cluster(*HYBRID)
    begun, silence = clock.now, smoke.GONE_SECONDS

    def look() -> str:
        left = 5 - int((clock.now - begun) // (silence * 0.9))
        message = f"Some resources are remaining: pods. has {left} resource instances"
        conditions = [{"type": "NamespaceContentRemaining", "message": message}]
        return json.dumps({**NAMESPACE, "status": {"conditions": conditions}}) if left else ""

    cluster._still_there = look  # type: ignore[method-assign]
    rows(cluster, "L7")
    assert clock.now - begun > 4 * silence
    assert not any("--force" in words for words in cluster.calls)


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.parametrize("error", [KeyboardInterrupt, Stopped])
def test_an_interrupt_does_not_wait_until_the_namespace_is_gone(
    monkeypatch: pytest.MonkeyPatch, answers: bool, error: type[BaseException]
) -> None:
    cluster = Cluster(*HYBRID)
    waited: list[str] = []

    def interrupted(*_: object) -> None:
        cluster.calls.clear()
        cluster._still_there = lambda: waited.append("asked") or ""  # type: ignore[method-assign, func-returns-value]
        cluster.down = "" if answers else "connection refused"
        raise error

    monkeypatch.setattr(smoke, "_judge_all", interrupted)
    told: list[Event] = []
    with pytest.raises(error):
        smoke.run("lab", HYBRID, access(cluster), told.append, only="L7")
    assert [words[:2] for words in cluster.calls] == [("delete", "namespace")]
    assert waited == []
    says = "is still being removed." if answers else "stays: "
    assert any(isinstance(event, Note) and f"The namespace winlab-smoke {says}" in event.text for event in told)
