"""The public API: its example, what it passes on, and the public names."""

from __future__ import annotations

import ast
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import changing
import checks_fakes
import example
import plans
import pytest
import runs
from checks_fakes import CONTROLLER, LINUX, Cluster, access
from isos import make_server_medium

import winlab
from winlab import HostError, Lab, Plan, Proposal, Site, Spec, Supplies, UsageError, settings, stopping
from winlab.checks import access as ways
from winlab.design import fault
from winlab.design.plan.stock import Stock
from winlab.lab_folder import LabFolder
from winlab.operations import (
    bundle,
    consent,
    create,
    destroy,
    faults,
    golden,
    load,
    lock,
    look,
    planning,
    push,
    reach,
    recorded,
    repair,
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """What operations were asked for; nothing is done."""
    calls: list[tuple[str, Any]] = []

    def made(proposal: Any, site: Any, tell: Any, **options: Any) -> None:
        assert isinstance(proposal.stock, Stock)
        tell("an event")
        calls.append(("create", (proposal.plan, site, options)))

    def pushed(lab: str, site: Any, node: str, binary: str, tell: Any, *, restore: bool) -> str:
        calls.append(("push", (lab, node, binary, restore)))
        return "pushed"

    monkeypatch.setattr(create, "create", made)
    monkeypatch.setattr(push, "to_node", pushed)
    monkeypatch.setattr(load, "to_lab", lambda lab, site, image, tell, *, name: calls.append(("load", (lab, image))))
    monkeypatch.setattr(repair, "repair", lambda lab, site, tell, **options: calls.append(("repair", options)))
    monkeypatch.setattr(
        destroy, "destroy", lambda lab, site, tell, *, anyone: calls.append(("destroy", lab)) or ["all"]
    )
    return calls


def test_the_example_plans_creates_changes_and_destroys(
    asked: list[tuple[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(example.code("Plan"), names)
    assert "node-1 windows-rehearsal 10.77.0.101" in capsys.readouterr().out
    assert (tmp_path / "files/node-1/domain.xml").exists()
    exec(example.code("Create"), names)
    assert capsys.readouterr().out == "an event\n"
    exec(example.code("Change and remove"), names)
    assert [name for name, _ in asked] == ["create", "push", "load", "repair", "destroy"]
    plan, site, options = asked[0][1]
    assert (plan.lab, site, options["until"]) == ("ci", names["lab"].site, "cluster")
    assert asked[1][1] == ("ci", "node-1", "out/kubelet.exe", False)
    assert names["removed"] == ["all"]


def test_the_example_stops_a_call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def create_until_stopped(*_: object, **__: object) -> None:
        names["cancel"].set()
        stopping.check()

    monkeypatch.setattr(create, "create", create_until_stopped)
    lab = Lab("ci", Site(facts=plans.TCG))
    names: dict[str, Any] = {"lab": lab, "plan": lab.plan(Spec.load("1-1-1", rehearse=True))}
    exec(example.code("Stop a call"), names)
    assert capsys.readouterr().out == "stopped 130\n"


def test_the_example_has_faults(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    there: list[fault.Fault] = []
    monkeypatch.setattr(faults, "add", lambda lab, site, wanted, tell: there.append(wanted) or wanted)
    monkeypatch.setattr(faults, "active", lambda lab, site: there)
    monkeypatch.setattr(faults, "clear", lambda lab, site, which, tell: [which])
    names: dict[str, Any] = {"lab": Lab("ci")}
    exec(example.code("Injected faults"), names)
    assert "loss.node-1 20 % of the packets are lost" in capsys.readouterr().out
    assert names["cleared"] == ["node-1"]


def test_the_example_tests_a_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checks_fakes, "CLOCK", runs.clock(monkeypatch))
    cluster = Cluster(CONTROLLER, LINUX)
    cluster.broken = {("smoke-linux-1", "*")}
    reached: list[tuple[str, Any]] = []
    monkeypatch.setattr(
        ways, "of", lambda name, site: reached.append((name, site)) or (list(cluster.tags), access(cluster))
    )
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"lab": Lab("ci"), "Path": Path}
    exec(example.code("Test"), names)
    assert reached == [("ci", names["lab"].site)] * 2
    said = capsys.readouterr().out
    assert "readiness of 'ci'" in said
    assert "smoke of 'ci': 1 passed, 1 failed" in said
    assert "i/o timeout" in said
    assert b'failures="1"' in (tmp_path / "smoke.xml").read_bytes()


def test_a_test_reports_to_its_listener_and_refuses_unknown_checks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, told = Cluster(CONTROLLER, LINUX), []
    monkeypatch.setattr(ways, "of", lambda _name, _site: (list(cluster.tags), access(cluster)))
    lab = Lab("ci")
    for test in (lab.test_readiness, lab.test_smoke):
        with pytest.raises(UsageError, match="no check '99'"):
            test(only="99")
    assert not cluster.calls
    lab.test_readiness(only="R4", timeout=0, listener=told.append)
    assert {type(event).__name__ for event in told} >= {"StepStarted", "StepDone"}


def test_the_example_looks_at_supplies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_server_medium(tmp_path / "server.iso")
    lab = Lab("ci", Site(cache=tmp_path / "cache"))
    exec(example.code("Supplies"), {"lab": lab, "Path": Path})
    first, second = capsys.readouterr().out.splitlines()
    assert first == "2022 True []"
    assert second.startswith("windows-2022 ")
    assert " medium" in second
    assert list((tmp_path / "cache").iterdir())  # the site's own


def test_supplies_take_the_places_of_their_site(tmp_path: Path) -> None:
    told: list[Any] = []
    here, there = (Supplies(Site(cache=tmp_path / name)) for name in ("here", "there"))
    here.add_image("windows-2022", make_server_medium(tmp_path / "w.iso"))
    here.export_image("windows-2022", tmp_path / "w.tar", listener=told.append)
    assert there.images() == []
    brought = there.import_image(tmp_path / "w.tar", listener=told.append)
    assert there.image("windows-2022").image == brought.image
    assert [event.step for event in told if isinstance(event, winlab.StepDone)] == [
        "export windows-2022",
        "import w.tar",
    ]
    freed, left = there.remove_image("windows-2022")
    assert freed >= brought.image.size
    assert left == ""
    assert (there.images(), len(here.images())) == ([], 1)


def test_known_names_need_no_hypervisor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    site = Site(state=tmp_path)
    (tmp_path / "labs/old").mkdir(parents=True)
    monkeypatch.setattr(look, "all_labs", lambda _site: {"new": []})
    assert Lab.known_names(site) == ["new", "old"]

    def silent(_site: Site) -> None:
        raise HostError("libvirt does not answer.")

    monkeypatch.setattr(look, "all_labs", silent)
    assert Lab.known_names(site) == ["old"]


def test_every_public_name_exists() -> None:
    for name in winlab.__all__:
        assert getattr(winlab, name) is not None
    tree = ast.walk(ast.parse(Path(winlab.__file__).read_text(encoding="utf-8")))
    imports = {
        one.name: node.module for node in tree if isinstance(node, ast.ImportFrom) for one in node.names if one.asname
    }
    assert imports == winlab._HOMES, "what type checkers see"
    assert set(winlab.__all__) <= set(dir(winlab))
    with pytest.raises(AttributeError):
        winlab.Nothing  # noqa: B018


def test_every_method_in_the_page_s_table_exists() -> None:
    rows = example.PAGE.read_text().split("| command | method |")[1].split("\n\n")[0].splitlines()[2:]
    words = {word for row in rows for word in row.split("|")[2].replace("`", " ").replace(",", " ").split()}
    known = {name for one in (winlab.Lab, winlab.Node) for name in dir(one)} | {"Lab.all", "node(name):", "the", "same"}
    assert words - known - {"node(name)", ":"} == set()
    assert {"push", "load", "logs", "lock"} <= set(dir(winlab.Lab))
    rows = example.PAGE.read_text().split("| command | method of `Supplies` |")[1].splitlines()[2:]
    words = {word for row in rows for word in row.split("|")[2].replace("`", " ").replace(",", " ").split()}
    assert words == {name for name in dir(Supplies) if not name.startswith("_")}


def test_a_plan_of_another_lab_is_refused(asked: list[tuple[str, Any]]) -> None:
    site = Site(facts=plans.TCG)
    plan = Lab("ci", site).plan(Spec.load("1-0-1"))
    other = Lab("other", site)
    for call in (other.create, other.apply, other.build_golden):
        with pytest.raises(UsageError, match="is for the lab 'ci', and this is the lab 'other'"):
            call(plan)
    assert asked == []
    Lab("ci", site).create(plan)
    assert [name for name, _ in asked] == ["create"], "any object of the same lab takes it"


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> tuple[Proposal, Proposal]:
    """Two proposals of the lab "lab" with the same digest: another medium is available."""
    wanted = Spec.load("1-1-1", ["workers.os=windows-2022", "workers.golden=false"])
    lab = Lab("lab", Site(facts=plans.TCG))

    def planned(medium: str) -> Proposal:
        at_hand = plans.stock(wanted, media={"windows-2022": plans.digest(medium)})
        with monkeypatch.context() as patched:
            patched.setattr(planning, "stock", SimpleNamespace(take=lambda *_: at_hand))
            return lab.plan(wanted)

    return planned("first"), planned("second")


def test_create_and_apply_carry_out_the_proposal_that_they_are_given(
    two: tuple[Proposal, Proposal], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two
    assert first.plan.digest == second.plan.digest
    assert first.plan != second.plan
    monkeypatch.setattr(consent, "settle", lambda *_, **__: False)
    world = changing.world(monkeypatch, LabFolder("lab"), plans.TCG, plans.stock)
    lab = Lab("lab", world.site())
    for call, given in ((lab.create, second), (lab.create, first), (lab.apply, second), (lab.apply, first)):
        call(given, until="guests")
        assert recorded.read(world.folder).plan == given.plan


def test_other_methods_take_the_proposal_that_they_are_given(
    two: tuple[Proposal, Proposal], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Plan, Stock]] = []

    def take(plan: Plan, stock: Stock, *_: object, **__: object) -> None:
        seen.append((plan, stock))

    for module, name in ((bundle, "gather"), (golden, "build"), (lock, "renew")):
        monkeypatch.setattr(module, name, take)
    lab = Lab("lab", Site())
    for one in two:
        for call in (lab.bundle, lab.build_golden, partial(lab.lock, spec="x")):
            call(one)
            assert seen.pop() == (one.plan, one.stock)


def test_methods_take_the_places_of_their_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = settings.cache_dir(), settings.state_dir()
    seen: list[Path] = []

    def execute(lab: str, node: str, site: Site, command: Any, stdout: Any, stderr: Any, via: Any, given: bytes) -> int:
        assert given == b"all of it"
        seen.extend((settings.cache_dir(), settings.state_dir(), site.folder(lab).path))
        stdout(b"ni")
        stdout(b"ce\xff")
        stderr(b"!")
        return 3

    monkeypatch.setattr(reach, "execute", execute)
    site = Site(cache=tmp_path / "c", state=tmp_path / "s")
    done = Lab("ci", site).node("node-1").execute(["x"], stdin=b"all of it")
    assert (done.exit_code, done.stdout, done.stderr) == (3, "nice\N{REPLACEMENT CHARACTER}", "!")
    assert seen == [tmp_path / "c", tmp_path / "s", tmp_path / "s/labs/ci"]
    assert (settings.cache_dir(), settings.state_dir()) == before


def test_all_labs_carry_their_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "all_labs", lambda site: {"a": [], "b": []})
    site = Site()
    assert [(one.name, one.site) for one in Lab.all(site)] == [("a", site), ("b", site)]


def test_terms_are_accepted_once(asked: list[tuple[str, Any]]) -> None:
    lab = Lab("ci", Site(facts=plans.TCG))
    plan = lab.plan(Spec.load("1-1-1", os="windows-2022"))
    assert consent.is_needed(plan.plan)
    lab.create(plan)
    lab.create(plan, accept_eula=True)
    lab.create(plan)
    assert [options["consent"] for _, (_, _, options) in asked] == [False, True, True]


def test_where_no_medium_is_missing_nothing_is_fetched(asked: list[tuple[str, Any]]) -> None:
    lab = Lab("ci", Site(facts=plans.TCG))
    lab.create(lab.plan(Spec.load("1-1-1", rehearse=True)), accept_eula=True)
    assert asked[0][1][2]["consent"] is False


def test_a_name_that_no_lab_can_have_is_not_destroyed(asked: list[tuple[str, Any]]) -> None:
    with pytest.raises(UsageError, match="can't be the name"):
        Lab("No").destroy()
    assert asked == []


def test_importing_winlab_imports_nothing_heavy() -> None:
    """The command starts quickly because public names are imported when they are used."""
    source = Path(winlab.__file__).read_text(encoding="utf-8")
    at_once = [line for line in source.splitlines() if line.startswith(("import ", "from "))]
    assert at_once == ["from __future__ import annotations", "import importlib", "from typing import TYPE_CHECKING"]
