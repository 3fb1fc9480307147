"""The names that labs can have."""

from __future__ import annotations

import re

from winlab.errors import UsageError

LAB_NAME = re.compile(r"[a-z]([a-z0-9-]{0,22}[a-z0-9])?")  # a domain's name stays under 64 characters
GOLDEN = "golden-"  # begins the names of labs in which winlab makes golden images
RESERVED = {"host", "external"}  # the host's own rows and switch; base volumes begin with "base-"


def check_lab_name(lab: str, *, own: bool = False) -> str:
    """Return *lab* if it can be a lab's name.

    :param own: also accept the name of a lab in which winlab makes a golden image.
    :raises UsageError: it can't; the message says which names can.
    """
    if lab in RESERVED or lab.startswith("base-") or (lab.startswith(GOLDEN) and not own):
        raise UsageError(
            f"'{lab}' can't be the name of a lab.",
            why="winlab's own objects have that name.",
            cure="Choose another one.",
        )
    if not LAB_NAME.fullmatch(lab) or "--" in lab:
        raise UsageError(
            f"'{lab}' can't be the name of a lab.",
            cure="Use 1 to 24 lower-case letters, digits and single hyphens, beginning with a letter: 'lab', 'cni-2'.",
        )
    return lab
