"""WinRM verifies a node by its name, over real TLS. The server is Python's, on a pair of sockets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import plans
import pytest
from winrm_peer import Listen, listening

from winlab.adapters.guests.winrm import WinRmGuest
from winlab.design import spec
from winlab.design.plan import make, tags
from winlab.design.plan.model import Plan
from winlab.design.plan.tags import Tag
from winlab.errors import GuestError
from winlab.lab_folder import LabFolder


def copy(origin: Plan) -> Plan:
    wanted = spec.load("1-2-1")
    return make.make(wanted, "copy", plans.TCG, plans.stock(wanted), kept=origin.as_kept())


@pytest.fixture
def listen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Listen]:
    """Have a node's WinRM answer at every address; the addresses that were asked for."""
    with listening(monkeypatch, tmp_path) as start:
        yield start


def log_in(tag: Tag, folder: LabFolder) -> None:
    with closing(WinRmGuest(tag, folder, 30)) as guest:
        assert guest._shell == "1"


def test_the_right_name_passes_at_any_address(listen: Listen) -> None:
    plan, folder = plans.make(plans.TCG, "1-2-1"), LabFolder("lab")
    tag = tags.of(plan, plan.node("node-1"))
    asked = listen(folder.ensure_credentials(plan), "node-1")
    for address in (tag.floating, "172.31.249.9"):
        log_in(tag.model_copy(update={"floating": address}), folder)
    assert [where for where, _ in asked] == [tag.floating, "172.31.249.9"]


def test_another_node_is_refused_at_its_own_address(listen: Listen) -> None:
    """The address is in its certificate, and the CA is the lab's; the name is another one."""
    plan, folder = plans.make(plans.TCG, "1-2-1"), LabFolder("lab")
    tag = tags.of(plan, plan.node("node-1"))
    listen(folder.ensure_credentials(plan), "node-2")
    for address in (plan.node("node-2").floating, tag.floating):
        with pytest.raises(GuestError, match="is not 'node-1'"):
            log_in(tag.model_copy(update={"floating": address}), folder)


def test_a_node_of_another_lab_is_refused(listen: Listen) -> None:
    plan, folder = plans.make(plans.TCG), LabFolder("lab")
    folder.ensure_credentials(plan)
    listen(LabFolder("other").ensure_credentials(plan), "node-1")
    with pytest.raises(GuestError, match="is not 'node-1'"):
        log_in(tags.of(plan, plan.node("node-1")), folder)


def test_a_copy_is_verified_by_the_certificate_of_its_origin(listen: Listen) -> None:
    origin = plans.make(plans.TCG, "1-2-1", lab="origin")
    made, plan, folder = LabFolder("origin").ensure_credentials(origin), copy(origin), LabFolder("copy")
    folder.write(folder.path / "credentials.json", made.model_dump_json())
    assert folder.ensure_credentials(plan) == made
    tag = tags.of(plan, plan.node("node-1"))
    asked = listen(made, "node-1")
    log_in(tag, folder)
    assert asked == [(tag.floating, 5986)]
    with pytest.raises(GuestError, match="is not 'node-1'"):  # without what it keeps it would be another node
        log_in(tag.model_copy(update={"zone": None}), folder)
