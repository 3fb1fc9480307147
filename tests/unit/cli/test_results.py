"""Results of commands whose work is done by fakes: each is a document that its schema describes, with names."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import results
import yaml
from commands import ran

from winlab import Difference, Hosts, Lab, Node, Supplies
from winlab.lab_snapshots import Snapshots
from winlab.operations.diff import Pending
from winlab.operations.drain import Drained
from winlab.operations.move import Moved
from winlab.operations.snapshot.copying import Copied
from winlab.snapshots import Id

MOVED = Moved("lab", "node-1", "a", "b", "live", "running")
IMAGE = SimpleNamespace(
    key="k" * 64, size=7, sha256="s" * 64, path=Path("/cache/x"), recipe=SimpleNamespace(name="debian-13")
)
ITEM = SimpleNamespace(
    name="debian-13",
    key="kkkk",
    kind="disk",
    state="",
    imported="",
    image=IMAGE,
    manifest={"made": "2026-11-29", "recipe": {}},
)
MACHINE = SimpleNamespace(tag=SimpleNamespace(node="node-1"), state="running", autostart=False)
LEFT = SimpleNamespace(lab="gone", hypervisor="b", nodes=("node-1",))
OVERVIEW = SimpleNamespace(labs={"lab": [MACHINE]}, unknown=(), left=(LEFT,))
PATCHES: dict[tuple[type, str], Any] = {
    (Lab, "overview"): lambda: OVERVIEW,
    (Lab, "load"): lambda *_, **__: {"web:7": ["node-1"]},
    (Lab, "kubeconfig"): lambda _: "apiVersion: v1\n",
    (Lab, "merge_kubeconfig"): lambda _, use: Path("/home/config"),
    (Lab, "destroy"): lambda _, **__: ["node-1"],
    (Lab, "left"): lambda _: (LEFT,),
    (Snapshots, "clone"): lambda *_, **__: [Copied("try", Id("lab", "ready"), 0.5, 2.5, shared=True)],
    (Snapshots, "delete"): lambda *_, **__: ["lab@ready"],
    (Hosts, "drain"): lambda *_, **__: Drained("a", drained=True, moved=(MOVED,)),
    (Hosts, "remove"): lambda *_, **__: None,
    (Node, "move"): lambda *_, **__: MOVED,
    (Node, "screenshot"): lambda _: b"PNG",
    (Supplies, "images"): lambda _: [ITEM],
    (Supplies, "image"): lambda *_: ITEM,
    (Supplies, "remove_image"): lambda *_: (7, ""),
    (Supplies, "verify_images"): lambda *_, **__: [ITEM],
    (Supplies, "pull_image"): lambda *_, **__: IMAGE,
    (Supplies, "terms"): lambda *_: None,
}


@pytest.mark.parametrize(
    ("words", "kind", "names"),
    [
        ("list", "Lab", ["gone", "lab"]),
        ("load web", "ContainerImage", ["web:7"]),
        ("kubeconfig", "Kubeconfig", ["winlab-lab"]),
        ("kubeconfig --merge", "Kubeconfig", ["winlab-lab"]),
        ("destroy", "Removal", ["lab"]),
        ("clone lab@ready try", "Copy", ["try"]),
        ("snapshot delete ready", "Removal", ["lab@ready"]),
        ("hypervisor drain a", "Drain", ["a"]),
        ("hypervisor remove a", "Removal", ["a"]),
        ("move node-1 b", "Move", ["node-1"]),
        ("screenshot node-1 screen.png", "File", ["screen.png"]),
        ("image show debian-13", "Image", ["debian-13"]),
        ("image verify", "Image", ["debian-13"]),
        ("image rm debian-13", "Removal", ["debian-13"]),
        ("image pull virtio-win", "Image", ["debian-13"]),
    ],
)
def test_a_result_in_each_format(
    words: str, kind: str, names: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for (owner, name), work in PATCHES.items():
        monkeypatch.setattr(owner, name, staticmethod(work) if name == "overview" else work)
    done = ran(*words.split(), "-o", "json")
    made = results.document(done.stdout)
    assert (made["kind"], [one["name"] for one in made["items"]]) == (kind, names), done.stderr
    assert yaml.safe_load(ran(*words.split(), "-o", "yaml").stdout) == made
    assert ran(*words.split(), "-o", "name").stdout.split() == names


def test_the_list_of_images_has_those_that_are_not_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Supplies, "images", lambda _: [ITEM])
    found = results.items(ran("image", "list", "-o", "json").stdout)
    assert [row["name"] for row in found if row["key"]] == ["debian-13"]
    assert {"windows-2022"} <= {row["name"] for row in found if not row["key"]}
    assert all(row["summary"] for row in found)


def test_a_screenshot_and_its_result_need_two_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Node, "screenshot", lambda _: b"PNG")
    assert ran("screenshot", "node-1", "-", "-o", "json").exit_code == 2


def test_what_is_pending_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """The changes are those that were made; what is pending is so now."""
    answers = iter([Difference(()), Difference((), (Pending("node-1", "a", "b"),))])
    monkeypatch.setattr(Lab, "grown", lambda *_: None)
    monkeypatch.setattr("winlab.cli.reconcile.plan_of", lambda *_, **__: None)
    monkeypatch.setattr(Lab, "diff", lambda *_, **__: next(answers))
    monkeypatch.setattr(Lab, "terms", lambda *_: None)
    monkeypatch.setattr(Lab, "apply", lambda *_, **__: None)
    (row,) = results.item(ran("node", "add", "-o", "json").stdout)["pending"]
    assert row == {"node": "node-1", "before": "a", "after": "b"}
