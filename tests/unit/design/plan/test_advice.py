"""Advice for a plan that is valid."""

from __future__ import annotations

import plans
import pytest

from winlab.design.plan.advice import advice


@pytest.mark.parametrize(
    ("settings", "advised"),
    [
        (["workers.os=windows-2022"], True),
        (["workers.os=windows-2022", "workers.updates=true"], False),
        (["workers.os=windows-2025"], False),
        (["workers.os=windows-rehearsal"], False),
        (["workers.os=debian-13"], False),
    ],
)
def test_an_old_build_that_could_be_updated(settings: list[str], advised: bool) -> None:
    said = advice(plans.make(plans.KVM, "1-2-1", *settings))
    assert len(said) == advised
    assert all("20348.587" in sentence and "workers.updates=true" in sentence for sentence in said)
