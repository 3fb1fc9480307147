"""A standalone Windows machine, for use outside winlab: its plan, and the ISO that installs it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from winlab import files
from winlab.design.plan import credentials
from winlab.design.plan.facts import HostFacts
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import WindowsNode
from winlab.design.plan.stock import Stock
from winlab.design.render import answer
from winlab.design.spec.model import Spec
from winlab.design.spec.pools import LinuxWorkers
from winlab.errors import UsageError
from winlab.events import Listener, Progress, Told
from winlab.operations import carry_out, consent, planning
from winlab.site import Site
from winlab.steps.windows import first_boot, media
from winlab.supply.images import cache, expansion, requirements
from winlab.supply.media import export as media_export

COMPUTER = re.compile(r"[A-Za-z]([A-Za-z0-9-]{0,13}[A-Za-z0-9])?")  # what DNS and NetBIOS both take


@dataclass(frozen=True)
class Alone:
    """The plan of one Windows machine, in a lab that is never created, and what is available for it."""

    plan: Plan
    node: WindowsNode
    stock: Stock

    @property
    def image(self) -> str:
        """The name of the image that is installed."""
        return self.node.windows.image_name


@dataclass(frozen=True)
class Export:
    """What was written: the ISO, and the folder with the machine's credentials."""

    iso: Path
    credentials: Path


def make(spec: Spec, name: str, tell: Listener) -> Alone:
    """Decide everything about the machine *name*.

    :raises UsageError: the name is not valid, or the spec's workers don't run Windows.
    """
    if not COMPUTER.fullmatch(name):
        raise UsageError(
            f"A computer can't be called '{name}'.",
            cure="Use 1 to 15 letters, digits and hyphens, beginning with a letter.",
        )
    workers = spec.workers[0].model_copy(update={"count": 1, "golden": False})
    single = spec.model_copy(update={"workers": (workers,), "linux_workers": LinuxWorkers(), "addons": {}})
    planned = planning.make(single, "alone", HostFacts(), Told(tell, "plan"))
    whole = planned.plan
    worker = next(iter(whole.windows_nodes()), None)
    if worker is None:
        raise UsageError(
            f"'{single.workers[0].os}' is not Windows.",
            cure="Choose windows-2019, windows-2022 or windows-2025 with --os.",
        )
    node = worker.changed(computer_name=name.upper()).model_copy(update={"name": name.lower()})
    return Alone(whole.model_copy(update={"nodes": (node,)}), node, planned.stock)


def export(
    alone: Alone, to: Path, site: Site, tell: Listener, *, mirror: str | None = None, accept_eula: bool = False
) -> Export:
    """Write the ISO to *to*, and the machine's credentials into a folder beside it.

    :param mirror: where drivers and media come from, instead of their own sites.
    :param accept_eula: the user has accepted Microsoft's terms for evaluations; a missing medium is downloaded.
    :raises UsageError: the medium can't be used, or something is in the way; nothing is overwritten.
    :raises NotFoundError: there is no medium.
    """
    if not to.name:
        raise UsageError(f"The ISO can't be '{to}', which is a folder.", cure="Give the name of a file with --to.")
    files.check_named(to, stream=False)
    made = Export(to, to.with_name(f"{to.stem}.credentials"))
    for path in (made.iso, made.credentials):
        try:
            there = path.exists()
        except OSError as error:  # an endless name, an inaccessible folder
            raise _not_written(made, error) from error
        if there:
            raise UsageError(f"'{path}' already exists.", cure="Remove it, or choose another name with --to.")
    fetch = consent.settle(alone.plan, site, accepted=accept_eula)
    carry_out.one_step(f"iso {to.name}", lambda progress: _export(alone, made, progress, mirror, fetch), tell, usual=60)
    return made


def _export(alone: Alone, made: Export, progress: Progress, mirror: str | None, fetch: bool) -> None:
    requirements.check(alone.plan, alone.stock, consent=fetch, joins=False)
    medium = media.obtain(alone.node, alone.stock, progress, mirror=mirror, consent=fetch)
    cache.verify_file(medium, progress)
    requirements.check_medium(alone.node, medium)
    node = requirements.with_key(alone.node, medium)
    media.fetch_drivers(alone.plan, progress, mirror=mirror)
    generated = credentials.generate(alone.plan)
    content: dict[str, bytes | Path] = {
        **answer.answer_files(alone.plan, node, generated, expansion.expand),
        **first_boot.additions(alone.node, medium, alone.stock, progress),
    }
    try:
        with files.replacing(made.iso) as partial:
            media_export.build(medium, partial, content, progress)
            made.credentials.mkdir(mode=0o700)
            _write(made.credentials / "administrator-password", generated.administrator_password + "\n")
            _write(made.credentials / "ssh_key", generated.ssh_key)
            _write(made.credentials / "ca.pem", generated.ca_certificate)
    except OSError as error:
        raise _not_written(made, error) from error


def _not_written(made: Export, error: OSError) -> UsageError:
    return UsageError(f"'{made.iso}' can't be written.", why=str(error), cure="Choose another place with --to.")


def _write(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
