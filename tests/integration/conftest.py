"""A real host, a golden image and real labs, made once for all integration tests by the commands that users run.

The bundle is built while the golden image is sealed, and the lab ``it-j`` joins a control plane on the host
(joining.py) before the other labs are made.

Two labs exist side by side, both made from a bundle alone: ``it-a`` (1-1-1, rehearsal, its worker a clone of the golden
image, made by root; a PowerShell engine, if there is one, runs winlab's scripts in it) and ``it-b`` (1-0-1, made by a
member of the group ``libvirt`` who is not root). They have the same inner addresses; the first is a whole cluster, the
second ends where the guests answer. It costs little while it stands, so it is made first, beside other lanes.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess  # noqa: TID251 - makes a user, removes the golden image's volume, builds beside the tests
import time
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pycdlib
import pytest
from control_plane import ControlPlane
from harness import LAB_A, LAB_B, SPEC_A, SPEC_B, Golden, Labs, On, Second, Winlab, stand_in_medium, text, traces
from joining import Joined, joining
from kept import Kept
from powershell import engine as engines
from secrets_scan import Watch
from survive import sample, targets
from survive.command import Wired
from survive.moments import BEGINNING, Point

from winlab import settings
from winlab.events import Quiet
from winlab.host import packages
from winlab.host.facts import read_facts
from winlab.supply.artifacts.bundle.file import open_bundle

SKOPEO = packages.Package("skopeo", "skopeo", "skopeo")  # reads what winlab writes as container images
SEVENZIP = packages.Package("7z", "p7zip-full", "p7zip-plugins")  # reads UDF
CHROMIUM = packages.Package("chromium", "chromium", "chromium")
POOL = Path("/var/lib/winlab/pool")
# What the lane "labs" needs; why it could not be made
SHARED = {"golden": "", "bundle": "", "second": "", "labs": "", "joined": ""}
SHARED_SECONDS = 5400  # for a test that may be the first that needs it, and waits for its turn: a bound for a hang
MEMBER = "winlab-it"  # a user of the tests' own
BEFORE_START = (
    "credentials",
    "network",
    "disk controller-1",
    "seed controller-1",
)  # the steps before the machine's start


def pytest_report_header() -> str:
    return f"kills sampled by {sample.VARIABLE}={sample.seed()}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its lane (tests/lanes.py), and put them in order: those of the shared labs come last."""
    if config.getoption("--keep-labs"):
        items[:] = [item for item in items if not item.get_closest_marker("ends_labs")]

    def place(item: pytest.Item) -> int:
        if item.get_closest_marker("ends_labs"):
            return 2
        return 1 if "labs" in item.fixturenames else 0  # type: ignore[attr-defined]

    for item in items:
        item.add_marker("integration")
        uses = set(item.fixturenames)  # type: ignore[attr-defined]
        if uses & SHARED.keys():
            item.add_marker("labs")
            item.add_marker(pytest.mark.timeout(SHARED_SECONDS))
        elif "host" in uses:
            item.add_marker("machines")
        elif hasattr(item.module, "Hosts"):  # type: ignore[attr-defined]
            item.add_marker("hosts")
    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Note why a shared lab could not be made."""
    try:
        return (yield)
    except Exception as error:
        if fixturedef.argname in SHARED:
            SHARED[fixturedef.argname] = SHARED[fixturedef.argname] or f"{type(error).__name__}: {error}"
        raise


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test of a lab that could not be made fails at once, with the reason."""
    for name in SHARED.keys() & set(item.fixturenames):  # type: ignore[attr-defined]
        if reason := SHARED[name]:
            pytest.fail(f"'{name}' could not be made, see the first test that needed it: {reason[:300]}", pytrace=False)


@pytest.fixture(scope="session", autouse=True)
def _packages() -> None:
    """The distribution's packages: whichever test comes first finds them."""
    assert os.geteuid() == 0, "integration tests need root: they install packages and set up the host"
    os.environ.setdefault("WINLAB_SUPPORT_SECONDS", "0")  # many commands fail on purpose
    packages.install((*packages.RUN, *packages.MEDIA, *packages.BUILD, SKOPEO, SEVENZIP, CHROMIUM), Quiet())


@pytest.fixture(scope="session")
def kept(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """The folder of the shared labs and their inputs."""
    return Kept(tmp_path_factory, keeps=pytestconfig.getoption("--keep-labs"))


@pytest.fixture(scope="session")
def state(kept: Kept) -> Path:
    """The folder of the labs' secrets, so that the tests leave the user's own alone."""
    return kept.folder("state")


@pytest.fixture(scope="session")
def winlab(state: Path) -> Winlab:
    return Winlab(env={"WINLAB_STATE": str(state)})


@pytest.fixture(scope="session")
def engine_or_reason(tmp_path_factory: pytest.TempPathFactory) -> Path | str:
    """A PowerShell engine that runs winlab's scripts, or why there is none. Where one belongs, it must be there."""
    reason = ""
    try:
        found = engines.locate(tmp_path_factory.mktemp("engine"))
        if engines.runs_doubles(found):
            return found
        reason = f"{found} {engines.PARSES_ONLY}"
    except engines.MissingEngineError as missing:
        reason = str(missing)
    assert not engines.SHARED.is_dir(), reason
    return reason


@pytest.fixture(scope="session")
def engine(engine_or_reason: Path | str) -> Path:
    """A PowerShell engine that runs winlab's scripts; a test that needs it is left out where there is none."""
    if isinstance(engine_or_reason, str):
        pytest.skip(engine_or_reason)
    return engine_or_reason


@pytest.fixture(scope="session")
def scripted(winlab: Winlab, engine_or_reason: Path | str) -> Winlab:
    """The command with the engine: the stand-in of its labs runs winlab's scripts instead of simulating them."""
    if isinstance(engine_or_reason, str):
        return winlab
    return Winlab(env={**winlab.env, "WINLAB_POWERSHELL": str(engine_or_reason)})


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
def member(host: None, kept: Kept) -> Iterator[Winlab]:
    """The command as a member of the group libvirt, who is not root.

    The capability lets that user read the interpreter and the checkout wherever they are; it opens no socket, because
    connecting to one needs the right to write.
    """
    home = kept.folder("member")
    if subprocess.run(["id", MEMBER], capture_output=True, check=False).returncode != 0:
        subprocess.run(["useradd", "--no-create-home", "--groups", "libvirt", MEMBER], check=True)
    subprocess.run(["chown", MEMBER, home], check=True)
    capabilities = "-all,+dac_read_search"
    prefix = (
        *("setpriv", f"--reuid={MEMBER}", f"--regid={MEMBER}", "--init-groups"),
        *(f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}", "--bounding-set", capabilities),
    )
    folders = {"WINLAB_STATE": f"{home}/state", "WINLAB_CACHE": f"{home}/cache", "HOME": str(home)}
    yield Winlab(prefix, folders)
    if not kept.keeps:
        subprocess.run(["userdel", "-f", MEMBER], capture_output=True, check=False)


@pytest.fixture(scope="session")
def own_files(kept: Kept) -> Path:
    """A folder for workers, again in each run: a file that no image had before is in it."""
    files = kept.folder("files")
    if not (kept.keeps and kept.recall(Golden)):
        (files / "winlab-it").mkdir(exist_ok=True)
        (files / "winlab-it/own.txt").write_text(secrets.token_hex())
    return files


@pytest.fixture(scope="session")
def add_ons(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The first lab's, which tests ask for by fixtures: metrics-server alone takes an emulated cluster minutes."""
    used = {name for item in request.session.items for name in item.fixturenames}  # type: ignore[attr-defined]
    return ("metrics-server",) if "metrics_server" in used else ()


@pytest.fixture
def metrics_server(add_ons: tuple[str, ...]) -> str:
    """The name of an add-on that the first lab has if a test uses this."""
    return add_ons[0]


def _spec_a(add_ons: tuple[str, ...]) -> tuple[str, ...]:
    return (*SPEC_A, *(word for name in add_ons for word in ("--set", f"addons.{name}={{}}")))


@pytest.fixture(scope="session")
def bundling(
    host: None,
    scripted: Winlab,
    own_files: Path,
    add_ons: tuple[str, ...],
    kept: Kept,
    request: pytest.FixtureRequest,
) -> Iterator[Future[Path] | None]:
    """Images, programs and the first lab's bundle are built while the golden image is sealed, if a test needs them."""
    if not any("bundle" in item.fixturenames for item in request.session.items):  # type: ignore[attr-defined]
        yield None
        return
    path = kept.folder("bundle") / "it-a.bundle"
    aside = Winlab((*scripted.prefix, "nice", "-n", "10"), scripted.env)

    def build() -> Path:
        if not path.exists():
            for image in ("debian-13", "windows-rehearsal"):
                aside.ok("image", "build", image, "--medium")
            aside.ok("bundle", "create", *_spec_a(add_ons), *_files_flags(own_files), "--to", str(path))
        return path

    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(build)


def _files_flags(files: Path) -> tuple[str, ...]:
    """The flags of the golden image, and of all that is made from it."""
    return ("--set", f"workers.files={files}")


@pytest.fixture(scope="session")
def golden(
    host: None, scripted: Winlab, own_files: Path, bundling: Future[Path] | None, kept: Kept
) -> Iterator[Golden]:
    """Made by its command."""
    made = kept.recall(Golden)
    if made and kept.keeps:
        yield made
        return
    if made:
        _remove(scripted, made)
        kept.forget()
    flags = _files_flags(own_files)
    path = scripted.ok("image", "build", "windows-rehearsal", *flags).strip()
    rows = scripted.items("image", "list")
    own = (own_files / "winlab-it/own.txt").read_text()
    made = Golden(next(row for row in rows if row["key"] == Path(path).parent.name), flags, own)
    kept.note(made)
    yield made
    if not kept.keeps:
        _remove(scripted, made)


def _remove(user: Winlab, golden: Golden) -> None:
    """Remove a golden image, and its volume in the pool."""
    user("image", "rm", str(golden.row["key"]))
    for volume in {path.name for path in POOL.glob(f"base-*-golden-{golden.row['key'][:8]}*")}:
        subprocess.run(["virsh", "-c", "qemu:///system", "vol-delete", volume, "winlab"], check=False)


@pytest.fixture(scope="session")
def standin_root(host: None, winlab: Winlab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in's root file system, unpacked."""
    path = stand_in_medium(winlab)
    folder = tmp_path_factory.mktemp("standin")
    disc = pycdlib.PyCdlib()
    disc.open(str(path))
    with (folder / "install.wim").open("wb") as file:
        disc.get_file_from_iso_fp(file, udf_path="/sources/install.wim")
    disc.close()
    inside = "/Windows/System32/standin/root.sqfs"
    where = f"--dest-dir={folder}"
    subprocess.run(
        ["wimlib-imagex", "extract", folder / "install.wim", "1", inside, where], check=True, capture_output=True
    )
    subprocess.run(["unsquashfs", "-q", "-n", "-d", folder / "root", folder / "root.sqfs"], check=True)
    return folder / "root"


@pytest.fixture(scope="session")
def bundle(golden: Golden, bundling: Future[Path] | None) -> Path:
    """Everything that the first lab needs, in one file, from what this host has or builds."""
    assert bundling is not None
    return bundling.result()


def _offline(bundle: Path) -> tuple[str, ...]:
    """The flags of a create that takes all from the bundle."""
    digest = f"sha256:{open_bundle(bundle).digest}"  # it may have programs that were built here
    return ("--bundle", str(bundle), "--bundle-digest", digest)


@pytest.fixture(scope="session")
def second(member: Winlab, bundle: Path, kept: Kept) -> Iterator[Second]:
    """A lab of machines alone, up and answering. Its create is killed at sampled points, and resumed each time."""
    made = kept.recall(Second)
    if made and kept.keeps and made.lab("status").returncode == 0:
        yield made
        return
    member.ok("destroy", "--lab", LAB_B, "--anyone")  # of an earlier run, by a user who may be gone
    seed, wired = sample.seed(), Wired(Path(member.env["HOME"]) / "survive", member.env, member.prefix)
    before = traces()
    try:
        with Watch() as watch, TemporaryDirectory(dir="/var/tmp") as folder:
            Path(folder).chmod(0o755)  # pytest's own are closed to other users
            own = shutil.copy(bundle, folder)
            create = ("create", *SPEC_B, "--lab", LAB_B, *_offline(Path(own)))
            early, starting = sample.choose(seed, BEFORE_START, 2), Point("start controller-1", BEGINNING)
            killed = sample.play(wired, early, starting, signal.SIGKILL, *create)
            interrupted = member.interrupted("start controller-1", *create)
            (booting,) = sample.choose(seed, ["boot controller-1"], 1, (BEGINNING,))
            killed += sample.play(wired, [], booting, sample.signal_of(seed), *create)
            cut_off = _cut_off(member, *create)
            begun = len(_journal(member, LAB_B))
            printed = member.ok(*create)
            journal = _journal(member, LAB_B)
        seen = frozenset(watch.seen)
        ends = (printed, interrupted, killed, cut_off, journal[:begun], journal[begun:])
        made = Second(On(member, LAB_B), before, seen, *ends)
        kept.note(made)
        yield made
    finally:
        if not kept.keeps:
            member("destroy", "--lab", LAB_B, "--anyone")


@pytest.fixture(scope="session")
def labs(
    scripted: Winlab,
    member: Winlab,
    golden: Golden,
    second: Second,
    bundle: Path,
    add_ons: tuple[str, ...],
    kept: Kept,
) -> Iterator[Labs]:
    """Two labs with the same inner addresses, up and answering: the first is a hybrid cluster."""
    spec = (*_spec_a(add_ons), *golden.flags)
    made = kept.recall(Labs)
    if made and kept.keeps and made.spec_a == spec and made.a("status").returncode == 0:
        yield made
        return
    while "WINLAB_TEST_TURN" in os.environ and not Path(os.environ["WINLAB_TEST_TURN"]).exists():
        time.sleep(1)  # other lanes still run (tests/lanes.py)
    scripted.ok("destroy", "--lab", LAB_A, "--anyone")  # of an earlier run
    caches = (kept.folder("cache"), Path(member.env["WINLAB_CACHE"]), settings.cache_dir())
    empty = Winlab(env={**scripted.env, "WINLAB_CACHE": str(caches[0])})
    try:
        with Watch() as watch:
            done = empty("create", *spec, "--lab", LAB_A, *_offline(bundle))
        made = Labs(On(scripted, LAB_A), second, text(done), done.stderr, spec, caches, frozenset(watch.seen))
        kept.note(made)
        yield made
    finally:
        if not kept.keeps:
            scripted("destroy", "--lab", LAB_A, "--anyone")


@pytest.fixture(scope="module")
def joined(host: None, scripted: Winlab, golden: Golden, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Joined]:
    """A lab that has joined a control plane on this host."""
    elsewhere = ControlPlane(tmp_path_factory.mktemp("elsewhere"), read_facts().external_gateway)
    with joining(elsewhere, scripted, golden) as made:
        yield made


def _journal(user: Winlab, lab: str) -> list[Any]:
    """The events of a lab so far."""
    text = Path(user.env["WINLAB_STATE"], "labs", lab, "journal.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def _cut_off(user: Winlab, *create: str) -> int:
    """Run a create, and kill the QEMU of its machine once it boots for the first time; the create's exit code.

    A machine that has not written to its serial port yet counts as new: its disk is as it was.
    """
    log = POOL / f"{LAB_B}.controller-1.serial.log"
    for process, event in user.follow(*create):
        if (event["event"], event.get("step")) == ("StepProgress", "boot controller-1"):
            while process.poll() is None and not (log.exists() and log.stat().st_size):
                time.sleep(0.2)
            for pid in targets.find(f"guest {LAB_B}"):
                os.kill(pid, signal.SIGKILL)
    return process.returncode
