"""What add-ons give nodes: files on both systems, values of Windows' registry; and what they can't give."""

from __future__ import annotations

from functools import partial
from typing import Any

import plans
import pytest
from distributions import Distribution, install_motd
from pydantic import ValidationError

from winlab.addons.api import Addon, NodeFile, RegistryValue
from winlab.design import addon, node_files
from winlab.design.contract import on_linux, on_windows
from winlab.design.distribution import known
from winlab.design.plan.model import Plan
from winlab.design.render.linux import LinuxFiles
from winlab.design.render.windows import WindowsFiles
from winlab.errors import HostError, UsageError

pytestmark = pytest.mark.usefixtures("fresh_registry")
KEY = r"HKLM\SOFTWARE\motd"


@pytest.fixture
def motd(distribution: partial[Distribution]) -> Plan:
    install_motd(distribution)
    return plans.make(plans.KVM, "1-1-1", "addons.motd={text: hello, on_nodes: true}")


def linux(plan: Plan) -> LinuxFiles:
    return LinuxFiles(plan, plan.linux_nodes()[0])


def windows(plan: Plan) -> WindowsFiles:
    return WindowsFiles(plan, plan.windows_nodes()[0])


def test_linux_nodes_get_their_files_with_winlab_s_own(motd: Plan) -> None:
    prepare = linux(motd).prepare()
    assert prepare.files["/etc/motd.d/winlab"] == on_linux.NodeFile("hello, controller-1\n", "0640", "root:adm")
    assert "/etc/containerd/config.toml" in prepare.files


def test_windows_nodes_get_their_files(motd: Plan) -> None:
    assert windows(motd).configure() == on_windows.Configure(
        files={r"C:\ProgramData\motd\motd.txt": "hello\r\n"},
        registry=[
            on_windows.RegistrySetting(
                key=r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\Policies\System",
                name="LegalNoticeText",
                type="string",
                data="hello",
            )
        ],
    )


def test_a_lab_without_add_ons_gives_nothing_more() -> None:
    plan = plans.make(plans.KVM, "1-1-1")
    assert windows(plan).configure() == on_windows.Configure(files={}, registry=[])
    assert all(path.startswith("/etc/") for path in linux(plan).prepare().files)


def test_a_lab_with_an_uninstalled_add_on_says_so(motd: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(addon, "registry", dict)
        with pytest.raises(HostError, match="'motd', which the lab has, is not installed"):
            linux(motd).prepare()


# --- what can't be given


class Giving(Addon):
    summary = "gives"

    def __init__(self, name: str, files: Any = (), values: Any = ()) -> None:
        self.name, self._files, self._values = name, files, values

    def node_files(self, settings: Any, lab: Any, node: Any) -> Any:
        return self._files() if callable(self._files) else self._files if node.os == "linux" else ()

    def registry(self, settings: Any, lab: Any, node: Any) -> Any:
        return self._values() if callable(self._values) else self._values if node.os == "windows" else ()


def make(monkeypatch: pytest.MonkeyPatch, *addons: Addon) -> Plan:
    by_name = {one.name: one for one in addons}
    addon._model.cache_clear()
    with monkeypatch.context() as patched:  # the fixture needs the real registry
        patched.setattr(addon, "registry", lambda: by_name)
        return plans.make(plans.KVM, "1-1-1", *(f"addons.{name}={{}}" for name in by_name))


def refused(monkeypatch: pytest.MonkeyPatch, *addons: Addon) -> str:
    with pytest.raises(UsageError) as error:
        make(monkeypatch, *addons)
    assert error.value.cure
    return f"{error.value.what} {error.value.why}"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("etc/x", "not an absolute path of Linux"),
        ("/etc/../x", "not an absolute path of Linux"),
        ("/etc/x/", "not an absolute path of Linux"),
        ("/etc/a\nb", "not an absolute path of Linux"),
        ("/" + "x" * 300, "not an absolute path of Linux"),
        (r"C:\x", "not an absolute path of Linux"),
        ("/etc/containerd/config.toml", "winlab or Kubernetes writes there"),
        ("/etc/kubernetes/admin.conf", "winlab or Kubernetes writes there"),
        ("/var/lib/winlab/x", "winlab or Kubernetes writes there"),
        (known.DEFAULT.own_files[0], "winlab or Kubernetes writes there"),
    ],
)
def test_paths_that_are_refused(monkeypatch: pytest.MonkeyPatch, path: str, why: str) -> None:
    said = refused(monkeypatch, Giving("a", [NodeFile(path=path, text="x")]))
    assert "'controller-1' can't use what it gets from the add-on 'a'" in said
    assert why in said


@pytest.mark.parametrize(
    "path", ["C:x", r"D:\x", r"C:\a\..\b", r"C:\a.", r"C:\a|b", "C:\\a\\", "/etc/x", r"C:\WINLAB\x", r"c:\x", r"C:\K"]
)
def test_paths_that_windows_nodes_can_t_have(path: str) -> None:
    assert node_files.why_not(path, "", "windows")


def test_paths_that_nodes_can_have() -> None:
    assert not node_files.why_not("/etc/containerd/certs.d/x/hosts.toml", "x", "linux")
    assert not node_files.why_not("/etc/kubernetes-x", "x", "linux")
    assert not node_files.why_not(r"C:\ProgramData\a b\x.txt", "x", "windows")
    assert not node_files.why_not(r"C:\kit\x.txt", "x", "windows")


def test_two_add_ons_can_t_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    file, value = NodeFile(path="/etc/x", text="x"), RegistryValue(key=KEY, name="x", type="dword", value=1)
    other = RegistryValue(key=KEY.upper().replace("HKLM", "HKLM"), name="X", type="dword", value=2)
    assert "'/etc/x': the add-on 'a' gives it, too" in refused(monkeypatch, Giving("a", [file]), Giving("b", [file]))
    said = refused(monkeypatch, Giving("a", (), [value]), Giving("b", (), [other]))
    assert "the add-on 'a' gives it, too" in said


def test_there_are_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "65536 are allowed" in refused(monkeypatch, Giving("a", [NodeFile(path="/etc/x", text="x" * 65537)]))
    many = [NodeFile(path=f"/etc/x/{number}", text="") for number in range(65)]
    assert "64 files" in refused(monkeypatch, Giving("a", many))
    large = [NodeFile(path=f"/etc/x/{number}", text="x" * 65536) for number in range(5)]
    assert "262144 bytes" in refused(monkeypatch, Giving("a", large))
    values = [RegistryValue(key=KEY, name=f"x{number}", type="dword", value=1) for number in range(65)]
    assert "64 are allowed" in refused(monkeypatch, Giving("a", (), values))
    assert "not Unicode" in refused(monkeypatch, Giving("a", [NodeFile(path="/etc/x", text="\ud800")]))


@pytest.mark.parametrize(
    ("files", "why"),
    [
        (lambda: ["/etc/x"], "is not a winlab.addons.api.NodeFile"),
        (lambda: [NodeFile(path="/etc/x", mode="rw")], "mode"),
        (lambda: [NodeFile(path="/etc/x", owner="a b")], "owner"),
        (lambda: [NodeFile(path="/etc/x", text="a", template="b")], "not both"),
        (lambda: [NodeFile(path="/etc/x", template="b.j2")], "no folder of templates"),
    ],
)
def test_malformed_files_are_refused(monkeypatch: pytest.MonkeyPatch, files: Any, why: str) -> None:
    assert why in refused(monkeypatch, Giving("a", files))


def test_registry_values_are_for_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    value = RegistryValue(key=KEY, name="x", type="string", value="a")
    assert "only Windows has a registry" in refused(monkeypatch, Giving("a", (), lambda: [value]))
    own = RegistryValue(key=rf"{node_files.SERVICES}\KUBELET", name="x", type="string", value="a")
    assert "winlab sets it" in refused(monkeypatch, Giving("a", (), [own]))
    assert "is not a winlab.addons.api.RegistryValue" in refused(monkeypatch, Giving("a", (), ["x"]))


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        ("dword", 0, "00000000"),
        ("dword", 0xFFFFFFFF, "ffffffff"),
        ("string", "a b", "a b"),
        ("multistring", ("a", "b"), "a\nb"),
        ("dword", 1 << 32, None),
        ("dword", -1, None),
        ("dword", "1", None),
        ("string", "a\nb", None),
        ("string", 1, None),
        ("multistring", ("a", ""), None),
        ("multistring", (), None),
        ("qword", 1, None),
    ],
)
def test_registry_values(kind: Any, value: Any, data: str | None) -> None:
    if data is None:
        with pytest.raises(ValidationError):
            RegistryValue(key=KEY, name="x", type=kind, value=value)
    else:
        assert RegistryValue(key=KEY, name="x", type=kind, value=value).data == data


@pytest.mark.parametrize(
    ("key", "name"),
    [("HKCU\\SOFTWARE\\x", "x"), ("HKLM\\SOFTWARE", "x"), ("HKLM\\SAM\\x", "x"), (KEY, "a\\b"), (KEY, "*"), (KEY, "")],
)
def test_places_that_are_not_registry_values(key: str, name: str) -> None:
    with pytest.raises(ValidationError):
        RegistryValue(key=key, name=name, type="dword", value=1)


def test_winlab_s_own_files_are_all_refused() -> None:
    """The list of refused paths knows all that is rendered."""
    plan = plans.make(plans.KVM, "1-1-1")
    for path in linux(plan).prepare().files:
        assert node_files.why_not(path, "", "linux", known.DEFAULT.own_files), path
    from winlab_node import kernel

    for path in kernel.FILES:
        assert node_files.why_not(f"/{path}", "", "linux"), path
