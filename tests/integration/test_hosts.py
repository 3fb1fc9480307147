"""The hosts of tests (tests/hosts): what is their own, and that nothing of them is left."""

from __future__ import annotations

import pytest
from hosts import Hosts, install


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    install()


def test_hosts_leave_no_process_mount_or_namespace() -> None:
    with Hosts("h1", "h2") as made:
        first, second = made.all
        assert second.run("ssh", "-o", "BatchMode=yes", "ann@h1", "hostname", user="ann").stdout == "h1\n"
        first.run("sh", "-c", "echo kept >/etc/kept")
        first.off()
        first.on()
        assert first.run("cat", "/etc/kept").stdout == "kept\n"
        assert {"sshd", "tini"} <= set(first.processes())
        assert made.left()  # it sees them
    assert made.left() == []
