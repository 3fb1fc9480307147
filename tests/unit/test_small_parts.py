from __future__ import annotations

import plans
import pytest

from winlab.adapters.guests.systems import command_line
from winlab.cli import main
from winlab.design.plan import tags
from winlab.design.render import domain
from winlab.design.spec import sizes
from winlab.design.system import LINUX, WINDOWS
from winlab.errors import ClusterError, GuestError, HostError, LabError, UsageError


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("2GiB", 2048),
        ("512", 512),
        (512, 512),
        ("1 TiB", 1 << 20),
        ("8g", 8192),
        ("7m", 7),
        # M3: canonical/multipass#67, lima-vm/lima#1153, abiosoft/colima#976
        ("4GB", 4096),
        ("1.5G", 1536),
        ("1.5 GiB", 1536),
        ("0.125TB", 1 << 17),
        ("512MB", 512),
        ("2.0", 2),
    ],
)
def test_sizes(text: str | int, mib: int) -> None:
    assert sizes.parse_mib(text) == mib


@pytest.mark.parametrize(
    "text", ["", "two", "2 parsecs", "-1", "1.5", "1.3GiB", ".5G", "1.G", "1,5G", "1e3", "4Gb/s", True, None, 1.5]
)
def test_malformed_sizes(text: object) -> None:
    with pytest.raises(ValueError, match="size"):
        sizes.parse_mib(text)


def test_command_lines() -> None:
    assert command_line(LINUX, ["a b", "c"]) == "'a b' c"
    assert command_line(WINDOWS, ["cmd", "/c", "a b"]) == 'cmd /c "a b"'
    assert command_line(WINDOWS, ["echo a & echo b"]) == "echo a & echo b"


def test_tags_survive_a_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plans.make(plans.TCG)
    for node in plan.nodes:
        tag = tags.read(domain.domain_xml(plan, node, "secret"))
        assert tag is not None
        assert (tag.lab, tag.node, tag.floating, tag.plan) == (plan.lab, node.name, node.floating, plan.digest)
        assert (tag, tag.uid) == (tags.of(plan, node), None)  # no plan decides its creator
        mine = tags.read(tags.new(domain.domain_xml(plan, node, "secret"), 1000))
        assert mine == tag.model_copy(update={"uid": 1000})
    assert tags.new("<domain/>", 1000) == "<domain/>"


@pytest.mark.parametrize(
    "xml",
    [
        "<domain/>",
        "<domain><metadata/></domain>",
        "<domain><metadata><x xmlns='urn:else'/></metadata></domain>",
        "<domain><metadata><w:node xmlns:w='urn:winlab:domain:1' lab='x'/></metadata></domain>",
    ],
)
def test_other_domains_have_no_tag(xml: str) -> None:
    assert tags.read(xml) is None


def test_errors_say_everything_they_know() -> None:
    error = HostError(
        "It broke.", why="Because.", cure="Mend it.", evidence="/log", causes=[GuestError("So did this.")]
    )
    text = main.explain(error)
    for part in ("It broke.", "why:", "Because.", "cure:", "Mend it.", "/log", "and: So did this."):
        assert part in text
    assert UsageError("x").exit_code == 2


def test_several_failures_are_all_explained() -> None:
    text = main.explain(LabError([ClusterError("one", why="a"), KeyError("x"), HostError("two", cure="b")]))
    assert text == "winlab: one\n  why:      a\nwinlab: KeyError: 'x'\nwinlab: two\n  cure:     b"
