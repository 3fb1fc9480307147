"""What a Windows node is given: the files of its answer ISO.

Source of the format: Microsoft's Unattended Windows Setup Reference. The scripts are the same bytes for every node;
what differs between nodes is in node.json.
"""

from __future__ import annotations

import json

from winlab import data
from winlab.credentials import Credentials
from winlab.plan import NodePlan, Plan
from winlab.render.templates import environment

ANSWER_LABEL = "WINLAB"
LANGUAGE = "en-US"  # of Setup and Windows; Setup stops at one that the media don't have
OPENSSH = "winlab/OpenSSH-Win64.zip"


def answer_xml(node: NodePlan, administrator_password: str) -> str:
    """The node's Autounattend.xml."""
    assert node.windows is not None
    windows = node.windows
    return (
        environment("windows")
        .get_template("Autounattend.xml.j2")
        .render(
            language=LANGUAGE,
            locale_name=windows.locale,
            keyboard=windows.keyboard,
            image_name=windows.image_name,
            product_key=windows.product_key,
            computer_name=windows.computer_name,
            time_zone=windows.time_zone,
            administrator_password=administrator_password,
        )
    )


def answer_files(plan: Plan, node: NodePlan, credentials: Credentials, *, pfx: bytes) -> dict[str, bytes]:
    """The files of the node's answer ISO, by path."""
    identity = credentials.nodes[node.name]
    facts = {
        "lab": plan.lab,
        "node": node.name,
        "mtu": plan.network.mtu,
        "pfx_password": identity.pfx_password,
    }
    return {
        "Autounattend.xml": answer_xml(node, credentials.administrator_password).encode(),
        "winlab/bootstrap.ps1": (data.folder("unattend") / "windows" / "bootstrap.ps1").read_bytes(),
        "winlab/node.json": (json.dumps(facts, indent=2) + "\n").encode(),
        "winlab/winrm.pfx": pfx,
        "winlab/ssh_host_ed25519_key": identity.host_key.encode(),
        "winlab/ssh_host_ed25519_key.pub": (identity.host_key_public + "\n").encode(),
        "winlab/administrators_authorized_keys": (credentials.ssh_key_public + "\n").encode(),
    }
