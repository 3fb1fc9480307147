"""libvirtd that hangs: one of the tests' own, of a user who has nothing else, with fake machines."""

from __future__ import annotations

import os
import signal
import subprocess  # noqa: TID251 - starts, stops and ends the daemon
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from winlab import run
from winlab.adapters.vm import connection
from winlab.errors import HostError
from winlab.events import Quiet
from winlab.host import packages

NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
LIMIT = 60.0  # seconds until it must serve


@pytest.fixture(scope="session", autouse=True)
def _packages() -> None:
    """In place of the other tests' fixture: nothing but libvirtd is needed."""
    if run.find("libvirtd") is None:
        assert os.geteuid() == 0, "install libvirt-daemon-system, or run this as root"
        packages.install(packages.RUN, Quiet())


@pytest.fixture
def daemon() -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The daemon and its address. As ``nobody`` it is a session's: it touches nothing of the host."""
    with TemporaryDirectory(dir="/tmp", prefix="winlab-it-") as folder:  # pytest's own is too long for a socket
        Path(folder).chmod(0o777)
        conf, socket = Path(folder, "conf"), Path(folder, "run/libvirt/libvirt-sock")
        conf.write_text('auth_unix_rw = "none"\nlog_outputs = "4:stderr"\n')
        env = {"PATH": run.search_path(), "HOME": folder, "XDG_RUNTIME_DIR": f"{folder}/run"}
        words = [*(NOBODY if os.geteuid() == 0 else ()), "libvirtd", "--config", conf, "--pid-file", f"{folder}/pid"]
        with subprocess.Popen([*map(str, words)], env=env, stderr=subprocess.DEVNULL) as process:
            try:
                end = time.monotonic() + LIMIT
                while not socket.exists():
                    assert process.poll() is None
                    assert time.monotonic() < end
                    time.sleep(0.1)
                yield process, f"test+unix:///default?socket={socket}"
            finally:
                process.send_signal(signal.SIGCONT)
                process.terminate()


def test_a_daemon_that_hangs_takes_a_connection_and_does_not_answer(
    daemon: tuple[subprocess.Popen[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    process, uri = daemon
    with connection.connected(uri) as conn:
        assert conn.lookupByName("test") is not None
    monkeypatch.setattr(connection, "FIRST", 1.0)
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(HostError, match="does not answer") as caught:
        connection.connect(uri)
    assert "no answer within 1 s" in caught.value.why
    assert "host setup" in caught.value.cure
