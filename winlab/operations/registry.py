"""The hypervisors of a site: add, list, show, remove. OVN's database records them, for all users of the site."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from winlab import stopping
from winlab.adapters.registered import PREFIX, Registered, check_name, check_uri
from winlab.adapters.vm import connection, disks
from winlab.adapters.vm.hypervisor import Hypervisor, Hypervisors, Silent
from winlab.adapters.vm.volumes import StoragePool
from winlab.design.plan import volume_names
from winlab.design.plan.facts import HYPERVISOR, HostFacts, MachineFacts
from winlab.errors import ConflictError, HostError, NotFoundError, WinlabError
from winlab.events import Listener, Note, Progress
from winlab.host import facts as recorded
from winlab.near import did_you_mean
from winlab.operations import forget, remains
from winlab.operations.carry_out import one_step
from winlab.site import Site
from winlab.threads import Threads

ASKING = 20.0  # seconds for the answers of one that is connected


@dataclass(frozen=True)
class Listed:
    """A hypervisor as it is now.

    What it would say is None if it does not answer: its processors, its memory in MiB, its machines and their labs.

    :param problem: why it does not answer.
    :param drained: it takes no new nodes.
    """

    name: str
    uri: str
    problem: str = ""
    drained: bool = False
    cpus: int | None = None
    memory_mib: int | None = None
    machines: int | None = None
    labs: tuple[str, ...] | None = None

    @property
    def answers(self) -> bool:
        """Whether it answers."""
        return not self.problem


@dataclass(frozen=True)
class Shown:
    """A hypervisor with all that is known of it.

    :param facts: what its ``winlab host setup`` recorded; None if that can't be read.
    :param checked: when it was added, or last added again; None for the first.
    :param versions: of its libvirt and QEMU, and of the library here.
    """

    listed: Listed
    facts: MachineFacts | None
    checked: datetime | None
    versions: Mapping[str, str]


def every(site: Site) -> list[Listed]:
    """All hypervisors, the first one first. They are asked at the same time, and each has its own limit.

    :raises HostError: the first one's libvirt does not answer.
    """
    uris = _uris(site)
    with site.hypervisors() as hosts, Threads(len(hosts.each)) as threads:
        answers = list(threads.map(lambda one: _asked(one, uris.get(one.name, "")), hosts))
    found = answers + [Listed(one.name, uris.get(one.name, ""), one.reason) for one in hosts.silent if one.name]
    drained = frozenset[str]()
    with suppress(WinlabError):  # reported with the other hypervisors, which are unknown then
        drained = site.drained()
    found = [replace(one, drained=one.name in drained) for one in found]
    return [found[0], *sorted(found[1:], key=lambda one: one.name)]


def show(name: str, site: Site) -> Shown:
    """One hypervisor.

    :raises NotFoundError: there is none of this name.
    :raises HostError: the list of hypervisors can't be read.
    """
    record = None if name == HYPERVISOR else _record(name, site)
    uri = site.places.libvirt if record is None else record.uri
    facts, checked = (None, None) if record is None else (record.facts, record.checked)
    with site.hypervisors() as hosts:
        host = next((one for one in hosts if one.name == name), None)
        if host is None:
            reason = " ".join(one.reason for one in hosts.silent if one.is_maybe(name))
            return Shown(Listed(name, uri, reason), facts, checked, {})
        listed = _asked(host, uri)
        with suppress(WinlabError):
            facts = host.facts
        return Shown(listed, facts, checked, connection.versions(host.conn) if listed.answers else {})


def names(site: Site) -> list[str]:
    """The names of all hypervisors; it asks none of them.

    :raises HostError: the list of hypervisors can't be read.
    """
    return [HYPERVISOR, *(site.registered() if site.host_facts.southbound else ())]


def add(name: str, uri: str, site: Site, tell: Listener) -> Listed:
    """Record a hypervisor, after a check that labs can use it. Added again, its facts are read again.

    One that was drained takes new nodes again. What labs left there is removed; everything of labs if it was forgotten
    (:mod:`winlab.operations.forget`).

    :raises UsageError: the name or the URI can't be one; nothing was touched.
    :raises ConflictError: the name or the host is taken, or the host has not joined this site.
    :raises HostError: it can't be reached, or its libvirt does not answer or lacks the pool.
    """
    check_name(name)
    check_uri(uri)

    def work(progress: Progress) -> Listed:
        first = site.host_facts
        progress.say("reading the list of hypervisors")
        known = _readable(site)
        _refuse_taken(name, uri, known)
        record = Registered(uri=uri, facts=MachineFacts())
        progress.say("reading what 'winlab host setup' recorded there")
        theirs = recorded.read_facts_of(record.remote)
        _require_joined(record, theirs, first)
        _refuse_same(name, theirs, {HYPERVISOR: first.machine, **{other: one.facts for other, one in known.items()}})
        progress.say("asking libvirt there")
        conn = connection.connect(uri)
        try:
            pool = partial(StoragePool, conn, site.pool_name)
            host = Hypervisor(name, conn, pool, lambda: theirs.machine)
            _ = host.pool
            for text in _version_notes(host, site):
                tell(Note(text=text))
            host = _cleaned(host, theirs.machine, site, tell)
            listed = _asked(host, uri)
        finally:
            connection.close(conn)
        if not listed.answers:
            raise HostError(f"The hypervisor '{name}' does not answer.", why=listed.problem)
        with site.overlay() as northbound:
            northbound.put_hypervisor(name, record.model_copy(update={"facts": theirs.machine}).model_dump_json())
            northbound.record({forget.FORGOTTEN + name: None, forget.REMOVED + name: None})
            northbound.set_drained(name, wanted=False)
        return listed

    return one_step(f"add hypervisor {name}", work, tell, usual=3)


def remove(name: str, site: Site, *, force: bool = False) -> None:
    """Remove a hypervisor from the site. Nothing is changed on the host itself.

    :param force: even if it does not answer, so that it is unknown what is on it; or if volumes of labs or snapshots
        are in its pool. These stay there.
    :raises NotFoundError: there is none of this name.
    :raises ConflictError: labs have machines there; or labs or snapshots have volumes, and *force* is not given.
    :raises HostError: it does not answer or has no storage pool, and *force* is not given; or the list of hypervisors
        can't be read.
    """
    check_name(name)
    if name not in site.registered():
        raise unknown(name, site)
    text: str | None = None
    with site.hypervisors() as hosts:
        for silent in hosts.silent:
            if silent.name == name and force:  # its machines may run
                text = ""
                with suppress(WinlabError):
                    text = site.registered()[name]().model_dump_json()
            elif silent.name == name:
                raise HostError(
                    f"The hypervisor '{name}' does not answer, so winlab can't find out whether labs have machines "
                    "there.",
                    why=silent.reason,
                    cure=f"Try again when it answers. If it never answers: winlab hypervisor forget {name}",
                    causes=[silent.error],
                )
        if labs := sorted({machine.tag.lab for one in hosts if one.name == name for machine in one.machines()}):
            raise ConflictError(
                f"Labs have machines on the hypervisor '{name}': {', '.join(labs)}.",
                cure="Remove them first: " + ", ".join(f"'winlab destroy --lab {lab}'" for lab in labs) + ".",
            )
        if not force:
            for one in hosts:
                if one.name == name:
                    _refuse_volumes(one)
        with site.overlay() as northbound:
            northbound.record({PREFIX + name: None, forget.REMOVED + name: text})
            northbound.set_drained(name, wanted=False)


def _refuse_volumes(host: Hypervisor) -> None:
    """Check that no volume of a lab or of a snapshot is in a hypervisor's pool.

    :raises ConflictError: one is.
    :raises HostError: it has no such pool, or libvirt does not answer.
    """
    anyway = f"winlab hypervisor remove {host.name} --force"
    try:
        host.pool.refresh()
    except HostError as error:
        raise HostError(
            f"winlab can't find out whether labs or snapshots have volumes on the hypervisor '{host.name}'.",
            why=" ".join(filter(None, (error.what, error.why))),
            cure=f"{error.cure} To remove it anyway: {anyway}".lstrip(),
            causes=[error],
        ) from error
    names = host.pool.names()
    snapshots = sorted({"@".join(which) for name in names if (which := volume_names.snapshot_of(name))})
    # without the disks that a snapshot is based on: they are removed with it
    labs = sorted({str(volume_names.lab_of(name)) for name in disks.unused(host, names)})
    if labs or snapshots:
        removals = [f"'winlab destroy --lab {lab}'" for lab in labs]
        removals += [f"'winlab snapshot delete {snapshot}'" for snapshot in snapshots]
        raise ConflictError(
            f"Labs or snapshots have volumes on the hypervisor '{host.name}': {', '.join(labs + snapshots)}.",
            cure=f"Remove them first: {', '.join(removals)}. To remove it and leave them there: {anyway}",
        )


def _cleaned(host: Hypervisor, facts: MachineFacts, site: Site, tell: Listener) -> Hypervisor:
    """A hypervisor without what labs left there.

    :raises WinlabError: something can't be removed.
    """
    for name, record in forget.forgotten(site).items():
        if facts.chassis and record.facts.chassis == facts.chassis:
            tell(Note(text=f"The host was the hypervisor '{name}', which was forgotten: its machines count as gone."))
            remains.clear(host, tell)
            with site.overlay() as northbound:  # labs' nodes there are still lost; the host is recognized no longer
                northbound.record({forget.FORGOTTEN + name: ""})
    # it may have had another name when it was removed from the list
    own = [one for one in site.left() if one.hypervisor == host.name or one.chassis == facts.chassis != ""]
    host = replace(host, left=tuple(own))
    (host,) = remains.clean(site, Hypervisors((host,)), tell)[0]
    return host


def _uris(site: Site) -> dict[str, str]:
    """The addresses of all hypervisors, as far as they can be read: by name."""
    found = {HYPERVISOR: site.places.libvirt}
    with suppress(WinlabError):
        if site.host_facts.southbound:
            found |= {name: record.uri for name, record in _readable(site).items()}
    return found


def _readable(site: Site) -> dict[str, Registered]:
    """The hypervisors that are recorded besides the first, by name, without records that can't be used."""
    found = {}
    for name, read in site.registered().items():
        with suppress(WinlabError):
            found[name] = read()
    return found


def _asked(host: Hypervisor, uri: str) -> Listed:
    empty = Listed(host.name, uri)

    def ask() -> Listed:
        cpus, memory = connection.capacity(host.conn)
        machines = host.machines()
        labs = tuple(sorted({machine.tag.lab for machine in machines}))
        return replace(empty, cpus=cpus, memory_mib=memory, machines=len(machines), labs=labs)

    try:
        return stopping.patiently(ask, limit=ASKING)
    except TimeoutError as error:
        return replace(empty, problem=f"libvirt does not answer a question: {error}.")
    except WinlabError as error:
        return replace(empty, problem=Silent(host.name, error).reason)


def _record(name: str, site: Site) -> Registered:
    records = site.registered() if site.host_facts.southbound else {}
    if name not in records:
        raise unknown(name, site)
    return records[name]()


def unknown(name: str, site: Site) -> NotFoundError:
    """The error which says that there is no such hypervisor."""
    return NotFoundError(
        f"There is no hypervisor '{name}'.",
        cure=f"{did_you_mean(name, names(site))}Choose one of: {', '.join(names(site))}.",
    )


def _refuse_taken(name: str, uri: str, known: Mapping[str, Registered]) -> None:
    """Check that neither the name nor the URI is that of another hypervisor.

    :raises ConflictError: one is.
    """
    for other, record in known.items():
        if (other == name) != (record.uri == uri):
            raise ConflictError(
                f"There is already a hypervisor '{other}', at '{record.uri}'.",
                cure=f"Choose another name, or run 'winlab hypervisor remove {other}' first.",
            )


def _require_joined(record: Registered, theirs: HostFacts, first: HostFacts) -> None:
    """Check that a host has joined this site.

    :raises ConflictError: it has not.
    """
    site = theirs.joined
    # with databases on three hosts, the others know more than the first host's relay, which stays the first
    if site and first.southbound and theirs.southbound.split(",")[0] == first.southbound.split(",")[0]:
        return
    what = f"joined the site of '{site}'" if site else "not joined this site"
    join = "'sudo winlab host setup --join USER@HOST' there, with the address of this site's first host."
    raise ConflictError(
        f"The host '{record.remote}' has {what}.",
        why="Labs need a network that all hypervisors of their site share.",
        cure=f"Run 'sudo winlab host teardown' there, then {join}" if site else f"Run {join}",
    )


def _refuse_same(name: str, theirs: HostFacts, known: Mapping[str, MachineFacts]) -> None:
    """Check that a host is not recorded under another name.

    :raises ConflictError: it is.
    """
    for other, facts in known.items():
        if other != name and facts.chassis == theirs.chassis:
            raise ConflictError(
                f"This host is already the hypervisor '{other}'.", cure="'winlab hypervisor list' shows all of them."
            )


def _version_notes(host: Hypervisor, site: Site) -> list[str]:
    """How the programs of a hypervisor differ from the first one's, if that may matter."""
    with site.hypervisors() as hosts:
        ours = connection.versions(hosts.each[0].conn)
    theirs = connection.versions(host.conn)
    return [
        f"{program} is {theirs.get(program, 'missing')} on '{host.name}', and {version} on '{HYPERVISOR}'."
        for program, version in ours.items()
        if program != "libvirt library" and version.split(".")[0] != theirs.get(program, "").split(".")[0]
    ]
