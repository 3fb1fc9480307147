"""A distribution of Kubernetes is named in its own folders and in the catalog, and by no other module."""

from __future__ import annotations

from pathlib import Path

import pytest

import winlab
from winlab.design.distribution.known import DISTRIBUTIONS

ROOT = Path(winlab.__file__).parent
KINDS = ("*.py", "*.j2", "*.yaml")
# Data of all distributions; what logs of nodes say; where a distribution is found by its name
OTHERS = (
    *("design/catalog/", "design/cause/", "design/distribution/known.py", "steps/distribution/known.py"),
    *("design/clusters/", "adapters/kube/probe.py"),  # what external clusters are made with
)


def naming(name: str, root: Path) -> list[str]:
    """The files below *root* that name a distribution and should not."""
    own = (f"design/distribution/{name}/", f"steps/distribution/{name}/", *OTHERS)
    paths = {path.relative_to(root).as_posix(): path for kind in KINDS for path in root.rglob(kind)}
    return sorted(
        at
        for at, path in paths.items()
        if not at.startswith(own) and (name in at.lower() or name in path.read_text(encoding="utf-8").lower())
    )


@pytest.mark.parametrize("name", [one.name for one in DISTRIBUTIONS])
def test_no_other_module_names_a_distribution(name: str) -> None:
    assert naming(name, ROOT) == []


def test_a_name_is_found(tmp_path: Path) -> None:
    (tmp_path / "steps").mkdir()
    (tmp_path / "design/catalog").mkdir(parents=True)
    for at in ("steps/a.py", "steps/b.yaml", "steps/c.md", "design/catalog/d.py"):
        (tmp_path / at).write_text("KubeadmSteps\n")
    (tmp_path / "steps/kubeadm.py").touch()
    assert naming("kubeadm", tmp_path) == ["steps/a.py", "steps/b.yaml", "steps/kubeadm.py"]
