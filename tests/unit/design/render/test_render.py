"""Files for guests, with values that try to break out; checked by the checker that knows Windows."""

from __future__ import annotations

import base64
import itertools
import json
import re
from pathlib import Path

import plans
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

import unattend_check
from winlab import data
from winlab.design.catalog import recipes
from winlab.design.plan import credentials
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render import answer, answer_limits, cloud_init
from winlab.design.render.templates import SOURCE, expand, unattend_password
from winlab.errors import UsageError

NASTY = """<&"'>;$(x)`y`%PATH%{{ z }}\u00e4\u4e2d"""
EDITIONS = ("standard-core", "standard-desktop", "datacenter-core", "datacenter-desktop")
NS = {"u": "urn:schemas-microsoft-com:unattend"}


@pytest.mark.parametrize("system", ["windows-2019", "windows-2022", "windows-2025", "windows-rehearsal"])
@pytest.mark.parametrize("firmware", ["uefi", "bios"])
def test_answer_files_pass_the_checker(system: str, firmware: str, tmp_path: Path) -> None:
    """Every edition, bus, and kind of medium."""
    kubernetes = "1.34" if system == "windows-2019" else "1.36"
    keys = recipes.get(system).setup_keys
    path = tmp_path / "Autounattend.xml"
    for edition, bus, evaluation in itertools.product(EDITIONS, ("virtio-scsi", "virtio-blk", "sata"), (True, False)):
        key = None if evaluation else keys.get(edition.split("-")[0])
        plan = plans.make(
            plans.KVM, "1-1-1", f"workers.os={system}", f"workers.edition={edition}", f"workers.bus={bus}",
            f"workers.firmware={firmware}", f"kubernetes.version={kubernetes}", "workers.drivers=/srv/virtio-win.iso",
            *([f"workers.product_key={key}"] if key else []),
        )  # fmt: skip
        assert plan.builders
        installed, clone = (plan.builders[0].nodes[0], "windowsPE"), (plan.node("node-1"), "specialize")
        for node, first in (installed, clone) if bus == "sata" else (installed,):  # a clone's is the same on every bus
            assert node.windows is not None
            path.write_text(answer.answer_xml(node, NASTY, expand))
            settings = etree.parse(path).find("u:settings", NS)
            assert settings is not None
            assert settings.get("pass") == first
            medium = [] if key else ["--eval"]
            about = ["--firmware", firmware, "--server", node.windows.release, "--password", NASTY]
            assert unattend_check.main(["--strict", *about, *medium, str(path)]) == 0, (node.name, edition, bus, key)


@pytest.mark.parametrize(
    ("image", "key", "value"), [("Our <Server> 2022", "/IMAGE/NAME", "Our <Server> 2022"), ("4", "/IMAGE/INDEX", "4")]
)
def test_an_image_by_its_name_or_number(image: str, key: str, value: str) -> None:
    (builder,) = plans.make(plans.KVM, "1-1-1", f"workers.image={image}").builders
    node = builder.windows_nodes()[0]
    root = etree.fromstring(answer.answer_xml(node, NASTY, expand).encode())
    (chosen,) = root.iterfind(".//u:InstallFrom/u:MetaData", NS)
    assert (chosen.findtext("u:Key", namespaces=NS), chosen.findtext("u:Value", namespaces=NS)) == (key, value)


def own_template(folder: Path, text: str) -> NodePlan:
    template = folder / "Autounattend.xml.j2"
    template.write_text(text)
    return plans.make(plans.KVM, "1-1-1", f"workers.template={template}").node("node-1")


def test_a_template_of_the_user_extends_ours(tmp_path: Path) -> None:
    node = own_template(
        tmp_path,
        """{% extends "winlab/Autounattend.xml.j2" %}
        {% block specialize %}<component name="Mine"><Name>{{ computer_name }}</Name></component>{% endblock %}""",
    )
    root = etree.fromstring(answer.answer_xml(node, NASTY, expand).encode())
    assert root.findtext("u:settings[@pass='specialize']/u:component[@name='Mine']/u:Name", namespaces=NS) == "NODE-1"
    assert root.findtext(".//u:ComputerName", namespaces=NS) == "NODE-1"


def test_the_document_lists_the_variables_of_a_template() -> None:
    text = (Path(__file__).parents[4] / "docs/windows.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^Values: (.+?)\n\n", text, re.MULTILINE | re.DOTALL)
    given = answer.values(plans.make(plans.KVM, "1-1-1").windows_nodes()[0], NASTY)
    assert set(re.findall(r"`([a-z_]+)`", listed)) == given.keys()


@pytest.mark.parametrize(("text", "says"), [("<unattend>", "XMLSyntaxError"), ("<html/>", "Its root is html")])
def test_a_template_that_makes_no_answer_file(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=r"Autounattend\.xml\.j2") as caught:
        answer.answer_xml(own_template(tmp_path, text), NASTY, expand)
    assert says in caught.value.why


def test_a_template_reads_no_file_outside_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "spec"
    folder.mkdir()
    (tmp_path / "secret").write_text("hunter2")
    (folder / "link").symlink_to(tmp_path / "secret")
    for name in ("../secret", "link", str(tmp_path / "secret")):
        with pytest.raises(UsageError, match="can't be used") as caught:
            own_template(folder, f"{{% include '{name}' %}}")
        assert "outside" in caught.value.why
    entity = f'<!DOCTYPE u [<!ENTITY e SYSTEM "file://{tmp_path}/secret">]><u>&e;</u>'
    with pytest.raises(UsageError) as caught:
        answer.answer_xml(own_template(folder, entity), NASTY, expand)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "*", "A-NAME-THAT-IS-TOO-LONG"])
def test_a_template_may_not_name_the_machine(tmp_path: Path, name: str) -> None:
    text = (data.folder("unattend") / "windows/Autounattend.xml.j2").read_text()
    assert answer.answer_xml(own_template(tmp_path, text), NASTY, expand)
    node = own_template(tmp_path, text.replace("{{ computer_name }}", name))
    with pytest.raises(UsageError, match=r"Autounattend\.xml\.j2.* not 'NODE-1'"):
        answer.answer_xml(node, NASTY, expand)


COMMANDS = """{%% extends "winlab/Autounattend.xml.j2" %%}
{%% block specialize %%}<component name="Microsoft-Windows-Mine"><RunSynchronous>%s</RunSynchronous></component>
{%% endblock %%}"""
LOGON = """{%% extends "winlab/Autounattend.xml.j2" %%}
{%% block oobe_system %%}<component name="Mine"><FirstLogonCommands>%s</FirstLogonCommands></component>
{%% endblock %%}"""


def commands(text: str, rows: list[tuple[object, str]]) -> str:
    """A template whose list has these numbers and commands."""
    name, value = ("SynchronousCommand", "CommandLine") if text is LOGON else ("RunSynchronousCommand", "Path")
    numbered = ((f"<Order>{number}</Order>" if number != "" else "", command) for number, command in rows)
    return text % "".join(f"<{name}>{order}<{value}>{command}</{value}></{name}>" for order, command in numbered)


@pytest.mark.parametrize(
    ("text", "rows", "says"),
    [
        (COMMANDS, [(1, "a" * 259), (2, "\n  " + "a" * 259 + "\n")], ""),
        (COMMANDS, [(2, "a"), (1, "b")], ""),
        (COMMANDS, [("01", "a"), (" 2 ", "b")], ""),
        (COMMANDS, [(1, "a" * 260)], "Path of RunSynchronousCommand 1 has 260 characters; at most 259 are allowed."),
        (COMMANDS, [(1, "a&amp;" * 130)], "has 260 characters"),
        (COMMANDS, [(1, "a" * 258 + "\U0001f600")], "has 260 characters"),  # two units of UTF-16
        (COMMANDS, [(1, "a" * 200 + "<!-- b -->" + "a" * 60)], "has 260 characters"),
        (LOGON, [(1, "a" * 1024)], ""),
        (LOGON, [(1, "a" * 1025)], "CommandLine of SynchronousCommand 1 has 1025 characters; at most 1024 are"),
        (COMMANDS, [(1, "a"), (3, "b")], "Order of RunSynchronousCommand is 1, 3; it must count from 1"),
        (COMMANDS, [(1, "a"), (1, "b")], "is 1, 1; it"),
        (COMMANDS, [(0, "a"), (1, "b")], "is 0, 1; it"),
        (COMMANDS, [(2, "a")], "is 2; it"),
        (COMMANDS, [("", "a")], "is missing; it"),
        (COMMANDS, [("one", "a")], "is one; it"),
        (COMMANDS, [("9" * 5000, "a")], "is 9999"),
        (LOGON, [(1, "a"), (98, "b"), (500, "c")], ""),
        (LOGON, [(1, "a"), (501, "b")], "Order of SynchronousCommand is 1, 501; it must be from 1 to 500, each once."),
        (LOGON, [(2, "a"), ("02", "b")], "is 2, 2; it"),
        (LOGON, [("", "a")], "is missing; it"),
    ],
)
def test_settings_that_setup_refuses_are_refused_first(
    tmp_path: Path, text: str, rows: list[tuple[object, str]], says: str
) -> None:
    node = own_template(tmp_path, commands(text, rows))
    if not says:
        assert answer.answer_xml(node, NASTY, expand)
        return
    with pytest.raises(UsageError, match=r"Setup would refuse what the template 'Autounattend\.xml\.j2'") as caught:
        answer.answer_xml(node, NASTY, expand)
    assert says in caught.value.why
    place = "Mine in oobeSystem" if text is LOGON else "Microsoft-Windows-Mine in specialize"
    assert caught.value.why.startswith(f"{place}: ")
    assert caught.value.why.count("\n") == 0


def test_partition_numbers_are_checked_too(tmp_path: Path) -> None:
    text = (data.folder("unattend") / "windows/Autounattend.xml.j2").read_text()
    first = '<CreatePartition wcm:action="add">\n              <Order>1</Order>'
    assert first in text
    # the golden image's own machine is installed; a clone has no partitions to make
    node = own_template(tmp_path, text.replace(first, first.replace("1", "4")))
    assert node.windows is not None
    installed = node.model_copy(update={"windows": node.windows.model_copy(update={"golden": None})})
    with pytest.raises(UsageError) as caught:
        answer.answer_xml(installed, NASTY, expand)
    assert caught.value.why.startswith("Microsoft-Windows-Setup in windowsPE: Order of CreatePartition is 4, 2, 3;")


def test_the_lengths_are_those_of_microsoft_s_reference() -> None:
    path = Path(__file__).parents[4] / "tools/data/unattend-reference.json"
    lengths = {
        tuple(setting.split("/")[-2:]): fact["max_length"]
        for component in json.loads(path.read_text())["components"].values()
        for setting, fact in component["settings"].items()
        if "max_length" in fact and "/" in setting
    }
    for key, most in answer_limits.LENGTHS.items():
        assert lengths[key] == most


def test_special_characters_survive_in_the_answer_file() -> None:
    node = plans.make(plans.KVM, "1-1-1").node("node-1")
    assert node.windows is not None
    node = node.model_copy(update={"windows": node.windows.model_copy(update={"time_zone": NASTY})})
    root = etree.fromstring(answer.answer_xml(node, NASTY, expand).encode())
    assert root.findtext(".//u:TimeZone", namespaces=NS) == NASTY
    value = root.findtext(".//u:AdministratorPassword/u:Value", namespaces=NS)
    assert base64.b64decode(value).decode("utf-16-le") == NASTY + "AdministratorPassword"


@given(st.text())
def test_password_encoding_is_reversible(password: str) -> None:
    try:
        password.encode("utf-16-le")
    except UnicodeEncodeError:
        return  # half a surrogate pair is not text
    assert base64.b64decode(unattend_password(password, "Password")).decode("utf-16-le") == password + "Password"


def test_cloud_init_can_read_the_seed() -> None:
    plan = plans.make(plans.TCG)
    made = credentials.generate(plan)
    files = cloud_init.seed_files(plan, plan.nodes[0], made)
    user = yaml.safe_load(files["user-data"])
    assert files["user-data"].startswith(b"#cloud-config\n")
    assert user["ssh_keys"]["ed25519_private"] == made.nodes["controller-1"].host_key
    assert user["users"][0]["ssh_authorized_keys"] == [made.ssh_key_public]
    assert user["ssh_pwauth"] is False
    network = yaml.safe_load(files["network-config"])
    assert network["ethernets"]["eth0"]["match"] == {"macaddress": plan.nodes[0].mac}


def test_special_characters_survive_in_user_data() -> None:
    plan = plans.make(plans.TCG)
    masked = credentials.masked(plan)
    made = masked.model_copy(update={"ssh_key_public": NASTY})
    user = yaml.safe_load(cloud_init.seed_files(plan, plan.nodes[0], made)["user-data"])
    assert user["users"][0]["ssh_authorized_keys"] == [NASTY]


def test_answer_iso_files() -> None:
    plan = plans.make(plans.KVM)
    made = credentials.generate(plan)
    files = answer.answer_files(plan, plan.node("node-1"), made, expand)
    facts = json.loads(files["winlab/node.json"])
    assert (facts["lab"], facts["node"], facts["mtu"]) == ("lab", "node-1", 1500)
    assert made.administrator_password.encode() not in b"".join(files.values())


def test_templates_have_a_size(tmp_path: Path) -> None:
    text = '{% extends "winlab/Autounattend.xml.j2" %}' + f"{{#{'a' * (SOURCE // 2)}#}}"
    answer.answer_xml(own_template(tmp_path, text), NASTY, expand)
    (tmp_path / "more.j2").write_text(text)
    with pytest.raises(UsageError, match=r"more\.j2' can't be used") as caught:
        own_template(tmp_path, text + "{% import 'more.j2' as more %}")
    assert caught.value.why == f"a template and those that it refers to have at most {SOURCE} bytes"


def test_files_that_templates_need_exist(tmp_path: Path) -> None:
    text = """{% extends "winlab/Autounattend.xml.j2" %}{% macro m(a, b=2) %}{{ a ~ "-" ~ b }}{% endmacro %}
    {% block specialize %}{{ super() }}<component name="Mine">
    {%- for n in range(3) if n != 1 %}<N>{{ m(n) }}</N>{% endfor %}
    {% set all = ["x", 5 * 3 + 1, {"k": "v"}.k] %}{{ all | join(",") | upper }} {{ computer_name.lower() }}
    {%- set t %}text{% endset %} {{ t | trim | length }} {{ 7 % 4 }} {{ "a" * 3 }} {{ 2 ** 10 }}
    </component>{% endblock %}"""
    root = etree.fromstring(answer.answer_xml(own_template(tmp_path, text), NASTY, expand).encode())
    (mine,) = root.findall(".//u:component[@name='Mine']", namespaces=NS)
    assert [row.text for row in mine] == ["0-2", "2-2"]
    assert " ".join("".join(mine.itertext()).split()) == "0-22-2 X,16,V node-1 4 3 aaa 1024"
