"""containerd's configuration."""

from __future__ import annotations

import tomllib

import pytest
import yaml

from winlab.design import system
from winlab.design.catalog import versions
from winlab.design.distribution import containerd
from winlab.design.system import SystemName

RUNTIME = "io.containerd.cri.v1.runtime"


def parsed(containerd_version: str, os: SystemName) -> dict[str, dict[str, dict[str, object]]]:
    chosen = versions.get("1.36").model_copy(update={"containerd": containerd_version})
    found = tomllib.loads(containerd.config(chosen, system.get(os)))
    assert found["version"] == 3
    plugins: dict[str, dict[str, dict[str, object]]] = found["plugins"]
    return plugins


@pytest.mark.parametrize(("os", "more"), [("linux", {}), ("windows", {"image_pull_progress_timeout": "30m0s"})])
def test_the_sandbox_is_pinned_and_large_layers_of_windows_have_time(os: SystemName, more: dict[str, str]) -> None:
    text = containerd.config(versions.get(), system.get(os))
    assert text.isascii()
    images = tomllib.loads(text)["plugins"]["io.containerd.cri.v1.images"]
    assert images == {"pinned_images": {"sandbox": "registry.k8s.io/pause:3.10.2"}, **more}


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.0.6", {"bin_dir": "C:/opt/cni/bin"}),
        ("2.1.9", {"bin_dirs": ["C:/opt/cni/bin"]}),
        ("2.3.7", {"bin_dirs": ["C:/opt/cni/bin"]}),
        ("2.10.0", {"bin_dirs": ["C:/opt/cni/bin"]}),
    ],
)
def test_where_the_plugins_are(version: str, expected: dict[str, object]) -> None:
    assert parsed(version, "windows")[RUNTIME]["cni"] == {**expected, "conf_dir": "C:/etc/cni/net.d"}


def test_systemd_makes_the_cgroups_on_linux_only() -> None:
    linux, windows = parsed("2.3.7", "linux"), parsed("2.3.7", "windows")
    assert linux[RUNTIME]["containerd"] == {
        "runtimes": {"runc": {"runtime_type": "io.containerd.runc.v2", "options": {"SystemdCgroup": True}}}
    }
    assert "containerd" not in windows[RUNTIME]


def test_crictl_asks_the_same_socket() -> None:
    assert (
        yaml.safe_load(containerd.crictl(system.WINDOWS))["runtime-endpoint"]
        == "npipe:////./pipe/containerd-containerd"
    )
    assert yaml.safe_load(containerd.crictl(system.LINUX))["image-endpoint"] == "unix:///run/containerd/containerd.sock"


def test_the_unit() -> None:
    assert "ExecStart=/usr/local/bin/containerd\n" in containerd.unit()
    assert "Delegate=yes" in containerd.unit()


def test_the_whole_configuration_reads_as_if_written_manually() -> None:
    by_hand = """
    version = 3
    [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "registry.k8s.io/pause:3.10.2"
    [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["/opt/cni/bin"]
    conf_dir = "/etc/cni/net.d"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
    SystemdCgroup = true
    """
    assert tomllib.loads(containerd.config(versions.get("1.36"), system.LINUX)) == tomllib.loads(by_hand)
