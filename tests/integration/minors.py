"""Which of Kubernetes' minors have their real programs built and run: each costs a cold machine ten minutes.

The default, and both ends of the catalog; what lies between reads configurations that both its neighbours read.
``WINLAB_TEST_MINORS`` names others (``1.35``, ``all``); tools/new_kubernetes.py names the one it has added.
"""

from __future__ import annotations

import os

from winlab.design.catalog import versions


def chosen() -> list[str]:
    """The minors, the newest first."""
    every = versions.names()
    asked = os.environ.get("WINLAB_TEST_MINORS", "")
    if asked == "all":
        return every
    if asked:
        return [versions.get(name.strip()).name for name in asked.split(",")]
    return [name for name in every if name in (every[0], versions.get().name, every[-1])]
