"""A libvirt that takes a connection and never answers holds no command against Ctrl-C."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest
from harness import Winlab


@pytest.mark.parametrize(
    ("words", "number"), [(["status", "--watch"], signal.SIGINT), (["destroy"], signal.SIGTERM)], ids=["look", "change"]
)
def test_a_command_ends(tmp_path: Path, words: list[str], number: signal.Signals) -> None:
    path = tmp_path / "libvirt"
    env = {"WINLAB_LIBVIRT_URI": f"qemu+unix:///system?socket={path}", "WINLAB_STATE": str(tmp_path / "state")}
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        server.settimeout(60)
        with Winlab(env=env).start(*words, "--lab", "it-silent") as command:
            asked, _ = server.accept()
            with asked:
                assert asked.recv(1)  # it waits for the answer now
                command.send_signal(number)
                command.communicate(timeout=60)
    assert command.returncode == 130
