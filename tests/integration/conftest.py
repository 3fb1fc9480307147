"""A real host and real labs, made once for all integration tests by the commands that people use.

Two labs stand side by side: ``it-a`` (1-1-1, rehearsal, made by root) and ``it-b`` (1-0-1, made by a member of the
group ``libvirt`` who is not root). They have the same inner addresses.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess  # noqa: TID251 - tests start winlab as people do
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

LAB_A, LAB_B = "it-a", "it-b"
MEMBER = "winlab-it"  # a user of the tests' own


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.integration)


@dataclass(frozen=True)
class Winlab:
    """The command, as some user with some folders."""

    prefix: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)

    def __call__(self, *args: str, timeout: float = 3000) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.prefix, sys.executable, "-m", "winlab", *args],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **self.env},
        )

    def interrupted(self, step: str, *args: str) -> int:
        """Start the command, press Ctrl-C when *step* is done; its exit code."""
        process = subprocess.Popen(
            [*self.prefix, sys.executable, "-m", "winlab", *args, "--output", "json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **self.env},
        )
        assert process.stdout is not None
        with process:
            for line in process.stdout:
                event = json.loads(line)
                if (event["step"], event["kind"]) == (step, "done"):
                    process.send_signal(signal.SIGINT)
        return process.returncode

    def ok(self, *args: str) -> str:
        done = self(*args)
        assert done.returncode == 0, f"{args}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def json(self, *args: str) -> object:
        return json.loads(self.ok(*args, "--output", "json"))


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the labs' secrets, so that the tests leave the person's own alone."""
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="session")
def winlab(state: Path) -> Winlab:
    return Winlab(env={"WINLAB_STATE": str(state)})


@pytest.fixture(scope="session")
def host(winlab: Winlab) -> Iterator[None]:
    """A host that is set up; torn down at the end if it was not set up before."""
    from winlab.settings import HOST_FILE

    assert os.geteuid() == 0, "integration tests need root: they set up the host"
    was_there = HOST_FILE.exists()
    winlab.ok("host", "setup", "--install")
    yield
    if not was_there:
        winlab.ok("host", "teardown", "--force")


@pytest.fixture(scope="session")
def member(host: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Winlab]:
    """The command as a member of the group libvirt, who is not root.

    The capability lets that user read the interpreter and the checkout wherever they are; it opens no socket, since
    connecting to one needs the right to write.
    """
    subprocess.run(["userdel", "-f", MEMBER], capture_output=True, check=False)
    subprocess.run(["useradd", "--no-create-home", "--groups", "libvirt", MEMBER], check=True)
    home = tmp_path_factory.mktemp("member")
    subprocess.run(["chown", MEMBER, home], check=True)
    capabilities = "-all,+dac_read_search"
    prefix = (
        *("setpriv", f"--reuid={MEMBER}", f"--regid={MEMBER}", "--init-groups"),
        *(f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}", "--bounding-set", capabilities),
    )
    folders = {"WINLAB_STATE": f"{home}/state", "WINLAB_CACHE": f"{home}/cache", "HOME": str(home)}
    yield Winlab(prefix, folders)
    subprocess.run(["userdel", "-f", MEMBER], capture_output=True, check=False)


@dataclass(frozen=True)
class Traces:
    """What the host has that a lab could leave behind."""

    domains: frozenset[str]
    volumes: frozenset[str]
    nvram: frozenset[str]
    links: frozenset[str]
    rows: frozenset[str]
    routes: str


def traces() -> Traces:
    def lines(*command: str) -> frozenset[str]:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return frozenset(line.strip() for line in done.stdout.splitlines() if line.strip())

    nvram = Path("/var/lib/libvirt/qemu/nvram")
    return Traces(
        domains=lines("virsh", "-c", "qemu:///system", "list", "--all", "--name"),
        # images stay: they are the cache that makes the next lab quick
        volumes=frozenset(p.name for p in Path("/var/lib/winlab/pool").iterdir() if not p.name.startswith("base-")),
        nvram=frozenset(p.name for p in nvram.iterdir()) if nvram.is_dir() else frozenset(),
        links=frozenset(path.name for path in Path("/sys/class/net").iterdir()),
        rows=lines("ovn-nbctl", "--db=unix:/run/winlab/ovnnb.sock", "--bare", "--columns=_uuid", "find", "NAT")
        | lines("ovn-nbctl", "--db=unix:/run/winlab/ovnnb.sock", "--bare", "--columns=name", "list", "Logical_Switch")
        | lines(
            "ovn-nbctl", "--db=unix:/run/winlab/ovnnb.sock", "--bare", "--columns=name", "list", "Logical_Switch_Port"
        )
        | lines("ovn-nbctl", "--db=unix:/run/winlab/ovnnb.sock", "--bare", "--columns=_uuid", "list", "DHCP_Options")
        | lines("ovn-nbctl", "--db=unix:/run/winlab/ovnnb.sock", "--bare", "--columns=_uuid", "list", "DNS"),
        routes=subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout,
    )


@dataclass(frozen=True)
class Labs:
    """Both labs, what creating them printed, and the host before."""

    a: Callable[..., subprocess.CompletedProcess[str]]
    b: Callable[..., subprocess.CompletedProcess[str]]
    printed_a: str
    printed_b: str
    interrupted_b: int  # the exit code of the first create, after Ctrl-C
    before: Traces


@pytest.fixture(scope="session")
def labs(winlab: Winlab, member: Winlab) -> Iterator[Labs]:
    """Two labs with the same inner addresses, up and answering."""
    for user, lab in ((winlab, LAB_A), (member, LAB_B)):
        user.ok("destroy", "--lab", lab)
    before = traces()
    # the images first: the member's lab stands on what is in the pool
    winlab.ok("image", "build", "debian-13")
    with ThreadPoolExecutor() as pool:
        rehearsal = pool.submit(winlab.ok, "create", "--spec", "1-1-1", "--rehearse", "--lab", LAB_A)
        _wait_for_base("debian-13")
        other = pool.submit(member.interrupted, "start controller-1", "create", "--spec", "1-0-1", "--lab", LAB_B)
        interrupted = other.result()
        printed_b = member.ok("create", "--spec", "1-0-1", "--lab", LAB_B)
        printed_a = rehearsal.result()

    def on(user: Winlab, lab: str) -> Callable[..., subprocess.CompletedProcess[str]]:
        return lambda command, *args: user(command, "--lab", lab, *args)

    yield Labs(on(winlab, LAB_A), on(member, LAB_B), printed_a, printed_b, interrupted, before)
    for user, lab in ((winlab, LAB_A), (member, LAB_B)):
        user("destroy", "--lab", lab)


def _wait_for_base(image: str) -> None:
    import time

    pool = Path("/var/lib/winlab/pool")
    for _ in range(600):
        if any(path.name.startswith(f"base-{image}-") for path in pool.glob("*.complete")):
            return
        time.sleep(0.5)
    raise AssertionError(f"the base volume of {image} did not come")
