"""node.py, the script that winlab sends to Linux nodes, loaded as a module: it is no part of the package."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from winlab import data


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("winlab_node", data.folder("unattend") / "linux/node.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["winlab_node"] = module
    spec.loader.exec_module(module)
    return module
