"""Certificates by which QEMU encrypts machines that move to another host of the site while they run.

libvirt looks for them in /etc/pki/qemu. Their authority signs nothing else: a host's certificate for moves also serves,
and OVN's controllers believe any server whose certificate is signed by the authority that they know. The key is one of
its own, too, because QEMU's user can read it.
"""

from __future__ import annotations

import datetime
import grp
import os
from contextlib import suppress
from pathlib import Path

from winlab import files
from winlab.design.plan.facts import HostFacts, Moves
from winlab.events import Progress
from winlab.host import relay_program as program
from winlab.host.changes import Record
from winlab.host.site import certificates, relay, tunnels
from winlab.host.site.certificates import BOTH, Pair

# Source: "TLS certificates" of libvirt's qemu.conf, and qemu-7.2/docs/system/tls.rst
FOLDER = Path("/etc/pki/qemu")
NAMES = {
    "authority": ("ca-cert.pem",),
    "certificate": ("server-cert.pem", "client-cert.pem"),
    "key": ("server-key.pem", "client-key.pem"),
}
GROUPS = ("libvirt-qemu", "qemu")  # QEMU's: Debian's and Fedora's
AUTHORITY = program.FOLDER / "moves-authority.pem"
AUTHORITY_KEY = program.FOLDER / "moves-authority-key.pem"


def ensure_first(chassis: str, address: str, record: Record, progress: Progress) -> Pair:
    """Make sure that a site's first host has the authority and a valid certificate; returns the authority."""
    authority = relay.kept_authority(chassis, "moves", AUTHORITY, AUTHORITY_KEY, record, progress)
    held, key = _text("certificate"), _text("key")
    due = certificates.is_due(held, datetime.datetime.now(datetime.UTC))
    if due or not key or certificates.fault(held, key, authority.certificate, chassis):
        key = certificates.make_key()
        made = sign(certificates.make_request(chassis, key), chassis, address, authority)
        install(key, made, authority.certificate, record, progress)
    return authority


def sign(request: str, chassis: str, address: str, authority: Pair) -> str:
    """A certificate for moves to and from a host.

    :raises ValueError: the request can't be used.
    """
    return certificates.sign(request, chassis, address, BOTH, authority)


def install(key: str, certificate: str, authority: str, record: Record, progress: Progress) -> None:
    """Write a host's certificate for moves where libvirt looks for it; files there that winlab did not write stay."""
    group = _group()
    if group is None or _others(record):
        why = f"'{FOLDER}' has others" if group is not None else "QEMU has no group here"
        progress.say(f"winlab's certificates for moves of running machines are left out: {why}")
        return
    progress.say("writing the certificate for moves of running machines")
    for folder in (FOLDER.parent, FOLDER):
        if not folder.exists():
            record.add("folders", str(folder))
            folder.mkdir(mode=0o755)
            folder.chmod(0o755)
    for kind, text in (("authority", authority), ("key", key), ("certificate", certificate)):
        for name in NAMES[kind]:
            path = FOLDER / name
            record.add("files", str(path))
            files.write_atomic(path, text, mode=0o600, durable=True)
            os.chown(path, -1, group)
            path.chmod(0o640)


def fact(known: HostFacts) -> Moves | None:
    """What other hosts must know for moves to this one; None if it is part of no site, or has no certificate."""
    address = tunnels.recorded() if known.southbound else ""
    try:
        return Moves(address=address, until=f"{certificates.ends(_text('certificate')):%Y-%m-%d}") if address else None
    except ValueError:
        return None


def _text(kind: str) -> str:
    """What the files of one kind have; empty if they are missing or differ."""
    texts = {relay.text(FOLDER / name) for name in NAMES[kind]}
    return texts.pop() if len(texts) == 1 else ""


def _others(record: Record) -> bool:
    """Whether the folder has such files that setup did not write."""
    paths = [FOLDER / name for names in NAMES.values() for name in names]
    return any(path.exists() and str(path) not in record.changes.files for path in paths)


def _group() -> int | None:
    for name in GROUPS:
        with suppress(KeyError):
            return grp.getgrnam(name).gr_gid
    return None
