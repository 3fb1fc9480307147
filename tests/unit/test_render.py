"""What guests are given, with values that try to break out; and by the checkers that know Windows."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import plans
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from winlab import credentials, data
from winlab.render import linux, windows
from winlab.render.templates import unattend_password

NASTY = """<&"'>;$(x)`y`%PATH%{{ z }}\u00e4\u4e2d"""
NS = {"u": "urn:schemas-microsoft-com:unattend"}


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    plans.fixed_keys(monkeypatch)


@pytest.mark.parametrize("system", ["windows-2019", "windows-2022", "windows-2025", "windows-rehearsal"])
@pytest.mark.parametrize("edition", ["standard-core", "standard-desktop", "datacenter-core", "datacenter-desktop"])
def test_answer_files_pass_the_checker(system: str, edition: str, checkers: Path, tmp_path: Path) -> None:
    import unattend_check

    kubernetes = "1.34" if system == "windows-2019" else "1.36"
    changes = (f"workers.os={system}", f"workers.edition={edition}", f"kubernetes.version={kubernetes}")
    plan = plans.make(plans.KVM, "1-1-1", *changes)
    node = plan.node("node-1")
    assert node.windows is not None
    path = tmp_path / "Autounattend.xml"
    path.write_text(windows.answer_xml(node, NASTY))
    code = unattend_check.main(
        ["--strict", "--firmware", "uefi", "--eval", "--server", node.windows.release, "--password", NASTY, str(path)]
    )
    assert code == 0


def test_powershell_passes_the_checker(checkers: Path) -> None:
    import pscheck

    scripts = [str(path) for path in data.folder("unattend").rglob("*.ps1")]
    assert scripts
    assert pscheck.main(["--strict", "--os", "2019", "--os", "2022", "--os", "2025", *scripts]) == 0


def test_nasty_values_survive_in_the_answer_file() -> None:
    plan = plans.make(plans.KVM, "1-1-1", f"workers.time_zone={json.dumps(NASTY)}")
    root = etree.fromstring(windows.answer_xml(plan.node("node-1"), NASTY).encode())
    assert root.findtext(".//u:TimeZone", namespaces=NS) == NASTY
    value = root.findtext(".//u:AdministratorPassword/u:Value", namespaces=NS)
    assert base64.b64decode(value).decode("utf-16-le") == NASTY + "AdministratorPassword"


@given(st.text())
def test_password_encoding_is_reversible(password: str) -> None:
    try:
        password.encode("utf-16-le")
    except UnicodeEncodeError:
        return  # half a surrogate pair is no text
    assert base64.b64decode(unattend_password(password, "Password")).decode("utf-16-le") == password + "Password"


def test_seed_is_what_cloud_init_reads() -> None:
    plan = plans.make(plans.TCG)
    made = credentials.generate(plan)
    files = linux.seed_files(plan, plan.nodes[0], made)
    user = yaml.safe_load(files["user-data"])
    assert files["user-data"].startswith(b"#cloud-config\n")
    assert user["ssh_keys"]["ed25519_private"] == made.nodes["controller-1"].host_key
    assert user["users"][0]["ssh_authorized_keys"] == [made.ssh_key_public]
    assert user["ssh_pwauth"] is False
    network = yaml.safe_load(files["network-config"])
    assert network["ethernets"]["eth0"]["match"] == {"macaddress": plan.nodes[0].mac}


def test_nasty_values_survive_in_user_data() -> None:
    plan = plans.make(plans.TCG)
    masked = credentials.masked(plan)
    made = masked.model_copy(update={"ssh_key_public": NASTY})
    user = yaml.safe_load(linux.seed_files(plan, plan.nodes[0], made)["user-data"])
    assert user["users"][0]["ssh_authorized_keys"] == [NASTY]


def test_answer_iso_files() -> None:
    plan = plans.make(plans.KVM)
    made = credentials.generate(plan)
    files = windows.answer_files(plan, plan.node("node-1"), made, pfx=made.pfx("node-1"))
    facts = json.loads(files["winlab/node.json"])
    assert (facts["lab"], facts["node"], facts["mtu"]) == ("lab", "node-1", 1500)
    assert made.administrator_password.encode() not in b"".join(files.values())
