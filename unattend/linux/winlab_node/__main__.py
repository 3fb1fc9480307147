"""Runs the verb named on the command line."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from importlib import import_module

from winlab_node.node import Node, NodeError, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from winlab_node.node import Settings

VERBS = {  # the module and function of each
    "status": ("status", "status"),
    "prepare": ("prepare", "prepare"),
    "run-kubeadm": ("kubeadm", "run_kubeadm"),
    "run-k3s": ("k3s", "run_k3s"),
    "member": ("member", "member"),
    "forget-member": ("etcd", "forget_member"),
    "cni": ("cni", "cni"),
    "routes": ("network", "routes"),
    "push": ("push", "push"),
    "load": ("images", "load"),
    "faults": ("faults", "faults"),
    "logins": ("logins", "logins"),
    "logs": ("logs", "logs"),
}
LOOKS = {"status", "logs"}  # the verbs that change nothing, and answer while another one does


def verb(name: str) -> Callable[[Node, Settings], Settings]:
    """The function of a verb."""
    module, function = VERBS[name]
    found: Callable[[Node, Settings], Settings] = getattr(import_module(f"winlab_node.{module}"), function)
    return found


def _alone(node: Node, name: str) -> contextlib.AbstractContextManager[None]:
    from winlab_node.alone import alone  # a verb that changes nothing does not need it

    return alone(node, name)


def main(arguments: list[str], text: str, node: Node) -> int:
    """Run a verb and return its exit code."""
    try:
        if len(arguments) != 1 or arguments[0] not in VERBS:
            raise NodeError(f"usage: node.pyz {' | '.join(VERBS)}")
        try:
            settings = json.loads(text or "{}")
        except ValueError as error:
            raise NodeError(f"the settings are no JSON: {error}") from None
        if not isinstance(settings, dict):
            raise NodeError("the settings are no JSON object.")
        try:
            with contextlib.nullcontext() if arguments[0] in LOOKS else _alone(node, arguments[0]):
                result = verb(arguments[0])(node, settings)
                if arguments[0] not in LOOKS:
                    os.sync()  # what is reported as done survives a power cut
        except KeyError as error:
            raise NodeError(f"{arguments[0]}: {error} is missing in the settings or on the CD.") from None
    except (NodeError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    say(json.dumps(result))
    return 0


def start() -> int:
    """Run the verb on the command line and return its exit code."""
    return main(sys.argv[1:], "" if sys.stdin.isatty() else sys.stdin.read(), Node())


if __name__ == "__main__":
    sys.exit(start())
