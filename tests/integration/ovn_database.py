"""OVN's databases on servers of the tests' own, by the distribution's programs: no root, no host set-up."""

from __future__ import annotations

import json
import os
import subprocess  # noqa: TID251 - starts a database, and reads it
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import plans
import pytest

from winlab import run
from winlab.design.plan.model import Plan
from winlab.events import Quiet
from winlab.host import packages

SCHEMA = Path("/usr/share/ovn/ovn-nb.ovsschema")  # Debian's ovn-common, Fedora's ovn
LIMIT = 20  # seconds until the database must serve


class Database:
    """A northbound database and its content, read without the adapter."""

    def __init__(self, remote: str) -> None:
        self.remote = remote

    def nbctl(self, *words: str) -> str:
        done = subprocess.run(
            [program("ovn-nbctl"), f"--db={self.remote}", *words], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def tables(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Table: row's uuid: column: value as OVSDB's protocol writes it (RFC 7047, 5.1)."""
        words = [program("ovsdb-client"), "--format=json", "dump", self.remote, "OVN_Northbound"]
        text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        decoder, at, found = json.JSONDecoder(), 0, {}
        while text[at:].strip():
            table, end = decoder.raw_decode(text[at:].lstrip())
            at += len(text[at:]) - len(text[at:].lstrip()) + end
            rows = [dict(zip(table["headings"], row, strict=True)) for row in table["data"]]
            found[table["caption"].removesuffix(" table")] = {row.pop("_uuid")[1]: row for row in rows}
        return found

    def contents(self) -> dict[str, list[Any]]:
        """Every table's rows without their uuids, each reference replaced by the row that it names."""
        tables = self.tables()
        rows = {uuid: row for table in tables.values() for uuid, row in table.items()}

        def plain(value: Any) -> Any:
            match value:
                case ["uuid", uuid]:
                    return {column: plain(inner) for column, inner in rows[uuid].items()}
                case ["set" | "map", items]:
                    return sorted((plain(item) for item in items), key=json.dumps)
                case list():
                    return [plain(item) for item in value]
            return value

        return {
            name: sorted((plain(["uuid", uuid]) for uuid in table), key=json.dumps)
            for name, table in tables.items()
            if table and name not in {"NB_Global", "Connection"}
        }

    def tags(self, table: str) -> list[dict[str, str]]:
        """The external_ids of a table's rows."""
        return [dict(row["external_ids"][1]) for row in self.tables()[table].values()]


def program(name: str) -> str:
    found = run.find(name)
    assert found is not None, f"{name} is not installed"
    return found


@pytest.fixture(scope="session", autouse=True)
def _packages() -> None:
    """In place of the other tests' fixture: root is needed only where the programs are missing."""
    if run.find("ovsdb-server") is None or run.find("ovn-nbctl") is None:
        assert os.geteuid() == 0, "install openvswitch-switch and ovn-common, or run this as root"
        packages.install(packages.RUN, Quiet())


@contextmanager
def serving(tmp_path: Path, schema: Path) -> Iterator[str]:
    """A server of an empty database, by its address."""
    file, socket = tmp_path / "db", tmp_path / "sock"
    subprocess.run([program("ovsdb-tool"), "create", file, schema], check=True)
    words = [program("ovsdb-server"), "--no-chdir", f"--unixctl={tmp_path}/ctl", f"--remote=punix:{socket}", str(file)]
    log = tmp_path / "log"
    with log.open("wb") as sink, subprocess.Popen(words, stdout=sink, stderr=sink) as server:
        try:
            end = time.monotonic() + LIMIT
            while not socket.exists():
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.05)
            yield f"unix:{socket}"
        finally:
            server.terminate()


def make(lab: str, source: str = "1-0-1", *changes: str) -> Plan:
    return plans.make(plans.KVM, source, *changes, lab=lab)
