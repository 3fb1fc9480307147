"""The source ``build`` with a real Go: plug-ins for both systems, a patched checkout, images that others can read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess  # noqa: TID251 - runs what was built, and an independent reader of images
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from winlab.design.catalog.artifact import ContainerImage, Obtained, Program
from winlab.events import Quiet
from winlab.supply.artifacts import store
from winlab.supply.artifacts.build import debs, toolchain
from winlab.supply.artifacts.build.source import BuildSource
from winlab.supply.artifacts.oci import archive as oci
from winlab.supply.artifacts.oci import write
from winlab.supply.artifacts.oci.write import Config, LayerFile

MODULE = "github.com/containernetworking/plugins"
LINUX = [Program(name, "1.9.1", "linux") for name in ("bridge", "host-local", "loopback", "portmap")]
WINDOWS = [Program(name, "1.9.1", "windows") for name in ("win-bridge", "win-overlay", "host-local")]
PAUSE = ContainerImage("registry.k8s.io/pause:3.10.2", "linux")


class Said(Quiet):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str, fraction: float | None = None) -> None:
        self.lines.append(text)


def children(process: int | str) -> list[str]:
    return Path(f"/proc/{process}/task/{process}/children").read_text().split()


def alone(outer: int) -> str:
    """Process 1 of the namespace that *outer* made, once it is pause and has no children any more."""
    seen: object = None
    end = time.monotonic() + 60  # a bound for a test that hangs, no expectation
    while time.monotonic() < end:
        if inner := children(outer):
            seen = Path(f"/proc/{inner[0]}/comm").read_text().strip(), children(inner[0])
            if seen == ("pause", []):
                return inner[0]
        time.sleep(0.1)
    raise AssertionError(seen)


def output(*words: str | Path) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout + done.stderr


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of the test's own, so that everything is really built; Go's own caches are the user's."""
    before = os.environ.get("WINLAB_CACHE")
    os.environ["WINLAB_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield Path(os.environ["WINLAB_CACHE"])
    del os.environ["WINLAB_CACHE"]
    if before is not None:
        os.environ["WINLAB_CACHE"] = before


@pytest.fixture(scope="module")
def built(cache: Path) -> dict[Program | ContainerImage, Obtained]:
    found = BuildSource("v1.36.3").obtain_all([*LINUX, *WINDOWS, PAUSE], Quiet())
    return dict(zip([*LINUX, *WINDOWS, PAUSE], found, strict=True))


def test_plugins_for_linux_run_and_know_their_version(built: dict[Program, Obtained]) -> None:
    for plugin in LINUX:
        path = built[plugin].path
        assert f"CNI {plugin.name} plugin v1.9.1" in output(path)
        assert "not a dynamic executable" in output("ldd", path)


def test_plugins_for_windows_are_programs_of_windows(built: dict[Program, Obtained]) -> None:
    for plugin in WINDOWS:
        path = built[plugin].path
        assert path.name == f"{plugin.name}.exe"
        content = path.read_bytes()
        header = int.from_bytes(content[0x3C:0x40], "little")
        assert content[header : header + 6] == b"PE\0\0\x64\x86"  # for amd64: Microsoft's "PE Format"


def test_a_second_build_uses_the_cache(built: dict[Program, Obtained]) -> None:
    said = Said()
    again = BuildSource("v1.36.3").obtain_all(list(built), said)
    assert again == list(built.values())
    assert said.lines == []  # nothing was compiled


def test_builds_are_reproducible(built: dict[Program, Obtained], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINLAB_CACHE", f"{os.environ['WINLAB_CACHE']}/again")
    again = BuildSource("v1.36.3").obtain_all([LINUX[0], WINDOWS[0], PAUSE], Quiet())
    assert [one.sha256 for one in again] == [built[one].sha256 for one in (LINUX[0], WINDOWS[0], PAUSE)]


def test_a_patched_checkout_is_built(built: dict[Program, Obtained], tmp_path: Path) -> None:
    go = toolchain.here()[0].program
    checkout = tmp_path / "plugins"
    modules = Path(output(go, "env", "GOMODCACHE").strip())
    shutil.copytree(modules / f"{MODULE}@v1.9.1", checkout, copy_function=shutil.copyfile)
    for folder in (checkout, *(path for path in checkout.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    code = checkout / "plugins/main/loopback/loopback.go"
    text = code.read_text()
    assert text.count('BuildString("loopback")') == 1
    code.write_text(text.replace('BuildString("loopback")', 'BuildString("patched")'))
    loopback = Program("loopback", "1.9.1", "linux")
    patched = BuildSource("v1.36.3", {MODULE: checkout}).obtain(loopback, Quiet())
    assert "CNI patched plugin v1.9.1" in output(patched.path)
    assert "CNI loopback plugin v1.9.1" in output(built[loopback].path)


def test_an_image_is_read_by_others(built: dict[ContainerImage, Obtained], tmp_path: Path) -> None:
    archive = built[PAUSE].path
    oci.verify(archive, PAUSE)
    seen = json.loads(output("skopeo", "inspect", "--config", f"oci-archive:{archive}"))
    assert (seen["os"], seen["architecture"]) == ("linux", "amd64")
    assert seen["config"]["Entrypoint"] == ["/pause"]
    copied = tmp_path / "docker.tar"
    done = output("skopeo", "copy", f"oci-archive:{archive}:3.10.2", f"docker-archive:{copied}:{PAUSE.reference}")
    assert copied.exists(), done
    work = tmp_path / "work"
    work.mkdir()
    # and what they write is read here
    assert oci.convert(copied, tmp_path / "back.tar", "linux", work=work) == PAUSE
    oci.verify(tmp_path / "back.tar", PAUSE)


def test_pause_reaps_and_ends(built: dict[ContainerImage, Obtained], tmp_path: Path) -> None:
    (found,) = oci.inspect(built[PAUSE].path)
    with tarfile.open(built[PAUSE].path) as archive:
        archive.extract(f"blobs/sha256/{found.layers[0].digest[7:]}", tmp_path, filter="data")
    with tarfile.open(tmp_path / f"blobs/sha256/{found.layers[0].digest[7:]}") as layer:
        layer.extract("pause", tmp_path, filter="tar")
    # as in a pod: process 1 of a namespace, with a child that it did not start
    script = f"sleep 0.2 & exec {tmp_path}/pause"
    with subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]) as outer:
        try:
            inner = alone(outer.pid)  # sleep is gone, and no zombie of it is left
            os.kill(int(inner), 15)
            assert outer.wait(60) == 0
        finally:
            outer.kill()


def test_debian_packages_work_in_an_image(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    files = debs.fetch(("nftables", "iptables"), work, Quiet())
    links = [LayerFile(f"/usr/sbin/{name}", link="xtables-nft-multi") for name in ("iptables", "iptables-restore")]
    image = ContainerImage("winlab.test/nft:1", "linux")
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    write.write(tmp_path / "nft.tar", image.reference, [*files, *links], Config(), work=blobs)
    oci.verify(tmp_path / "nft.tar", image)
    assert (tmp_path / "nft.tar").stat().st_size < 20_000_000
    (found,) = oci.inspect(tmp_path / "nft.tar")
    root = tmp_path / "root"
    with tarfile.open(blobs / found.layers[0].digest[7:]) as layer:
        layer.extractall(root, filter="tar")
    assert "nftables v1." in output("chroot", root, "nft", "--version")
    assert "(nf_tables)" in output("chroot", root, "/usr/sbin/iptables", "--version")


def test_go_comes_from_pypi_if_the_host_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, built: dict[ContainerImage, Obtained]
) -> None:
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(toolchain, "PLACES", ())
    said = Said()
    found = BuildSource("v1.36.3").obtain(PAUSE, said)
    oci.verify(found.path, PAUSE)
    (go,) = toolchain.here()
    assert store.tools() in go.program.parents
    assert found.origin.endswith(go.name)
    assert any("fetching Go" in line for line in said.lines)
