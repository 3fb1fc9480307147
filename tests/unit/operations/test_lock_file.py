"""winlab.lock: what is pinned, and how drift is reported."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path
from typing import NoReturn

import plans
import pytest
import yaml

from winlab.design import spec
from winlab.design.catalog import recipes
from winlab.design.catalog.artifact import Artifact, ContainerImage, Manifest, Obtained, Program
from winlab.design.plan.model import Plan
from winlab.design.plan.stock import Stock
from winlab.design.spec.model import Spec
from winlab.errors import AccessError, ConflictError, NotFoundError, UsageError
from winlab.events import Quiet
from winlab.operations import bundle as restoring
from winlab.operations import create as creating
from winlab.operations import lock_file, lock_inputs
from winlab.operations.lock_file import Lock, LockedImage, LockedMedium
from winlab.operations.planning import Proposal
from winlab.site import Site
from winlab.steps.sources import Origin
from winlab.supply.artifacts.bundle import file as files

KUBELET = Program("kubelet", "v1.36.3", "windows")
PAUSE = ContainerImage("registry.k8s.io/pause:3.10.2", "linux")
OTHER_PAUSE = ContainerImage("registry.k8s.io/pause:3.11", "linux")
OPERATOR = Manifest("calico", "v3.32.1", "operator.yaml")
MEDIUM = LockedMedium(name="medium of windows-2022", file="server.iso", sha256="a" * 64)
DEBIAN = LockedImage(name="debian-13", key="b" * 64, download=f"sha512:{'c' * 128}", sha256="d" * 64)


def obtained(artifact: Artifact, content: str = "right", origin: str = "upstream") -> Obtained:
    return Obtained(artifact, Path("/nowhere"), hashlib.sha256(content.encode()).hexdigest(), 5, origin)


def media(*changes: str) -> list[LockedMedium]:
    wanted = spec.load("1-1-1", changes)
    return lock_inputs.media(plan(*changes), plans.stock(wanted))


def plan(*changes: str) -> Plan:
    return plans.make(plans.TCG, "1-1-1", *changes)


def made(
    *items: Obtained, images: tuple[LockedImage, ...] = (DEBIAN,), media: tuple[LockedMedium, ...] = (MEDIUM,)
) -> Lock:
    every = items or (obtained(KUBELET), obtained(PAUSE), obtained(OPERATOR))
    return lock_file.collect(plan(), every, images=images, media=media, spec="1-1-1", source="upstream")


def test_written_and_read_again_it_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "winlab.lock"
    assert lock_file.write(path, made())
    assert lock_file.read(path) == made()
    assert not lock_file.write(path, made())
    assert [entry.name for entry in tmp_path.iterdir()] == ["winlab.lock"]
    raw = yaml.safe_load(path.read_text())
    assert raw["format"] == 1
    assert raw["versions"]["kubernetes"] == plan().cluster.versions.kubernetes
    assert raw["programs"] == [
        {
            "name": "kubelet.exe",
            "version": "v1.36.3",
            "os": "windows",
            "sha256": hashlib.sha256(b"right").hexdigest(),
            "origin": "upstream",
        }
    ]
    assert raw["containers"][0]["name"] == "registry.k8s.io/pause"
    assert raw["manifests"][0]["name"] == "calico/operator.yaml"
    assert sum(line.startswith("- {") for line in path.read_text().splitlines()) == lock_file.count(made()) == 5


def test_the_order_in_which_things_came_does_not_matter(tmp_path: Path) -> None:
    one = lock_file.collect(plan(), [obtained(KUBELET), obtained(PAUSE)], images=[DEBIAN])
    other = lock_file.collect(plan(), [obtained(PAUSE), obtained(KUBELET), obtained(PAUSE)], images=[DEBIAN, DEBIAN])
    assert one == other


def test_nothing_differs_from_itself() -> None:
    assert lock_file.compare(made(), made()) == []
    lock_file.require(made(), made(), Path("winlab.lock"))


def test_another_winlab_source_or_spec_is_not_drift() -> None:
    other = made().model_copy(update={"winlab": "9.9", "source": "bundle", "spec": "3-2-1"})
    assert lock_file.compare(made(), other) == []


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (
            made(obtained(KUBELET, "altered", "build"), obtained(PAUSE), obtained(OPERATOR)),
            ["program kubelet.exe (windows)", "(from build)", "(from upstream)"],
        ),
        (
            made(obtained(KUBELET, "altered", "built from k8s.io/x v1"), obtained(PAUSE), obtained(OPERATOR)),
            [" (built from k8s.io/x v1), locked is"],
        ),
        (
            made(obtained(Program("kubelet", "v1.35.1", "windows")), obtained(PAUSE), obtained(OPERATOR)),
            ["kubelet.exe (windows) is v1.35.1, locked is v1.36.3"],
        ),
        (
            made(obtained(KUBELET), obtained(OTHER_PAUSE), obtained(OPERATOR)),
            ["container image registry.k8s.io/pause (linux) is 3.11, locked is 3.10.2"],
        ),
        (made(obtained(KUBELET), obtained(PAUSE)), ["manifest calico/operator.yaml is locked, but is no longer used"]),
        (
            made(obtained(KUBELET), obtained(PAUSE), obtained(OPERATOR), obtained(Program("ctr", "2.3.7", "linux"))),
            ["program ctr (linux) is not in the lock"],
        ),
        (made(media=(MEDIUM.model_copy(update={"sha256": "e" * 64}),)), ["medium of windows-2022", "e" * 64]),
        (made(images=(DEBIAN.model_copy(update={"key": "e" * 64}),)), ["image debian-13 has the key"]),
        (made(images=(DEBIAN.model_copy(update={"sha256": "e" * 64}),)), ["image debian-13 has the SHA-256"]),
        (made(images=(DEBIAN.model_copy(update={"download": None}),)), ["debian-13 has the download none"]),
        (made().model_copy(update={"profile": "host-gw"}), ["profile is host-gw"]),
        (
            made().model_copy(update={"components": {**made().components, "metrics-server": "v0.8.1"}}),
            ["components.metrics-server is v0.8.1, locked is not there."],
        ),
        (
            made().model_copy(update={"versions": made().versions.model_copy(update={"containerd": "2.3.6"})}),
            ["versions.containerd is 2.3.6, locked is"],
        ),
    ],
)
def test_a_drift_is_named(now: Lock, says: list[str]) -> None:
    drifts = lock_file.compare(made(), now)
    assert len(drifts) == 1
    for text in says:
        assert text in drifts[0]
    with pytest.raises(ConflictError) as refused:
        lock_file.require(made(), now, Path("winlab.lock"))
    assert drifts[0] in refused.value.why


def test_an_image_that_the_cache_does_not_have_is_judged_by_its_key() -> None:
    absent = DEBIAN.model_copy(update={"sha256": None})
    assert lock_file.compare(made(), made(images=(absent,))) == []
    assert lock_file.compare(made(images=(absent,)), made()) == []


@pytest.mark.parametrize(
    ("now", "says"),
    [
        ({"apt": "3.0.3", "sudo": "1.9"}, None),
        ({"apt": "3.0.4", "sudo": "1.9"}, "has other packages: apt 3.0.4, locked is 3.0.3."),
        ({"apt": "3.0.3"}, "has other packages: sudo missing, locked is 1.9."),
        ({"apt": "3.0.3", "sudo": "1.9", **{f"p{n}": "1" for n in range(7)}}, "p4 1, locked is none; and 2 more."),
        ({}, "has the SHA-256"),
    ],
)
def test_an_image_that_was_built_is_judged_by_its_packages(now: dict[str, str], says: str | None) -> None:
    """Two builds from the same packages may differ in bytes."""
    before = LockedImage(name="debian-13", key="b" * 64, sha256="d" * 64, packages={"apt": "3.0.3", "sudo": "1.9"})
    after = before.model_copy(update={"sha256": "e" * 64, "packages": now})
    found = lock_file.compare(made(images=(before,)), made(images=(after,)))
    assert found == [] if says is None else says in found[0]


def test_a_partial_lock_reports_nothing_missing() -> None:
    part = made(obtained(KUBELET), images=(), media=())
    assert len(lock_file.compare(made(), part)) == 4
    assert lock_file.compare(made(), part, whole=False) == []
    wrong = made(obtained(KUBELET, "altered"), images=(), media=())
    assert len(lock_file.compare(made(), wrong, whole=False)) == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("format: 2\n", "format that this winlab does not know: 2"),
        ("{}", "format that this winlab does not know: None"),
        ("- a\n", "is not valid"),
        ("a: [", "can't be read"),
        ("format: 1\nprofile: l3\n", "is not valid"),
    ],
)
def test_a_file_that_is_not_a_lock_file(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "winlab.lock"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        lock_file.read(path)
    assert says in str(refused.value)


def test_a_bad_digest_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "winlab.lock"
    lock_file.write(path, made())
    path.write_text(path.read_text().replace("d" * 64, "d" * 63))
    with pytest.raises(UsageError) as refused:
        lock_file.read(path)
    assert "images.0.sha256" in refused.value.why


def test_a_lock_file_in_a_closed_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: Path, *_: object, **__: object) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    for name in ("read_text", "read_bytes", "is_file"):
        monkeypatch.setattr(Path, name, closed)
    with pytest.raises(UsageError, match="can't be read"):
        lock_file.replaced(tmp_path / "winlab.lock")


def test_no_lock_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="There is no"):
        lock_file.read(tmp_path / "winlab.lock")
    with pytest.raises(AccessError, match="can't be written"):
        lock_file.write(tmp_path / "no" / "winlab.lock", made())


@pytest.mark.parametrize(
    ("spec", "path"),
    [("1-1-1", "winlab.lock"), ("team/x.yaml", "team/winlab.lock"), ("x.yml", "winlab.lock"), ("demo", "winlab.lock")],
)
def test_where_it_is(spec: str, path: str) -> None:
    assert lock_file.beside(spec) == Path(path)


def test_references_are_split_at_the_tag() -> None:
    images = [ContainerImage("host:5000/a/b:1@sha256:ff", "linux"), ContainerImage("host:5000/c", "linux")]
    rows = lock_file.collect(plan(), [obtained(image) for image in images]).containers
    assert [(row.name, row.version) for row in rows] == [("host:5000/a/b", "1@sha256:ff"), ("host:5000/c", "")]


def test_images_of_a_plan() -> None:
    rows = lock_inputs.images(plan("workers.os=windows-rehearsal"))
    assert {row.name for row in rows} == {"debian-13", "windows-rehearsal"}
    assert all(row.sha256 is None for row in rows)
    published = lock_inputs.images(plan("controllers.os=debian-13-cloud", "workers.count=0"))
    assert [(row.download or "").partition(":")[0] for row in published] == ["sha512"]


def test_media_of_a_plan_are_read_completely(tmp_path: Path) -> None:
    iso = tmp_path / "server.iso"
    iso.write_bytes(b"x" * (3 << 20))
    made_plan = plan("workers.os=windows-2022", f"workers.media={iso}", "workers.count=2")
    rows = {row.name: row for row in media("workers.os=windows-2022", f"workers.media={iso}", "workers.count=2")}
    assert rows.keys() == {"medium of windows-2022"}
    assert rows["medium of windows-2022"] == LockedMedium(
        name="medium of windows-2022", file="server.iso", sha256=hashlib.sha256(b"x" * (3 << 20)).hexdigest()
    )
    assert [row.name for row in lock_inputs.images(made_plan)] == ["debian-13"]


def test_an_evaluation_that_create_would_fetch_is_pinned_by_its_known_digest() -> None:
    """Otherwise 'lock' and then 'create --locked --accept-eula' would refuse what they just fetched."""
    (row,) = (row for row in media("workers.os=windows-2022") if row.name.startswith("medium"))
    evaluation = recipes.get("windows-2022").evaluations[0]
    assert (row.file, row.sha256) == (evaluation.file, evaluation.sha256)


def test_a_damaged_lock_is_replaced_and_any_other_file_is_not(tmp_path: Path) -> None:
    path = tmp_path / "winlab.lock"
    assert lock_file.replaced(path) is None
    path.write_text(f"{lock_file.HEAD}format: 1\nprofile: [")
    assert lock_file.replaced(path) is None
    path.write_text("controllers: {count: 1}\n")
    with pytest.raises(UsageError):
        lock_file.replaced(path)


def test_additions_of_the_user_to_windows_are_pinned_too(tmp_path: Path) -> None:
    (tmp_path / "mine.ps1").write_text("1")
    (tmp_path / "tree/etc").mkdir(parents=True)
    (tmp_path / "tree/etc/a.txt").write_text("2")
    words = [f"workers.scripts=[{tmp_path}/mine.ps1]", f"workers.files={tmp_path}/tree"]
    rows = {row.name: row.sha256 for row in media("workers.os=windows-rehearsal", *words)}
    assert rows == {
        "script 0 of windows-rehearsal": hashlib.sha256(b"1").hexdigest(),
        "files/etc/a.txt of windows-rehearsal": hashlib.sha256(b"2").hexdigest(),
    }


def test_another_bundle_than_the_locked_one_is_reported() -> None:
    one, other = (lock_file.collect(plan(), [], bundle=f"sha256:{digit * 64}") for digit in "12")
    assert lock_file.compare(one, other) == [f"The bundle is {other.bundle}, locked is {one.bundle}."]
    assert (
        lock_file.compare(one, lock_file.collect(plan(), [])) == []
    )  # what is not taken from a bundle is compared by itself
    assert lock_file.compare(lock_file.collect(plan(), []), one) == []


def test_create_takes_the_locked_bundle_before_anything_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its images would be in the cache already when the lock is compared."""
    bundle = files.write(tmp_path / "b.tar", [], {"spec": "1-1-1"}, Quiet())
    path = tmp_path / "winlab.lock"
    lock_file.write(path, lock_file.collect(plan(), [], bundle=f"sha256:{'0' * 64}"))
    monkeypatch.setattr(restoring, "restore_image", lambda *_: pytest.fail("it was taken"))
    with pytest.raises(ConflictError, match="differ from those locked"):
        creating.create(
            Proposal(Spec(), plan(), Stock()), Site(), lambda _: None, origin=Origin(bundle=bundle.path), locked=path
        )


def test_a_pipe_is_not_a_lock(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "winlab.lock")
    with pytest.raises(UsageError, match="can't be read") as refused:
        lock_file.replaced(tmp_path / "winlab.lock")
    assert refused.value.why == "it is not a file"
