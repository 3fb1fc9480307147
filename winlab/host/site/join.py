"""``winlab host setup --join SITE``: this host becomes a hypervisor of the site whose first host is SITE."""

from __future__ import annotations

import datetime
import os
import re
import shlex
import socket
from dataclasses import dataclass
from pathlib import Path

from winlab.adapters.remote import CAUTIOUS
from winlab.design.plan.facts import HostFacts
from winlab.errors import ConflictError, HostError, UsageError
from winlab.events import Progress
from winlab.host import daemons, fabric
from winlab.host import relay_program as program
from winlab.host.changes import Record
from winlab.host.site import admission, certificates, external, messages, relay, tunnels
from winlab.host.site.messages import Answer, Request
from winlab.run import CommandError, FloodError, OverdueError, run, watched

# ssh also takes options and host names of its configuration here; an option would let it run anything
SITE = re.compile(
    r"\A(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]*)@)?(?P<host>[A-Za-z0-9][A-Za-z0-9_.-]*)(?::(?P<port>\d{1,5}))?\Z"
)
OPTIONS = (*CAUTIOUS, "-oConnectTimeout=10", "-oServerAliveInterval=5", "-T")
LIMIT = 180.0  # seconds for the first host, which may start its relay and wait for another setup
PROBE_MS = 60_000  # controllers on busy hosts may be silent for long
# sudo removes SSH_CONNECTION
SCRIPT = (
    f'if [ $(id -u) = 0 ]; then exec {admission.PROGRAM} "$SSH_CONNECTION"; '
    f'else exec sudo -n {admission.PROGRAM} "$SSH_CONNECTION"; fi'
)
REMOTE = f"sh -c {shlex.quote(SCRIPT)}"  # the user's shell there may be another one


@dataclass(frozen=True)
class Destination:
    """The first host, as ssh takes it."""

    target: str
    port: str

    @classmethod
    def parse(cls, text: str) -> Destination:
        """Read ``[USER@]HOST[:PORT]``, with or without ``ssh://``.

        :raises UsageError: it is something else.
        """
        found = SITE.match(text.removeprefix("ssh://"))
        if found is None:
            raise UsageError(
                f"'{text}' is not the ssh address of a host.",
                cure="Give the site's first host, such as '--join ann@192.0.2.1' or '--join ssh://ann@lab-1:2222'.",
            )
        user = f"{found['user']}@" if found["user"] else ""
        return cls(f"{user}{found['host']}", found["port"] or "")

    def __str__(self) -> str:
        """As ``--join`` takes it."""
        return f"{self.target}:{self.port}" if self.port else self.target

    def command(self) -> list[str]:
        """The ssh command, as the user who called sudo: it has that user's keys, agent and known hosts."""
        port = ["-p", self.port] if self.port else []
        caller = os.environ.get("SUDO_USER", "")
        agent = os.environ.get("SSH_AUTH_SOCK", "")
        become = ["runuser", "-u", caller, "--", "env", f"HOME={Path(f'~{caller}').expanduser()}"]
        become += [f"SSH_AUTH_SOCK={agent}"] if agent else []
        return [*(become if caller not in {"", "root"} else []), "ssh", *OPTIONS, *port, self.target, REMOTE]


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


def join(site: str, address: str, known: HostFacts, record: Record, progress: Progress) -> HostFacts:
    """Have the first host admit this one, and connect the controller; returns the facts, not yet written.

    :param address: of this host's tunnels; empty: the one that it reaches the first host by.
    :param known: the facts of this host.
    :raises UsageError: the first host's answer can't be used.
    :raises HostError: the first host can't be reached or refuses, or the controller does not connect.
    """
    destination = Destination.parse(site)
    own = address or tunnels.recorded() or tunnels.towards(_resolve(destination))
    mtu = tunnels.ensure(own, known.datapath, record, progress)
    record.add("folders", str(program.FOLDER))
    program.FOLDER.mkdir(mode=0o700, exist_ok=True)
    program.FOLDER.chmod(0o700)
    key = relay.text(program.KEY) or certificates.make_key()
    request = Request(
        chassis=known.chassis,
        request=certificates.make_request(known.chassis, key),
        tunnel_address=own,
        tunnel_mtu=mtu,
        authority=certificates.fingerprint(relay.text(program.AUTHORITY)),
        external_address=known.external_address or None,
    )
    progress.say(f"asking {destination.target} to admit this host")
    answer = messages.read(Answer, ask(destination, request), destination.target)
    if wrong := certificates.fault(answer.certificate, key, answer.authority, known.chassis):
        raise HostError(f"The certificate from {destination.target} {wrong}.", cure="Run the same command again.")
    joined = known.model_copy(
        update={
            **answer.facts.model_dump(),
            "joined": site,
            "southbound": answer.southbound,
            "external_address": str(answer.external_address),
            "gateway_mac": answer.gateway_mac,
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
    return joined


def _resolve(destination: Destination) -> str:
    """The first host's address; ssh's own configuration may have another name for it."""
    host = destination.target.rpartition("@")[2]
    words = [word for word in destination.command()[:-2] if word != "-T"]
    settings = dict(
        line.split(maxsplit=1) for line in run([*words, "-G", host], timeout=20).stdout.splitlines() if " " in line
    )
    try:
        return str(socket.getaddrinfo(settings.get("hostname", host), 22, socket.AF_INET)[0][4][0])
    except OSError as error:
        raise HostError(
            f"The address of '{host}' is not known.", why=str(error), cure="Give it as --join USER@ADDRESS."
        ) from error


def ask(destination: Destination, request: Request) -> str:
    """Have the first host admit this one; returns its answer.

    :raises HostError: it can't be reached, refuses, or prints more than an answer.
    """
    cure = (
        f"Check that 'ssh {destination.target} true' works without a password, and that this user may run 'sudo -n' "
        "there or is root. Run 'sudo winlab host setup' on the first host, with this version of winlab: it says if "
        "other hosts can't join, and why."
    )
    if os.environ.get("SUDO_USER") and not os.environ.get("SSH_AUTH_SOCK"):  # sudo removes it
        again = f"'sudo --preserve-env=SSH_AUTH_SOCK winlab host setup --join {destination}'"
        cure += f" If your key is in an agent, run {again}: sudo hides the agent."
    try:
        words, text = destination.command(), request.model_dump_json()
        said = watched(words, stdin=text, timeout=LIMIT, most=messages.LARGEST)
    except CommandError as error:
        raise HostError(
            f"{destination.target} did not admit this host.",
            why=error.result.stderr.strip()[-2000:] or "It printed nothing.",
            cure=cure,
            causes=[error],
        ) from error
    except OverdueError as error:
        raise HostError(f"{destination.target} did not answer in time.", why=str(error), cure=cure) from error
    except FloodError as error:
        raise HostError(
            f"{destination.target} printed more than an answer.",
            why=f"An answer has at most {messages.LARGEST} bytes.",
            cure=f"Check that 'ssh {destination.target} true' prints nothing.",
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
            progress.say(f"the first host can't be reached: run 'sudo ovn-sbctl chassis-del {known.chassis}' on it")
    else:
        chassis = fabric.ovs_ids().get("system-id", "")
        progress.say(f"the first host is not known: run 'sudo ovn-sbctl chassis-del {chassis}' on it")
    fabric.vsctl("del-ssl", check=False)
    record.changes.ssl = False
    record.save()
