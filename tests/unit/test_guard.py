"""The guard of the unit tests itself: a test must be able to fail."""

import socket
import subprocess  # noqa: TID251 - to see it refused
from pathlib import Path

import pytest
from guard import TouchedTheWorld


def test_no_process() -> None:
    with pytest.raises(TouchedTheWorld):
        subprocess.run(["true"], check=False)


def test_no_network() -> None:
    with pytest.raises(TouchedTheWorld), socket.socket() as probe:
        probe.connect(("127.0.0.1", 9))


def test_no_file_outside() -> None:
    with pytest.raises(TouchedTheWorld):
        Path("/tmp/winlab-outside").write_text("x")


def test_files_inside(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
