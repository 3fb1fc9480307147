"""Advice for a plan that is valid."""

from __future__ import annotations

import plans
import pytest

from winlab.design.plan.advice import advice, small_controllers


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


@pytest.mark.parametrize("distribution", ["kubeadm", "k3s"])
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["controllers.memory=512MiB", "controllers.cpus=1"], "1 CPU and 512 MiB"),
        (["controllers.memory=1700MiB"], "2 CPUs and 1700 MiB"),
        (["controllers.cpus=1"], "1 CPU and 3 GiB"),
        (["controllers.memory=2GiB"], ""),
        ([], ""),
    ],
)
def test_small_controllers_are_warned_of(distribution: str, settings: list[str], says: str) -> None:
    """ux D29."""
    more = [f"kubernetes.distribution={distribution}", "workers.os=debian-13"]
    said = small_controllers(plans.make(plans.KVM, "1-1-1", *settings, *more))
    assert len(said) == bool(says)
    assert all(says in one and f"{distribution} asks for at least 2 CPUs and 2 GiB" in one for one in said)


def test_a_lab_without_a_cluster_of_its_own_may_have_any_size() -> None:
    assert small_controllers(plans.make(plans.KVM, "0-1-1", "workers.memory=512MiB", "workers.os=debian-13")) == []
