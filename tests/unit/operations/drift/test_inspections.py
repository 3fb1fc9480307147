"""What inspections report of a whole lab: nothing while it is as planned, and each difference."""

from __future__ import annotations

from pathlib import Path

import pytest
import standing
from standing import POOL, Standing, reported

from winlab.errors import HostError


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        ("1-1-1", ()),
        ("3-2-1", ()),
        ("1-1-1", ("workers.bus=sata", "workers.golden=false")),
        ("1-1-1", ("linux_workers.count=1", "network.cni=host-gw")),
        ("1-1-1", ("workers.firmware=bios", "controllers.memory=4GiB")),
    ],
)
def test_a_lab_that_is_as_planned_has_no_drift(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, changes: tuple[str, ...]
) -> None:
    assert standing.stand(monkeypatch, tmp_path, source, *changes).drifts(digests=True) == []


def test_files_for_the_first_boot_may_be_gone(lab: Standing) -> None:
    """The seed and its disk removed, the payload CD ejected."""
    seed = next(one.name for one in lab.plan.node("controller-1").volumes if one.role == "seed")
    del lab.pool.volumes[seed]
    xml = lab.xml["winlab-lab.controller-1"]
    begin = xml.rindex("<disk", 0, xml.index(seed))
    end = xml.index("</disk>", begin) + len("</disk>")
    lab.change("controller-1", xml[begin:end], "", live=True)
    cd = f'<source file="{POOL}/base-kubernetes-windows-1.iso"/>'
    lab.change("node-1", cd, "", live=True)
    assert lab.drifts() == []


def test_a_failed_inspection_is_reported_and_the_others_continue(
    lab: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_topology: object) -> None:
        raise HostError("OVN does not answer.", cure="Run setup.")

    monkeypatch.setattr(lab.overlay, "differences", refuse)
    lab.guests["node-1"].services["kubelet"] = "stopped"
    assert reported(lab.drifts()) == [
        ("", "inspection of rows", "possible", "OVN does not answer.", False),
        ("node-1", "kubelet", "running", "stopped", True),
    ]


def test_only_one_node_is_inspected(lab: Standing) -> None:
    lab.states["winlab-lab.controller-1"] = "off"
    lab.guests["node-1"].services["kubelet"] = "stopped"
    assert [one.node for one in lab.drifts("node-1")] == ["node-1"]
