"""kube-proxy on Windows."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from winlab.design.catalog import versions
from winlab.design.render import kube_proxy

NODE = {"node": "node-1", "address": "10.77.0.101", "pod_cidr": "10.244.0.0/16"}


def config(minor: str, network: str, source_vip: str | None = None) -> dict[str, Any]:
    chosen = versions.get(minor if minor in versions.names() else f"v{minor}.6", allow_untested=True)
    found: dict[str, Any] = yaml.safe_load(kube_proxy.config(chosen, **NODE, network=network, source_vip=source_vip))
    return found


@pytest.mark.parametrize(("minor", "gates"), [("1.36", False), ("1.35", False), ("1.34", False), ("1.33", True)])
def test_gates_only_where_they_are_needed(minor: str, gates: bool) -> None:
    found = config(minor, "winlab")
    assert found.get("featureGates") == ({"WinDSR": True, "WinOverlay": True} if gates else None)


def test_an_overlay_has_a_source_address() -> None:
    assert config("1.36", "Calico", "10.244.3.2")["winkernel"] == {
        "networkName": "Calico",
        "enableDSR": True,
        "sourceVip": "10.244.3.2",
    }
    assert config("1.36", "winlab")["winkernel"] == {"networkName": "winlab", "enableDSR": True}


def test_the_service_and_its_files() -> None:
    found = config("1.36", "winlab")
    assert found["mode"] == "kernelspace"
    assert found["hostnameOverride"] == "node-1"
    assert found["clientConnection"] == {"kubeconfig": kube_proxy.KUBECONFIG}
    words = kube_proxy.command(versions.get()).split(" ")
    assert words[words.index(r"C:\k\kube-proxy.exe") + 1 :] == [
        "--windows-service",
        "--v=2",
        f"--config={kube_proxy.CONFIG}",
    ]
