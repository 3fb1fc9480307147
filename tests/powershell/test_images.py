"""updates.ps1 and seal.ps1: how a Windows becomes a golden image."""

from __future__ import annotations

import json
from typing import Any

import pytest
from powershell.doubles.looks import Ran, act, refuse
from powershell.doubles.machine import Machine
from powershell.stages import change, contained, joined, pending, proxied, service, write

# -- updates

REGISTERED = (
    "task winlab-updates registered: powershell.exe -NoProfile -NonInteractive -ExecutionPolicy Bypass "
    r"-File C:\winlab\updates.ps1"
)
SEARCH = "updates search IsInstalled=0 and IsHidden=0 and BrowseOnly=0 and Type='Software'"
# Categories by their IDs (Microsoft, WSUS classification GUIDs)
SECURITY = "0fa1201d-4330-4fa8-8ae9-b877473b6441"
UNWANTED = {"upgrade": "3689bdc8-b205-4af4-8d4a-a63924c5e9d5", "driver": "EBFC1FC5-71A4-4F7B-9ACA-3B9A503104A0"}


def update(title: str, **more: object) -> dict[str, object]:
    return {"title": title, "agreed": True, "asks": False, "code": 2, "restart": False, **more}


def test_updates_are_installed_one_by_one(node: Machine) -> None:
    write(node, r"C:\winlab\updates.log", "old\n")
    write(node, r"C:\winlab\updates.json", '{"error":"old"}')
    rows = [
        update("one"),
        update("asks", asks=True),
        update("licence", agreed=False),
        update("fails", code=4),
        update("partly", code=3, restart=True),
    ]
    change(node, updates=rows)
    ran = act(node, "updates", installed=["one", "licence"], failed=["fails", "partly"], restart=True)
    assert ran.changes == {
        r"C:\winlab\updates.log": None,
        r"C:\winlab\updates.json": None,
    }
    assert ran.notes == [
        REGISTERED,
        "task winlab-updates started",
        "service wuauserv Manual",
        SEARCH,
        "updates agree licence",
        "updates download 4",
        *(f"updates install {title}" for title in ("one", "licence", "fails", "partly")),
        "task winlab-updates removed",
    ]


def test_upgrades_and_drivers_are_left_out_and_what_winlab_names(node: Machine) -> None:
    """An upgrade would make another Windows of it; an update that failed twice would do so forever."""
    rows = [update(name, categories=[SECURITY, category]) for name, category in UNWANTED.items()]
    change(node, updates=[*rows, update("Mise à jour"), update("one", categories=[SECURITY]), update("two")])
    settings = {"without": ["Mise à jour", "two", "three"]}
    ran = act(node, "updates", settings, installed=["one"], failed=[], restart=False)
    assert not list((node.c / "winlab").glob("updates*"))
    assert "updates download 1" in ran.notes


def test_titles_are_in_windows_language(node: Machine) -> None:
    """winlab knows by them what has failed before."""
    change(node, updates=[update("Mise à jour", code=4)])
    act(node, "updates", installed=[], failed=["Mise à jour"], restart=False)


def test_updates_without_a_restart(node: Machine) -> None:
    change(node, updates=[update("one")])
    act(node, "updates", installed=["one"], failed=[], restart=False)


def test_no_updates(node: Machine) -> None:
    ran = act(node, "updates", installed=[], failed=[], restart=False)
    assert not any("download" in line for line in ran.notes)


def test_a_windows_update_that_fails(node: Machine) -> None:
    change(node, updates="Exception from HRESULT: 0x8024402C")
    ran = refuse(node, "updates", None, "Windows Update: ")
    assert "0x8024402C" in ran.messages
    assert ran.changes == {}
    assert ran.notes[-1] == "task winlab-updates removed"


def test_a_missing_agent_is_reported_and_not_its_missing_log(node: Machine) -> None:
    state = node.state()
    del state["services"]["wuauserv"]
    node.state(state)
    refuse(node, "updates", None, "Windows Update: Service wuauserv was not found on computer '.'.")
    assert not list((node.c / "winlab").glob("updates*"))


def test_the_task_is_system_s_with_all_rights(node: Machine) -> None:
    change(node, dead_tasks=["winlab-updates"])
    refuse(node, "updates", None, "The task for updates ended without a result (Ready).")
    task = node.state()["tasks"]["winlab-updates"]
    assert task["who"] == "SYSTEM Highest"
    assert task["settings"] == "ExecutionTimeLimit=3.00:00:00"
    change(node, dead_tasks=[])
    act(node, "updates", restart=False)


def at(node: Machine, name: str, text: str) -> str:
    """PowerShell that writes a file of C:\\winlab, as the task would."""
    path = node.c / "winlab" / name
    literal = text.replace("'", "''").replace("\n", "`n")
    return f"$to = [System.IO.FileInfo]::new('{path}').CreateText(); $to.Write(\"{literal}\"); $to.Dispose()"


def outcome(**parts: object) -> str:
    row: dict[str, object] = {"installed": [], "failed": [], "restart": False, "error": ""}
    return json.dumps(row | parts).replace('"', '`"')


def test_the_output_of_the_task_is_passed_on_once(node: Machine) -> None:
    lines = "looking\n", "looking\ndownloading\n", "looking\ndownloading\ninstalling one\n"
    states: list[Any] = [{"state": "Running", "does": at(node, "updates.log", text)} for text in lines]
    states += ["Running", {"state": "Ready", "does": at(node, "updates.json", outcome(installed=["one"]))}]
    change(node, dead_tasks=["winlab-updates"], task_states=states)
    ran = act(node, "updates", installed=["one"])
    assert ran.told.out[:-1] == ["winlab: looking", "winlab: downloading", "winlab: installing one"]


@pytest.mark.parametrize(("queued", "enough"), [(12, True), (13, False)])
def test_a_task_may_be_queued_for_a_minute(node: Machine, queued: int, enough: bool) -> None:
    states: list[Any] = ["Queued"] * queued + [{"state": "Running", "does": at(node, "updates.json", outcome())}]
    change(node, dead_tasks=["winlab-updates"], task_states=states)
    if enough:
        act(node, "updates", restart=False)
    else:
        refuse(node, "updates", None, "The task for updates ended without a result (Queued).")


def test_a_result_that_arrives_when_the_task_ends(node: Machine) -> None:
    """The task has ended, and its result is there a moment later: nothing is lost."""
    states = [{"state": "Ready", "does": at(node, "updates.json", outcome(failed=["x"]))}]
    change(node, dead_tasks=["winlab-updates"], task_states=states)
    act(node, "updates", failed=["x"])


# -- seal

SEAL = {"generalize": "<unattend/>", "superseded": False, "begin": True}
SYSPREP = r"C:\Windows\System32\Sysprep"
BEGUN = rf"process {SYSPREP}\sysprep.exe /generalize /oobe /shutdown /quiet /mode:vm /unattend:C:\winlab\generalize.xml"
LEFTOVERS = [
    r"C:\ProgramData\ssh\ssh_host_ed25519_key",
    r"C:\ProgramData\ssh\ssh_host_ed25519_key.pub",
    r"C:\ProgramData\ssh\administrators_authorized_keys",
    r"C:\Users\Administrator\.ssh\authorized_keys",
    r"C:\winlab\ready.txt",
    r"C:\winlab\bootstrap.log",
    r"C:\Windows\Panther\setupact.log",
    r"C:\Windows\Panther\setuperr.log",
    r"C:\Windows\Panther\UnattendGC\setuperr.log",
    rf"{SYSPREP}\unattend.xml",
    rf"{SYSPREP}\Sysprep_succeeded.tag",
    r"C:\Windows\Panther\unattend.xml",
    r"C:\Windows\Panther\unattend-original.xml",
    r"C:\Windows\Temp\a\b.txt",
    r"C:\Windows\SoftwareDistribution\Download\x.cab",
    rf"{SYSPREP}\Panther\setuperr.log",
]
KEPT = [r"C:\ProgramData\ssh\sshd_config", r"C:\winlab\features.txt", r"C:\Windows\Panther\setup.exe"]
FACTS = {"restart": False, "build": "20348.2762", "evaluation_minutes": 259200, "rearms": 5}


def sealable(node: Machine) -> None:
    contained(node)
    for path in LEFTOVERS + KEPT:
        write(node, path, "x")
    state = node.state()
    task = {"execute": "x", "arguments": "", "trigger": "", "who": "", "settings": ""}
    state["tasks"] = {"winlab-beacon": task, "other": task}
    state["services"]["sshd"]["start"] = "Automatic"
    node.state(state)


def test_sealing_cleans_up_and_starts_sysprep(node: Machine) -> None:
    sealable(node)
    ran = act(node, "seal", SEAL, **FACTS)
    gone: dict[str, str | None] = dict.fromkeys(LEFTOVERS)
    emptied = (
        r"C:\Users\Administrator\.ssh",
        r"C:\Windows\Panther\UnattendGC",
        r"C:\Windows\Temp",
        r"C:\Windows\SoftwareDistribution\Download",
        rf"{SYSPREP}\Panther",
    )
    empty = dict.fromkeys(emptied, "an empty folder")
    assert ran.changes == gone | empty | {
        r"C:\winlab\generalize.xml": "<unattend/>",
        "task winlab-beacon": None,
        r"HKLM\SYSTEM\Setup\UnattendFile": None,
        r"HKLM\SYSTEM\Setup": "a key",
        "service sshd": "Running Manual",
        "service WinRM": "Running Manual",
        "service containerd": "Stopped Automatic",
    }
    assert ran.notes == [
        "service containerd Stopped",
        "task winlab-beacon removed",
        "service sshd Manual",
        "service WinRM Manual",
        "trim C",
        BEGUN,
    ]


def test_sealing_again_after_an_interruption(node: Machine) -> None:
    sealable(node)
    act(node, "seal", SEAL)
    again = act(node, "seal", SEAL, **FACTS)
    assert again.changes == {}
    assert again.notes == ["service sshd Manual", "service WinRM Manual", "trim C", BEGUN]


def test_the_services_are_stopped_in_their_order(node: Machine) -> None:
    proxied(node)
    node.path(r"C:\etc\kubernetes\kubelet.conf").unlink()
    ran = act(node, "seal", SEAL)
    assert ran.notes[:3] == [f"service {name} Stopped" for name in ("kube-proxy", "kubelet", "containerd")]


@pytest.mark.parametrize("superseded", [True, False])
def test_files_replaced_by_updates_are_removed_if_requested(node: Machine, superseded: bool) -> None:
    sealable(node)
    ran = act(node, "seal", {**SEAL, "superseded": superseded})
    clean = "run dism.exe /Online /Cleanup-Image /StartComponentCleanup /ResetBase"
    assert (clean in ran.notes) == superseded
    said = [line for line in ran.told.out if line.startswith("winlab: removing what updates have replaced: ")]
    assert [line.rpartition(" ")[2] for line in said] == (["20.0%", "100.0%"] if superseded else [])


def test_a_dism_that_fails_starts_no_sysprep(node: Machine) -> None:
    sealable(node)
    ran = refuse(
        node, "seal", {**SEAL, "superseded": True}, "dism.exe /Online ended with exit code 77", ("dism.exe", 1)
    )
    assert BEGUN not in ran.notes


def test_without_begin_it_only_reports(node: Machine) -> None:
    sealable(node)
    ran = act(node, "seal", {**SEAL, "begin": False}, **FACTS)
    assert (ran.changes, ran.notes) == ({}, [])


@pytest.mark.parametrize("minutes", [0, 1])
def test_an_unlimited_licence(node: Machine, minutes: int) -> None:
    change(node, evaluation=minutes)
    act(node, "seal", {**SEAL, "begin": False}, evaluation_minutes=minutes or None, rearms=5)


@pytest.mark.parametrize("mark", ["winlab's", "servicing's"])
def test_a_pending_restart_comes_first(node: Machine, mark: str) -> None:
    sealable(node)
    if mark == "winlab's":
        pending(node)
    else:
        servicing = r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\Component Based Servicing\RebootPending"
        node.registry(servicing, "(default)", "")
    ran = act(node, "seal", SEAL)
    assert ran.told.result == {"restart": True}
    assert (ran.changes, ran.notes) == ({}, [])


def test_without_an_sshd_there_is_nothing_to_set(node: Machine) -> None:
    """Of 2019 and 2022 it comes from Windows Update, which may be out of reach."""
    sealable(node)
    state = node.state()
    del state["services"]["sshd"]
    node.state(state)
    ran = act(node, "seal", SEAL, **FACTS)
    assert ran.notes[-3:] == ["service WinRM Manual", "trim C", BEGUN]


# -- apps of one user

EDGE, GAME = "Microsoft.MicrosoftEdge.Stable", "Microsoft.Edge.GameAssist"
RUNTIME = "MicrosoftCorporationII.WinAppRuntime.Main.1.7"


def desktop(node: Machine, apps: object = (), **more: object) -> None:
    sealable(node)
    node.registry(r"HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion", "InstallationType", "Server")
    change(node, apps=list(apps) if isinstance(apps, tuple) else apps, **more)


def app(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "users": ["Installed"], **more}


def removed(ran: Ran) -> list[str]:
    """The apps whose removal was tried."""
    return [line.split()[1].removesuffix("_1.0") for line in ran.notes if line.startswith("app ")]


def test_apps_that_not_every_user_has_are_removed(node: Machine) -> None:
    """Each is tried: Edge can't be removed on some releases, and sysprep decides. A remote session removes none."""
    apps = (
        app("Theirs"),
        app("Everybodys"),
        app("Framework", framework=True),
        app("Staged", users=["Staged"]),
        app("Nobodys", users=[]),
        app(EDGE, users=["Staged", "Installed"], stays="Removal failed. 0x80073CFA"),
        app("Last"),
    )
    desktop(node, apps, provisioned=["Everybodys", "Other"])
    ran = act(node, "seal", SEAL, **FACTS)
    assert removed(ran) == ["Theirs", EDGE, "Last"]
    assert "winlab: it stays: Removal failed. 0x80073CFA" in ran.told.out
    assert sum(line.startswith("winlab: it stays") for line in ran.told.out) == 1
    assert {row["name"] for row in node.state()["apps"]} == {"Everybodys", "Framework", "Staged", "Nobodys", EDGE}
    assert BEGUN in ran.notes
    assert not list((node.c / "winlab").glob("apps*"))
    assert sorted(node.state()["tasks"]) == ["other"]


def test_parts_of_the_desktop_stay(node: Machine) -> None:
    """Windows signs its own shell as it signs some of the apps that stop sysprep."""
    kept = ("Microsoft.Windows.ShellExperienceHost", "Microsoft.MicrosoftEdge", "Microsoft.MicrosoftEdgeDevToolsClient")
    desktop(node, tuple(app(name, signature="System") for name in (*kept, EDGE, GAME, RUNTIME)))
    assert removed(act(node, "seal", SEAL)) == [EDGE, GAME, RUNTIME]


def test_edge_does_not_bring_itself_back(node: Machine) -> None:
    desktop(node)
    service(node, "edgeupdate")
    service(node, "edgeupdatem", status="Stopped")
    state = node.state()
    names = ("MicrosoftEdgeUpdateTaskMachineCore{1}", "MicrosoftEdgeUpdateTaskMachineUA")
    state["tasks"] |= dict.fromkeys(names, state["tasks"]["other"])
    node.state(state)
    ran = act(node, "seal", SEAL)
    assert ran.changes["service edgeupdate"] == "Stopped Disabled"
    assert ran.changes["service edgeupdatem"] == "Stopped Disabled"
    assert [line for line in ran.notes if line.endswith("disabled")] == [f"task {name} disabled" for name in names]


@pytest.mark.parametrize("apps", ["The service cannot be started. (0x80070422)", None])
def test_an_appx_that_does_not_answer_stops_nothing(node: Machine, apps: str | None) -> None:
    """A Desktop whose service is disabled; or one that has the cmdlets alone."""
    desktop(node, apps)
    ran = act(node, "seal", SEAL, **FACTS)
    (said,) = (line for line in ran.told.out if "apps of one user may be left" in line)
    assert (apps or "Class not registered") in said
    assert ran.notes[-1] == BEGUN


def test_a_task_for_apps_that_is_ended_leaves_nothing_in_the_image(node: Machine) -> None:
    desktop(node, dead_tasks=["winlab-apps"])
    ran = act(node, "seal", SEAL, **FACTS)
    assert "winlab: apps of one user may be left: The task for apps ended without a result (Ready)." in ran.told.out
    assert "task winlab-apps removed" in ran.notes
    assert not list((node.c / "winlab").glob("apps*"))


def test_server_core_is_not_asked_for_apps(node: Machine) -> None:
    """Its cmdlets may throw, and it has nothing to remove."""
    sealable(node)
    ran = act(node, "seal", SEAL, **FACTS)
    assert not any("apps" in line for line in (*ran.told.out, *ran.notes))


def test_a_sysprep_that_can_t_be_started(node: Machine) -> None:
    sealable(node)
    change(node, cim={"Create": 9})
    refuse(node, "seal", SEAL, "sysprep.exe could not be started (code 9).")


def test_a_file_that_can_t_be_removed_and_a_disk_that_can_t_be_trimmed(node: Machine) -> None:
    """What is only cleaned up stops nothing."""
    sealable(node)
    path = node.folder / "registry.json"
    path.write_text(path.read_text().replace('"UnattendFile"', '"Other"'))
    change(node, tasks={})
    act(node, "seal", SEAL, **FACTS)


@pytest.mark.parametrize("state", ["IMAGE_STATE_UNDEPLOYABLE", ""])
def test_a_windows_whose_setup_is_not_complete(node: Machine, state: str) -> None:
    sealable(node)
    node.registry(r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\Setup\State", "ImageState", state)
    ran = refuse(node, "seal", SEAL, f"Windows' Setup is not complete: its state is '{state}'.")
    assert (ran.changes, ran.notes) == ({}, [])


def test_a_node_of_a_cluster_is_not_sealed(node: Machine) -> None:
    joined(node)
    ran = refuse(node, "seal", SEAL, "This node has joined a cluster: what is made of it would carry its identity.")
    assert (ran.changes, ran.notes) == ({}, [])
    refuse(node, "seal", {**SEAL, "generalize": ""}, "settings.generalize is empty")
