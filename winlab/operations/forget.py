"""Forget a hypervisor that is lost forever: OVN does not wait for it, and labs' machines there count as gone."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial

from winlab import run, settings
from winlab.adapters.left import LEFT
from winlab.adapters.registered import PREFIX, Registered, check_name
from winlab.adapters.remote import Remote
from winlab.errors import ConflictError, HostError, NotFoundError, WinlabError
from winlab.events import Listener, Note
from winlab.site import Site

FORGOTTEN = f"{PREFIX}forgotten/"  # of its key in the external_ids of NB_Global; its name follows, as it was
REMOVED = f"{PREFIX}removed/"  # the same of one that was removed from the list while it did not answer
LIMIT = 30.0  # seconds for ssh to connect; its own limit is 5 for each address of the host
# What ssh reports of a host that is there: it only does not let this user in, or this user does not know its key.
THERE = (
    "Permission denied",
    "Too many authentication failures",
    "Host key verification failed",
    "Unable to negotiate",
    "Connection reset by",
)
SB = f"unix:{settings.SB_SOCKET}"
CHASSIS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # anyone of the group may have recorded it, and root uses it


def forget(name: str, site: Site, tell: Listener) -> None:
    """Forget a hypervisor that does not answer and never will. Its record is kept, so that it is recognized.

    :raises NotFoundError: there is none of this name.
    :raises ConflictError: it answers; nothing was touched.
    :raises HostError: the list of hypervisors can't be read.
    """
    check_name(name)
    records = known(site)
    if name not in records:
        raise NotFoundError(
            f"There is no hypervisor '{name}'.",
            cure=f"Besides the first one, the site has: {', '.join(records) or 'none'}.",
        )
    text, record = "", None
    try:
        record = records[name]()
        text = record.model_dump_json()
        _require_lost(name, record)
    except ConflictError:
        raise
    except WinlabError as error:  # what is recorded can't be used: nothing there can be asked
        tell(Note(text=f"{error.what} {error.why}"))
    chassis = "" if record is None else record.facts.chassis
    if CHASSIS.fullmatch(chassis) and chassis != site.host_facts.chassis:
        _remove_chassis(chassis, site, tell)
    with site.overlay() as northbound:
        left = [key for key in northbound.records(LEFT) if key.startswith(f"{LEFT}{name}/")]
        northbound.record({PREFIX + name: None, REMOVED + name: None, FORGOTTEN + name: text, **dict.fromkeys(left)})
        labs = northbound.gateways_on(chassis)
    if labs:
        which = ", ".join(labs)
        tell(Note(text=f"The host is still a gateway of these labs: {which}. Run 'winlab repair --lab LAB' for each."))


def known(site: Site) -> dict[str, Callable[[], Registered]]:
    """The hypervisors besides the first as :meth:`Site.registered` has them, and those that were only removed.

    :raises HostError: OVN's northbound database does not answer.
    """
    with site.overlay() as northbound:
        texts = northbound.records(REMOVED)
    found = {key.removeprefix(REMOVED): text for key, text in texts.items()}
    return {name: partial(Registered.parse, name, text) for name, text in found.items()} | site.registered()


def names(site: Site) -> set[str]:
    """The names of the hypervisors that were forgotten.

    :raises HostError: OVN's northbound database does not answer.
    """
    with site.overlay() as northbound:
        return {key.removeprefix(FORGOTTEN) for key in northbound.records(FORGOTTEN)}


def forgotten(site: Site) -> Mapping[str, Registered]:
    """What is recorded of the hypervisors that were forgotten, by their names.

    :raises HostError: OVN's northbound database does not answer.
    """
    with site.overlay() as northbound:
        texts = northbound.records(FORGOTTEN)
    found = {}
    for key, text in texts.items():
        name = key.removeprefix(FORGOTTEN)
        try:
            found[name] = Registered.parse(name, text)
        except WinlabError:
            continue  # no host is recognized by it
    return found


def _require_lost(name: str, record: Registered) -> None:
    """Check that ssh does not reach a host: its libvirt alone may hang, and its machines may run.

    :raises ConflictError: ssh does.
    """
    try:
        record.remote.call("true", LIMIT)
    except (run.OverdueError, run.FloodError):
        pass  # it took the login: otherwise ssh ends earlier
    except HostError as error:
        if not any(words in error.why for words in THERE):
            return
    except run.CommandError:
        pass  # it took the login
    raise ConflictError(
        f"The hypervisor '{name}' answers by ssh: its machines may run.",
        why="A hypervisor that was forgotten never returns, and its machines are created again on other hypervisors.",
        cure=f"If no lab needs it, use 'winlab hypervisor remove {name}'. If only its libvirt hangs, run 'sudo winlab "
        "host setup' there. Otherwise turn it off first.",
    )


def _remove_chassis(chassis: str, site: Site, tell: Listener) -> None:
    """Remove a host's row from OVN's southbound database, or report the command that root must run for that.

    While the row exists, OVN's 'all have followed' waits for the host. Where three hosts have the databases, another
    one's may be the leader.
    """
    words = ["ovn-sbctl", f"--db={SB}", "--no-leader-only", "--timeout=20", "--if-exists", "chassis-del", chassis]
    there = Remote.of(site.places.libvirt)
    try:
        if there is not None:
            there.call(f'root=$([ "$(id -u)" = 0 ] || echo sudo -n); $root {" ".join(words)}')
            return
        if os.geteuid() == 0:
            run.run(words, timeout=40)
            return
        why = "Only root may."
    except WinlabError as error:
        why = error.why or error.what
    where = "" if there is None else f" on '{there}'"
    tell(
        Note(
            text=f"OVN still has the host's chassis, and waits for it: {why} Run 'sudo ovn-sbctl --no-leader-only "
            f"chassis-del {chassis}'{where}."
        )
    )
