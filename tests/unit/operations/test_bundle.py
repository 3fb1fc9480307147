"""The content of a bundle besides artifacts, and what a lab from a bundle must not need from the internet."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import plans
import pytest
from isos import BOOT, EVAL, make_server_medium, make_wim

from winlab.design import spec
from winlab.design.catalog import recipes
from winlab.design.plan.model import Plan
from winlab.design.plan.stock import Stock
from winlab.errors import NotFoundError, UsageError
from winlab.events import Quiet
from winlab.operations import bundle, golden
from winlab.site import Site
from winlab.steps import sources
from winlab.supply.images import cache, windows_media

NAME = "Windows Server 2022 SERVERDATACENTERCORE"


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "cache"))


def make(*changes: str) -> Plan:
    return plans.make(plans.KVM, "1-1-1", *changes)


def at_hand(*changes: str) -> Stock:
    return plans.stock(spec.load("1-1-1", changes))


def medium(folder: Path) -> Path:
    wim = make_wim([NAME], edition="ServerDatacenterEval", language="en-US")
    return make_server_medium(folder / "w.iso", wim=wim, files={"boot.wim": BOOT, "EI.CFG": EVAL})


def test_the_published_drivers_go_with_it() -> None:
    names = [recipe.name for recipe in bundle.recipes(make())]
    assert names == ["debian-13", "virtio-win"]
    assert [recipe.name for recipe in bundle.recipes(make("workers.drivers=/srv/mine.iso"))] == ["debian-13"]


def test_built_artifacts_do_not_come_from_the_mirror(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: dict[str, str | None] = {}

    def obtain(recipe: recipes.Recipe, progress: object, *, mirror: str | None) -> SimpleNamespace:
        asked[recipe.name] = mirror
        return SimpleNamespace(sha256="0" * 64)

    monkeypatch.setattr(bundle.cache, "obtain", obtain)
    monkeypatch.setattr(bundle.file, "write", lambda *_: None)
    source = SimpleNamespace(obtain_all=lambda *_: [])
    made = make()
    bundle.create(made, at_hand(), tmp_path / "b.tar", cast(Any, source), [], "https://mirror.example", Quiet())
    assert asked == {"debian-13": None, "virtio-win": "https://mirror.example"}


def test_a_bundle_in_the_cache_brings_the_images_that_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise its programs would come from it, and the images from a network that may be missing."""
    debian, drivers = recipes.get("debian-13"), recipes.get(windows_media.DRIVERS)
    in_bundle, in_cache = {cache.key(debian), cache.key(drivers)}, {drivers.name}
    opened = SimpleNamespace(image=lambda key: key if key in in_bundle else None)
    brought: list[str] = []
    monkeypatch.setattr(bundle.file, "open_bundle", lambda _: opened)
    monkeypatch.setattr(bundle, "restore_image", lambda _bundle, recipe, _progress: brought.append(cache.key(recipe)))
    monkeypatch.setattr(bundle.cache, "lookup", lambda recipe: recipe.name in in_cache or None)
    made = make()
    bundle.restore_lacking(made, Path("b.tar"), Quiet())
    assert brought == [cache.key(debian)]
    in_bundle.clear()
    bundle.restore_lacking(made, Path("b.tar"), Quiet())  # missing parts are fetched or built as before
    assert brought == [cache.key(debian)]


@pytest.mark.parametrize(
    ("version", "kubectls"), [("1.35", ["kubectl v1.35.4", "kubectl v1.36.3"]), ("1.36", ["kubectl v1.36.3"])]
)
def test_a_bundle_has_a_kubectl_that_the_host_may_run(
    monkeypatch: pytest.MonkeyPatch, version: str, kubectls: list[str]
) -> None:
    """Of 1.35's no digest is known: without a neighbour's, ``create --bundle FILE`` would have none."""
    monkeypatch.setattr(sources.select, "choose", partial(sources.select.choose, probe=lambda _: None))
    _, artifacts, why = bundle.source(make(f"kubernetes.version={version}"), sources.Origin(kind="upstream"))
    assert [str(one).removesuffix(" (linux)") for one in artifacts if str(one).startswith("kubectl v")] == kubectls
    assert sources.UNVOUCHED not in why


def test_a_kubernetes_from_a_checkout_stays_out_of_the_cache(tmp_path: Path) -> None:
    plan = make(f"kubernetes.source={tmp_path}")
    with pytest.raises(UsageError, match="does not go into the cache") as caught:
        bundle.create(plan, at_hand(), None, cast(Any, None), [], None, Quiet())
    assert "--to FILE" in caught.value.cure


def test_it_is_built_from_the_tree_of_the_user(tmp_path: Path) -> None:
    plan = make(f"kubernetes.source={tmp_path}")
    with pytest.raises(UsageError, match=r"kubernetes\.source is to be built"):
        bundle.source(plan, sources.Origin(kind="upstream"))
    with pytest.raises(UsageError, match="a bundle holds what was built before") as caught:
        sources.choose(plan, sources.Origin(bundle=tmp_path / "b.tar"))
    assert "Leave kubernetes.source out" in caught.value.cure


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ([], "gets OpenSSH from the internet"),
        (["workers.openssh={zip}", "workers.updates=true"], "updates come from the internet"),
        (["workers.openssh={zip}"], None),
    ],
)
def test_downloads_of_windows_are_reported_in_advance(tmp_path: Path, changes: list[str], says: str | None) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "OpenSSH-Win64.zip", "w") as file:
        file.writestr("OpenSSH-Win64/sshd.exe", "x")
    filled = [change.format(zip=tmp_path / "OpenSSH-Win64.zip") for change in changes]
    filled.append(f"workers.media={medium(tmp_path)}")
    plan = make(*filled)
    golden.check_media(plan, at_hand(*filled), Site())
    with pytest.raises(UsageError, match=says) if says else ExitStack():
        golden.check_media(plan, at_hand(*filled), Site(), offline=True)


def test_consent_fetches_nothing_beside_a_bundle() -> None:
    plan = make("workers.os=windows-2025")
    golden.check_media(plan, at_hand("workers.os=windows-2025"), Site(), consent=True)
    with pytest.raises(NotFoundError, match="a bundle has none") as caught:
        golden.check_media(plan, at_hand("workers.os=windows-2025"), Site(), consent=True, offline=True)
    assert "--accept-eula" not in caught.value.cure
