"""The stand-in's sysprep: generalize, switch off, and the clone's first start."""

from __future__ import annotations

import json
from pathlib import Path

import jinja2
import pytest
from passwords import encode

from winlab import data
from winlab.design.cause.reading import Log, explain
from winlab_standin.guest import answer, node, players, sysprep
from winlab_standin.guest.answer import AnswerError
from winlab_standin.guest.machine import Machine, ScriptError
from winlab_standin.guest.paths import Drives
from winlab_standin.guest.registry import Registry
from winlab_standin.guest.releases import REMOTE_APP, USER_APP, Windows
from winlab_standin.guest.winservices import Manager
from winlab_standin.guest.world import World

GENERALIZE = (data.folder("unattend") / "windows/generalize.xml").read_text(encoding="utf-8")
CONFIG = "Windows/System32/config"


class Computer(World):
    asked: list[str]

    def power(self, action: str, delay: float) -> None:
        self.asked.append(action)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    root, cd = tmp_path / "c", tmp_path / "cd"
    (root / CONFIG).mkdir(parents=True)
    cd.mkdir()
    world = Computer(Drives({"C": root, "D": cd}), Registry(root / CONFIG / "registry.json"))
    world.asked = []
    return Machine(root, cd, root / CONFIG, Manager(root / CONFIG / "services.json"), world, lambda _line: None)


def test_generalizing_removes_the_identity_and_switches_off(machine: Machine) -> None:
    for name in (*sysprep.IDENTITY, "ProgramData/ssh/ssh_host_ed25519_key", "k/kubelet.exe"):
        machine.c(name).parent.mkdir(parents=True, exist_ok=True)
        machine.c(name).write_text("x")
    (machine.config / sysprep.STATE_FILE).write_text(json.dumps({"name": "GOLDEN", "phase": "done"}))
    told = sysprep.seal(machine, {"generalize": GENERALIZE, "begin": False})
    before = sysprep.sealed(machine, {})
    assert (before["running"], before["succeeded"], before["errors"]) == (False, False, [])  # nothing was done
    found = sysprep.seal(machine, {"generalize": GENERALIZE, "begin": True})
    assert found == told
    assert found["evaluation_minutes"] == 180 * 24 * 60
    assert not any(machine.c(name).exists() for name in sysprep.IDENTITY)
    assert not list(machine.c("ProgramData/ssh").iterdir())
    assert machine.c("k/kubelet.exe").exists()
    assert json.loads((machine.config / sysprep.STATE_FILE).read_text()) == {"phase": "generalized"}
    assert isinstance(machine.world, Computer)
    assert machine.world.asked == ["poweroff"]
    after = sysprep.sealed(machine, {})  # while it is still on
    assert (after["running"], after["succeeded"]) == (False, True)
    assert after["errors"], "a successful run has some in its log"


def test_an_app_of_one_user_stops_sysprep(machine: Machine) -> None:
    """On a Desktop; Server Core has no apps."""
    machine.world.windows = Windows(installation="Server", traps=(USER_APP,))
    (machine.c("Windows/System32/config") / "standin-sam.json").write_text("{}")
    sysprep.seal(machine, {"generalize": GENERALIZE, "begin": True})
    told = sysprep.sealed(machine, {})
    assert (told["succeeded"], told["state"]) == (False, "IMAGE_STATE_COMPLETE")
    assert "0x80073cf2" in told["errors"][-1]
    assert [one.cause.name for one in explain([Log("setuperr.log", "\n".join(told["errors"]))])] == ["app-of-one-user"]
    assert machine.c("Windows/System32/config/standin-sam.json").exists(), "Windows stays as it is"
    assert isinstance(machine.world, Computer)
    assert machine.world.asked == []
    machine.world.windows = Windows(traps=(USER_APP,))
    sysprep.seal(machine, {"generalize": GENERALIZE, "begin": True})
    assert sysprep.sealed(machine, {})["succeeded"]


def test_an_app_that_system_can_remove_stops_nothing(machine: Machine) -> None:
    machine.world.windows = Windows(installation="Server", traps=(REMOTE_APP,))
    assert len(machine.node.apps()) == 1
    sysprep.seal(machine, {"generalize": GENERALIZE, "begin": True})
    assert machine.node.apps() == []
    assert sysprep.sealed(machine, {})["succeeded"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        (GENERALIZE.replace('pass="generalize"', 'pass="specialize"'), "other passes"),
        (GENERALIZE.replace("SkipRearm", "SkipRearms"), "does not exist or is not valid"),
    ],
)
def test_sysprep_refuses_other_answer_files(machine: Machine, text: str, says: str) -> None:
    with pytest.raises(ScriptError, match=says):
        sysprep.seal(machine, {"generalize": text, "begin": True})


def test_sysprep_does_not_begin_while_a_restart_is_due(machine: Machine) -> None:
    players.features(machine, {"release": "2022", "features": ["Containers"]})
    assert sysprep.seal(machine, {"generalize": GENERALIZE, "begin": True}) == {"restart": True}
    assert isinstance(machine.world, Computer)
    assert machine.world.asked == []
    node.settle(machine.config, machine.world)
    assert not sysprep.seal(machine, {"generalize": GENERALIZE, "begin": True})["restart"]
    assert machine.world.asked == ["poweroff"]


def test_sysprep_refuses_a_node_of_a_cluster(machine: Machine) -> None:
    certificate = "var/lib/kubelet/pki/kubelet-client-current.pem"
    for name, text in {"etc/kubernetes/kubelet.conf": "server: x", certificate: "-----BEGIN CERTIFICATE-----"}.items():
        machine.c(name).parent.mkdir(parents=True, exist_ok=True)
        machine.c(name).write_text(text)
    with pytest.raises(ScriptError, match="has joined a cluster"):
        sysprep.seal(machine, {"generalize": GENERALIZE, "begin": True})


def answers(folder: Path, *, install: bool) -> Path:
    environment = jinja2.Environment(
        autoescape=True, loader=jinja2.FileSystemLoader(data.folder("unattend") / "windows")
    )
    environment.filters["unattend_password"] = encode
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ("Autounattend.xml" if install else "Unattend.xml")).write_text(
        environment.get_template("Autounattend.xml.j2").render(
            install=install, firmware="uefi", keyboard="0409:00000409", locale_name="en-US", language="en-US",
            image_name="x", image_key="/IMAGE/NAME", product_key="", computer_name="NODE-1", time_zone="UTC",
            administrator="Administrator", administrator_password="p",
        )
    )  # fmt: skip
    return folder


def test_a_clone_takes_its_own_answers_from_the_cd(tmp_path: Path) -> None:
    empty, cd = tmp_path / "D", answers(tmp_path / "E", install=False)
    empty.mkdir()
    found = sysprep.clone_answers([empty, cd])
    assert found is not None
    root = answer.parse(found)
    for step in ("specialize", "oobeSystem"):
        answer.check(root, step)
    assert sysprep.clone_answers([empty]) is None


def test_after_sysprep_the_name_of_an_installation_s_answer_file_does_not_count(tmp_path: Path) -> None:
    """Windows then looks for Unattend.xml: a clone whose CD has only the other name waits at OOBE's first question."""
    cd = answers(tmp_path / "D", install=False)
    text = (cd / "Unattend.xml").read_bytes()
    (cd / "Unattend.xml").rename(cd / "Autounattend.xml")
    assert sysprep.clone_answers([cd]) is None
    (cd / "UNATTEND.XML").write_bytes(text)  # file systems of CDs may have capitals alone
    assert sysprep.clone_answers([cd]) == text


def test_a_forgotten_installation_cd_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AnswerError) as caught:
        sysprep.clone_answers([answers(tmp_path / "D", install=True), answers(tmp_path / "E", install=False)])
    assert "was left in the drive" in caught.value.detail


def test_two_answer_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AnswerError) as caught:
        sysprep.clone_answers([answers(tmp_path / "D", install=False), answers(tmp_path / "E", install=False)])
    assert "two answer files" in caught.value.detail
