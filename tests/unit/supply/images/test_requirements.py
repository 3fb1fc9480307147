"""Anything that would stop Setup with a question on the screen is reported before anything boots."""

from __future__ import annotations

from pathlib import Path

import plans
import pytest
from isos import BOOT, EVAL, VOLUME, make_server_medium, make_wim

from winlab.design import spec
from winlab.design.catalog import recipes
from winlab.design.plan.node_plan import NodePlan
from winlab.errors import NotFoundError, UsageError
from winlab.supply.images import requirements
from winlab.supply.media import inspection

NAME = "Windows Server 2022 SERVERDATACENTERCORE"
KEY = "AAAAA-BBBBB-CCCCC-DDDDD-EEEEE"
OWN = "BBBBB-BBBBB-CCCCC-DDDDD-EEEEE"
STANDARD, DATACENTER = (recipes.get("windows-2022").setup_keys[name] for name in ("standard", "datacenter"))


def node(*changes: str) -> NodePlan:
    return plans.make(plans.KVM, "1-1-1", *changes).node("node-1")


def medium(
    folder: Path,
    *,
    edition: str,
    language: str = "en-US",
    others: tuple[str, ...] = (),
    channel: bytes = EVAL,
    name: str = NAME,
) -> Path:
    wim = make_wim([name], edition=edition, language=language, others=others)
    return make_server_medium(folder / "w.iso", wim=wim, files={"boot.wim": BOOT, "EI.CFG": channel})


@pytest.mark.parametrize(
    ("edition", "channel", "key"),
    [
        ("ServerDatacenterEval", EVAL, None),
        ("ServerDatacenter", VOLUME, None),
        ("ServerDatacenter", VOLUME, DATACENTER),
        ("ServerDatacenter", b"", KEY),
    ],
)
def test_media_that_fit(tmp_path: Path, edition: str, channel: bytes, key: str | None) -> None:
    changes = [f"workers.product_key={key}"] if key else []
    requirements.check_medium(node(*changes), medium(tmp_path, edition=edition, channel=channel))


@pytest.mark.parametrize(
    ("edition", "channel", "given", "gets"),
    [
        ("ServerDatacenter", VOLUME, None, DATACENTER),
        ("ServerDatacenter", VOLUME, KEY, KEY),
        ("ServerDatacenterEval", EVAL, None, None),
    ],
)
def test_the_key_that_setup_gets(tmp_path: Path, edition: str, channel: bytes, given: str | None, gets: str) -> None:
    """Beside an answer file Setup ignores EI.cfg, and would ask on the screen."""
    changes = [f"workers.product_key={given}"] if given else []
    found = requirements.with_key(node(*changes), medium(tmp_path, edition=edition, channel=channel))
    assert found.windows is not None
    assert found.windows.product_key == gets


PID = f"; as Setup reads it\r\n[PID]\r\nValue = {KEY.lower()}\r\n".encode()


@pytest.mark.parametrize(
    ("edition", "content", "given", "gets"),
    [
        ("ServerDatacenter", PID, None, KEY),
        ("ServerDatacenter", PID.decode().encode("utf-16"), None, KEY),
        ("ServerDatacenter", PID, OWN, OWN),
        ("ServerDatacenterEval", PID, None, None),
    ],
)
def test_the_key_of_the_medium(tmp_path: Path, edition: str, content: bytes, given: str | None, gets: str) -> None:
    wim = make_wim([NAME], edition=edition, language="en-US")
    path = make_server_medium(tmp_path / "w.iso", wim=wim, files={"boot.wim": BOOT, "PID.txt": content})
    wanted = node(*([f"workers.product_key={given}"] if given else []))
    requirements.check_medium(wanted, path)
    found = requirements.with_key(wanted, path)
    assert found.windows is not None
    assert found.windows.product_key == gets
    assert KEY not in str(inspection.inspect(path))
    assert KEY not in str(inspection.inspect(path).facts(tree=True))


def test_a_medium_s_key_may_be_for_another_edition(tmp_path: Path) -> None:
    wim = make_wim([NAME], edition="ServerDatacenter", language="en-US")
    files = {"boot.wim": BOOT, "PID.txt": f"[PID]\nValue={STANDARD}\n".encode()}
    with pytest.raises(UsageError, match="key is for standard"):
        requirements.check_medium(node(), make_server_medium(tmp_path / "w.iso", wim=wim, files=files))


@pytest.mark.parametrize(("chosen", "edition"), [("Our Server", "ServerStandardEval"), ("2", "ServerStandardEval")])
def test_an_image_by_its_name_or_number(tmp_path: Path, chosen: str, edition: str) -> None:
    wim = make_wim(["First", "Our Server"], edition=edition, language="en-US")
    path = make_server_medium(tmp_path / "w.iso", wim=wim)
    assert inspection.inspect(path).releases == ["2022"]
    assert requirements.check_medium(node(f"workers.image={chosen}"), path).index == 2
    with pytest.raises(UsageError, match="has no image named 'Windows Server 2022") as caught:
        requirements.check_medium(node(), path)
    assert "workers.image" in caught.value.cure


@pytest.mark.parametrize(
    ("about", "changes", "says"),
    [
        ({"edition": "ServerDatacenterEval"}, [f"workers.product_key={KEY}"], "takes no product key"),
        ({"edition": "ServerDatacenter", "channel": b""}, [], "asks for a product key"),
        (
            {"edition": "ServerDatacenter", "channel": VOLUME},
            [f"workers.product_key={STANDARD}"],
            "key is for standard",
        ),
        ({"edition": "ServerDatacenterEval", "language": "de-DE"}, [], "is de-DE, but workers.language is"),
        ({"edition": "ServerStandardEval", "name": "Windows Server 2022 SERVERSTANDARD"}, [], "has no image named"),
    ],
)
def test_media_that_do_not_fit(tmp_path: Path, about: dict[str, str], changes: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        requirements.check_medium(node(*changes), medium(tmp_path, **about))  # type: ignore[arg-type]
    assert caught.value.cure


def test_a_medium_with_an_answer_file_of_its_own(tmp_path: Path) -> None:
    wim = make_wim([NAME], edition="ServerDatacenterEval")
    files = {"boot.wim": BOOT, "EI.CFG": EVAL, "/AutoUnattend.XML": b"<unattend/>"}
    with pytest.raises(UsageError, match="an answer file of its own"):
        requirements.check_medium(node(), make_server_medium(tmp_path / "w.iso", wim=wim, files=files))


def test_another_language_has_to_be_requested(tmp_path: Path) -> None:
    german = medium(tmp_path, edition="ServerDatacenterEval", language="de-DE")
    requirements.check_medium(node("workers.language=de-DE"), german)


def test_a_medium_of_several_languages_has_each_of_them(tmp_path: Path) -> None:
    both = medium(tmp_path, edition="ServerDatacenterEval", language="en-US", others=("en-US", "fr-FR"))
    requirements.check_medium(node(), both)
    requirements.check_medium(node("workers.language=fr-fr"), both)
    with pytest.raises(UsageError, match="is en-US, but"):
        requirements.check_medium(node("workers.language=de-DE"), both)


@pytest.mark.parametrize(
    ("revision", "changes", "says"),
    [
        (587, (), None),
        (2400, (), "20348.2400 is refused: it breaks Calico"),
        (2400, ("network.cni=host-gw",), None),  # not that profile
        (2400, ("workers.updates=true",), None),  # it will be another one
        (100, ("network.cni=host-gw",), "20348.100 is too old"),
    ],
)
def test_builds_that_do_not_go_with_the_network(
    tmp_path: Path, revision: int, changes: tuple[str, ...], says: str | None
) -> None:
    wim = make_wim([NAME], edition="ServerDatacenterEval", language="en-US", revision=revision)
    iso = make_server_medium(tmp_path / "w.iso", wim=wim, files={"boot.wim": BOOT, "EI.CFG": EVAL})
    changes = ("workers.golden=false", f"workers.media={iso}", *changes)
    plan, at_hand = plans.make(plans.KVM, "1-1-1", *changes), plans.stock(spec.load("1-1-1", changes))
    if says is None:
        requirements.check(plan, at_hand)
        return
    with pytest.raises(UsageError) as caught:
        requirements.check(plan, at_hand)
    assert says in caught.value.why
    requirements.check(plan, at_hand, joins=False)  # an exported ISO joins nothing


def test_without_media_the_options_are_listed() -> None:
    plan, at_hand = plans.make(plans.KVM), plans.stock(spec.load("1-1-1"))
    with pytest.raises(NotFoundError) as caught:
        requirements.check(plan, at_hand)
    for way in ("image pull windows-2022", "--accept-eula", "--iso PATH", "--rehearse"):
        assert way in caught.value.cure
    requirements.check(plan, at_hand, consent=True)
