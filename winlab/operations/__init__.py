"""One file per verb: what users do with a lab. A module is imported when it is first used: all take over a second."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from winlab.operations import apply as apply
    from winlab.operations import autostart as autostart
    from winlab.operations import bundle as bundle
    from winlab.operations import clusters as clusters
    from winlab.operations import consent as consent
    from winlab.operations import copy as copy
    from winlab.operations import create as create
    from winlab.operations import destroy as destroy
    from winlab.operations import diff as diff
    from winlab.operations import elsewhere as elsewhere
    from winlab.operations import explain as explain
    from winlab.operations import faults as faults
    from winlab.operations import follow as follow
    from winlab.operations import forward as forward
    from winlab.operations import golden as golden
    from winlab.operations import graph as graph
    from winlab.operations import group as group
    from winlab.operations import join as join
    from winlab.operations import lab_hosts as lab_hosts
    from winlab.operations import load as load
    from winlab.operations import lock as lock
    from winlab.operations import lock_file as lock_file
    from winlab.operations import logs as logs
    from winlab.operations import look as look
    from winlab.operations import move as move
    from winlab.operations import outlets as outlets
    from winlab.operations import owner as owner
    from winlab.operations import planning as planning
    from winlab.operations import power as power
    from winlab.operations import protect as protect
    from winlab.operations import push as push
    from winlab.operations import reach as reach
    from winlab.operations import recorded as recorded
    from winlab.operations import render as render
    from winlab.operations import repair as repair
    from winlab.operations import resize as resize
    from winlab.operations import support as support
    from winlab.operations import timeline as timeline
    from winlab.operations import verdict as verdict
    from winlab.operations import viewer as viewer
    from winlab.operations import watch as watch


def __getattr__(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'") from error
