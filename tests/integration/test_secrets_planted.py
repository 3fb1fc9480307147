"""No secret of the labs is anywhere but where it has to be; nor in the archive for support, which has the rest."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess  # noqa: TID251 - a process whose arguments have a secret
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import results
from harness import LAB_A, LAB_B, Labs, Winlab
from secrets_scan import Secrets, Watch, leaks


@pytest.fixture
def archive(labs: Labs, winlab: Winlab) -> Path:
    """Of the first lab, made by the command."""
    (made,) = winlab.items("support", LAB_A)
    return Path(made["name"])


def test_the_archive_is_complete(archive: Path) -> None:
    with tarfile.open(archive) as file:
        every = {row.name.partition("/")[2]: file.extractfile(row).read() for row in file}  # type: ignore[union-attr]
    missing = {one["what"]: one["why"] for one in json.loads(every["manifest.json"])["missing"]}
    wanted = {"spec.json", "plan.json", "journal.jsonl", "network/northbound.json", "network/southbound.txt"}
    wanted |= {f"nodes/{node}/{part}" for node in ("controller-1", "node-1") for part in ("domain.xml", "serial.log")}
    assert not wanted - every.keys(), missing
    assert b"winlab: phase=ready" in every["nodes/node-1/serial.log"]
    assert every["rendered/controller-1/domain.xml"].startswith(b"<domain")
    assert f"winlab-{LAB_A}".encode() in every["network/northbound.json"]
    assert archive.stat().st_mode & 0o077 == 0


def test_no_secret_is_anywhere_else(labs: Labs, member: Winlab, state: Path, archive: Path) -> None:
    """Processes, logs, domains, OVN's databases, temporary files, caches, the labs' folder with the archive in it.

    A product key is not among them: a rehearsal's media are for evaluation, and those take none.
    """
    secrets = Secrets.of(state, [LAB_A])
    assert len(secrets.names) >= 8  # of two nodes and a cluster
    assert leaks(state, [LAB_A], caches=labs.caches, seen=labs.seen) == []
    assert leaks(Path(member.env["WINLAB_STATE"]), [LAB_B], caches=labs.caches, seen=labs.seen) == []


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder to plant secrets in."""
    folder = Path("/var/tmp/winlab-it-planted")
    folder.mkdir(exist_ok=True)
    yield folder
    shutil.rmtree(folder)


def test_the_scan_finds_planted_secrets(labs: Labs, place: Path, state: Path, tmp_path: Path) -> None:
    """In files of all encodings, in a cache that is named, and in the arguments of a process that has ended."""
    secret = json.loads((state / "labs" / LAB_A / "credentials.json").read_text())["administrator_password"]
    planted = {
        place / "plain": secret.encode(),
        place / "base64": b"x" + base64.b64encode(b"ab" + secret.encode() + b"c"),
        place / "utf-16": secret.encode("utf-16-le"),
        place / "command": base64.b64encode(f"echo {secret}".encode("utf-16-le")),
        tmp_path / "manifest.json": f'{{"origin": "{secret}"}}'.encode(),
    }
    for path, content in planted.items():
        path.write_bytes(content)
    with Watch() as watch:
        subprocess.run([sys.executable, "-c", "import time; time.sleep(3)", secret], check=True)
    said = leaks(state, [LAB_A], caches=[tmp_path], seen=watch.seen)
    assert all("administrator_password" in one for one in said)
    for where in (*map(str, planted), "a process that has ended"):
        assert [one for one in said if one.endswith(f" in {where}")], where


def test_a_failure_ends_with_its_archive(labs: Labs, winlab: Winlab) -> None:
    """OVN does not answer: the command fails in a step, and so does one part of the archive. Nothing is changed."""
    broken = Winlab(
        winlab.prefix, {**winlab.env, "WINLAB_OVN_NB": "unix:/nowhere/nb.sock", "WINLAB_SUPPORT_SECONDS": "15"}
    )
    done = broken("create", *labs.spec_a, "--lab", LAB_A, "--output", "json")
    assert done.returncode == 4, done.stderr
    path = Path(done.stderr.splitlines()[-1].removeprefix("everything about it: "))
    assert results.error(done.stdout)["support"] == str(path)
    with tarfile.open(path) as file:
        names = {row.name.partition("/")[2] for row in file}
    assert {"failure.json", "plan.json", "manifest.json"} <= names
    assert "network/northbound.json" not in names
