"""Add-ons in the spec and in the plan: our own, and one in a package of its own."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import plans
import pytest
import yaml
from distributions import Distribution, install_motd

from winlab.addons.api import Addon
from winlab.design import addon, spec
from winlab.design.catalog.artifact import ContainerImage, Manifest, Program
from winlab.design.plan import required
from winlab.design.render import folder
from winlab.design.render.templates import expand
from winlab.errors import HostError, UsageError
from winlab.supply.artifacts.build import images as build_images
from winlab.supply.artifacts.build.go_programs import of_extension, part
from winlab.supply.artifacts.build.source import BuildSource
from winlab.supply.artifacts.upstream import UpstreamSource

ON = ("workers.os=debian-13", "addons.motd.text=hello")


pytestmark = pytest.mark.usefixtures("fresh_registry")


@pytest.fixture
def motd(distribution: partial[Distribution]) -> None:
    install_motd(distribution)


# --- which add-ons exist


def test_our_add_ons_are_discovered() -> None:
    assert list(addon.registry()) == ["metrics-server"]
    assert all(isinstance(one, Addon) and one.summary for one in addon.registry().values())


@pytest.mark.parametrize(
    ("code", "what", "why"),
    [
        ("import nothing_like_it", "'winlab-bad 0.1' can't be loaded", "nothing_like_it"),
        ("ADDON = 3", "'winlab-bad 0.1' provides no add-on", "winlab.addons.api.Addon"),
        (
            "from winlab.addons.api import Addon\nclass A(Addon):\n    name = 'Big Name'\nADDON = A()",
            "'winlab-bad 0.1' provides no add-on",
            "lower-case",
        ),
        (
            "from winlab.addons.metrics_server import ADDON",
            "Two add-ons are called 'metrics-server', one of them from the package 'winlab-bad 0.1'",
            "",
        ),
    ],
)
def test_a_package_that_does_not_fit_is_named(
    distribution: partial[Distribution], code: str, what: str, why: str
) -> None:
    distribution("winlab-bad", "0.1", {"winlab_bad.py": code}, {"winlab.addons": {"bad": "winlab_bad:ADDON"}})
    with pytest.raises(HostError) as error:
        addon.registry()
    assert what in error.value.what
    assert why in error.value.why


def test_a_lab_without_add_ons_does_not_ask_for_any(distribution: partial[Distribution]) -> None:
    distribution("winlab-bad", "0.1", {"winlab_bad.py": "1/0"}, {"winlab.addons": {"bad": "winlab_bad:ADDON"}})
    assert plans.make(plans.KVM, "1-1-1").addons == ()


# --- the spec


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "addons: {prometheus: {}}",
            "line 1: addons.prometheus: there is no add-on 'prometheus'; choose from metrics-server",
        ),
        (
            "addons:\n  metrics-server:\n    replicas: 2",
            "line 3: addons.metrics-server.replicas: there is no such setting; choose from resolution",
        ),
        (
            "addons:\n  metrics-server: {resolution: 5}",
            "addons.metrics-server.resolution: should be at least 10",
        ),
        ("addons: [metrics-server]", "line 1: addons: addons should be a mapping"),
        ("addons:\n  motd:", "addons.motd.text: Field required"),
    ],
)
@pytest.mark.usefixtures("motd")
def test_settings_are_checked_with_the_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match="not valid") as error:
        spec.load(str(path))
    assert says in error.value.why


@pytest.mark.parametrize(
    "change", ["addons.metrics-server={}", "addons.metrics-server=", "addons={metrics-server: {}}"]
)
def test_on_by_one_change(change: str) -> None:
    made = spec.load("1-1-1", [change])
    assert made.model_dump(mode="json")["addons"] == {"metrics-server": {"resolution": None}}
    assert spec.Spec.model_validate(made.model_dump(mode="json")) == made


@pytest.mark.usefixtures("motd")
def test_the_schema_has_the_settings_of_all() -> None:
    schema = spec.Spec.model_json_schema()
    text = json.dumps(schema["properties"]["addons"]) + json.dumps(schema.get("$defs", {}))
    assert "what is said" in text
    assert "Time between two measurements" in text


# --- the plan


@pytest.mark.usefixtures("motd")
def test_the_plan_has_settings_versions_and_artifacts() -> None:
    plan = plans.make(plans.KVM, "1-1-1", *ON)
    (row,) = plan.addons
    image, program = ContainerImage("motd.example/motd:v1.2.0", "linux"), Program("motd", "v1.2.0", "linux")
    manifest = Manifest("motd", "v1.2.0", "rules.yaml")
    assert row.settings == {"text": "hello", "loud": False, "machines": 0, "system": "debian-13", "on_nodes": False}
    assert row.pools == ()
    assert row.versions == {"motd": "v1.2.0"}
    assert row.artifacts == (image, program, manifest)
    assert {image, program, manifest} <= set(required.every(plan))
    (payload,) = required.payloads(plan)
    assert image in payload.images
    assert program in payload.programs
    assert manifest not in payload.artifacts
    assert image.reference in required.node_images(plan, controller=False)
    assert UpstreamSource(required.pins(plan)).cannot(row.artifacts) == {}
    assert not any(required.optional(one) for one in row.artifacts)
    assert type(plan).model_validate(plan.model_dump(mode="json")) == plan


@pytest.mark.usefixtures("motd")
def test_a_lab_with_an_add_on_is_another_lab() -> None:
    digests = {
        plans.make(plans.KVM, "1-1-1", "workers.os=debian-13", *more).digest
        for more in ([], ["addons.motd.text=a"], ["addons.motd.text=b"])
    }
    assert len(digests) == 3


@pytest.mark.usefixtures("motd")
def test_a_system_that_needs_nothing_gets_nothing() -> None:
    plan = plans.make(plans.KVM, "1-1-1", "addons.motd.text=hello")
    linux, windows = required.payloads(plan)
    assert "motd" in {program.name for program in linux.programs}
    assert "motd" not in {program.name for program in windows.programs}
    assert plan.builders
    assert plan.builders[0].addons == ()  # of a golden image


@pytest.mark.usefixtures("motd")
def test_problems_are_reported_before_anything_is_touched() -> None:
    with pytest.raises(UsageError, match=r"can't have these add-ons: motd\.") as error:
        plans.make(plans.KVM, "1-1-1", "addons.motd={text: a, loud: true}")
    assert error.value.why == "Windows nodes can't be loud."
    assert error.value.cure == "Leave out motd.loud."


def test_metrics_server_fits_the_versions_that_it_names() -> None:
    old = ("kubernetes.version=v1.33.6", "kubernetes.untested=true", "workers.os=debian-13", "addons.metrics-server={}")
    with pytest.raises(UsageError, match="metrics-server") as error:
        plans.make(plans.KVM, "1-1-1", *old)
    assert "1.34 and newer, not v1.33.6" in error.value.why


# --- manifests


def objects(*changes: str, facts: Any = plans.KVM) -> dict[str, dict[str, Any]]:
    plan = plans.make(facts, "1-1-1", "workers.os=debian-13", *changes)
    text = folder.files(plan, expand)[f"cluster/addons/{plan.addons[0].name}.yaml"]
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in yaml.safe_load_all(text)}


def test_metrics_server_can_run_wherever_linux_does() -> None:
    pod = objects("addons.metrics-server={}")["Deployment/metrics-server"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "registry.k8s.io/metrics-server/metrics-server:v0.9.0"
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert pod["tolerations"] == [
        {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}
    ]


@pytest.mark.parametrize(
    ("facts", "change", "resolution", "timeout"),
    [
        (plans.KVM, "addons.metrics-server={}", 15, 10),
        (plans.TCG, "addons.metrics-server={}", 30, 20),
        (plans.TCG, "addons.metrics-server.resolution=10", 10, 6),
        (plans.KVM, "addons.metrics-server.resolution=60", 60, 40),
    ],
)
def test_metrics_servers_times(facts: Any, change: str, resolution: int, timeout: int) -> None:
    made = objects(change, facts=facts)["Deployment/metrics-server"]
    arguments = made["spec"]["template"]["spec"]["containers"][0]["args"]
    assert f"--metric-resolution={resolution}s" in arguments
    assert f"--kubelet-request-timeout={timeout}s" in arguments
    assert timeout <= resolution * 9 / 10  # otherwise it ends itself


def test_the_parts_of_metrics_server_name_each_other() -> None:
    made = objects("addons.metrics-server={}")
    selector = made["Service/metrics-server"]["spec"]["selector"]
    template = made["Deployment/metrics-server"]["spec"]["template"]
    assert selector == template["metadata"]["labels"]
    ports = {port["name"] for port in template["spec"]["containers"][0]["ports"]}
    assert {port["targetPort"] for port in made["Service/metrics-server"]["spec"]["ports"]} <= ports
    assert made["APIService/v1beta1.metrics.k8s.io"]["spec"]["service"]["name"] == "metrics-server"
    roles = {one["metadata"]["name"] for one in made.values() if one["kind"] == "ClusterRole"}
    bound = {one["roleRef"]["name"] for one in made.values() if one["kind"] == "ClusterRoleBinding"}
    assert bound == {"system:metrics-server", "system:auth-delegator"}
    assert "system:metrics-server" in roles


@pytest.mark.usefixtures("motd")
def test_templates_see_settings_lab_and_versions() -> None:
    made = objects("addons.motd={text: 'a \"quoted\" word: yes'}")
    assert made["ConfigMap/motd"]["data"] == {"text": 'a "quoted" word: yes', "lab": "lab", "version": "v1.2.0"}


# --- the source build


@pytest.mark.usefixtures("motd")
def test_an_add_on_says_how_it_is_built() -> None:
    plan = plans.make(plans.KVM, "1-1-1", *ON, "addons.metrics-server={}")
    builds = required.builds(plan)
    source = BuildSource("v1.36.3", builds=builds)
    image, program, manifest = plan.addons[0].artifacts
    assert source.cannot([image, program, *plan.addons[1].artifacts]) == {}
    assert "published, not built" in source.cannot([manifest])[manifest]
    assert "does not know how to build that image" in BuildSource("v1.36.3").cannot([image])[image]
    layout = build_images.layout(image, "v1.36.3", builds)
    assert layout is not None
    assert dict(layout.programs) == {program: "/motd"}
    assert (layout.config.entrypoint, layout.config.cmd, layout.config.user) == (("/motd",), ("--loud",), "7")
    found = part(program, [of_extension(build) for build in builds])
    assert found is not None
    assert found.packages["linux"] == {"motd": "motd.example/motd/cmd/motd"}
    assert found.stamps("v1.2.0", "2026-07-13T10:38:03Z") == {"main.version": "v1.2.0 of 2026-07-13T10:38:03Z"}
