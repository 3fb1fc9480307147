"""Which source is chosen, its reason, and what is refused before anything starts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from winlab.design.catalog.artifact import Artifact, Obtained, Program
from winlab.design.catalog.pins import Pins, ProgramPin
from winlab.errors import HostError, NotFoundError, UsageError
from winlab.events import Progress, Quiet
from winlab.supply.artifacts import select
from winlab.supply.artifacts.bundle import file as bundle
from winlab.supply.artifacts.select import choose

ELF = b"\x7fELF\x02\x01\x01" + bytes(11) + (62).to_bytes(2, "little") + b"kubelet"
PE = b"MZ" + bytes(58) + (64).to_bytes(4, "little") + b"PE\0\0\x64\x86" + bytes(100)
KUBELET = Program("kubelet", "v1", "linux")
KUBEADM = Program("kubeadm", "v1", "linux")
CRICTL = Program("crictl", "1", "linux")
ELSEWHERE = Program("flanneld", "v1", "linux")


def pin(program: Program) -> ProgramPin:
    url = f"https://dl.example/{program.file}"
    digest = hashlib.sha256(ELF).hexdigest()
    return ProgramPin(name=program.name, version=program.version, os=program.os, url=url, sha256=digest)


PINS = Pins(programs=(pin(KUBELET), pin(KUBEADM)))


class Build:
    """Stands for the source ``build``."""

    name = "build"

    def __init__(self, *never: Artifact, unready: str | None = None) -> None:
        self.never = never
        self.why = unready

    def cannot(self, wanted: Iterable[Artifact]) -> dict[Artifact, str]:
        return {artifact: "no module has it" for artifact in wanted if artifact in self.never}

    def pinned(self, program: Program) -> bool:
        return program.version == "v1"

    def unready(self, wanted: Sequence[Artifact]) -> str | None:
        return self.why

    def obtain(self, artifact: Artifact, progress: Progress) -> Obtained:
        return Obtained(artifact, Path("/built"), "0" * 64, 1, "built")

    def obtain_all(self, artifacts: Sequence[Artifact], progress: Progress) -> list[Obtained]:
        return [self.obtain(artifact, progress) for artifact in artifacts]


def no_build() -> Build:
    raise HostError("There is no Go.", why="Nobody installed it.")


def answers(url: str) -> None:
    return None


def silent(url: str) -> str:
    return "dl.example did not answer within 3 s"


def put(path: Path, *programs: Program) -> Path:
    folder = path.parent / "parts"
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for program in programs:
        file = folder / program.file
        file.write_bytes(ELF)
        rows.append(Obtained(program, file, hashlib.sha256(ELF).hexdigest(), len(ELF), "x"))
    return bundle.write(path, rows, {}, Quiet()).path


def test_upstream_where_it_answers() -> None:
    asked: list[str] = []
    source, reason = choose([KUBELET, KUBEADM], pins=PINS, build=no_build, probe=asked.append)
    assert source.name == "upstream"
    assert reason == "upstream: dl.example answers, because there is no bundle in the cache."
    assert asked == ["https://dl.example/kubelet"]


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_mirror_is_shown_with_what_verifies_it(scheme: str) -> None:
    listed = {"sha256": None, "sums_url": "https://dl.example/kubeadm.sha256"}
    pins = Pins(programs=(pin(KUBELET), pin(KUBEADM).model_copy(update=listed)))
    mirror = f"{scheme}://m.example"
    if scheme == "http":
        with pytest.raises(UsageError, match="can't be trusted for 1 of 2"):
            choose([KUBELET, KUBEADM], pins=pins, build=no_build, mirror=mirror, probe=answers)
    _, reason = choose(
        [KUBELET, KUBEADM], pins=pins, build=no_build, mirror=mirror, insecure_mirror=True, probe=answers
    )
    assert "(only its own lists of digests verify 1 of 2 artifacts" in reason
    assert ("others can tamper with" in reason) == (scheme == "http")


def test_a_build_when_no_source_answers() -> None:
    source, reason = choose([KUBELET], pins=PINS, build=Build, probe=silent)
    assert source.name == "build"
    assert reason == (
        "build: from Go modules, on this machine, because there is no bundle in the cache and dl.example did not answer"
        " within 3 s."
    )


def test_a_build_that_could_not_start_is_not_a_source() -> None:
    """Otherwise create would find out when the first guests are already running."""

    def build() -> Build:
        return Build(unready="There is no Go.")

    with pytest.raises(NotFoundError, match="No source has everything") as caught:
        choose([KUBELET], pins=PINS, build=build, probe=silent)
    assert "build: There is no Go." in caught.value.why
    # a lab that has everything resumes all the same
    assert choose([KUBELET], pins=PINS, build=build, settled=True, probe=silent)[0].name == "build"


def test_a_build_of_what_is_not_published() -> None:
    def probe(url: str) -> str:
        raise AssertionError("nobody needs to be asked")

    source, reason = choose([KUBELET, ELSEWHERE], pins=PINS, build=Build, probe=probe)
    assert source.name == "build"
    assert "not everything is published" in reason


def test_a_bundle_in_the_cache_comes_first(tmp_path: Path) -> None:
    put(bundle.folder() / "old.tar", KUBELET, KUBEADM)
    put(bundle.folder() / "small.tar", KUBELET)
    (bundle.folder() / "broken.tar").write_bytes(b"no bundle")
    source, reason = choose([KUBELET, KUBEADM], pins=PINS, build=no_build, probe=answers)
    assert source.name == "bundle"
    assert reason == "bundle: 'old.tar' in the cache has everything."


def test_an_incomplete_bundle_in_the_cache_is_skipped() -> None:
    put(bundle.folder() / "small.tar", KUBELET)
    source, reason = choose([KUBELET, KUBEADM], pins=PINS, build=no_build, probe=answers)
    assert source.name == "upstream"
    assert reason == "upstream: dl.example answers, because no bundle in the cache has everything."


def test_artifacts_cached_from_upstream_need_no_network(tmp_path: Path) -> None:
    folder = tmp_path / "mirror"
    folder.mkdir()
    (folder / "kubelet").write_bytes(ELF)
    mirrored, reason = choose([KUBELET], pins=PINS, build=no_build, mirror=str(folder), probe=silent)
    assert (mirrored.name, reason) == ("mirror", f"mirror {folder}: the folder is there, as you asked.")
    mirrored.obtain(KUBELET, Quiet())
    source, reason = choose([KUBELET], pins=PINS, build=Build, probe=silent)
    assert source.name == "upstream"
    assert "the cache already has everything" in reason
    assert source.obtain(KUBELET, Quiet()).path.read_bytes() == ELF
    assert choose([KUBELET, KUBEADM], pins=PINS, build=Build, probe=silent)[0].name == "build"


def test_a_named_source_is_not_replaced(tmp_path: Path) -> None:
    path = put(tmp_path / "mine.tar", KUBELET)
    assert choose([KUBELET], pins=PINS, build=Build, bundle_path=path, probe=answers)[1] == (
        f"bundle: '{path}', as you asked; it has everything."
    )
    with pytest.raises(NotFoundError, match="No source") as caught:
        choose([KUBELET, KUBEADM], pins=PINS, build=Build, bundle_path=path, probe=answers)
    assert "kubeadm v1 (linux) (it is not in the bundle)" in caught.value.why
    assert "dl.example" not in caught.value.why
    with pytest.raises(NotFoundError, match="No source") as caught:
        choose([KUBELET], pins=PINS, build=Build, mirror="https://m.example", probe=silent)
    assert "mirror https://m.example: dl.example did not answer" in caught.value.why
    with pytest.raises(NotFoundError, match="No source") as caught:
        choose([KUBELET], pins=PINS, build=Build, kind="bundle", probe=answers)
    assert "there is none in" in caught.value.why


@pytest.mark.parametrize("kind", ["upstream", "build"])
def test_a_kind_can_be_asked_for(kind: Any) -> None:
    put(bundle.folder() / "all.tar", KUBELET)
    source, reason = choose([KUBELET], pins=PINS, build=Build, kind=kind, probe=answers)
    assert source.name == kind
    assert reason.endswith(", as you asked.")


def test_no_source_at_all_names_each_reason() -> None:
    with pytest.raises(NotFoundError, match="No source") as caught:
        choose([KUBELET, ELSEWHERE], pins=PINS, build=lambda: Build(ELSEWHERE), probe=answers)
    assert "bundle: there is none in" in caught.value.why
    assert "upstream lacks flanneld v1 (linux) (it is not published, or not pinned)" in caught.value.why
    assert "build lacks flanneld v1 (linux) (no module has it)" in caught.value.why
    with pytest.raises(NotFoundError) as caught:
        choose([KUBELET], pins=PINS, build=no_build, probe=silent)
    assert "build: There is no Go. Nobody installed it." in caught.value.why


def test_optional_artifacts_do_not_decide_the_source() -> None:
    wanted = [KUBELET, CRICTL]
    with pytest.raises(NotFoundError):
        choose(wanted, pins=PINS, build=lambda: Build(CRICTL), probe=answers)
    source, _ = choose(wanted, pins=PINS, build=lambda: Build(CRICTL), optional={CRICTL}, probe=answers)
    assert source.name == "upstream"
    assert list(source.cannot(wanted)) == [CRICTL]


KUBECTL, NEIGHBOUR = Program("kubectl", "v2", "linux"), Program("kubectl", "v1", "linux")
LISTED = {"sha256": None, "sums_url": "https://dl.example/kubectl.sha256"}


def test_this_host_runs_only_what_a_digest_verifies(tmp_path: Path) -> None:
    """The cluster's own kubectl has a list of digests beside it, a neighbour's is pinned."""
    asked: list[str] = []
    pins = Pins(programs=(pin(KUBELET), pin(KUBECTL).model_copy(update=LISTED)))
    with pytest.raises(NotFoundError, match="No source") as caught:
        choose([KUBELET], host=[KUBECTL, NEIGHBOUR], pins=pins, build=no_build, probe=answers)
    assert "upstream has no kubectl that this host may run" in caught.value.why
    assert "--bundle-digest" in caught.value.why
    assert choose([KUBELET], host=[KUBECTL, NEIGHBOUR], pins=pins, build=Build, probe=answers)[0].name == "build"
    more = pin(NEIGHBOUR).model_copy(update={"url": "https://other.example/kubectl"})
    pins = Pins(programs=(*pins.programs, more))
    source, _ = choose([], host=[KUBECTL, NEIGHBOUR], pins=pins, build=no_build, probe=asked.append)
    assert select.for_host(source, [KUBECTL, NEIGHBOUR]) == NEIGHBOUR
    assert asked == ["https://other.example/kubectl"]


def test_a_bundle_verifies_what_this_host_runs_by_its_digest_or_the_pins(tmp_path: Path) -> None:
    pins = Pins(programs=(pin(KUBELET), pin(KUBECTL).model_copy(update=LISTED)))
    path = put(bundle.folder() / "b.tar", KUBELET, KUBECTL)
    digest = bundle.open_bundle(path).digest
    source, _ = choose([KUBELET], host=[KUBECTL], pins=pins, build=Build, bundle_path=path, bundle_digest=digest)
    assert select.for_host(source, [KUBECTL]) == KUBECTL
    with pytest.raises(NotFoundError, match="No source") as caught:
        choose([KUBELET], host=[KUBECTL], pins=pins, build=Build, bundle_path=path)
    assert f"'{path}' has no kubectl that this host may run" in caught.value.why
    source, why = choose([KUBELET], host=[KUBECTL, NEIGHBOUR], pins=pins, build=Build, probe=answers)
    assert source.name == "build"  # the bundle in the cache is passed over
    assert "no known digest verifies the kubectl of upstream" in why
    pins = Pins(programs=(pin(KUBELET), pin(KUBECTL)))
    assert choose([KUBELET], host=[KUBECTL], pins=pins, build=Build, bundle_path=path)[0].name == "bundle"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"kind": "mirror"}, "needs its address"),
        ({"kind": "build", "bundle_path": Path("x.tar")}, "Both a bundle and the source 'build'"),
        ({"kind": "upstream", "mirror": "https://m.example"}, "Both a mirror"),
        ({"mirror": "/no/such/folder"}, "can't be used"),
    ],
)
def test_conflicting_choices(more: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        choose([KUBELET], pins=PINS, build=Build, probe=answers, **more)


def test_a_named_file_that_is_not_a_bundle(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"hello")
    with pytest.raises(UsageError, match="is not a winlab bundle"):
        choose([KUBELET], pins=PINS, build=Build, bundle_path=tmp_path / "x.tar")
