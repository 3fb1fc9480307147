"""A CNI profile in its own package, and the errors for packages without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from distributions import Distribution

from winlab import extensions
from winlab.design import cni, spec
from winlab.design.catalog import versions
from winlab.design.cni import compatible
from winlab.design.cni.model import AllObjects, Unreadable
from winlab.design.plan import required
from winlab.errors import HostError, UsageError

PROFILE = """
from pathlib import Path
from winlab.design.catalog.artifact import ContainerImage
from winlab.design.cni.l3 import L3
from winlab.design.cni.model import Recognized

class Cilium(L3):
    name = "cilium"
    proxy_mode = "iptables"
    daemon_sets = ("cilium",)
    pins = Path(__file__).with_name("pins.yaml")

    def images(self, versions):
        return [ContainerImage(f"quay.io/cilium/cilium:{versions['cilium']}", "linux")]

    def recognize(self, daemon_sets, answers):
        return Recognized(self.name, "Cilium") if "cilium" in daemon_sets else None

PROFILES = (Cilium(),)
"""
PINS = """
versions: {"1.36": {cilium: v1.19.0}}
windows: {cilium: {"1.36": ["2025"]}}
refused: [{first: "26100.1", last: "26100.9", because: "it drops packets"}]
pins:
  images: [{reference: "quay.io/cilium/cilium:v1.19.0", os: linux}]
"""


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    cni.profiles.cache_clear()
    yield
    cni.profiles.cache_clear()


def installed(make: Callable[..., Distribution], code: str = PROFILE, value: str = "winlab_cilium:PROFILES") -> None:
    files = {"winlab_cilium/__init__.py": code, "winlab_cilium/pins.yaml": PINS}
    make("winlab-cilium", "2.0", files, {"winlab.cni": {"cilium": value}})


def test_a_profile_of_another_package_is_like_ours(distribution: Callable[..., Distribution]) -> None:
    import plans

    installed(distribution)
    assert cni.names() == ["calico-vxlan", "calico-bgp", "flannel-vxlan", "host-gw", "l3", "cilium"]
    plan = plans.make(plans.KVM, "1-1-1", "workers.os=debian-13", "network.cni=cilium")
    assert plan.cluster.components == {"cilium": "v1.19.0"}
    assert "image quay.io/cilium/cilium:v1.19.0 (linux)" in {str(one) for one in required.every(plan)}
    assert any(pin.reference == "quay.io/cilium/cilium:v1.19.0" for pin in required.pins(plan).images)
    assert "cilium" in cni.daemon_sets()
    assert "cilium" in str(spec.Spec.model_json_schema()["$defs"]["Network"]["properties"]["cni"])
    compatible.check(versions.get("1.36"), "2025", "26100.10", "cilium")
    with pytest.raises(UsageError, match="don't work together") as error:
        compatible.check(versions.get("1.36"), "2022", None, "cilium")
    assert "kubernetes.version" not in error.value.cure.partition("network.cni")[2]
    with pytest.raises(UsageError) as error:
        compatible.check(versions.get("1.36"), "2025", "26100.5", "cilium")
    assert "drops packets" in error.value.why


@pytest.mark.parametrize(
    ("code", "value", "what", "why"),
    [
        ("import nothing_like_it", "winlab_cilium:PROFILES", "'winlab-cilium 2.0' can't be loaded", "nothing_like_it"),
        ("", "winlab_cilium:PROFILES", "can't be loaded", "PROFILES"),
        ("PROFILES = 3", "winlab_cilium:PROFILES", "'winlab-cilium 2.0' provides no CNI profiles", "tuple"),
        (
            "from winlab.design.cni.l3 import PROFILES",
            "winlab_cilium:PROFILES",
            "Two CNI profiles are called 'l3', one of them from the package 'winlab-cilium 2.0'",
            "",
        ),
    ],
)
def test_a_package_that_does_not_fit_is_named(
    distribution: Callable[..., Distribution], code: str, value: str, what: str, why: str
) -> None:
    installed(distribution, code, value)
    with pytest.raises(HostError) as error:
        cni.profiles()
    assert what in error.value.what
    assert why in error.value.why


def test_ours_are_found_without_installed_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions.importlib.metadata, "entry_points", lambda **_: [])
    assert cni.names() == ["calico-vxlan", "calico-bgp", "flannel-vxlan", "host-gw", "l3"]


def test_an_unanswered_question_is_part_of_the_observation() -> None:
    question = AllObjects("ippools.crd.projectcalico.org")
    calico = cni.get("calico-vxlan")
    assert question in calico.questions({"calico-node": "calico-system"})
    assert calico.questions({"cilium": "kube-system"}) == ()
    found = calico.recognize({"calico-node": "calico-system"}, {question: Unreadable("forbidden")})
    assert found is not None
    assert (found.profile, found.note) == (None, "Calico, whose IP pools can't be read (forbidden)")
