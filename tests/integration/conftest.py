"""A real host and real labs, made once for all integration tests by the commands that people use.

Two labs stand side by side: ``it-a`` (1-1-1, rehearsal, made by root) and ``it-b`` (1-0-1, made by a member of the
group ``libvirt`` who is not root). They have the same inner addresses, and end where the guests answer.
"""

from __future__ import annotations

import os
import subprocess  # noqa: TID251 - makes a user
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness import LAB_A, LAB_B, SPEC_A, SPEC_B, Labs, Winlab, traces

from winlab.events import Quiet
from winlab.host import packages

SKOPEO = packages.Package("skopeo", "skopeo", "skopeo")  # reads what winlab writes as container images
MEMBER = "winlab-it"  # a user of the tests' own


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session", autouse=True)
def _packages() -> None:
    """The distribution's packages: whichever test comes first finds them."""
    assert os.geteuid() == 0, "integration tests need root: they install packages and set up the host"
    packages.install((*packages.RUN, *packages.MEDIA, *packages.BUILD, SKOPEO), Quiet())


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


@pytest.fixture(scope="session")
def labs(winlab: Winlab, member: Winlab) -> Iterator[Labs]:
    """Two labs with the same inner addresses, up and answering."""
    for user, lab in ((winlab, LAB_A), (member, LAB_B)):
        user.ok("destroy", "--lab", lab)
    before = traces()
    # the images first: the member's lab stands on what is in the pool
    winlab.ok("image", "build", "debian-13")
    with ThreadPoolExecutor() as pool:
        rehearsal = pool.submit(winlab.ok, "create", *SPEC_A, "--lab", LAB_A)
        _wait_for_base("debian-13")
        other = pool.submit(member.interrupted, "start controller-1", "create", *SPEC_B, "--lab", LAB_B)
        interrupted = other.result()
        printed_b = member.ok("create", *SPEC_B, "--lab", LAB_B)
        printed_a = rehearsal.result()

    def on(user: Winlab, lab: str) -> Callable[..., subprocess.CompletedProcess[str]]:
        return lambda command, *args: user(command, "--lab", lab, *args)

    yield Labs(on(winlab, LAB_A), on(member, LAB_B), printed_a, printed_b, interrupted, before)
    for user, lab in ((winlab, LAB_A), (member, LAB_B)):
        user("destroy", "--lab", lab)


def _wait_for_base(image: str) -> None:
    """Until the base volume is whole: the member has no image of its own to upload."""
    pool = Path("/var/lib/winlab/pool")
    for _ in range(600):
        if any(path.name.startswith(f"base-{image}-") for path in pool.glob("*.complete")):
            return
        time.sleep(0.5)
    raise AssertionError(f"the base volume of {image} did not come")
