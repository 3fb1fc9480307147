"""The relay on a site's first host: other hosts' controllers reach OVN's southbound database through it."""

from __future__ import annotations

import datetime
import json
import socket
import tempfile
from pathlib import Path

from winlab import files
from winlab.errors import HostError
from winlab.events import Progress
from winlab.host import daemons
from winlab.host import relay_program as program
from winlab.host.changes import Record
from winlab.host.site import certificates
from winlab.host.site.certificates import Pair
from winlab.run import find, run

AUTHORITY_KEY = program.FOLDER / "authority-key.pem"


def southbound(*addresses: str) -> str:
    """What controllers of other hosts connect to: one of the relays."""
    return ",".join(f"ssl:{address}:{program.PORT}" for address in addresses)


def address_of(southbound: str) -> str:
    """The first address in what :func:`southbound` returns: the first host's."""
    return southbound.split(":")[1]


def ensure(chassis: str, address: str, record: Record, progress: Progress) -> None:
    """Make sure that the first host's relay runs, with a valid certificate.

    :param chassis: this host's.
    :raises HostError: it does not start, as when this host no longer has the address.
    """
    authority = ensure_authority(chassis, record, progress)
    _ensure_certificate(chassis, address, authority, record, progress)
    run_at(address, record, progress)


def run_at(address: str, record: Record, progress: Progress) -> None:
    """Make sure that a relay runs here, with the certificate that this host has.

    :raises HostError: it does not start, as when this host no longer has the address.
    """
    if not program.DATABASE.exists():
        for path in (program.DATABASE, program.LOCK):
            record.add("files", str(path))
        _make_database(address)
    if daemons.has_systemd():
        server = find("ovsdb-server") or "/usr/sbin/ovsdb-server"
        record.add("files", str(program.UNIT))
        if files.replace_text(program.UNIT, program.unit_text(server)):
            run(["systemctl", "daemon-reload"], timeout=60)
    if _is_outdated():
        daemons.stop("relay", record, progress)
    daemons.ensure("relay", record, progress)
    if not daemons.wait_until(lambda: listens(address), 10):
        raise HostError(
            f"OVN's southbound database can't be reached at {address}, port {program.PORT}.",
            why="Its relay does not listen there: this host lost that address, or another program has the port.",
            cure="Give this host its address again, then run 'sudo winlab host setup'.",
            evidence=str(program.LOG),
        )


def _is_outdated() -> bool:
    """Whether the relay runs with other arguments than now, or its program was replaced, as by an update."""
    process = Path("/proc") / str(daemons.relay_pid())
    try:
        words = (process / "cmdline").read_text(encoding="utf-8").split("\0")
        is_gone = str((process / "exe").readlink()).endswith(" (deleted)")  # man proc_pid_exe
    except OSError:
        return False  # it does not run
    expected = list(program.arguments()[1:])
    return is_gone or words[1 : 1 + len(expected)] != expected


def remove_log() -> None:
    """Remove its log, and older ones that logrotate kept."""
    for path in program.LOG.parent.glob(f"{program.LOG.name}*"):
        path.unlink()


def listens(address: str) -> bool:
    """Whether something listens where other hosts reach the southbound database."""
    try:
        socket.create_connection((address, program.PORT), 3).close()
    except OSError:
        return False
    return True


def ensure_authority(chassis: str, record: Record, progress: Progress) -> Pair:
    """The site's authority, which is made once.

    :raises HostError: its key or its certificate is damaged.
    """
    return kept_authority(chassis, "hosts", program.AUTHORITY, AUTHORITY_KEY, record, progress)


def kept_authority(chassis: str, of: str, path: Path, key: Path, record: Record, progress: Progress) -> Pair:
    """An authority of the site, which is made once.

    :param of: what it signs certificates of.
    :param path: where its certificate is, and *key* where its key is.
    :raises HostError: its key or its certificate is damaged.
    """
    record.add("folders", str(program.FOLDER))
    program.FOLDER.mkdir(mode=0o700, exist_ok=True)
    program.FOLDER.chmod(0o700)
    if not (path.exists() and key.exists()):
        progress.say(f"making the authority that signs certificates of {of}")
        made = certificates.make_authority(chassis, of)
        write(key, made.key, record)
        write(path, made.certificate, record)
    pair = Pair(text(path), text(key))
    if not certificates.is_pair(pair):
        raise HostError(
            f"The authority that signs certificates of {of} is damaged.",
            why=f"'{key}' is not the key of '{path}'.",
            cure="Restore both from a backup. Without one, run 'sudo winlab host teardown' on all hosts of the site, "
            "and set it up again.",
        )
    return pair


def write(path: Path, content: str, record: Record) -> None:
    """Write a file of the certificates, for root alone, to the disk; teardown removes it."""
    record.add("files", str(path))
    files.write_atomic(path, content, mode=0o600, durable=True)


def text(path: Path) -> str:
    """A file's text; empty if it is missing. What is not ASCII is damaged, and its readers refuse it."""
    return path.read_text(encoding="ascii", errors="replace") if path.exists() else ""


def _ensure_certificate(chassis: str, address: str, authority: Pair, record: Record, progress: Progress) -> None:
    held, key = text(program.CERTIFICATE), text(program.KEY)
    due = certificates.is_due(held, datetime.datetime.now(datetime.UTC))
    if not due and key and not certificates.fault(held, key, authority.certificate, chassis):
        return
    progress.say("making the certificate of OVN's southbound database")
    key = certificates.make_key()
    request = certificates.make_request(chassis, key)
    made = certificates.sign(request, chassis, address, certificates.SERVES, authority)
    # ovsdb-server reads both again when they change (stream-ssl.c); in between it refuses connections
    write(program.KEY, key, record)
    write(program.CERTIFICATE, made, record)


def _make_database(address: str) -> None:
    """Write the relay's own database, whole or not at all."""
    with tempfile.TemporaryDirectory(dir=program.DATABASE.parent, prefix="relay-") as folder:
        schema, made = Path(folder) / "schema", Path(folder) / "database"
        schema.write_text(program.SCHEMA, encoding="ascii")
        run(["ovsdb-tool", "create", str(made), str(schema)], timeout=30)
        said = run(["ovsdb-tool", "transact", str(made), program.rows(address)], timeout=30).stdout
        assert not [row for row in json.loads(said) if "error" in row], said
        made.rename(program.DATABASE)
