"""The files of a Windows node's answer ISO.

Source of the format: Microsoft's Unattended Windows Setup Reference. The scripts are identical for every node;
differences are in node.json.
"""

from __future__ import annotations

import itertools
import json

from lxml import etree

from winlab import data
from winlab.design.plan.credentials import Credentials
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import WindowsNode
from winlab.design.render import answer_limits, proxy
from winlab.design.render.templates import Expand, for_own, for_xml
from winlab.errors import UsageError

ANSWER_LABEL = "WINLAB"
TEMPLATE = "Autounattend.xml.j2"
# The built-in account in languages that have another name for it (Microsoft, names of built-in accounts). Until
# bootstrap.ps1 has run; then it is Administrator everywhere
ACCOUNTS = {
    "es": "Administrador",
    "fi": "Järjestelmänvalvoja",
    "fr": "Administrateur",
    "hu": "Rendszergazda",
    "pt": "Administrador",
    "ru": "Администратор",
    "sv": "Administratör",
}
MOST_PROBLEMS = 10  # that are reported of a template
NAMESPACE = "urn:schemas-microsoft-com:unattend"
OPENSSH = "winlab/OpenSSH-Win64.zip"
CURE = "docs/windows.md shows how a template of one's own extends winlab's."


def values(node: WindowsNode, administrator_password: str) -> dict[str, object]:
    """What a template gets, by its names there; docs/windows.md lists them."""
    windows = node.windows
    return {
        "install": windows.golden is None,
        "firmware": node.firmware,
        "bus": node.bus,
        "language": windows.language,
        "locale_name": windows.locale,
        "keyboard": windows.keyboard,
        "image_name": windows.image_name,
        "image_key": "/IMAGE/INDEX" if windows.image_name.isdecimal() else "/IMAGE/NAME",
        "product_key": windows.product_key,
        "computer_name": windows.computer_name,
        "time_zone": windows.time_zone,
        "administrator": _account(node),
        "administrator_password": administrator_password,
    }


def unusable(template: str, why: str) -> UsageError:
    """The error for a user's own template from which no answer file can be made."""
    return UsageError(f"The template '{template}' can't be used.", why=why, cure=CURE)


def answer_xml(node: WindowsNode, administrator_password: str, expand: Expand) -> str:
    """The node's Autounattend.xml.

    :param expand: makes the text of a user's own template.
    :raises UsageError: the user's own template can't be used.
    """
    windows, given = node.windows, values(node, administrator_password)
    if windows.template is None:
        return for_xml("windows").get_template(TEMPLATE).render(given)
    made = expand(for_own("windows", windows.template.texts), windows.template.name, given)
    try:
        root = etree.fromstring(made.encode(), etree.XMLParser(resolve_entities=False))  # they could name files
    except (etree.XMLSyntaxError, UnicodeError) as error:
        raise unusable(windows.template.name, f"{type(error).__name__}: {error}") from error
    if root.tag != f"{{{NAMESPACE}}}unattend":
        raise UsageError(
            f"The template '{windows.template.name}' makes no answer file.",
            why=f"Its root is {root.tag}.",
            cure=CURE,
        )
    names = [(element.text or "").strip() for element in root.iter(f"{{{NAMESPACE}}}ComputerName")]
    if set(names) != {windows.computer_name}:  # a file for x86 and amd64 has it in both components
        raise UsageError(
            f"The template '{windows.template.name}' names the machine '{', '.join(dict.fromkeys(names))}', "
            f"not '{windows.computer_name}'.",
            why="Its certificate and its place in the cluster go by the name in the plan; and Windows takes no name of "
            "more than 15 bytes.",
            cure="Leave <ComputerName>{{ computer_name }}</ComputerName> as winlab's template has it.",
        )
    if refused := list(itertools.islice(answer_limits.problems(root), MOST_PROBLEMS)):
        raise UsageError(
            f"Windows Setup would refuse what the template '{windows.template.name}' makes, as a whole.",
            why="\n".join(refused),
            cure="Put a long command into a script and call that (workers.scripts, workers.files). Number each list "
            "from 1, each number once.",
        )
    return made


def _account(node: WindowsNode) -> str:
    """The name of the account that logs on once by itself. A clone's was given its name when its image was made."""
    language = node.windows.language.partition("-")[0].lower()
    return "Administrator" if node.windows.golden is not None else ACCOUNTS.get(language, "Administrator")


def answer_files(plan: Plan, node: WindowsNode, credentials: Credentials, expand: Expand) -> dict[str, bytes]:
    """The files of the node's answer ISO, by path; see :func:`answer_xml`."""
    identity = credentials.nodes[node.name]
    facts = {
        "lab": plan.lab,
        "node": node.name,
        "mtu": plan.network.mtu,
        "pfx_password": identity.pfx_password,
        **({"proxy": given} if (given := proxy.winhttp(plan)) else {}),
    }
    answers = answer_xml(node, credentials.administrator_password, expand).encode()
    # after sysprep the name Unattend.xml counts (Microsoft, Windows Setup Automation Overview); some take the other
    own = {"Unattend.xml": answers}
    if node.windows.golden is None:
        # cmd.exe finds labels by lines that end as its own do
        own = {"winlab/pe.cmd": data.texts("unattend")["windows/pe.cmd"].replace("\n", "\r\n").encode()}
    return {
        "Autounattend.xml": answers,
        **own,
        "winlab/bootstrap.ps1": data.texts("unattend")["windows/bootstrap.ps1"].encode(),
        "winlab/beacon.ps1": data.texts("unattend")["windows/beacon.ps1"].encode(),
        "winlab/node.json": (json.dumps(facts, indent=2) + "\n").encode(),
        "winlab/winrm.pfx": credentials.pfx(node.name),
        "winlab/ssh_host_ed25519_key": identity.host_key.encode(),
        "winlab/ssh_host_ed25519_key.pub": (identity.host_key_public + "\n").encode(),
        "winlab/administrators_authorized_keys": (credentials.ssh_key_public + "\n").encode(),
    }
