"""A golden image, made by its command. Labs that use it: test_lab.py."""

from __future__ import annotations

import subprocess  # noqa: TID251 - virsh, which knows nothing of winlab's images
from pathlib import Path

from harness import Golden, Winlab

from winlab.design.catalog import versions

POOL = Path("/var/lib/winlab/pool")


def test_its_manifest_says_what_it_is(golden: Golden) -> None:
    facts = golden.row["golden"]
    assert facts["edition"] == "Windows Server 2022 SERVERDATACENTERCORE"
    assert facts["build"] == "20348.2762"
    assert facts["kubernetes"] == versions.get().kubernetes
    assert facts["inputs"]["medium"] == facts["medium"]
    assert any(name.endswith("winlab-it/own.txt") for name in facts["inputs"]["files"])
    assert golden.row["state"] in ("evaluation ends in 179 days", "evaluation ends in 180 days")


def test_the_machine_it_was_made_in_is_gone(golden: Golden, winlab: Winlab) -> None:
    listed = subprocess.run(["virsh", "list", "--all", "--name"], capture_output=True, text=True, check=True).stdout
    lab = f"golden-2022-{golden.row['golden']['key'][:8]}"  # others may be at work on images of their own
    assert lab not in listed
    assert not list(POOL.glob(f"{lab}.*"))
    assert lab not in winlab.ok("list")


def test_it_can_be_taken_to_another_machine(golden: Golden, scripted: Winlab, tmp_path: Path) -> None:
    file = tmp_path / "golden.tar"
    scripted.ok("image", "export", str(golden.row["key"]), "--to", str(file))
    # a machine without libvirt: rm would remove what this one has in its pool
    nowhere = {"WINLAB_CACHE": str(tmp_path / "cache"), "WINLAB_LIBVIRT_URI": "qemu+unix:///system?socket=/nowhere"}
    other = Winlab(env={**scripted.env, **nowhere})
    other.ok("image", "import", str(file))
    (brought,) = [row for row in other.items("image", "list") if row["key"]]
    state = f"imported; {golden.row['state']}"  # its contents are only as good as the file was
    assert brought == {**golden.row, "imported": str(file), "state": state, "path": brought["path"]}
    assert "golden: build" in other.ok("image", "show", "windows-rehearsal")
    other.ok("image", "rm", "windows-rehearsal")
    assert [row for row in other.items("image", "list") if row["key"]] == []
