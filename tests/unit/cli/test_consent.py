"""Which media a lab with several pools lacks, as the user is told."""

from __future__ import annotations

import plans
import pytest

from winlab.cli import consent
from winlab.design import spec


def test_every_image_whose_media_lack_is_named() -> None:
    text = consent.assumed(plans.make(plans.KVM, "mixed"))
    assert text is not None
    assert [line.split(":")[0] for line in text.splitlines()] == [
        f"There are no media for windows-{release}" for release in ("2019", "2022", "2025")
    ]
    assert consent.assumed(plans.make(plans.KVM, "1-1-1", "workers.os=windows-rehearsal")) is None


@pytest.mark.parametrize(
    ("changes", "asks"),
    [
        ([], True),
        (["workers.media=/w.iso"], False),
        (["workers.win19.media=/w.iso"], True),
        (["workers.count=0"], False),
        (["workers.os=debian-13", "workers.linux.count=0"], False),
    ],
)
def test_terms_are_asked_for_if_any_pool_lacks_a_medium(
    monkeypatch: pytest.MonkeyPatch, changes: list[str], asks: bool
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(consent, "_consents", lambda given: asked.append(given) or True)
    assert consent.to_fetch(spec.load("mixed", changes), False) is asks
    assert asked == [False] * asks
