"""What setup and teardown know of this host, also if its file of facts no longer says that it is part of a site."""

from __future__ import annotations

import ipaddress
import json

from winlab.design.plan.facts import HostFacts
from winlab.errors import HostError, UsageError, WinlabError
from winlab.events import Progress
from winlab.host import facts
from winlab.host import relay_program as program
from winlab.host.changes import Record
from winlab.host.site import relay
from winlab.run import run
from winlab.settings import HOST_FILE

_SELECT = json.dumps([program.NAME, {"op": "select", "table": "Connection", "where": [], "columns": ["target"]}])
_RESTORE = f"Repair '{HOST_FILE}', or restore it from a backup."


def read(record: Record, progress: Progress, *, force: bool = False) -> HostFacts:
    """The facts of an earlier setup. An unusable file of a host without a site is ignored: setup writes it again.

    :param record: what setup changed on this host.
    :param force: take the defaults for what is lost on a host of a site, too.
    :raises HostError: this host is part of a site, and its file is unusable or does not say which one.
    """
    try:
        known = facts.read_facts()
    except UsageError as error:
        if not force and (record.changes.ssl or relay.AUTHORITY_KEY.exists() or program.DATABASE.exists()):
            raise _lost(f"{error.what} {error.why}", error, joined=record.changes.ssl) from error
        progress.say(str(error))
        known = HostFacts()
    if record.changes.ssl and not known.joined and not force:
        raise _lost(f"'{HOST_FILE}' is missing, or another version of winlab has written it.", joined=True)
    try:
        found = recover(known)
    except HostError:
        if not force:
            raise
        return known
    if found != known:
        progress.say(f"other hosts reach this one at {found.southbound}, says the relay's database")
    return found


def _lost(why: str, *causes: WinlabError, joined: bool) -> HostError:
    if joined:
        what = "It is not known which site this host has joined."
        cure = "Or run 'sudo winlab host teardown --force', then 'sudo winlab host setup --join SITE'."
    else:
        what = "It is not known where other hosts of its site reach this one."
        cure = (
            "Or remove it, and run 'sudo winlab host setup --external-cidr CIDR' with the subnet that another host of "
            "the site has in its file: setup finds the rest."
        )
    return HostError(what, why=why, cure=f"{_RESTORE} {cure}", causes=[*causes])


def recover(known: HostFacts) -> HostFacts:
    """The facts of a site's first host, with where other hosts reach it, from the relay's database if they lack that.

    An earlier winlab, which does not know sites, writes the file without it.

    :raises HostError: the database can't be read.
    """
    if known.southbound or known.joined or not program.DATABASE.exists():
        return known
    try:
        said = json.loads(run(["ovsdb-tool", "query", program.DATABASE, _SELECT], timeout=30).stdout)
        address = ipaddress.IPv4Address(said[0]["rows"][0]["target"].split(":")[2])  # pssl:PORT:ADDRESS
    except (WinlabError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise HostError(
            f"The relay's database '{program.DATABASE}' can't be used.", why=str(error), cure=_RESTORE
        ) from error
    return known.model_copy(update={"southbound": relay.southbound(str(address))})
