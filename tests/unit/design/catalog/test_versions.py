"""The known-good combinations, and the messages about others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from winlab import data
from winlab.design import cni
from winlab.design.catalog import versions
from winlab.design.catalog.artifact import ContainerImage, Program
from winlab.design.cni import compatible
from winlab.errors import UsageError
from winlab.supply.artifacts.build.go_programs import part, tag
from winlab.supply.artifacts.upstream import UpstreamSource


def test_the_default_is_the_newest_minor_or_the_one_before() -> None:
    assert versions.names() == ["1.37", "1.36", "1.35", "1.34"]
    assert versions.get().name == versions.load().default
    assert versions.get().name in versions.names()[:2]


@pytest.mark.parametrize("name", ["1.36", "v1.36", "v1.36.3", "1.36.3", " 1.36 "])
def test_a_combination_has_many_names(name: str) -> None:
    assert versions.get(name).kubernetes == "v1.36.3"
    assert versions.get(name).known_good


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("v1.36.1", "1.36"), ("1.38", "1.37"), ("v1.33.6", "1.34"), ("1.20", "1.34"), ("v1.35.9", "1.35")],
)
def test_an_unknown_combination_names_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(UsageError, match="is not a known-good combination") as error:
        versions.get(name)
    assert f"--set kubernetes.version={nearest} " in error.value.cure
    assert "kubernetes.untested=true" in error.value.cure


@pytest.mark.parametrize("name", ["", "x", "2.0", "1", "1.36.3.1", "v1.36-rc"])
def test_a_malformed_version_is_refused(name: str) -> None:
    if name:
        with pytest.raises(UsageError, match="is not a version of Kubernetes"):
            versions.get(name)
    else:
        assert versions.get(name) == versions.get()


def test_an_untested_version_takes_the_rest_from_the_nearest_combination() -> None:
    chosen = versions.get("v1.36.1", allow_untested=True)
    assert chosen.kubernetes == "v1.36.1"
    assert not chosen.known_good
    assert chosen.containerd == versions.get("1.36").containerd
    assert versions.get("1.33.6", allow_untested=True).containerd == versions.get("1.34").containerd


def test_untested_has_its_limits() -> None:
    with pytest.raises(UsageError, match="winlab knows no release"):
        versions.get("1.38", allow_untested=True)
    with pytest.raises(UsageError, match="too old"):
        versions.get("v1.30.4", allow_untested=True)


@pytest.mark.parametrize(
    ("release", "build", "profile"),
    [
        ("2022", None, "l3"),
        ("2022", "20348.2762", "calico-vxlan"),
        ("2022", "10.0.20348.2762", "calico-bgp"),
        ("2022", "20348.587", "calico-vxlan"),
        ("2022", "20348.2582", "flannel-vxlan"),
        ("2025", "26100.1742", "calico-vxlan"),
    ],
)
def test_versions_that_go_together(release: str, build: str | None, profile: str) -> None:
    compatible.check(versions.get("1.36"), release, build, profile)


@pytest.mark.parametrize(
    ("minor", "release", "build", "profile", "why", "cure"),
    [
        ("1.36", "2022", "20348.2322", "calico-vxlan", "breaks Calico", "updates"),
        ("1.36", "2022", "20348.2582", "calico-bgp", "breaks Calico", "updates"),
        ("1.36", "2022", "20348.100", "l3", "20348.169 or newer", "updates"),
        ("1.36", "2022", "17763.5000", "l3", "has the build 20348, not 17763", ""),
        ("1.34", "2019", "17763.1432", "l3", "direct server return", "updates"),
        ("1.36", "2019", None, "l3", "is not known to work on Windows Server 2019", "version=1.34"),
        (
            "1.36",
            "2025",
            None,
            "calico-bgp",
            "Known to work with Kubernetes 1.36 on Windows Server 2025: calico-vxlan",
            "network.cni=calico-vxlan",
        ),
        ("1.36", "2016", None, "l3", "", "2019, 2022, 2025"),
        ("1.36", "2022", "20348", "l3", "", "20348.2762"),
    ],
)
def test_versions_that_do_not_go_together(
    minor: str, release: str, build: str | None, profile: str, why: str, cure: str
) -> None:
    with pytest.raises(UsageError) as error:
        compatible.check(versions.get(minor), release, build, profile)
    assert why in error.value.why
    assert cure in error.value.cure


def test_every_reason_is_given_at_once() -> None:
    with pytest.raises(UsageError) as error:
        compatible.check(versions.get("1.35"), "2019", "17763.1", "l3")
    assert "too old" in error.value.why
    assert "not known to work" in error.value.why
    assert "updates" in error.value.cure
    assert "kubernetes.version=1.34" in error.value.cure


def test_an_untested_version_is_checked_by_builds_only() -> None:
    chosen = versions.get("v1.36.1", allow_untested=True)
    compatible.check(chosen, "2019", None, "l3")
    with pytest.raises(UsageError, match="don't work together"):
        compatible.check(chosen, "2022", "20348.2582", "calico-vxlan")


def test_pins_of_every_combination() -> None:
    good = versions.load()
    for row in good.combinations:
        built = [Program(name, row.kubernetes, "linux") for name in ("kubelet", "kube-apiserver")]
        built += [Program(name, row.by_name[name], "linux") for name in ("containerd", "runc", "etcd", "coredns")]
        built.append(Program("bridge", row.cni_plugins, "linux"))
        for program in built:
            made = part(program)
            assert made is not None
            assert (made.module, tag(program.version)) in good.pins.module_sums, program
        for name in ("kubeadm", "kubelet", "kubectl", "kube-proxy", "kube-log-runner"):
            assert good.pins.program(Program(name, row.kubernetes, "windows"))
        for name in ("kubeadm", "kubelet", "kubectl"):
            assert good.pins.program(Program(name, row.kubernetes, "linux"))
        assert good.pins.program(Program("containerd", row.containerd, "windows"))
        assert good.pins.program(Program("crictl", row.crictl, "windows"))
        assert good.pins.program(Program("runc", row.runc, "linux"))
        assert good.pins.program(Program("win-overlay", row.cni_plugins, "windows"))
        for image in (f"kube-apiserver:{row.kubernetes}", f"etcd:{row.etcd}", f"coredns/coredns:{row.coredns}"):
            assert good.pins.image(ContainerImage(f"registry.k8s.io/{image}", "linux"))
        assert good.pins.image(ContainerImage(f"registry.k8s.io/pause:{row.pause}", "windows"))


@pytest.mark.parametrize("profile", cni.names())
def test_upstream_has_all_that_a_cni_profile_needs(profile: str) -> None:
    good = versions.load()
    found = cni.get(profile)
    upstream = UpstreamSource(good.pins.with_those_of([found.known.pins]))
    for row in good.combinations:
        chosen = {**row.by_name, **found.known.of(row.minor)}
        needed = [*found.programs(chosen), *found.images(chosen), *found.published(chosen)]
        assert needed
        assert upstream.cannot(needed) == {}


def test_pins_are_of_these_versions_and_each_where_its_publisher_has_it() -> None:
    good = versions.load()
    known = [profile.known for profile in cni.profiles().values()]
    used = {value for row in good.combinations for value in row.by_name.values()}
    used |= {value for one in known for row in one.versions.values() for value in row.values()}
    for pin in good.pins.with_those_of(one.pins for one in known).programs:
        assert pin.version in used, pin
        assert pin.version.lstrip("v") in pin.url, pin
        assert pin.os in pin.url or pin.name == "runc", pin
        assert pin.url.startswith(("https://dl.k8s.io/v", "https://github.com/")), pin
        if pin.sums_url:
            lists = (pin.url, f"{pin.url.rpartition('/')[0]}/runc.sha256sum", "https://api.github.com/repos/")
            assert pin.sums_url.startswith(lists), pin


def content() -> dict[str, Any]:
    """The file's content, without the many rows of pins."""
    text, _, _ = (data.folder("images") / "kubernetes" / versions.FILE).read_text(encoding="utf-8").partition("\npins:")
    found: dict[str, Any] = yaml.safe_load(text)
    return {**found, "pins": {}}


def refused(tmp_path: Path, **change: object) -> str:
    path = tmp_path / "versions.yaml"
    path.write_text(yaml.safe_dump({**content(), **change}), encoding="utf-8")
    with pytest.raises(UsageError, match="can't be used") as error:
        versions.load(path)
    return error.value.why


def test_a_file_is_read_from_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "versions.yaml"
    path.write_text(yaml.safe_dump(content()), encoding="utf-8")
    assert versions.load(path).combinations == versions.load().combinations


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"default": "1.30"}, "is not one of the combinations"),
        ({"combinations": []}, "combinations"),
        ({"other": 1}, "other"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    assert message in refused(tmp_path, **change)


def test_two_combinations_of_one_minor_are_refused(tmp_path: Path) -> None:
    assert "has two combinations" in refused(tmp_path, combinations=content()["combinations"] * 2)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be used"):
        versions.load(tmp_path / "no.yaml")
