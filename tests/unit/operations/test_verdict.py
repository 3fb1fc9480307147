"""What a plan takes, and that it is refused where create would refuse it."""

from __future__ import annotations

from typing import Any

import plans
import pytest
import sites

from winlab.design.plan.stock import Stock
from winlab.design.spec.model import Spec
from winlab.errors import ConflictError, HostError
from winlab.operations import golden, making, verdict
from winlab.operations.planning import Proposal
from winlab.site import Site


def proposal(*changes: str) -> Proposal:
    return Proposal(Spec(), plans.make(plans.KVM, "1-1-1", *changes), Stock())


def test_without_libvirt_what_is_missing_is_known_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(_: Site) -> None:
        raise HostError("libvirt does not answer.")

    monkeypatch.setattr(Site, "storage", silent)
    monkeypatch.setattr(Site, "hypervisors", silent)
    found = verdict.judge(proposal("workers.os=windows-2022"), Site())
    assert found.unknown == "libvirt does not answer."
    assert (found.seconds, found.rooms, found.refused) == (None, (), None)
    by_name = {one.what: one for one in found.missing}
    medium = by_name["windows-2022 evaluation medium"]
    assert medium.how == "download"
    assert (medium.size or 0) > 4 << 30
    assert by_name["golden image of windows-2022"].how == "build"
    verdict.check(proposal("workers.os=debian-13"), Site())  # a plan needs no libvirt


def test_another_lab_of_the_name_is_refused_as_by_create(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(*_: Any) -> None:
        raise ConflictError("There is already a lab 'lab'.")

    monkeypatch.setattr(making, "refuse_other_plan", other)
    monkeypatch.setattr(golden, "check_media", lambda *_, **__: None)
    with pytest.raises(ConflictError, match="already a lab"):
        verdict.check(proposal(), sites.lab("lab", sites.hypervisor()).site)
