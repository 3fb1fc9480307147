"""What inspections report of a lab's folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from standing import Standing, reported

from winlab import files
from winlab.design.catalog.artifact import Program
from winlab.events import Quiet
from winlab.steps import payload
from winlab.steps.states import (
    API,
)
from winlab.supply.artifacts import store


def test_files_of_the_folder(lab: Standing) -> None:
    lab.folder.known_hosts.unlink()
    lab.folder.ca.write_text("another")
    lab.folder.ssh_key.chmod(0o644)
    findings = lab.findings()
    assert reported([one.drift for one in findings]) == [
        ("", "id_ed25519", "as made from the credentials", "open to others (0644)", True),
        ("", "ca.pem", "as made from the credentials", "other content", True),
        ("", "known_hosts", "as made from the credentials", "missing", True),
    ]
    key = lab.folder.credentials().ssh_key
    assert findings[2].repair is not None
    findings[2].repair(Quiet())
    assert lab.drifts() == []
    assert lab.folder.ssh_key.read_text() == key  # the same keys: the nodes have them


def test_lost_credentials_are_not_recreated(lab: Standing) -> None:
    (lab.folder.path / "credentials.json").unlink()
    finding = lab.findings()[0]
    assert finding.drift.what == "credentials.json"
    assert (finding.drift.repairable, finding.repair) == (False, None)


def test_kubeconfig_and_kubectl(lab: Standing) -> None:
    lab.folder.kubeconfig.unlink()  # the link now leads nowhere
    first, second = lab.findings()
    assert (first.drift.what, first.drift.actual) == ("kubectl", "leads nowhere")
    assert (second.drift.what, second.lab_steps) == ("kubeconfig", (API,))
    lab.folder.write(lab.folder.kubeconfig, "x", 0o644)
    assert reported(lab.drifts()) == [("", "kubeconfig", "there", "open to others (0644)", True)]
    assert lab.drifts(cluster=False) == []


def test_a_kubectl_that_has_changed_in_the_cache_is_obtained_again(
    lab: Standing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def obtained() -> Path:
        (tmp_path / "made").write_bytes(b"ELF")
        return store.keep(store.key({"a": 1}), Program("kubectl", "v1.36.3", "linux"), tmp_path / "made", "here").path

    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "cache"))
    files.replace_link(lab.folder.kubectl, obtained())
    assert lab.drifts() == []
    changed = lab.folder.kubectl.resolve()
    changed.chmod(0o600)
    changed.write_bytes(b"ELE")
    (finding,) = lab.findings()
    assert (finding.drift.what, finding.drift.actual) == ("kubectl", "not what was obtained")
    assert finding.repair is not None
    monkeypatch.setattr(payload, "fetch_kubectl", lambda *_: obtained())
    finding.repair(Quiet())
    assert lab.folder.kubectl.read_bytes() == b"ELF"
    assert lab.drifts() == []
