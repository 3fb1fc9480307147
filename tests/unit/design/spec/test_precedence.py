"""Which of several places sets a field: --set, a flag, a variable, the file, the default."""

from __future__ import annotations

from pathlib import Path

import pytest

from winlab.design import spec
from winlab.errors import UsageError


def os_of(source: str = "1-1-1", *changes: str, os: str | None = None, **environment: str) -> str:
    return spec.load(source, changes, os=os, environment=environment).workers[0].os


def test_the_first_place_counts(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text("workers: {os: windows-2019}\n")
    variable = {"WINLAB_WORKERS_OS": "windows-2025"}
    assert os_of() == "windows-2022"
    assert os_of(str(path)) == "windows-2019"
    assert os_of(str(path), **variable) == "windows-2025"
    assert os_of(str(path), os="debian-13", **variable) == "debian-13"
    assert os_of(str(path), "workers.os=ubuntu-24.04", os="debian-13", **variable) == "ubuntu-24.04"


def test_one_pool_by_set_counts_before_all_pools_by_a_variable() -> None:
    made = spec.load("mixed", ["workers.win25.bus=virtio-blk"], environment={"WINLAB_WORKERS_BUS": "sata"})
    assert [pool.bus for pool in made.pools] == ["sata", "sata", "virtio-blk", None]


def test_variables_are_those_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINLAB_KUBERNETES_POD_CIDR", "10.200.0.0/16")
    monkeypatch.setenv("WINLAB_CONTROLLERS_CPUS", "")
    made = spec.load("1-1-1")
    assert (made.kubernetes.pod_cidr, made.controllers.cpus) == ("10.200.0.0/16", 2)


def test_a_variable_for_windows_does_not_affect_linux() -> None:
    made = spec.load("1-1-1", ["workers.os=debian-13"], environment={"WINLAB_WORKERS_BUS": "sata"})
    assert made.workers[0].bus is None


@pytest.mark.parametrize(
    ("environment", "flags", "says"),
    [
        ({"WINLAB_WORKERS_CPUS": "many"}, {}, "WINLAB_WORKERS_CPUS: workers.cpus: Input should be a valid integer"),
        ({"WINLAB_WORKERS_OS": "beos"}, {}, "WINLAB_WORKERS_OS: workers.os: there is no image 'beos'"),
        ({"WINLAB_NETWORK_CIDR": "[", }, {}, "The value of WINLAB_NETWORK_CIDR is not YAML."),
        ({}, {"os": "beos"}, "--os beos: workers.os: there is no image 'beos'"),
        ({}, {"os": "debian-13", "iso": "/x.iso"}, "--iso /x.iso: workers.media: only Windows workers have it"),
    ],
)  # fmt: skip
def test_a_bad_value_is_reported_with_its_place(environment: dict[str, str], flags: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        spec.load("1-1-1", environment=environment, **flags)  # type: ignore[arg-type]
    assert says in f"{caught.value.what} {caught.value.why}"


def test_an_impossible_date_is_refused() -> None:
    with pytest.raises(UsageError, match="is not YAML"):
        spec.load("1-1-1", ["workers.name=2024-13-45"])
