"""containerd's step is done only when containerd has the images of the CD whole."""

from __future__ import annotations

import hashlib
from typing import Any

import answers
import plans
import pytest
import runs

from winlab.design.contract.call import Call
from winlab.design.render.windows import WindowsFiles
from winlab.steps.windows import node as windows_node

CD = "c" * 64


@pytest.mark.parametrize(
    ("images_from", "done"),
    [
        (CD, True),
        ("", False),  # the import failed, or a power cut may have left half of an image
        ("d" * 64, False),  # a golden image was made with another CD
        (None, True),  # the scripts of an older winlab don't say
    ],
)
def test_images_of_containerd(images_from: str | None, done: bool) -> None:
    plan = plans.make(plans.KVM, "1-1-1")
    node = plan.node("node-1")
    config = WindowsFiles(plan, node).containerd().config
    service = {"service": "running", "sha256": "a", "config_sha256": hashlib.sha256(config.encode()).hexdigest()}

    class Node:
        def run(self, call: Call[Any], *_: object) -> object:
            return answers.result(call, {"containerd": service, "cd": CD, "images_from": images_from})

    steps = windows_node.steps(runs.run(plan, guest=Node()), node)
    assert runs.titled(steps, "containerd node-1").done() is done
