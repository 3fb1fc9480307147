"""Which evaluation media are missing, and whether their terms are still to be accepted."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import NoReturn

import plans
import pytest

from winlab.errors import AccessError, UsageError
from winlab.lab_folder import CURE
from winlab.operations import consent, images
from winlab.site import Site


def test_terms_are_to_be_accepted_once_and_only_where_a_medium_is_missing() -> None:
    site, lacking = Site(), plans.make(plans.KVM, "mixed")
    assert consent.terms(plans.make(plans.KVM, "mixed", "workers.os=debian-13"), site) is None
    assert consent.terms(lacking, site) == images.terms("windows-2022", site) == consent.TERMS
    consent.give(site)
    assert consent.terms(lacking, site) is None
    assert images.terms("windows-2022", site) is None


def test_nothing_is_downloaded_with_a_bundle() -> None:
    site, lacking = Site(), plans.make(plans.KVM, "mixed")
    assert not consent.settle(lacking, site, accepted=True, offline=True)
    assert consent.settle(lacking, site, accepted=False)  # the terms were accepted all the same


def test_a_state_folder_that_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    site = Site(state=tmp_path / "state")
    with pytest.raises(AccessError, match="terms-accepted") as caught:
        consent.require(site, accepted=True)
    assert caught.value.cure == CURE


def test_a_state_folder_without_access(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: Path) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", closed)
    with pytest.raises(AccessError, match="terms-accepted") as caught:
        consent.require(Site(state=tmp_path), accepted=False)
    assert caught.value.exit_code == 7


def test_drivers_are_pulled_without_terms_and_other_images_not_at_all() -> None:
    assert images.terms("virtio-win", Site()) is None
    with pytest.raises(UsageError, match="needs no medium"):
        images.terms("debian-13", Site())


def test_every_image_whose_medium_is_missing_is_named() -> None:
    text = consent.assumed(plans.make(plans.KVM, "mixed"))
    assert text is not None
    assert [line.split(" here")[0] for line in text.splitlines()] == [
        f"There is no ISO for windows-{release}" for release in ("2019", "2022", "2025")
    ]
    assert consent.assumed(plans.make(plans.KVM, "1-1-1", "workers.os=windows-rehearsal")) is None


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ([], True),
        (["workers.media=/w.iso"], False),
        (["workers.win19.media=/w.iso"], True),
        (["workers.count=0"], False),
        (["workers.os=debian-13"], False),
    ],
)
def test_consent_is_needed_if_any_pool_lacks_a_medium(changes: list[str], needed: bool) -> None:
    assert consent.is_needed(plans.make(plans.KVM, "mixed", *changes)) is needed
