"""Exported snapshots: the file, the record in it, and the definitions of the machines."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import mutation
import saved
from fuzzing import parser
from pools import MemoryPool

from winlab import snapshots
from winlab.design.plan.facts import HostFacts
from winlab.design.render import saved_domain
from winlab.errors import UsageError
from winlab.operations.snapshot import archive
from winlab.operations.snapshot.adopted import adopt
from winlab.snapshots import Id

from .archives import write

MEMBERS = {"record.json": b"{}", "node-1.memory": bytes(1 << 16) + b"end"}


def exported() -> list[bytes]:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "file"
        archive.write(path, {name: partial(_pieces, content) for name, content in MEMBERS.items()})
        return [path.read_bytes()]


def _pieces(content: bytes):  # type: ignore[no-untyped-def]
    yield content


@parser("exported-snapshot", exported, mutation.TAR)
def exported_snapshot(content: bytes, folder: Path) -> None:
    with archive.opened(write(folder, "file", content)) as source:
        for name, row in source.rows.items():
            assert sum(map(len, source.chunks(name))) == row.size


def records() -> list[bytes]:
    return [saved.snapshot(MemoryPool()).model_dump_json(by_alias=True).encode()]


@parser("snapshot-record", records, mutation.JSON)
def snapshot_record(content: bytes, folder: Path) -> None:
    made = adopt(snapshots.parsed(content, "file"), Id("other", "copy"), HostFacts())
    for node in made.plan.nodes:
        assert node.domain == f"winlab-other.{node.name}"
        assert "/" not in node.name
        assert not any("/" in drive.volume for drive in made.nodes[node.name].drives.values())


def definitions() -> list[bytes]:
    plan = saved.plan()
    return [saved.definition(plan, plan.node("node-1")).encode(), b'<cookie><cpu mode="custom"/></cookie>']


@parser("saved-definition", definitions, mutation.TEXT)
def saved_definition(content: bytes, folder: Path) -> None:
    try:
        xml = content.decode()
    except UnicodeDecodeError as error:
        raise UsageError("It is not UTF-8.", cure="None.") from error
    if xml.startswith("<cookie"):
        saved_domain.check_cookie(xml, "node-1")
    else:
        saved_domain.check(xml, saved.plan().node("node-1"), {"sda": "qcow2", "sdd": "raw"})
