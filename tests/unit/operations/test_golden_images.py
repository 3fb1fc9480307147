"""Golden images: what decides them, how clones use them, and how one is made."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import disks
import plans
import pytest
import runs
from clones import REHEARSAL, Network, clone, keep, make

from winlab.adapters.overlay import ovn
from winlab.adapters.vm import connection, devices, domains
from winlab.design import spec
from winlab.design.catalog import recipes
from winlab.design.plan import golden
from winlab.design.plan.facts import HYPERVISOR
from winlab.design.plan.lab_name import check_lab_name
from winlab.design.plan.model import Plan
from winlab.design.plan.stock import Stock
from winlab.design.render import domain, folder
from winlab.design.render.templates import expand
from winlab.design.render.topology import topology
from winlab.design.system import WINDOWS
from winlab.errors import HostError, NotFoundError, TransferError, UsageError
from winlab.events import Quiet
from winlab.lab_folder import LabFolder
from winlab.operations import golden as goldens
from winlab.operations import prune
from winlab.site import Site
from winlab.steps import recipe
from winlab.steps.sources import Supply
from winlab.steps.states import PAYLOAD
from winlab.supply.images import cache, library
from winlab.supply.images import golden as golden_cache

MADE: set[str] = set()  # the domains that the hypervisor has


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    MADE.clear()
    monkeypatch.setattr(domains, "find", lambda _conn, one: one if one.domain in MADE else None)
    monkeypatch.setattr(ovn, "connect", lambda _: nullcontext(Network(set())))
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path / "state"))


def key(*changes: str, lab_name: str = "lab") -> str:
    windows = clone(make(*changes, lab_name=lab_name)).windows
    assert windows is not None
    assert windows.golden is not None
    return windows.golden


def test_clones_share_one_image_and_have_no_installation_medium() -> None:
    plan = make(REHEARSAL)
    for name in ("node-1", "node-2"):
        node = plan.node(name)
        assert [volume.role for volume in node.volumes] == ["base", "disk", "answer"]
        assert node.volume("disk").backing == golden.base_volume(clone(plan).image, str(clone(plan).windows.golden))
        assert "media" not in domain.domain_xml(plan, node, "x")
    text = folder.files(plan, expand)["node-1/answer/Autounattend.xml"].decode()
    assert "windowsPE" not in text
    assert "offlineServicing" not in text
    assert "<ComputerName>NODE-1<" in text


def test_only_the_content_of_an_image_decides_its_key(tmp_path: Path) -> None:
    same = key(REHEARSAL)
    assert same == key(REHEARSAL, lab_name="other")
    assert same == key(REHEARSAL, "workers.cpus=4", "workers.memory=4GiB", "network.cidr=10.99.0.0/16")
    script = tmp_path / "a.ps1"
    script.write_text("1")
    changes = [
        "workers.edition=standard-core", "workers.firmware=bios", "workers.bus=virtio-blk", "workers.disk=9GiB",
        "workers.locale=de-DE", "workers.time_zone=Tokyo Standard Time",
        f"workers.scripts=[{script}]", "workers.updates=true",
    ]  # fmt: skip
    keys = [key(REHEARSAL, change) for change in changes]
    assert len({same, *keys}) == len(changes) + 1
    before = key(REHEARSAL, f"workers.scripts=[{script}]")
    script.write_text("2")
    assert key(REHEARSAL, f"workers.scripts=[{script}]") != before


def test_the_builder_is_a_lab_of_its_own() -> None:
    """Nothing of it clashes with the lab, and the lab's identity does not depend on it."""
    plan = make(REHEARSAL)
    builder = plan.builders[0]
    assert builder is not None
    (node,) = builder.nodes
    mine = {(one.uuid, one.mac, one.domain, one.floating) for one in plan.nodes}
    assert not {value for row in mine for value in row} & {node.uuid, node.mac, node.domain, node.floating}
    assert builder.network.router_external not in {plan.network.router_external, *(n.floating for n in plan.nodes)}
    assert {volume.name.split(".")[0] for volume in node.volumes if volume.role != "base"} == {builder.lab}
    assert node.windows is not None
    assert (node.windows.computer_name, node.windows.golden) == ("GOLDEN", None)
    assert plan.digest == plan.model_copy(update={"builders": ()}).digest
    assert plan.without_secrets().builders


def test_a_change_anywhere_in_a_file_counts(tmp_path: Path) -> None:
    file = tmp_path / "mine.ps1"
    keys = set()
    for middle in (b"a", b"b"):
        file.write_bytes(b"#" * (2 << 20) + middle + b"#" * (2 << 20))
        keys.add(key(REHEARSAL, f"workers.scripts=[{file}]"))
    assert len(keys) == 2


def test_a_manifest_holds_no_product_key() -> None:
    words = ("workers.os=windows-2022", "workers.product_key=AAAAA-BBBBB-CCCCC-DDDDD-EEEEE")
    plan = make(*words)
    assert plan.builders
    (node,) = plan.builders[0].windows_nodes()
    at_hand = plans.stock(spec.load("1-2-1", words))
    told = golden.told(node, at_hand)
    assert "AAAAA" not in str(told)
    assert told["windows"]["product_key"] is True
    assert golden.key(node, at_hand) == key(*words) != key(words[0])


def test_nodes_may_be_installed_by_themselves() -> None:
    plan = make(REHEARSAL, "workers.golden=false")
    assert plan.builders == ()
    assert [volume.role for volume in clone(plan).volumes] == ["base", "disk", "media", "answer"]
    assert make("workers.os=debian-13").builders == ()


def test_labs_can_t_have_the_names_of_builders() -> None:
    with pytest.raises(UsageError, match="can't be the name"):
        make(REHEARSAL, lab_name="golden-1234")
    assert check_lab_name("golden-1234", own=True) == "golden-1234"  # destroy takes it


def lacking(plan: Plan, pool: Pool, held: ExitStack) -> Plan | None:
    found = goldens.lacking(
        plan,
        Site(),
        lambda one: goldens.is_there(plan, one, runs.run(plan, pool=pool).hypervisors),
        held,
        lambda _: None,
    )
    return found[0] if found else None


class Pool:
    """A pool that has these base volumes."""

    def __init__(self, *complete: str) -> None:
        self.complete = complete

    def is_complete(self, name: str) -> bool:
        return name in self.complete


def test_a_golden_image_of_a_build_that_does_not_go_with_the_network_is_refused() -> None:
    plan = make("workers.os=windows-2022")
    keep(plan, build="20348.2400")
    with pytest.raises(UsageError, match=r"20348\.2400"):
        goldens.check_media(plan, Stock(), Site())


def test_an_abandoned_build_is_removed_with_its_lab_and_a_running_one_is_not() -> None:
    plan = make(REHEARSAL)
    gone: list[str] = []
    with ExitStack() as held:
        builder = lacking(plan, Pool(), held)
        assert builder is not None
        goldens.abandon("lab", Site(), gone.append)
        assert gone == []
    goldens.abandon("other", Site(), gone.append)
    goldens.abandon("lab", Site(), gone.append, keep=[builder.lab])
    assert gone == []
    goldens.abandon("lab", Site(), gone.append)
    assert gone == [builder.lab]
    LabFolder(builder.lab).remove()
    with ExitStack() as held:  # the lock outlives the folder
        assert lacking(plan, Pool(), held) == builder


@pytest.mark.parametrize("note", [b"\xff\xfe", None])
def test_a_damaged_folder_of_a_golden_image_stops_no_destroy(note: bytes | None) -> None:
    folder = LabFolder("golden-2022-00000000")
    folder.make()
    place = folder.path / goldens.WANTED_BY
    if note is None:
        place.mkdir()  # as unreadable for root as another user's
    else:
        place.write_bytes(note)
    gone: list[str] = []
    goldens.abandon("lab", Site(), gone.append)
    assert gone == []


def test_an_existing_image_is_not_made_again() -> None:
    plan = make(REHEARSAL)
    with ExitStack() as held:
        assert lacking(plan, Pool(golden.base_volume(clone(plan).image, str(clone(plan).windows.golden))), held) is None
        keep(plan)
        assert lacking(plan, Pool(), held) is None
    goldens.check_media(plan, Stock(), Site())
    (step,) = recipe.golden_upload(runs.run(plan))
    assert step.title == "image windows-rehearsal-golden"


def test_each_pool_has_its_golden_image_made_or_brought() -> None:
    plan = make("workers=[{os: windows-rehearsal}, {name: other, os: windows-rehearsal, disk: 9GiB}]")
    first, second = plan.builders

    def lacks(*volumes: str) -> tuple[Plan, ...]:
        hosts = runs.run(plan, pool=Pool(*volumes)).hypervisors
        with ExitStack() as held:
            return goldens.lacking(plan, Site(), lambda one: goldens.is_there(plan, one, hosts), held, lambda _: None)

    assert lacks() == (first, second)
    assert LabFolder(second.lab).path.joinpath("wanted-by").read_text() == "lab"
    assert lacks(plan.node("node-1").volume("base").name) == (second,)
    MADE.add(plan.node("other-1").domain)  # it exists: no image is cloned for it any more
    assert lacks() == (first,)
    built = recipe.golden_build(runs.run(plan), [first], Supply(cast(Any, None)), alone=True)
    assert [step.reaches for step in built].count(PAYLOAD(of="windows", host=HYPERVISOR)) == 1
    assert len(recipe.golden_upload(runs.run(plan), [first])) == 1
    assert len(recipe.golden_upload(runs.run(plan))) == 2
    moved = first.model_copy(update={"network": first.network.model_copy(update={"router_external": "172.31.250.1"})})
    assert len(recipe.golden_upload(runs.run(plan), [moved])) == 1  # its block was taken


def test_media_of_all_pools_are_checked() -> None:
    rows = "{os: windows-rehearsal}, {name: other, os: windows-2022}"
    for golden_image in ("true", "false"):
        with pytest.raises(NotFoundError, match="No media were found for 'windows-2022'"):
            goldens.check_media(make(f"workers=[{rows}]", f"workers.other.golden={golden_image}"), Stock(), Site())


def test_without_media_only_the_image_is_needed() -> None:
    """An imported image, or one made before the medium vanished, suffices."""
    plan = make("workers.os=windows-2022")
    with pytest.raises(NotFoundError, match="No media were found"):
        goldens.check_media(plan, Stock(), Site())
    keep(plan)
    goldens.check_media(plan, Stock(), Site())


@pytest.mark.parametrize(
    ("days", "programs", "says"),
    [(90, None, "ends in 90 days"), (-3, None, "is over"), (None, None, ""), (None, "old", "stale: made with other")],
)
def test_the_state_of_an_image_is_shown(days: int | None, programs: str | None, says: str) -> None:
    keep(make(REHEARSAL), days=days, programs=programs)
    (item,) = library.items()
    assert item.kind == "golden"
    assert says in item.state
    assert bool(says) == bool(item.state)


def test_images_are_found_by_name_or_key() -> None:
    keep(make(REHEARSAL))
    (item,) = library.items()
    assert library.find("windows-rehearsal").key == item.key == library.find(item.key[:5]).key
    with pytest.raises(NotFoundError):
        library.find("debian-13")
    keep(make(REHEARSAL, "workers.edition=standard-core"))
    with pytest.raises(UsageError, match="several") as caught:
        library.find("windows-rehearsal")
    assert item.key in caught.value.cure


def test_an_image_is_taken_to_another_machine_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disks.answer(monkeypatch)
    plan = make(REHEARSAL)
    made = keep(plan)
    file = tmp_path / "image.tar"
    library.export(library.find("windows-rehearsal"), file, Quiet())
    with pytest.raises(UsageError, match="already exists"):
        library.export(library.find("windows-rehearsal"), file, Quiet())
    made_here = cache.manifest(made.image)
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "other"))
    brought = library.bring(file, Quiet())
    assert brought.golden is not None
    assert brought.golden.key == made.key
    assert brought.manifest == {**made_here, "imported": str(file)}
    found = golden_cache.find(made.key)
    assert found is not None
    assert found.path.read_bytes().endswith(b"a disk")
    cache.remove(brought.image.key)
    assert golden_cache.find(made.key) is None
    file.write_bytes(file.read_bytes().replace(b"a disk", b"a disc"))
    with pytest.raises(TransferError, match="is damaged"):
        library.bring(file, Quiet())
    file.write_bytes(b"x")
    with pytest.raises(UsageError, match="not an image that winlab exported"):
        library.bring(file, Quiet())


def test_an_image_s_key_does_not_lead_out_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file could name any folder, which would be removed and replaced."""
    made, file = keep(make(REHEARSAL)), tmp_path / "image.tar"
    library.export(library.find("windows-rehearsal"), file, Quiet())
    (tmp_path / "precious").mkdir()
    key = "../../precious".ljust(64, "/").encode()
    file.write_bytes(file.read_bytes().replace(made.image.key.encode(), key))
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "other"))
    with pytest.raises(UsageError, match="not an image that winlab exported"):
        library.bring(file, Quiet())
    assert list((tmp_path / "precious").iterdir()) == []
    assert cache.entries() == []


def test_prune_keeps_the_newest_golden_image(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_uri: object) -> None:
        raise HostError("no libvirt")

    monkeypatch.setattr(connection, "connected", none)
    keep(make(REHEARSAL))
    last = keep(make(REHEARSAL, "workers.edition=standard-core"))
    prune.prune_all([recipes.get(name) for name in recipes.names()], Site())
    assert [one.key for one in golden_cache.entries()] == [last.key]


def test_an_existing_lab_needs_no_newer_image() -> None:
    """A newer winlab has other scripts, and would make another image; the lab is still the same one."""
    before = make(REHEARSAL)
    plan = plans.make(plans.TCG, "1-2-1", REHEARSAL, scripts="newer")
    assert clone(plan).windows.golden != clone(before).windows.golden
    assert plan.digest == before.digest
    assert plan.digest != make(REHEARSAL, "workers.golden=false").digest
    MADE.update(node.domain for node in plan.nodes)
    with ExitStack() as held:
        assert lacking(plan, Pool(), held) is None
    (step,) = recipe.golden_upload(runs.run(plan, pool=Pool()))
    assert step.done()


@pytest.mark.parametrize(
    ("medium", "left"),
    [
        ("base-kubernetes-windows-1.iso", ["base-a.iso"]),  # all have theirs
        ("it.node-1.answer.iso", ["base-kubernetes-windows-1.iso", "base-a.iso"]),  # Windows is being installed
    ],
)
def test_prune_leaves_the_payload_that_a_machine_will_get(
    monkeypatch: pytest.MonkeyPatch, medium: str, left: list[str]
) -> None:
    names = ["base-kubernetes-windows-1.iso", "base-a.iso"]

    class There(Pool):
        def refresh(self) -> None:
            pass

        def names(self, prefix: str = "") -> list[str]:
            return [name for name in names if name.startswith(prefix)]

        def path(self, name: str) -> Path:
            return Path("/pool") / name

        def backings(self) -> dict[str, Path]:
            return {}

        def allocation(self, _name: str) -> int:
            return 1

        def retire(self, name: str, is_used: Callable[[], bool]) -> bool:
            if not is_used():
                names.remove(name)
            return name not in names

    machine = SimpleNamespace(domain="winlab-it.node-1", tag=SimpleNamespace(system=WINDOWS))
    monkeypatch.setattr(domains, "machines", lambda *_: [machine])
    monkeypatch.setattr(devices, "medium", lambda *_: Path("/pool") / medium)
    waiting = prune._one_waits(cast(Any, None))
    prune._prune_pool(cast(Any, There(*names)), lambda: {"/pool/base-a.iso"}, waiting=waiting, dry_run=False)
    assert names == left


def placed(monkeypatch: pytest.MonkeyPatch, plan: Plan, network: Network) -> Plan:
    monkeypatch.setattr(ovn, "connect", lambda _: nullcontext(network))
    with ExitStack() as held:
        (found,) = goldens.lacking(plan, Site(), lambda _: False, held, lambda _: None)
    return found


def test_a_builder_whose_addresses_another_lab_has_takes_others(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make(REHEARSAL)
    (builder,) = plan.builders
    assert placed(monkeypatch, plan, Network(set())) == builder
    (own,) = topology(builder).claims
    moved = placed(monkeypatch, plan, Network({own}))
    assert topology(moved).claims != (own,)
    assert not {*moved.external_addresses} & {*builder.external_addresses, *plan.external_addresses}
    assert placed(monkeypatch, plan, Network(set(), standing=moved.digest)) == moved  # an interrupted build resumes
    every = {f"winlab-external-block-{number}" for number in range(300)}
    assert placed(monkeypatch, plan, Network(every)) == builder  # the database refuses it, and names the holder
