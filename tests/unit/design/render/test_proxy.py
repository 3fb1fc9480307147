"""The proxy as each program on a node reads it, and that no one else reads its password."""

from __future__ import annotations

import json
import shlex

import plans
import pytest
import yaml

from winlab.design.contract import on_linux
from winlab.design.plan import credentials
from winlab.design.plan.changes import changes
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import LinuxNode, WindowsNode
from winlab.design.render import answer, cloud_init, folder, proxy
from winlab.design.render.linux import LinuxFiles
from winlab.design.render.templates import expand
from winlab.design.render.windows import WindowsFiles
from winlab.errors import UsageError
from winlab.supply import proxies

ADDRESS = "http://me:HUSHHUSH@proxy.example:3128"
SET = (f"network.proxy.http={ADDRESS}", "network.proxy.no_proxy=[.corp.example, 192.0.2.0/24]")


def make(*changes_: str, source: str = "1-1-1") -> Plan:
    return plans.make(plans.KVM, source, *changes_)


def prepared(plan: Plan, name: str = "controller-1") -> on_linux.Prepare:
    node = plan.node(name)
    assert isinstance(node, LinuxNode)
    return LinuxFiles(plan, node).prepare()


def windows(plan: Plan, name: str = "node-1") -> WindowsNode:
    node = plan.node(name)
    assert isinstance(node, WindowsNode)
    return node


def test_without_a_proxy_nothing_is_different() -> None:
    plan = make()
    assert plan.network.proxy is None
    assert proxy.environment(plan) == {}
    assert not [path for path in prepared(plan).files if "proxy" in path]
    assert WindowsFiles(plan, windows(plan)).containerd().environment == []
    assert "proxy" not in json.loads(
        answer.answer_files(plan, windows(plan), credentials.masked(plan), expand)["winlab/node.json"]
    )


@pytest.mark.parametrize(
    ("host", "goes"),
    [
        ("registry.example", "proxy"),
        ("notcorp.example", "proxy"),
        ("198.51.100.1", "proxy"),
        ("localhost", "direct"),
        ("127.0.0.1", "direct"),
        ("10.77.0.11", "direct"),
        ("10.96.0.1", "direct"),
        ("10.244.3.4", "direct"),
        ("172.31.241.2", "direct"),
        ("node-1", "direct"),
        ("controller-1.lab.winlab.internal", "direct"),
        ("kubernetes.default.svc.cluster.local", "direct"),
        ("git.corp.example", "direct"),
        ("192.0.2.9", "direct"),
    ],
)
def test_go_reaches_the_lab_directly(host: str, goes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """containerd reads the variables as winlab.supply.proxies does."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in proxy.environment(make(*SET)).items():
        monkeypatch.setenv(name, value)
    for scheme in ("http", "https"):
        found = proxies.of(f"{scheme}://{host}/v2/")
        assert ("direct" if found is None else "proxy") == goes
        assert found is None or found.url == ADDRESS


def test_the_api_server_of_an_external_cluster_is_reached_directly() -> None:
    plan = make(*SET)
    assert plan.kubernetes is not None
    external = plan.kubernetes.model_copy(update={"endpoint": "api.far.example:6443", "external": "203.0.113.5:6443"})
    excepted = proxy.no_proxy(plan.model_copy(update={"kubernetes": external}))
    assert {"api.far.example", "203.0.113.5"} <= set(excepted)


def test_a_lab_without_a_cluster_has_exceptions_too() -> None:
    plan = make(*SET, "workers.os=debian-13", source="0-2-1")
    assert {"10.77.0.0/24", "node-2", "lab.winlab.internal", ".corp.example"} <= set(proxy.no_proxy(plan))


def test_containerd_on_linux_gets_it_from_a_file_that_only_root_reads() -> None:
    files = prepared(make(*SET)).files
    unit = files["/etc/systemd/system/containerd.service.d/winlab-proxy.conf"]
    assert unit == on_linux.NodeFile("[Service]\nEnvironmentFile=/etc/containerd/proxy.env\n")
    given = files["/etc/containerd/proxy.env"]
    assert (given.mode, given.owner) == ("0600", "root:root")
    lines = dict(shlex.split(line)[0].split("=", 1) for line in given.content.splitlines())
    assert lines == proxy.environment(make(*SET))
    assert lines["HTTP_PROXY"] == lines["HTTPS_PROXY"] == ADDRESS


def test_only_files_that_are_closed_to_others_have_the_password() -> None:
    for path, file in prepared(make(*SET)).files.items():
        assert "HUSHHUSH" not in file.content or int(file.mode, 8) & 0o007 == 0, path
    call = prepared(make(*SET))
    assert "HUSHHUSH" not in json.dumps([call.services, call.images])


def test_a_shell_reads_the_profile() -> None:
    (profile,) = (file for path, file in prepared(make(*SET)).files.items() if path.startswith("/etc/profile.d/"))
    assert (profile.mode, profile.owner) == ("0640", "root:winlab")
    words = shlex.split(profile.content)  # as a shell does, which finds nothing to expand
    assert not set("$`\\") & set(profile.content)
    shown = [word for word in words if word != "export"]
    variables = proxy.environment(make(*SET))
    assert sorted(shown) == sorted(
        f"{spelling}={value}" for name, value in variables.items() for spelling in (name, name.lower())
    )


def test_apt_gets_names_as_exceptions() -> None:
    changed = (SET[0], "network.proxy.no_proxy=[mirror.corp.example, .corp.example, 10.1.0.0/16, 'a.example:80']")
    lines = prepared(make(*changed)).files["/etc/apt/apt.conf.d/90winlab-proxy"].content.splitlines()
    assert lines[0] == f'Acquire::http::Proxy "{ADDRESS}";'
    assert f'Acquire::https::Proxy "{ADDRESS}";' in lines
    assert 'Acquire::http::Proxy::mirror.corp.example "DIRECT";' in lines
    assert 'Acquire::https::Proxy::node-1 "DIRECT";' in lines
    assert not [line for line in lines if "10.1.0.0" in line or "a.example" in line or "::.corp" in line]


def test_apt_gets_no_proxy_for_a_scheme_without_one() -> None:
    lines = prepared(make("network.proxy.https=http://proxy.example:3128")).files
    assert "Acquire::http::" not in lines["/etc/apt/apt.conf.d/90winlab-proxy"].content


def test_containerd_on_windows_gets_its_variables() -> None:
    plan = make(*SET)
    lines = WindowsFiles(plan, windows(plan)).containerd().environment
    assert dict(line.split("=", 1) for line in lines) == proxy.environment(plan)


def test_a_golden_image_keeps_no_password() -> None:
    plan = make(*SET)
    (builder,) = plan.builders
    assert WindowsFiles(builder, windows(builder, "golden")).containerd().environment == []
    files = answer.answer_files(builder, windows(builder, "golden"), credentials.masked(builder), expand)
    assert b"HUSHHUSH" not in b"".join(files.values())
    assert (
        json.loads(files["winlab/node.json"])["proxy"]["server"] == "http=proxy.example:3128;https=proxy.example:3128"
    )
    assert builder.golden == make().builders[0].golden  # the image is the same, whatever the proxy


def test_windows_update_gets_address_and_exceptions_without_the_password() -> None:
    changed = (SET[0], "network.proxy.no_proxy=[.corp.example, b.example, '*.c.example', 192.0.2.7, 10.1.0.0/16]")
    plan = make(*changed)
    given = json.loads(answer.answer_files(plan, windows(plan), credentials.masked(plan), expand)["winlab/node.json"])[
        "proxy"
    ]
    assert given == {
        "server": "http=proxy.example:3128;https=proxy.example:3128",
        "bypass": "<local>;corp.example;*.corp.example;b.example;*.b.example;c.example;*.c.example;192.0.2.7",
    }


def test_a_machine_beside_the_cluster_gets_it_at_its_first_boot() -> None:
    plan = make(*SET, "workers.os=debian-13", "workers.cluster=false")
    made = credentials.masked(plan)
    beside, controller = plan.node("node-1"), plan.node("controller-1")
    assert isinstance(beside, LinuxNode)
    assert isinstance(controller, LinuxNode)
    user = yaml.safe_load(cloud_init.seed_files(plan, beside, made)["user-data"])
    expected = proxy.login_files(plan, beside)
    banner, *files = user["write_files"]
    assert {row["path"]: (row["content"], row["permissions"]) for row in files} == {
        path: (file.content, file.mode) for path, file in expected.items()
    }
    assert user["runcmd"][:-1] == [["chown", "root:winlab", path] for path in expected]
    assert "phase=ready" in user["runcmd"][-1][2]
    assert yaml.safe_load(cloud_init.seed_files(plan, controller, made)["user-data"])["write_files"] == [banner]


def test_a_console_says_how_to_log_in() -> None:
    plan = make()
    controller = plan.node("controller-1")
    assert isinstance(controller, LinuxNode)
    (banner,) = yaml.safe_load(cloud_init.seed_files(plan, controller, credentials.masked(plan))["user-data"])[
        "write_files"
    ]
    assert banner["path"] == "/etc/issue.d/winlab.issue"
    assert banner["content"].startswith(r"\n has the address \4. Log in with 'winlab ssh \n'")


def test_what_is_shown_has_no_password() -> None:
    plan = make(*SET)
    assert "HUSHHUSH" in plan.model_dump_json()
    assert "HUSHHUSH" not in plan.without_secrets().model_dump_json()
    shown = folder.files(plan, expand)
    assert b"HUSHHUSH" not in b"".join(shown.values())
    assert b"<secret>@proxy.example" in shown["controller-1/kubernetes/etc/containerd/proxy.env"]


def test_the_lab_is_the_same_with_another_proxy() -> None:
    plain, other = make(), make(*SET)
    assert plain.digest == other.digest
    (change,) = changes([plain], other).every
    assert (change.kind, change.what, change.before) == ("changed", "network.proxy", "none")
    assert change.after == "http://<secret>@proxy.example:3128 except for .corp.example, 192.0.2.0/24"
    (again,) = changes([other], make(SET[0].replace("HUSHHUSH", "OTHER"), SET[1])).every
    assert again.after.endswith(" with another password")
    assert changes([other], make(*SET)).every == ()


@pytest.mark.parametrize(("host", "need"), [("172.31.240.1", "all"), ("172.31.241.9", "labs")])
def test_a_proxy_on_this_host_needs_reach(host: str, need: str) -> None:
    given = f"network.proxy.http=http://me:HUSHHUSH@{host}:3128"
    with pytest.raises(UsageError, match=f"would not reach their proxy at {host}") as caught:
        make(given)
    assert caught.value.cure == f"Use --set network.reach={need}."
    assert make(given, f"network.reach={need}").network.proxy is not None
