"""features.ps1: how Windows is configured for containers, and when it needs a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from powershell.cases import FEATURES
from powershell.conftest import SCRIPTS
from powershell.doubles.looks import act, refuse
from powershell.doubles.machine import Machine
from powershell.doubles.session import Session
from powershell.stages import change, featured, pending, service

UPDATE = r"HKLM\SOFTWARE\Policies\Microsoft\Windows\WindowsUpdate\AU"
STATE = r"HKLM\SYSTEM\CurrentControlSet\Services\hns\State"
OVERRIDES = r"HKLM\SYSTEM\CurrentControlSet\Policies\Microsoft\FeatureManagement\Overrides"
RESTART = r"HKLM\SOFTWARE\winlab-restart\(volatile)"
PORTS = "run netsh.exe interface ipv4 set dynamicportrange tcp startport=34000 numberofports=31536"
DEFENDER = (
    r"defender C:\Program Files\containerd\containerd.exe,C:\Program Files\containerd\ctr.exe,"
    r"C:\opt\cni\bin\calico.exe,C:\opt\cni\bin\calico-ipam.exe,C:\ProgramData\containerd"
)
RULES = {
    "rules winlab-kubelet": "winlab: kubelet: Inbound Allow TCP 10250 Any",
    "rules winlab-nodeports": "winlab: NodePorts: Inbound Allow TCP 30000-32767 Any",
    "rules winlab-vxlan": "winlab: VXLAN between nodes: Inbound Allow UDP 4789 Any",
}
BGP = {"rules winlab-bgp": "winlab: BGP between nodes: Inbound Allow TCP 179 Any"}
SETTINGS = {rf"{UPDATE}\NoAutoUpdate": "1", rf"{UPDATE}\AUOptions": "2", rf"{STATE}\EnableCompartmentNamespace": "1"}
OF_RELEASE = {
    "2019": {
        rf"{STATE}\HNSControlFlag": "80",
        r"HKLM\SYSTEM\CurrentControlSet\Services\wcifs\WcifsSOPCountDisabled": "0",
    },
    "2022": {rf"{OVERRIDES}\1114842764": "0"},
    "2025": {rf"{OVERRIDES}\520997518": "1"},
}


def put(node: Machine, settings: dict[str, str]) -> None:
    for path, value in settings.items():
        key, _, name = path.rpartition("\\")
        node.registry(key, name, int(value))


def test_a_first_run_sets_everything_and_asks_for_a_restart(node: Machine) -> None:
    ran = act(node, "features", FEATURES, restart=True)
    pends = {f"features {name}": "InstallPending" for name in FEATURES["features"]}
    wanted = SETTINGS | OF_RELEASE["2022"] | RULES | BGP | pends
    assert ran.changes == wanted | {RESTART: "1", "service wuauserv": "Stopped Manual"}
    assert ran.notes == ["service wuauserv Stopped", f"features {','.join(FEATURES['features'])}", PORTS, DEFENDER]


def test_after_the_restart_routing_is_set_up_and_the_features_are_noted(node: Machine) -> None:
    act(node, "features", FEATURES, restart=True)
    node.restart()
    ran = act(node, "features", FEATURES, restart=False)
    assert ran.changes == {
        r"C:\winlab\features.txt": "Containers,RemoteAccess,Routing,RSAT-RemoteAccess-PowerShell",
        "service RemoteAccess": "Running Automatic",
    }
    started = ["remoteaccess RoutingOnly", "service RemoteAccess Automatic", "service RemoteAccess Running"]
    assert ran.notes == ["service wuauserv Stopped", PORTS, DEFENDER, *started]
    again = act(node, "features", FEATURES, restart=False)
    assert again.changes == {}
    assert "remoteaccess RoutingOnly" not in again.notes


@pytest.mark.parametrize("release", ["2019", "2022", "2025"])
def test_settings_of_a_release(engine: Path, session: Session, tmp_path: Path, release: str) -> None:
    with Machine(tmp_path, engine, SCRIPTS, release=release, session=session) as node:
        features = {"release": release, "features": ["Containers"]}
        ran = act(node, "features", features, restart=True)
        pends = {"features Containers": "InstallPending"}
        wanted = SETTINGS | OF_RELEASE[release] | RULES | pends
        assert ran.changes == wanted | {RESTART: "1", "service wuauserv": "Stopped Manual"}
        node.restart()
        ran = act(node, "features", features, restart=False)
        assert ran.changes == {r"C:\winlab\features.txt": "Containers"}
        assert not any("RemoteAccess" in line for line in ran.notes)
        for path in OF_RELEASE[release]:
            key, _, name = path.rpartition("\\")
            node.registry(key, name, 7)
            ran = act(node, "features", features, restart=True)
            assert ran.changes == {path: OF_RELEASE[release][path], RESTART: "1"}
            node.restart()


@pytest.mark.parametrize(("path", "restart"), [(path, path.startswith(STATE)) for path in SETTINGS])
def test_a_changed_setting_is_set_again(node: Machine, path: str, restart: bool) -> None:
    """Of those, HNS alone reads its own at a start of Windows."""
    featured(node)
    put(node, SETTINGS | OF_RELEASE["2022"])
    act(node, "features", FEATURES, restart=False)
    key, _, name = path.rpartition("\\")
    node.registry(key, name, 9)
    node.registry(key, "Other", 5)
    ran = act(node, "features", FEATURES, restart=restart)
    assert ran.changes == {path: SETTINGS[path]} | ({RESTART: "1"} if restart else {})


def test_a_feature_that_waits_for_a_restart_is_not_installed_again(node: Machine) -> None:
    featured(node)
    put(node, SETTINGS | OF_RELEASE["2022"])
    change(node, features=node.state()["features"] | {"Routing": "InstallPending"})
    ran = act(node, "features", FEATURES, restart=True)
    assert ran.changes[RESTART] == "1"
    assert not any(line.startswith("features ") for line in ran.notes)


def test_a_restart_requested_by_another_script_counts(node: Machine) -> None:
    featured(node)
    put(node, SETTINGS | OF_RELEASE["2022"])
    pending(node)
    service(node, "RemoteAccess", status="Stopped")
    ran = act(node, "features", FEATURES, restart=True)
    assert not any("RemoteAccess" in line for line in ran.notes)


def test_routing_that_is_set_up_is_only_started(node: Machine) -> None:
    featured(node)
    put(node, SETTINGS | OF_RELEASE["2022"])
    service(node, "RemoteAccess", status="Stopped")
    ran = act(node, "features", FEATURES, restart=False)
    assert [line for line in ran.notes if "emoteAccess" in line] == ["service RemoteAccess Running"]


def test_windows_without_defender(node: Machine) -> None:
    change(node, defender=False)
    assert DEFENDER not in act(node, "features", FEATURES, restart=True).notes


def test_a_defender_that_refuses_is_only_reported(node: Machine) -> None:
    ran = act(node, "features", FEATURES, fail=("Add-MpPreference", 1), restart=True)
    assert "winlab: Defender takes no exclusions: it failed on purpose" in ran.told.out


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({**FEATURES, "release": "2016"}, "settings.release is '2016'"),
        ({**FEATURES, "release": "2025"}, "This is Windows build 20348, not Windows Server 2025 (build 26100)"),
        ({**FEATURES, "release": "2019"}, "not Windows Server 2019 (build 17763)"),
        ({**FEATURES, "features": ["Routing"]}, "settings.features has no Containers"),
    ],
)
def test_refused_settings_change_nothing(node: Machine, settings: dict[str, Any], text: str) -> None:
    assert refuse(node, "features", settings, text).changes == {}


def test_a_feature_that_windows_does_not_know(node: Machine) -> None:
    settings = {**FEATURES, "features": ["Containers", "Nothing"]}
    ran = refuse(node, "features", settings, "This Windows knows no feature 'Nothing'.")
    assert not any(line.startswith("features ") for line in ran.notes)


def test_features_that_windows_does_not_install(node: Machine) -> None:
    change(node, features_refused=True)
    refuse(node, "features", FEATURES, "Windows did not install Containers, Routing")
