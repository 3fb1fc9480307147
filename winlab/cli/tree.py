"""All commands: where they are, and what ``winlab --help`` shows of them: one table, by what users want to do.

Each row has the commands, separated by commas, as they are typed; then what they do. tests/unit/cli/test_tree.py checks
that each command is in one row, and that the page fits an 80-column screen.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# Sections of options
SPEC = "The spec"
SUPPLIES = "Where things come from"
SHARED = ("output", "events", "quiet", "debug")  # options of winlab that its commands have, too

SUMMARY = "Hybrid Kubernetes labs, Linux and Windows Server, on your own hypervisor."
EXAMPLES = (
    "winlab create 1-1-1 --rehearse        # a first lab, without Windows media",
    "winlab exec node-1 hostname           # run a command on a node",
    "winlab apply --set workers.count=2    # change a running lab",
)
GROUPS: Mapping[str, tuple[tuple[str, str], ...]] = MappingProxyType(
    {
        "Labs": (
            ("create [SPEC]", "Create a lab, or resume an interrupted one"),
            ("plan [SPEC]", "Check a spec; show what create would make"),
            ("list, status [LAB]", "All labs; the nodes of one (--watch follows)"),
            ("diff, apply [SPEC]", "Show or make changes to an existing lab"),
            ("start, stop, restart [NODE...]", "Switch a lab on or off, or single nodes"),
            ("suspend, resume [NODE...]", "Pause in memory, and continue"),
            ("autostart on|off [LAB]", "Start a lab when the host boots"),
            ("snapshot, reset, clone", "Save a lab, put it back, copy it"),
            ("ui, graph", "All labs in the browser; a picture of one"),
            ("protect, destroy [LAB]", "Guard a lab; remove it (images are kept)"),
        ),
        "Nodes": (
            ("ssh NODE [-- COMMAND]", "Open a session, or run a command in one"),
            ("exec, pwsh NODE", "Run a command; open PowerShell"),
            ("cp SRC... DST", "Copy files into nodes, out of them, between"),
            ("vnc, rdp, serial, screenshot", "A node's screen, desktop or serial port"),
            ("port-forward NODE PORT...", "Reach ports of a node on this host"),
            ("node, move", "Add, remove, rebuild or move nodes"),
        ),
        "Cluster": (
            ("kubectl, kubeconfig", "The lab's own kubectl; its kubeconfig"),
            ("push, load FILE", "Bring your own programs or container images"),
            ("join", "Add workers to an external cluster"),
        ),
        "For other programs": (
            ("ssh-config, hosts, inventory", "Entries for ssh, /etc/hosts and Ansible"),
            ("env, credentials, schema", "Variables; passwords; what '-o json' prints"),
        ),
        "Test and diagnose": (
            ("test, fault", "Run tests; inject packet loss, full disks ..."),
            ("logs [NODE] [UNIT]", "Conditions, events and logs of nodes"),
            ("events, timeline [LAB]", "What commands did, and how long it took"),
            ("repair [NODE]", "Compare a lab with its plan, and repair it"),
            ("support [LAB]", "Make a support archive; explain failures"),
        ),
        "Supplies and hosts": (
            ("spec, lock", "Fields of specs; pin every input by hash"),
            ("image, iso, bundle", "Images, Windows ISOs, offline bundles"),
            ("doctor, host, hypervisor", "Check and prepare hosts; add more of them"),
        ),
        "winlab itself": (
            ("config, completion, version", "Defaults; completion for your shell; version"),
            ("docs [TOPIC], help [COMMAND]", "Read the documentation"),
        ),
    }
)

# The modules of this package, and the commands that each of them registers
MODULES: Mapping[str, str] = MappingProxyType(
    {
        "lab": "create plan status list protect destroy",
        "reconcile": "diff apply node",
        "power": "stop start restart suspend resume autostart",
        "snapshot": "snapshot reset clone",
        "node": "ssh serial screenshot move",
        "execute": "exec pwsh",
        "copy": "cp",
        "screens": "vnc rdp ui graph",
        "outlets": "port-forward ssh-config hosts env inventory credentials",
        "cluster": "kubeconfig kubectl push load logs lock join",
        "schema": "schema",
        "test": "test",
        "fault": "fault",
        "watch": "events timeline",
        "repair": "repair",
        "support": "support",
        "spec": "spec",
        "image": "image",
        "iso": "iso",
        "bundle": "bundle",
        "host": "doctor host",
        "hypervisor": "hypervisor",
        "config": "config",
        "manual": "completion version docs help",
    }
)

# What other tools call it
FOREIGN: Mapping[str, str] = MappingProxyType(
    {
        "up": "create",
        "launch": "create",
        "run": "exec",
        "down": "destroy",
        "rm": "destroy",
        "delete": "destroy",
        "remove": "destroy",
        "halt": "stop",
        "shutdown": "stop",
        "poweroff": "stop",
        "reload": "restart",
        "reboot": "restart",
        "pause": "suspend",
        "unpause": "resume",
        "continue": "resume",
        "shell": "ssh",
        "console": "serial",
        "ls": "list",
        "ps": "status",
        "info": "status",
        "show": "status",
        "top": "status --watch",
        "watch": "status --watch",
        "images": "image list",
        "pull": "image pull",
        "snapshots": "snapshot list",
        "save": "snapshot save",
        "restore": "reset",
        "rollback": "reset",
        "copy": "cp",
        "scp": "cp",
        "forward": "port-forward",
        "powershell": "pwsh",
        "log": "logs",
        "check": "doctor",
        "setup": "host setup",
        "update": "apply",
        "upgrade": "apply",
        "scale": "node add",
        "unprotect": "protect --off",
        "man": "docs",
    }
)


def rows() -> list[tuple[list[str], str]]:
    """The commands of each row of the table, and what they do."""
    return [(names(row), text) for group in GROUPS.values() for row, text in group]


def names(row: str) -> list[str]:
    """The commands in the first cell of a row: of ``diff, apply [SPEC]`` diff and apply."""
    return [part.split()[0] for part in row.split(",")]
