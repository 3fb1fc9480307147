"""The first host of a site admits another one: what its ``winlab host setup --join`` runs there over ssh.

ssh and sudo decide who may: anyone who can be root on the first host. The new host sends no secret, and gets none.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from winlab import files, settings
from winlab.adapters.registered import PREFIX, Registered
from winlab.design.plan.facts import HostFacts, SiteFacts
from winlab.errors import ConflictError, HostError, UsageError, WinlabError
from winlab.events import Progress
from winlab.host import boot, daemons, fabric, facts, ovn_sockets
from winlab.host import relay_program as program
from winlab.host.changes import Record, alone
from winlab.host.site import (
    certificates,
    databases,
    external,
    issued,
    messages,
    moves,
    own_facts,
    raft,
    relay,
    tunnels,
)
from winlab.host.site.messages import Answer, Given, Request

PROGRAM = settings.HOST_FILE.with_name("admit")
ENCAPS = ("--format=json", "--columns=chassis_name,ip", "list", "Encap")


def program_text(python: str, *, trust: bool = False) -> str:
    """The program that a host which joins runs on this one; isolated, as the unit that runs setup at boot.

    :param trust: a user trusts the others who can change what it runs.
    """
    quoted = "'" + python.replace("'", "'\\''") + "'"
    trusted = f"# Others than root can change what it runs: a user accepted that with {boot.FLAG}.\n" if trust else ""
    return f"""\
#!/bin/sh
# Written by 'winlab host setup': 'winlab host setup --join' runs it on this host, from the host that joins.
{trusted}exec {quoted} -I -m winlab host admit "$@"
"""


def ensure_program(record: Record, progress: Progress, *, trust: bool) -> None:
    """Write the program, if root alone can change what it runs, or the user trusts the others.

    :param trust: write it whatever it runs. It then says so, for later setups.
    """
    doubtful = bool(boot.doubts(boot.places()))
    text = program_text(sys.executable, trust=doubtful)
    if doubtful and not trust and boot.text_of(PROGRAM) != text:  # otherwise a user trusted this same Python before
        progress.say(
            "other hosts can't join this one: others than root can change this winlab; "
            f"'sudo winlab host setup {boot.FLAG}' accepts that"
        )
        PROGRAM.unlink(missing_ok=True)
        return
    record.add("files", str(PROGRAM))
    files.replace_text(PROGRAM, text, 0o700)


def admit(text: str, connection: str, progress: Progress) -> Answer:
    """Admit a host, or renew its certificate. The first time, this host becomes the first of a site.

    :param text: the host's request.
    :param connection: ssh's ``SSH_CONNECTION``: the addresses and ports of the client and of this host.
    :raises UsageError: the request is malformed, or ssh did not come by IPv4.
    :raises ConflictError: the host is a member of another site, or a host with another key has its name in OVN.
    :raises HostError: this host was not set up, or can't be the first of a site.
    """
    request = messages.read(Request, text, "the host that joins")
    with alone(progress):
        return _admit(request, connection, Record(), progress)


def _admit(request: Request, connection: str, record: Record, progress: Progress) -> Answer:
    known = own_facts.recover(facts.read_facts())
    if not known.recorded or known.joined:
        raise HostError(
            "This host can't admit others.",
            why=f"It has joined the site of {known.joined} itself." if known.joined else "It was not set up.",
            cure=f"Join {known.joined}." if known.joined else "Run 'sudo winlab host setup' on it first.",
        )
    key = _check(request, known)
    here = parse_connection(connection)
    address = relay.address_of(known.southbound) if known.southbound else here
    own = tunnels.recorded() or here
    mtu = tunnels.ensure(own, known.datapath, record, progress)
    relay.ensure(known.chassis, address, record, progress)
    ovn_sockets.ensure(ovn_sockets.SOUTHBOUND, record, progress)
    held = str(request.external_address or "")
    there, listed = others(known.chassis), hypervisors()
    addresses = external.assigned(known, request.chassis, {*there, *listed}, held)
    known = known.model_copy(
        update={"southbound": relay.southbound(address), "external_addresses": addresses}
    ).with_tunnels({known.chassis: mtu, request.chassis: request.tunnel_mtu})
    hosts = databases.choose(known, there, listed, request.chassis, request.databases)
    known = known.model_copy(update={"databases": hosts})
    given = None
    if request.moves is not None:
        given = _for_moves(request, request.moves, moves.ensure_first(known.chassis, own, record, progress))
        known = known.model_copy(update={"moves": moves.fact(known)})
    facts.write_facts(known)
    if (hosts or raft.are_here()) and raft.is_usable():
        known = databases.form(known, record, progress)
    external.ensure(known, record, progress)
    external.ensure_bfd(record)
    progress.say(f"admitting {request.chassis}")
    authority, ip = relay.ensure_authority(known.chassis, record, progress), str(request.tunnel_address)
    issued.note(request.chassis, key, record)
    candidate = request.databases if request.chassis in hosts else None  # then it has a relay, too
    use = certificates.BOTH if candidate else certificates.CONNECTS
    return Answer(
        chassis=known.chassis,
        certificate=certificates.sign(request.request, request.chassis, ip, use, authority),
        authority=relay.text(program.AUTHORITY),
        southbound=relay.southbound(*dict.fromkeys([address, *hosts.values()])),
        databases=databases.grant(known, request.chassis, candidate, record) if candidate else None,
        tunnel_address=own,
        external_address=addresses[request.chassis],
        gateway_mac=external.own_mac(),
        facts=SiteFacts(**known.site.model_dump()),
        moves=given,
    )


def _for_moves(request: Request, asked: str, authority: certificates.Pair) -> Given:
    with _usable():
        made = moves.sign(asked, request.chassis, str(request.tunnel_address), authority)
    return Given(certificate=made, authority=authority.certificate)


@contextmanager
def _usable() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise UsageError(
            "The request for a certificate can't be used.",
            why=str(error),
            cure="Use the same version of winlab on both hosts.",
        ) from error


def _check(request: Request, known: HostFacts) -> str:
    """The SHA-256 of the host's public key, if it may have a certificate for its name."""
    with _usable():
        key = certificates.key_of(request.request)
    held = certificates.fingerprint(relay.text(program.AUTHORITY))
    if request.authority and request.authority != held:
        raise ConflictError(
            "The host has joined another site.",
            why="It has the certificate of another authority than this site's.",
            cure="Run 'sudo winlab host teardown' on it, then join again.",
        )
    if request.chassis == known.chassis:
        raise ConflictError(
            f"The first host has the same name in OVN, {request.chassis}.",
            why="Open vSwitch's system-id is the same on both, as on a copy of a machine.",
            cure="On the copy, remove /etc/openvswitch/system-id.conf and restart Open vSwitch.",
        )
    # a host that is shut down in order removes itself from OVN
    if request.chassis in others(known.chassis) or request.chassis in hypervisors():
        issued.check(request.chassis, key)
    return key


def encaps() -> list[dict[str, object]]:
    """The tunnels of all chassis that OVN knows: ``chassis_name`` and ``ip``."""
    return fabric.rows(fabric.sbctl(*ENCAPS))


def others(own: str) -> list[str]:
    """The chassis of other hosts that OVN knows."""
    return sorted({str(row["chassis_name"]) for row in encaps()} - {own})


def hypervisors() -> set[str]:
    """The chassis of the site's recorded hypervisors."""
    found: set[str] = set()
    for key, text in _recorded().items():
        with suppress(WinlabError):  # malformed: any member of the group can remove it anyway
            found.add(Registered.parse(key.removeprefix(PREFIX), text).facts.chassis)
    return found


def _recorded() -> dict[str, str]:
    """The list of hypervisors in OVN's northbound database, as it is there."""
    (row,) = fabric.rows(fabric.nbctl("--format=json", "--columns=external_ids", "list", "NB_Global"))
    return {key: text for key, text in row["external_ids"][1] if key.startswith(PREFIX)}


def parse_connection(text: str) -> str:
    """This host's address in ``SSH_CONNECTION``, by which the other host reaches it.

    :raises UsageError: it is not an IPv4 address.
    """
    words = text.split()
    try:
        return tunnels.parse(words[2] if len(words) == 4 else "")
    except UsageError as error:
        raise UsageError(
            "winlab does not know the address at which other hosts reach this host.",
            why=f"ssh says: '{text}'. An IPv4 address is needed.",
            cure="Join by the first host's IPv4 address: 'sudo winlab host setup --join USER@ADDRESS'.",
        ) from error


def members(known: HostFacts) -> list[str]:
    """The chassis of the other hosts in this host's site, if it is the first; empty if OVN's databases do not run."""
    is_first = known.southbound and not known.joined
    if not is_first or not daemons.northd_up():
        return []
    return others(known.chassis or fabric.ovs_ids().get("system-id", ""))  # without a file of facts it is not known


def undo(record: Record, known: HostFacts, progress: Progress) -> None:
    """Stop being a site's first host, before anything else is undone. Files go with the other files of setup."""
    if record.changes.connection:  # without it no one could record other hypervisors
        forget_hypervisors(progress)
    gone = members(known)
    daemons.stop("relay", record, progress)  # first: their controllers would make their rows again
    relay.remove_log()
    for chassis in gone:
        progress.say(f"removing {chassis} from OVN")
        fabric.sbctl("chassis-del", chassis, check=False)


def forget_hypervisors(progress: Progress) -> None:
    """Remove the list of the site's other hypervisors: a site that is set up here again must not find it."""
    if keys := sorted(_recorded()):
        progress.say("removing the list of other hypervisors")
        # quoted: members of the group choose the names
        fabric.nbctl("remove", "NB_Global", ".", "external_ids", *map(json.dumps, keys), check=False)
