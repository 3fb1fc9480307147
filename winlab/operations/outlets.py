"""A lab for other programs: ssh's configuration, /etc/hosts, a shell's variables, Ansible's inventory, credentials."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from winlab.adapters.vm.domains import Machine
from winlab.design.plan import addresses
from winlab.design.plan.tags import Tag
from winlab.design.system import SYSTEMS
from winlab.lab_folder import CREDENTIALS, LabFolder
from winlab.operations import look, reach, recorded
from winlab.site import Site

GROUPS = {"controller": "controllers", "worker": "workers", "machine": "machines"}  # Ansible's, by role
WINRM = {
    "ansible_connection": "winrm",
    "ansible_port": 5986,
    "ansible_winrm_scheme": "https",
    "ansible_winrm_transport": "ntlm",
    "ansible_winrm_server_cert_validation": "validate",
}


@dataclass(frozen=True)
class Login:
    """How to log in to a node. On Linux there is no password, but a key.

    :param key: the private key's file, for ssh.
    """

    node: str
    user: str
    address: str
    key: Path
    password: str = ""


def ssh_config(lab: str, site: Site) -> str:
    """Entries for ``~/.ssh/config``: ``NODE.LAB``, verified by the host key that winlab made.

    :raises NotFoundError: there is no such lab, or this account has no credentials for it.
    """
    machines, folder = _known(lab, site)
    blocks = [f"# winlab ssh-config --lab {lab}"]
    for machine in machines:
        tag = machine.tag
        lines = [f"Host {' '.join(_names(tag))}", f"  HostName {tag.floating}", f"  User {tag.user}"]
        lines += [f"  {option.replace('=', ' ', 1)}" for option in _options(tag, folder, site)]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def hosts(lab: str, site: Site) -> str:
    """Lines for ``/etc/hosts``: the addresses by which this host reaches nodes, and their names.

    :raises NotFoundError: there is no such lab.
    """
    with site.hypervisors() as connected:
        machines = look.find(lab, connected)
    names = [machine.tag for machine in machines]
    return "".join(f"{tag.floating} {' '.join(reversed(_names(tag)))}\n" for tag in names)


def environment(lab: str, site: Site) -> dict[str, str]:
    """The variables with which winlab and kubectl use a lab. KUBECONFIG is missing if it has no cluster.

    :raises NotFoundError: there is no such lab.
    """
    look.require_lab(lab, site)
    folder = site.folder(lab)
    found = {"KUBECONFIG": str(folder.kubeconfig)} if folder.has(folder.kubeconfig) else {}
    return {"WINLAB_LAB": lab, **found}


def logins(lab: str, site: Site) -> list[Login]:
    """How to log in to each node.

    :raises NotFoundError: there is no such lab, or this account has no credentials for it.
    """
    machines, folder = _known(lab, site)
    password = folder.credentials().administrator_password
    return [
        Login(
            one.tag.node,
            one.tag.user,
            one.tag.floating,
            folder.ssh_key,
            password if one.tag.system.login == "winrm" else "",
        )
        for one in machines
    ]


def inventory(lab: str, site: Site) -> str:
    """An inventory for Ansible, as YAML: groups by role, system and pool. Nodes are verified, and it has no secret.

    :raises NotFoundError: there is no such lab, or this account has no credentials for it.
    """
    machines, folder = _known(lab, site)
    plans = recorded.standing(folder)
    nodes = {node.name: (plan, node) for plan in plans for node in plan.nodes}  # of a change, the latest
    groups: dict[str, dict[str, Any]] = {one.name: {} for one in SYSTEMS}
    hosts: dict[str, dict[str, Any]] = {}
    for machine in machines:
        tag = machine.tag
        own = {"ansible_host": tag.floating, "ansible_user": tag.user, "winlab_address": tag.address}
        plan, node = nodes.get(tag.node, (None, None))
        # the certificate of a copied lab's node has the address of the node that was copied
        is_copy = plan is not None and node is not None and plan.certified(node) != tag.floating
        if tag.system.login == "ssh" or is_copy:
            # without the key: Ansible has a variable for that
            options = [one for one in _options(tag, folder, site) if not one.startswith("IdentityFile=")]
            own["ansible_ssh_common_args"] = shlex.join(["-F", "none", *(f"-o{option}" for option in options)])
        if tag.system.login != "ssh" and is_copy:
            own |= {"ansible_connection": "ssh", "ansible_port": "22", "ansible_shell_type": "cmd"}
        hosts[tag.node] = own
        for group in (GROUPS.get(tag.role, "machines"), tag.os, _pool("" if node is None else node.pool)):
            if group:
                groups.setdefault(group, {}).setdefault("hosts", {})[tag.node] = {}
    secret = f"{{{{ (lookup('file', {str(folder.path / CREDENTIALS)!r}) | from_json).administrator_password }}}}"
    winrm = {**WINRM, "ansible_winrm_ca_trust_path": str(folder.ca), "ansible_password": secret}
    for system in SYSTEMS:
        groups[system.name]["vars"] = {"ansible_connection": "ssh"} if system.login == "ssh" else winrm
    made = {
        "all": {
            "hosts": hosts,
            "children": groups,
            "vars": {"winlab_lab": lab, "ansible_ssh_private_key_file": str(folder.ssh_key)},
        }
    }
    return f"# winlab inventory --lab {lab}\n{yaml.safe_dump(made, sort_keys=False, width=1000)}"


def _known(lab: str, site: Site) -> tuple[list[Machine], LabFolder]:
    with site.hypervisors() as connected:
        machines = look.find(lab, connected)
    folder = site.folder(lab)
    folder.credentials()  # raises if this account has none
    return machines, folder


def _names(tag: Tag) -> list[str]:
    """The names by which other programs know a node: none of them is another lab's."""
    return [f"{tag.node}.{tag.lab}", f"{tag.node}.{addresses.zone(tag.lab)}"]


def _options(tag: Tag, folder: LabFolder, site: Site) -> Iterator[str]:
    """The options of ssh for a node, ``NAME=VALUE`` each."""
    words = [str(word) for word in reach.session(tag, folder, site)]
    return (value for name, value in pairwise(words) if name == "-o")


def _pool(name: str) -> str:
    """The group of a pool: Ansible's groups have letters, digits and underscores."""
    return f"pool_{re.sub('[^A-Za-z0-9]', '_', name)}" if name else ""
