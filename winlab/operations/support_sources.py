"""What an archive for support is collected from. Every source may fail, or never answer; none changes anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from winlab import events, journal, settings
from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.vm import connection, crash, display, domains
from winlab.adapters.vm.domains import Machine
from winlab.design.contract import on_both
from winlab.design.plan.facts import HYPERVISOR
from winlab.design.plan.stock import Stock
from winlab.design.render import folder as rendered
from winlab.design.render.domain import serial_log
from winlab.engine.lab_on_site import LabOnSite
from winlab.errors import GuestError, UsageError, WinlabError
from winlab.host import doctor, state
from winlab.lab_folder import LabFolder
from winlab.operations import logs, recorded, support_secrets
from winlab.site import Site
from winlab.steps import screens
from winlab.steps.crashed import told
from winlab.supply.images import expansion, windows_media
from winlab.supply.media import inspection
from winlab.version import __version__

MOST = 4 << 20  # bytes of one file; of a longer log, its end is taken
MOST_FILES = 200  # of one source
LINES = 500  # of each log in a guest
LIMIT = 10  # seconds that the API server has for one query
PICTURES = (".png",)


@dataclass(frozen=True)
class File:
    """One file: its path in the archive, and its content. ``cut``: only the end of it."""

    path: str
    content: bytes
    cut: bool = False


@dataclass(frozen=True)
class Source:
    """Something to collect: a name for people, and what reads it."""

    name: str
    read: Callable[[], Iterable[File]]


def shared(site: Site) -> list[Source]:
    """What does not belong to one lab: the host."""
    return [
        Source("versions", lambda: [_json("host/versions.json", _versions(site))]),
        Source("facts of the host", lambda: [_file("host/host.yaml", settings.HOST_FILE)]),
        Source("doctor", lambda: [_json("host/doctor.json", [asdict(one) for one in doctor.diagnose()])]),
        Source("Open vSwitch", lambda: [_text("network/openvswitch.txt", state.switch())]),
        Source("OVN southbound", lambda: [_text("network/southbound.txt", state.southbound())]),
        Source("logs of OVN and Open vSwitch", _daemons),
    ]


def of_lab(lab: str, site: Site, within: str = "") -> list[Source]:
    """What belongs to a lab as a whole.

    :param within: the folder in the archive, with a slash at its end.
    """
    folder = site.folder(lab)
    made = [
        Source(f"{within}spec and plan", lambda: _design(folder, within)),
        Source(f"{within}journal", lambda: _journal(folder, within)),
        Source(f"{within}evidence", lambda: _folder(f"{within}evidence", folder.path / "evidence")),
        *([] if within else [Source("Windows media", lambda: _media(folder))]),  # those of builders are among them
        Source(f"{within}OVN northbound", lambda: [_json(f"{within}network/northbound.json", _northbound(lab, site))]),
    ]
    if folder.has(folder.kubeconfig):
        questions = {
            "nodes.txt": ("get", "nodes", "--output=wide"),
            "nodes.json": ("get", "nodes", "--output=json"),
            "pods.txt": ("get", "pods", "--all-namespaces", "--output=wide"),
            "events.txt": ("get", "events", "--all-namespaces", "--sort-by=.metadata.creationTimestamp"),
        }
        made += [
            Source(f"{within}cluster: {name}", _asker(folder, f"{within}cluster/{name}", words))
            for name, words in questions.items()
        ]
    return made


def of_machine(machine: Machine, site: Site, within: str = "") -> list[Source]:
    """What belongs to one machine.

    :param within: the folder in the archive, with a slash at its end.
    """
    node, place = machine.tag.node, f"{within}nodes/{machine.tag.node}"
    pictures = screens.folder(site.folder(machine.tag.lab), node)

    def xml() -> list[File]:
        with site.hypervisors() as hosts:
            return [_text(f"{place}/domain.xml", domains.described(hosts.on(machine).conn, machine))]

    def screen() -> list[File]:
        with site.hypervisors() as hosts:
            return [File(f"{place}/screen.png", display.screenshot(hosts.on(machine).conn, machine))]

    def crashed() -> list[File]:
        with site.hypervisors() as hosts:
            read = crash.read(hosts.on(machine).conn, machine)
        return [] if read is None else [_json(f"{place}/crash.json", events.record(told(node, read)))]

    def qemu_log() -> list[File]:
        return [_file(f"{place}/qemu.log", state.QEMU_LOGS / f"{machine.domain}.log")]

    made = [
        Source(f"{within}domain of {node}", xml),
        *([Source(f"{within}QEMU's log of {node}", qemu_log)] if machine.hypervisor == HYPERVISOR else []),
        Source(f"{within}serial port of {node}", lambda: _serial(machine, site, place)),
        Source(f"{within}earlier screens of {node}", lambda: _folder(f"{place}/screens", pictures)),
    ]
    if machine.state in ("running", domains.CRASHED):
        made.append(Source(f"{within}screen of {node}", screen))
    if machine.state == domains.CRASHED:
        made.append(Source(f"{within}crash of {node}", crashed))
    if machine.state == "running":
        made.append(Source(f"{within}logs in {node}", lambda: _guest(machine, site, place)))
    return made


def builders(lab: str, site: Site) -> list[str]:
    """The labs in which golden images of a lab are made, as far as they have a folder here."""
    try:
        plans = recorded.read(site.folder(lab)).plans
    except Exception:  # the source that reads it again says why
        return []
    names = dict.fromkeys(builder.lab for plan in plans for builder in plan.builders)
    return [name for name in names if site.folder(name).path.is_dir()]


def end_of(content: bytes, *, cut: bool) -> tuple[bytes, bool]:
    """The last :data:`MOST` bytes of a text, from the beginning of a line on: half a secret would not be recognized.

    :param cut: the content itself is already only the end of something.
    :returns: the end, and whether the text is longer than that.
    """
    cut = cut or len(content) > MOST
    return (content[-MOST:].partition(b"\n")[2] if cut else content), cut


def _versions(site: Site) -> dict[str, str]:
    made = {"winlab": __version__, **state.versions()}
    try:
        with site.hypervisors() as hosts:
            for one in hosts:
                ours = one.name == HYPERVISOR
                found = connection.versions(one.conn).items()
                made |= {name if ours else f"{name} on {one.name}": version for name, version in found}
            made |= {f"libvirt on {one.name or 'others'}": f"not known: {one}" for one in hosts.silent}
    except Exception as error:
        made["libvirt"] = f"not known: {error}"
    return made


def _design(folder: LabFolder, within: str) -> Iterator[File]:
    record = recorded.read(folder)
    designs = [("", record.spec, record.plan)]
    if record.applying is not None:  # a change that was interrupted, or failed
        designs.append(("applying/", record.applying.spec, record.applying.plan))
    for part, spec, plan in designs:
        place = f"{within}{part}"
        yield _json(f"{place}spec.json", support_secrets.without(spec.model_dump(mode="json")))
        yield _json(f"{place}plan.json", plan.without_secrets().model_dump(mode="json"))
        for path, content in rendered.files(plan.without_secrets(), expansion.expand).items():
            yield File(f"{place}rendered/{path}", content)


def _media(folder: LabFolder) -> Iterator[File]:
    """What the lab's Windows media are, by the spec or from the cache, as `winlab iso inspect` shows it.

    A medium from the cache may be gone once there is a golden image; then there is nothing to report.

    :raises UsageError: one can't be read.
    """
    record = recorded.read(folder)
    specs = [("applying/", record.applying.spec)] if record.applying is not None else []
    specs.append(("", record.spec))
    own = {pool.media: f"{part}own-{pool.name}" for part, spec in specs for pool in spec.pools if pool.media}
    plans = [one for plan in record.plans for one in (plan, *plan.builders)]
    nodes = [node for plan in plans for node in plan.windows_nodes() if not node.windows.own_medium]
    cached: dict[Path | None, str] = {windows_media.at_hand(node, Stock()): node.image for node in nodes}
    refused: list[str] = []
    for path, name in (*cached.items(), *own.items()):
        if path is None:
            continue
        try:
            yield _json(f"media/{_safe(name)}.json", inspection.inspect(path).facts())
        except WinlabError as error:  # one refused medium must not hide the others
            refused.append(f"{error.what} {error.why}".strip())
    if refused:
        raise UsageError(" ".join(refused))


def _journal(folder: LabFolder, within: str) -> Iterator[File]:
    yield _file(f"{within}journal.jsonl", folder.journal)
    older = journal.older(folder.journal)
    if older.exists():
        yield _file(f"{within}{older.name}", older)


def _northbound(lab: str, site: Site) -> Any:
    with site.overlay() as northbound:
        return northbound.described(lab)


def _asker(folder: LabFolder, path: str, words: tuple[str, ...]) -> Callable[[], list[File]]:
    return lambda: [_text(path, Kubectl.of(folder).run(*words, limit=LIMIT))]


def _serial(machine: Machine, site: Site, place: str) -> Iterator[File]:
    with site.storage() as hosts:
        pool = hosts.on(machine).pool
        volume = serial_log(machine.tag.lab, machine.tag.node)
        content = pool.download(volume)
        if not content:
            pool.refresh()  # libvirt does not notice a new log
            content = pool.download(volume)
        yield File(f"{place}/serial.log", *end_of(content, cut=False))
        for name in pool.names(f"{volume}."):  # what virtlogd rotated
            kept, cut = end_of(pool.download(name), cut=False)
            yield File(f"{place}/serial.log{name.removeprefix(volume)}", kept, cut)


def _guest(machine: Machine, site: Site, place: str) -> Iterator[File]:
    with site.hypervisors() as hosts:
        lab = LabOnSite.find(machine.tag.lab, site, hosts)
        (report,) = logs.gather([machine], lab, None, on_both.Logs(lines=LINES, everything=True))
    for name, text in report.logs.items():
        yield _text(f"{place}/logs/{_safe(name)}.log", text)
    if report.problems:
        raise GuestError(" ".join(report.problems))


def _daemons() -> Iterator[File]:
    for folder in state.LOGS:
        yield from _folder(f"network/{folder.name}", folder, ends=(".log",))


def _folder(name: str, folder: Path, ends: tuple[str, ...] = ("",)) -> Iterator[File]:
    """The files below a folder; links are left out, and an unreadable file does not hide the others."""
    every = (path for path in folder.rglob("*") if path.name.endswith(ends) and not path.is_symlink())
    paths = sorted(path for path in every if path.is_file())
    refused = [f"only {MOST_FILES} of {len(paths)} files were taken"] if len(paths) > MOST_FILES else []
    for path in paths[:MOST_FILES]:
        try:
            yield _file(f"{name}/{_safe(str(path.relative_to(folder)))}", path)
        except OSError as error:
            refused.append(str(error))
    if refused:
        raise PermissionError("; ".join(refused))


def _file(path: str, source: Path) -> File:
    """The end of a file; all of a picture.

    :raises OSError: it can't be read, or is a picture that is too large.
    """
    with source.open("rb") as file:
        size = file.seek(0, 2)
        if source.suffix in PICTURES:
            file.seek(0)
            return File(path, file.read(MOST), size > MOST)
        file.seek(max(0, size - MOST))
        return File(path, *end_of(file.read(MOST), cut=size > MOST))


def _safe(path: str) -> str:
    """A path for the archive: names come from guests, too."""
    parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    return "/".join("".join(one if one.isalnum() or one in "._-+@" else "_" for one in part) for part in parts)


def _text(path: str, text: str) -> File:
    return File(path, *end_of(text.encode(errors="replace"), cut=False))


def _json(path: str, value: Any) -> File:
    return File(path, (json.dumps(value, indent=1, default=str) + "\n").encode())
