"""containerd.ps1 and load.ps1: containerd as a service, with the CD's programs and images."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from powershell.cases import CONFIG, image
from powershell.doubles.looks import Ran, act, refuse
from powershell.doubles.machine import Machine
from powershell.stages import (
    CONTAINERD,
    SERVICES,
    change,
    contained,
    featured,
    payload,
    pending,
    proxied,
    read,
    service,
    write,
)

FOLDER = r"C:\Program Files\containerd"
ACL = f"acl {FOLDER} O:BAD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;0x1200a9;;;AU)"
RECOVERY = [
    "run sc.exe failure containerd reset= 86400 actions= restart/5000/restart/5000/restart/5000",
    "run sc.exe failureflag containerd 1",
]
IMAGES_FROM = r"C:\winlab\images.sha256"
PAUSE = "registry.k8s.io/pause:3.10"
DIGEST = "sha256:" + "a" * 64
ROW = f"{PAUSE} type {DIGEST} 1.0 MiB windows/amd64 -\n"


KEYS = "HKLM\\SOFTWARE\\winlab-importing-"


def install(node: Machine, settings: object, **result: Any) -> Ran:
    """Run containerd.ps1: it always reports which images containerd has now."""
    ran = act(node, "containerd", settings, **result)
    now = hashlib.sha256((node.d / "payload.json").read_bytes()).hexdigest()
    assert ran.changes.pop(IMAGES_FROM, now) == now
    told = node.run("status").result
    assert told is not None
    assert told["images_from"] == told["cd"] == now
    return Ran(ran.told, {name: value for name, value in ran.changes.items() if not name.startswith(KEYS)}, ran.every)


def test_it_installs_registers_and_starts(node: Machine) -> None:
    featured(node)
    ran = install(node, CONFIG, changed=True)
    pipe = "npipe:////./pipe/containerd-containerd"
    assert ran.changes == {
        **{rf"{FOLDER}\{name}": rf"= D:\programs\{name}" for name in ("containerd.exe", "ctr.exe", "runhcs.exe")},
        rf"{FOLDER}\config.toml": CONFIG["config"],
        r"C:\Users\Administrator\.crictl\crictl.yaml": f"runtime-endpoint: {pipe}\nimage-endpoint: {pipe}\n",
        r"C:\etc\cni\net.d": "an empty folder",
        r"C:\opt\cni\bin": "an empty folder",
        r"C:\var\log\containerd": "an empty folder",
        rf"{SERVICES}\containerd\ImagePath": CONTAINERD,
        "service containerd": "Running Automatic",
    }
    register = r"run containerd.exe --register-service --log-file C:\var\log\containerd\containerd.log"
    assert ran.notes == [ACL, register, *RECOVERY, "service containerd Running", "run ctr.exe version"]


def test_an_installed_containerd_stays_as_it_is(node: Machine) -> None:
    featured(node)
    install(node, CONFIG, changed=True)
    ran = install(node, CONFIG, changed=False)
    assert ran.changes == {}
    assert ran.notes == [ACL, *RECOVERY, "run ctr.exe version"]


@pytest.mark.parametrize("other", ["program", "config", "command"])
def test_a_change_stops_dependent_services_and_starts_them_again(node: Machine, other: str) -> None:
    proxied(node)
    settings = CONFIG
    if other == "program":
        payload(node, "runhcs.exe", "# another")
    elif other == "config":
        settings = {"config": "version = 3\n"}
    else:
        node.registry(rf"{SERVICES}\containerd", "ImagePath", CONTAINERD.lower())
    ran = install(node, settings, changed=True)
    assert [line for line in ran.notes if line.startswith("service")] == [
        "service kube-proxy Stopped",
        "service kubelet Stopped",
        "service containerd Stopped",
        *([f"service containerd changed: {CONTAINERD} Automatic "] if other == "command" else []),
        "service containerd Running",
        "service kubelet Running",
        "service kube-proxy Running",
    ]
    wanted = {
        "program": {rf"{FOLDER}\runhcs.exe": r"= D:\programs\runhcs.exe"},
        "config": {rf"{FOLDER}\config.toml": "version = 3\n"},
        "command": {rf"{SERVICES}\containerd\ImagePath": CONTAINERD},
    }
    assert ran.changes == wanted[other]


VARIABLES = ["HTTP_PROXY=http://me:s3cret@proxy:3128", "NO_PROXY=localhost,10.77.0.0/24"]
ENVIRONMENT = rf"{SERVICES}\containerd\Environment"
MARK = r"C:\winlab\containerd-environment.txt"


def variables_digest(node: Machine) -> str:
    told = node.run("status").result
    assert told is not None
    assert "s3cret" not in str(told)
    return str(told["containerd"]["environment_sha256"])


def test_variables_are_set_once_and_read_by_administrators_alone(node: Machine) -> None:
    proxied(node)
    ran = install(node, {**CONFIG, "environment": VARIABLES}, changed=True)
    assert ran.changes == {ENVIRONMENT: f"{VARIABLES}", MARK: "set by winlab"}
    assert r"acl HKLM:\SYSTEM\CurrentControlSet\Services\containerd D:PAI(A;CI;KA;;;SY)(A;CI;KA;;;BA)" in ran.notes
    assert [line for line in ran.notes if line.startswith("service containerd")] == [
        "service containerd Stopped",
        "service containerd Running",
    ]
    assert "s3cret" not in "\n".join([*ran.every, *ran.told.out])
    assert variables_digest(node) == hashlib.sha256("\n".join(VARIABLES).encode()).hexdigest()
    again = install(node, {**CONFIG, "environment": VARIABLES}, changed=False)
    assert again.changes == {}
    assert not [line for line in again.notes if line.startswith(("service", "acl HKLM"))]


@pytest.mark.parametrize("wanted", [[], ["HTTP_PROXY=http://other:3128"]])
def test_variables_change_and_go(node: Machine, wanted: list[str]) -> None:
    contained(node)
    install(node, {**CONFIG, "environment": VARIABLES}, changed=True)
    ran = install(node, {**CONFIG, "environment": wanted}, changed=True)
    assert ran.changes == ({ENVIRONMENT: f"{wanted}"} if wanted else {ENVIRONMENT: None, MARK: None})
    assert "service containerd Running" in ran.notes
    assert (variables_digest(node) == "") is not bool(wanted)


def test_variables_of_the_user_stay(node: Machine) -> None:
    contained(node)
    node.registry(rf"{SERVICES}\containerd", "Environment", ["MINE=1"])
    assert install(node, CONFIG, changed=False).changes == {}
    assert variables_digest(node) == ""


def test_services_that_did_not_run_are_not_started(node: Machine) -> None:
    proxied(node)
    service(node, "kube-proxy", status="Stopped")
    ran = install(node, {"config": "version = 3\n"}, changed=True)
    assert ran.notes.count("service kubelet Running") == 1
    assert "service kube-proxy Running" not in ran.notes


def test_a_containerd_that_has_stopped_is_started(node: Machine) -> None:
    contained(node)
    service(node, "containerd", status="Stopped")
    ran = install(node, CONFIG, changed=True)
    assert ran.changes == {"service containerd": "Running Automatic"}


def test_a_service_that_windows_does_not_change(node: Machine) -> None:
    contained(node)
    node.registry(rf"{SERVICES}\containerd", "ImagePath", "other")
    change(node, cim={"Change": 15})
    refuse(node, "containerd", CONFIG, "Windows refuses to change the service 'containerd' (code 15).")


def test_programs_of_the_cd_that_are_not_containerd_s_stay_there(node: Machine) -> None:
    featured(node)
    for name in ("crictl.exe", "containerd-shim-runhcs-v1.exe", "ctr-other.exe", "xctr.exe"):
        payload(node, name, "#")
    ran = install(node, CONFIG)
    there = {name.rpartition("\\")[2] for name in ran.changes if name.startswith(FOLDER)}
    mine = {"containerd.exe", "ctr.exe", "runhcs.exe", "crictl.exe", "containerd-shim-runhcs-v1.exe"}
    assert there == mine | {"config.toml"}


def test_the_cd_s_images_are_imported_once_and_pinned(node: Machine) -> None:
    contained(node)
    image(node.d / "images/pause.tar", PAUSE)
    write(node, r"D:\images\readme.txt")
    ran = install(node, CONFIG, changed=True)
    assert ran.changes == {"images": ROW}
    add = "run ctr.exe -n k8s.io images import --local --label io.cri-containerd.pinned=pinned"
    lists = "run ctr.exe -n k8s.io images ls"
    assert [line.split(" /")[0] for line in ran.notes if line.startswith("run ctr.exe -n")] == [lists, add, lists]
    assert "winlab: importing pause.tar" in ran.told.out
    again = act(node, "load", changed=False)
    assert again.changes == {}
    assert not any("import" in line for line in again.notes)


def test_an_image_with_another_digest_is_imported_again(node: Machine) -> None:
    contained(node)
    image(node.d / "images/pause.tar", PAUSE)
    (node.folder / "images.txt").write_text(ROW.replace("a" * 64, "b" * 64))
    act(node, "load", changed=True)


IMPORTING = r"C:\winlab\importing.txt"


def test_images_half_unpacked_at_a_power_cut_are_imported_again(node: Machine) -> None:
    """containerd has their names, also those by its CRI plug-in; a lease would keep what is unpacked."""
    contained(node)
    image(node.d / "images/pause.tar", PAUSE)
    other = ROW.replace(PAUSE, "example.org/own:1").replace("a" * 64, "f" * 64)
    (node.folder / "images.txt").write_text(ROW + ROW.replace(PAUSE, "sha256:0123") + other)
    write(node, IMPORTING, f"an earlier start\n{DIGEST}")
    told = node.run("status").result
    assert told is not None
    assert told["images_from"] == ""
    ran = act(node, "load", changed=True)
    assert (node.folder / "images.txt").read_text() == other + ROW
    assert {name for name in ran.changes if not name.startswith(KEYS)} == {IMPORTING, "images"}
    words = [line.removeprefix("run ctr.exe -n k8s.io ").split() for line in ran.notes if "tar.exe" not in line]
    assert [row[:2] for row in words] == [
        *(["leases", "ls"], ["leases", "rm"], ["images", "ls"], ["images", "rm"]),
        *(["images", "ls"], ["images", "import"], ["images", "ls"]),
    ]
    assert words[1][2:] == ["1763-one"]
    assert set(words[3][2:]) == {"--sync", PAUSE, "sha256:0123"}


def test_images_of_this_start_of_windows_stay_and_may_still_not_be_on_the_disk(node: Machine) -> None:
    contained(node)
    image(node.d / "images/pause.tar", PAUSE)
    image(node.d / "images/own.tar", "example.org/own:1")
    (node.folder / "images.txt").write_text(ROW)
    node.registry(r"HKLM\SOFTWARE\winlab-importing-one", "(volatile)", 1)
    write(node, IMPORTING, f"one\n{DIGEST}")
    # it fails at the import, the second of ctr.exe's runs
    refuse(node, "load", None, "containerd does not take 'own.tar'", fail=("ctr.exe", 2))
    start, *digests = read(node, IMPORTING).splitlines()
    assert start != "one"
    assert digests == [DIGEST, DIGEST]
    ran = act(node, "load", changed=True)
    assert not any("images rm" in line for line in ran.notes)
    assert not node.path(IMPORTING).exists()


def test_a_cd_without_images_clears_up_after_one_with_images(node: Machine) -> None:
    contained(node)
    (node.folder / "images.txt").write_text(ROW)
    write(node, IMPORTING, f"an earlier start\n{DIGEST}")
    act(node, "load", changed=False)
    assert (node.folder / "images.txt").read_text() == ""
    assert not node.path(IMPORTING).exists()


def test_an_import_is_noted_before_it_begins_until_it_is_on_the_disk(node: Machine) -> None:
    contained(node)
    image(node.d / "images/pause.tar", PAUSE)
    ran = act(node, "load", changed=True)
    asked = [line for line in ran.every if "tar.exe" not in line]
    kinds = [line.split(" --local")[0].removeprefix("run ctr.exe -n k8s.io ") for line in asked]
    assert kinds == ["images ls", "flush C", "images import", "images ls", "flush C", "flush C"]


def test_an_older_archive_of_docker_has_no_index_and_is_always_imported(node: Machine) -> None:
    contained(node)
    image(node.d / "images/pause.tar", PAUSE, "manifest.json")
    node.program(node.path(rf"{FOLDER}\ctr.exe"), "")
    for _ in range(2):
        ran = act(node, "load", changed=True)
        assert sum("images import" in line for line in ran.notes) == 1


def test_an_archive_that_containerd_refuses(node: Machine) -> None:
    contained(node)
    image(node.d / "images/pause.tar", PAUSE)
    # the list of images is asked for first
    text = "containerd does not take 'pause.tar' from winlab's CD: ctr.exe -n ended with exit code 77: it failed on"
    refuse(node, "load", None, text, fail=("ctr.exe", 2))


def test_an_image_for_another_windows_is_accepted_and_missing(node: Machine) -> None:
    contained(node)
    image(node.d / "images/pause.tar", PAUSE)
    body = 'case "$*" in *"images import"*) exit 0 ;; esac\necho "REF TYPE DIGEST"\necho "one two"\n'
    node.program(node.path(rf"{FOLDER}\ctr.exe"), body)
    refuse(node, "load", None, "containerd took 'pause.tar' but has no image 'registry.k8s.io/pause:3.10'")


def test_images_are_loaded_by_a_containerd_that_runs(node: Machine) -> None:
    featured(node)
    refuse(node, "load", None, "containerd does not run: containerd.ps1 comes first.")
    contained(node)
    assert act(node, "load", changed=False).notes == []


def test_networks_that_windows_tools_left_are_removed(node: Machine) -> None:
    contained(node)
    folder = r"C:\etc\cni\net.d"
    nat = {
        "one.conf": '{"name": "nat", "type": "win-bridge"}',
        "two.conf": '{"name": "x", "type": "nat"}',
        "three.conflist": '{"name": "x", "plugins": [{"type": "win-bridge"}, {"type": "nat"}]}',
    }
    kept = {"four.conf": '{"name": "cbr0", "type": "win-bridge"}', "five.conf": "no JSON"}
    for name, text in (nat | kept).items():
        write(node, rf"{folder}\{name}", text)
    ran = install(node, CONFIG, changed=True)
    assert ran.changes == {rf"{folder}\{name}": None for name in nat}
    assert "winlab: five.conf is no JSON, and stays" in ran.told.out


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"config": " "}, "settings.config is empty"),
        ({"config": "é = 1"}, "settings.config has characters outside ASCII."),
    ],
)
def test_settings_that_it_refuses(node: Machine, settings: dict[str, Any], text: str) -> None:
    featured(node)
    assert refuse(node, "containerd", settings, text).changes == {}


def test_prerequisites_of_containerd(node: Machine) -> None:
    refuse(node, "containerd", CONFIG, "The feature Containers is not installed: features.ps1 comes first.")
    change(node, features=node.state()["features"] | {"Containers": "InstallPending"})
    refuse(node, "containerd", CONFIG, "Windows must be restarted first.")
    featured(node)
    pending(node)
    assert refuse(node, "containerd", CONFIG, "Windows must be restarted first.").changes == {}


@pytest.mark.parametrize("name", ["containerd.exe", "ctr.exe"])
def test_a_cd_without_it(node: Machine, name: str) -> None:
    featured(node)
    listed = node.payload()
    del listed["programs"][name]
    node.payload(listed)
    assert refuse(node, "containerd", CONFIG, f"winlab's CD has no {name}.").changes == {}


def test_a_containerd_that_answers_late(node: Machine) -> None:
    featured(node)
    late = 'test "$*" != version || { echo x >>"$WINLAB_MACHINE/asked"; test $(wc -l <"$WINLAB_MACHINE/asked") -ge 4; }'
    payload(node, "ctr.exe", late)
    ran = install(node, CONFIG, changed=True)
    assert ran.notes.count("run ctr.exe version") == 4
    assert ran.told.out.count("winlab: containerd does not answer yet") == 3


def test_a_failed_containerd_is_reported_with_its_log(node: Machine) -> None:
    featured(node)
    payload(node, "ctr.exe", "exit 1")
    write(node, r"C:\var\log\containerd\containerd.log", "".join(f"line {number}\n" for number in range(9)))
    ran = refuse(node, "containerd", CONFIG, "containerd does not answer after 90 tries (the service is running).")
    assert ran.messages.endswith("Its log ends with: line 4\nline 5\nline 6\nline 7\nline 8")
    assert read(node, rf"{FOLDER}\config.toml") == CONFIG["config"]
