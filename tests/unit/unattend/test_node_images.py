"""The CD's images in a Linux node's containerd, also after a power cut in the middle."""

from __future__ import annotations

from typing import Any

import pytest
from linux_guest import Guest, archive

from winlab_node.node import NodeError


def test_present_images_are_not_imported(guest: Guest) -> None:
    archive(guest.cd / "images/pause.tar", {"registry.k8s.io/pause:3.10.2": "sha256:aa"})
    archive(guest.cd / "images/coredns.tar", {"registry.k8s.io/coredns/coredns:v1.14.7": "sha256:bb"})
    listed = (
        "time=now level=warning msg=old\nREF TYPE DIGEST SIZE\nregistry.k8s.io/pause:3.10.2 t sha256:aa 1\n"
        "registry.k8s.io/coredns/coredns:v1.14.7 t sha256:cc 1\n"
    )
    guest.runner.answers["ctr -n k8s.io images ls"] = (0, listed)
    assert guest.do("load", {}) == {"changed": True}
    imported = guest.runner.lines("ctr -n k8s.io images import")
    assert len(imported) == 1
    assert imported[0].endswith("/coredns.tar")
    assert "--label io.cri-containerd.pinned=pinned" in imported[0]


LEASES = "ctr -n k8s.io leases"
LISTED = (
    "REF TYPE DIGEST SIZE\nregistry.k8s.io/pause:3.10.2 t sha256:aa 1\nsha256:0123 t sha256:aa 1\n"
    "example.org/own:1 t sha256:ff 1\n"
)


def test_an_import_is_noted_until_it_is_on_disk(guest: Guest) -> None:
    archive(guest.cd / "images/pause.tar", {"registry.k8s.io/pause:3.10.2": "sha256:aa"})
    noted: list[Any] = []
    guest.runner.effects["ctr -n k8s.io images import"] = lambda: noted.append(guest.node().note("importing", {}))
    guest.do("load", {})
    assert noted == [{"boot": "b1", "digests": ["sha256:aa"]}]
    assert guest.node().note("importing", None) == {}


def test_images_half_unpacked_at_a_power_cut_are_imported_again(guest: Guest) -> None:
    """Their names are in containerd's database, also those by the CRI plug-in; a lease would keep what is unpacked."""
    archive(guest.cd / "images/pause.tar", {"registry.k8s.io/pause:3.10.2": "sha256:aa"})
    guest.node().keep("importing", {"boot": "b0", "digests": ["sha256:aa"]})
    ls = "ctr -n k8s.io images ls"
    guest.runner.answers |= {ls: (0, LISTED), f"{LEASES} ls -q": (0, "1763-abc\n")}
    guest.runner.effects["ctr -n k8s.io images rm"] = lambda: guest.runner.answers.update({ls: (0, "REF\n")})
    assert guest.do("load", {}) == {"changed": True}
    assert guest.runner.lines(f"{LEASES} rm") == [f"{LEASES} rm 1763-abc"]
    removed = guest.runner.lines("ctr -n k8s.io images rm")
    assert removed == ["ctr -n k8s.io images rm --sync registry.k8s.io/pause:3.10.2 sha256:0123"]
    assert len(guest.runner.lines("ctr -n k8s.io images import")) == 1


def test_images_of_this_boot_stay_and_may_still_not_be_on_disk(guest: Guest) -> None:
    archive(guest.cd / "images/pause.tar", {"registry.k8s.io/pause:3.10.2": "sha256:aa"})
    archive(guest.cd / "images/own.tar", {"example.org/own:1": "sha256:ee"})
    guest.node().keep("importing", {"boot": "b1", "digests": ["sha256:aa"]})
    guest.runner.answers["ctr -n k8s.io images ls"] = (0, LISTED)
    noted: list[Any] = []
    guest.runner.effects["ctr -n k8s.io images import"] = lambda: noted.append(guest.node().note("importing", {}))
    guest.do("load", {})
    assert noted == [{"boot": "b1", "digests": ["sha256:aa", "sha256:ee"]}]
    assert not guest.runner.lines("ctr -n k8s.io images rm")


def test_a_note_of_images_that_are_all_present_is_removed(guest: Guest) -> None:
    """Otherwise the next start would take them for half unpacked."""
    archive(guest.cd / "images/pause.tar", {"registry.k8s.io/pause:3.10.2": "sha256:aa"})
    guest.node().keep("importing", {"boot": "b1", "digests": ["sha256:aa"]})
    guest.runner.answers["ctr -n k8s.io images ls"] = (0, LISTED)
    assert guest.do("load", {}) == {"changed": False}
    assert guest.node().note("importing", None) == {}


def test_a_cd_without_images_clears_up_after_one_with_images(guest: Guest) -> None:
    guest.node().keep("importing", {"boot": "b0", "digests": ["sha256:aa"]})
    guest.runner.answers["ctr -n k8s.io images ls"] = (0, LISTED)
    for _ in range(2):
        assert guest.do("load", {}) == {"changed": False}
    assert len(guest.runner.lines("ctr -n k8s.io images rm")) == 1


def test_an_image_that_containerd_refuses_is_named(guest: Guest) -> None:
    archive(guest.cd / "images/pause.tar", {"registry.k8s.io/pause:3.10.2": "sha256:aa"})
    guest.runner.answers["ctr -n k8s.io images import"] = (1, "ctr: content digest not found\n")
    with pytest.raises(NodeError, match=r"'pause\.tar' from winlab's CD: .*digest not found"):
        guest.do("load", {})
    assert guest.runner.lines("umount")


def test_a_file_that_is_not_an_archive_is_named(guest: Guest) -> None:
    guest.put("run/winlab/payload/images/odd.tar", b"no tar")
    with pytest.raises(NodeError, match=r"'odd\.tar' is no archive"):
        guest.do("load", {})
