"""``winlab host setup --join SITE``: this host becomes a hypervisor of the site whose first host is SITE."""

from __future__ import annotations

import datetime
import os
import shlex
import socket
from collections.abc import Mapping
from pathlib import Path

from winlab.adapters.remote import Remote
from winlab.design.plan.facts import HostFacts
from winlab.errors import ConflictError, HostError
from winlab.events import Progress
from winlab.host import daemons, databases_program, fabric
from winlab.host import relay_program as program
from winlab.host.changes import Record
from winlab.host.site import admission, certificates, external, messages, moves, relay, tunnels
from winlab.host.site.messages import Answer, Candidate, Request
from winlab.run import CommandError, FloodError, OverdueError, run, watched

OPTIONS = ("-T", "-oConnectTimeout=10", "-oServerAliveInterval=5")  # the first host may be busy
LIMIT = 180.0  # seconds for the first host, which may start its relay and wait for another setup
PROBE_MS = 10_000  # after so long without a word the controller asks, and after as long again it takes another relay
# sudo removes SSH_CONNECTION
SCRIPT = (
    f'if [ $(id -u) = 0 ]; then exec {admission.PROGRAM} "$SSH_CONNECTION"; '
    f'else exec sudo -n {admission.PROGRAM} "$SSH_CONNECTION"; fi'
)
REMOTE = f"sh -c {shlex.quote(SCRIPT)}"  # the user's shell there may be another one


def command(first: Remote, *options: str) -> list[str]:
    """The ssh command, as the user who called sudo: it has that user's keys, agent and known hosts."""
    caller = os.environ.get("SUDO_USER", "")
    agent = os.environ.get("SSH_AUTH_SOCK", "")
    become = ["runuser", "-u", caller, "--", "env", f"HOME={Path(f'~{caller}').expanduser()}"]
    become += [f"SSH_AUTH_SOCK={agent}"] if agent else []
    return [*(become if caller not in {"", "root"} else []), *first.words(*OPTIONS, *options)]


def check(known: HostFacts) -> None:
    """Check that this host can join a site.

    :raises ConflictError: it was set up as a host of its own.
    """
    if known.recorded and not known.joined:
        raise ConflictError(
            "This host was set up on its own, and can't join a site like this.",
            why="Its labs, and the network of OVN on it, would be lost.",
            cure="Destroy its labs, run 'sudo winlab host teardown', then join again. Without --join this host stays "
            "as it is.",
        )


def join(
    site: str, address: str, known: HostFacts, record: Record, progress: Progress
) -> tuple[HostFacts, Mapping[str, str]]:
    """Have the first host admit this one; returns the facts, not yet written, and the ids of the databases' clusters.

    :param address: of this host's tunnels; empty: the one that it reaches the first host by.
    :param known: the facts of this host.
    :raises UsageError: the first host's answer can't be used.
    :raises HostError: the first host can't be reached or refuses, or the controller does not connect.
    """
    first = Remote.parse(site)
    towards = tunnels.towards(_resolve(first))
    own = address or tunnels.recorded() or towards
    mtu = tunnels.ensure(own, known.datapath, record, progress)
    record.add("folders", str(program.FOLDER))
    program.FOLDER.mkdir(mode=0o700, exist_ok=True)
    program.FOLDER.chmod(0o700)
    key = relay.text(program.KEY) or certificates.make_key()
    databases_key = relay.text(databases_program.KEY) or certificates.make_key()
    key_for_moves = certificates.make_key()
    try:
        asked = certificates.make_request(known.chassis, key)
    except ValueError as error:
        raise HostError(
            f"This host's key, '{program.KEY}', is damaged.",
            why=str(error),
            cure=f"Remove it, run '{_removal(known.chassis)}' on the first host, and join again.",
        ) from error
    request = Request(
        chassis=known.chassis,
        request=asked,
        tunnel_address=own,
        tunnel_mtu=mtu,
        authority=certificates.fingerprint(relay.text(program.AUTHORITY)),
        moves=certificates.make_request(known.chassis, key_for_moves),
        databases=Candidate(request=certificates.make_request(known.chassis, databases_key), address=towards),
        external_address=known.external_address or None,
    )
    progress.say(f"asking {first} to admit this host")
    answer = messages.read(Answer, ask(first, request), str(first))
    if wrong := certificates.fault(answer.certificate, key, answer.authority, known.chassis):
        raise HostError(f"The certificate from {first} {wrong}.", cure="Run the same command again.")
    given = answer.databases
    joined = known.model_copy(
        update={
            **answer.facts.model_dump(),
            "joined": site,
            "southbound": answer.southbound,
            "external_address": str(answer.external_address),
            "gateway_mac": answer.gateway_mac,
            "databases": {name: str(where) for name, where in answer.databases.hosts.items()}
            if answer.databases
            else {},
            "recorded": True,
        }
    )
    external.check(joined)
    for path, content in (
        (program.KEY, key),
        (program.AUTHORITY, answer.authority),
        (program.CERTIFICATE, answer.certificate),
    ):
        relay.write(path, content, record)
    if answer.moves is not None:
        moves.install(key_for_moves, answer.moves.certificate, answer.moves.authority, record, progress)
    if given:
        for path, content in (
            (databases_program.KEY, databases_key),
            (databases_program.AUTHORITY, given.authority),
            (databases_program.CERTIFICATE, given.certificate),
        ):
            relay.write(path, content, record)
    return joined, given.clusters if given else {}


def _resolve(first: Remote) -> str:
    """The first host's address; ssh's own configuration may have another name for it."""
    said = run(command(first, "-G"), timeout=20).stdout
    settings = dict(line.split(maxsplit=1) for line in said.splitlines() if " " in line)
    try:
        return str(socket.getaddrinfo(settings.get("hostname", first.host), 22, socket.AF_INET)[0][4][0])
    except OSError as error:
        raise HostError(
            f"The IPv4 address of '{first.host}' is not known.", why=str(error), cure="Give it as --join USER@ADDRESS."
        ) from error


def ask(first: Remote, request: Request) -> str:
    """Have the first host admit this one; returns its answer.

    :raises HostError: it can't be reached, refuses, or prints more than an answer.
    """
    cure = (
        f"Check that '{first.trial}' works without a password, and that this user may run 'sudo -n' "
        "there or is root. Run 'sudo winlab host setup' on the first host, with this version of winlab: it says if "
        "other hosts can't join, and why."
    )
    if os.environ.get("SUDO_USER") and not os.environ.get("SSH_AUTH_SOCK"):  # sudo removes it
        again = f"'sudo --preserve-env=SSH_AUTH_SOCK winlab host setup --join {first.url('')}'"
        cure += f" If your key is in an agent, run {again}: sudo hides the agent."
    try:
        said = watched([*command(first), REMOTE], stdin=request.model_dump_json(), timeout=LIMIT, most=messages.LARGEST)
    except CommandError as error:
        raise HostError(
            f"{first} did not admit this host.",
            why=error.result.stderr.strip()[-2000:] or "It printed nothing.",
            cure=cure,
            causes=[error],
        ) from error
    except OverdueError as error:
        raise HostError(f"{first} did not answer in time.", why=str(error), cure=cure) from error
    except FloodError as error:
        raise HostError(
            f"{first} printed more than an answer.",
            why=f"An answer has at most {messages.LARGEST} bytes.",
            cure=f"Check that '{first.trial}' prints nothing.",
        ) from error
    lines = [line for line in said.stdout.split("\n") if line.strip()]
    return lines[-1] if lines else ""  # the user's shell there may have printed lines before


def ensure_controller(known: HostFacts, record: Record, progress: Progress) -> None:
    """Have Open vSwitch and OVN's controller use this host's certificate and the site's southbound database.

    :raises ConflictError: Open vSwitch has another certificate.
    """
    files = [str(path) for path in (program.KEY, program.CERTIFICATE, program.AUTHORITY)]
    rows = fabric.rows(fabric.vsctl("--format=json", "--columns=private_key,certificate,ca_cert", "list", "SSL"))
    held = [[str(row[name]) for name in ("private_key", "certificate", "ca_cert")] for row in rows]
    if held and held != [files]:
        raise ConflictError(
            f"Open vSwitch has a certificate already: {held[0][1]}.",
            why="It has one for all connections, and winlab needs it for OVN's southbound database.",
            cure="If nothing needs it, run 'sudo ovs-vsctl del-ssl'.",
        )
    if not held:
        record.mark("ssl")
        fabric.vsctl("set-ssl", *files)
    fabric.ensure_ids(known.datapath, record, progress, known.southbound)
    if fabric.ovs_ids()["ovn-remote"] != known.southbound:  # the site's databases are on other hosts now
        fabric.set_id("ovn-remote", known.southbound, record)
    probe = "ovn-remote-probe-interval"
    if probe not in fabric.ovs_ids():
        fabric.set_id(probe, str(PROBE_MS), record)


def is_connected() -> bool:
    """Whether the controller is connected to the southbound database."""
    said = run(["ovn-appctl", "-t", "ovn-controller", "connection-status"], check=False, timeout=20)
    return said.stdout.strip() == "connected"


def wait_until_connected(known: HostFacts, progress: Progress, *, needed: bool) -> None:
    """Wait until the controller is connected.

    :param needed: False, as at boot: only report if it is not, because the first host may still be off.
    :raises HostError: it is not, and that is *needed*.
    """
    progress.say(f"waiting for OVN's controller to connect to {known.southbound}")
    if daemons.wait_until(is_connected, 30 if needed else 5):
        return
    if not needed:
        progress.say(f"OVN's controller is not connected to {known.southbound} yet; it keeps trying")
        return
    raise HostError(
        f"OVN's controller does not connect to the site's southbound database, {known.southbound}.",
        why="A firewall on the first host or between may drop it, or that host's relay does not run.",
        cure=f"Let this host connect to that port. On the first host, check 'sudo winlab doctor' and '{program.LOG}'.",
        evidence="/var/log/ovn/ovn-controller.log",
    )


def warn_of_end(known: HostFacts, progress: Progress) -> None:
    """Report that the certificate should be renewed, if it should."""
    if certificates.is_due(relay.text(program.CERTIFICATE), datetime.datetime.now(datetime.UTC)):
        progress.say(f"this host's certificate ends soon: run 'sudo winlab host setup --join {known.joined}'")


def undo(record: Record, known: HostFacts, progress: Progress) -> None:
    """Leave the site: the controller is disconnected, and this host's chassis row goes. Files go with other files."""
    if known.joined:
        fabric.undo_ids(record)
        daemons.wait_until(lambda: not is_connected(), 10)  # until then it would make the row again
        progress.say("removing this host from the site")
        tls = ("-p", str(program.KEY), "-c", str(program.CERTIFICATE), "-C", str(program.AUTHORITY))
        words = ["ovn-sbctl", f"--db={known.southbound}", "--no-leader-only", "--timeout=10", *tls]
        words += ["--if-exists", "chassis-del", known.chassis]
        # a busy host may need more than one attempt
        if not daemons.wait_until(lambda: run(words, check=False, timeout=30).returncode == 0, 15):
            progress.say(f"the first host can't be reached: run '{_removal(known.chassis)}' on it")
    else:
        chassis = fabric.ovs_ids().get("system-id", "")
        progress.say(f"the first host is not known: run '{_removal(chassis)}' on it")
    fabric.vsctl("del-ssl", check=False)
    record.changes.ssl = False
    record.save()


def _removal(chassis: str) -> str:
    """The command that removes a host's chassis row, whichever host's database is the leader."""
    return f"sudo ovn-sbctl --no-leader-only chassis-del {chassis}"
