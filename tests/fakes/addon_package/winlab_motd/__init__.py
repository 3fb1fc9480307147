"""An add-on in a package of its own: a message of the day, in a ConfigMap and by a pod."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from winlab.addons.api import (
    Addon,
    AddonSettings,
    Check,
    Cluster,
    Installation,
    NodeFile,
    Pool,
    Problem,
    RegistryValue,
)
from winlab.design.catalog.artifact import ContainerImage, Manifest, Program

if TYPE_CHECKING:
    from winlab.engine.step import Step
    from winlab.events import Progress


class MotdSettings(AddonSettings):
    """``spec.addons.motd``."""

    text: str = Field(description="what is said")
    loud: bool = False
    machines: int = Field(0, ge=0, description="how many machines of its own it says that on")
    system: str = Field("debian-13", description="what these run")
    on_nodes: bool = Field(False, description="whether nodes have it in a file, and Windows at the login")


class Motd(Addon):
    """Says something."""

    name = "motd"
    summary = "a message of the day"
    Settings = MotdSettings
    pins = Path(__file__).with_name("pins.yaml")
    templates = Path(__file__).with_name("manifests")

    def machines(self, settings):
        return [Pool(name="motd", count=settings.machines, os=settings.system, cpus=1, memory=1024)]

    def problems(self, settings, lab):
        if settings.loud and any(node.os == "windows" for node in lab.nodes):
            return [Problem("Windows nodes can't be loud.", "Leave out motd.loud.")]
        return []

    def required(self, settings, lab, versions):
        return [
            ContainerImage(f"motd.example/motd:{versions['motd']}", "linux"),
            Program("motd", versions["motd"], "linux"),
            Manifest("motd", versions["motd"], "rules.yaml"),
        ]

    def node_files(self, settings, lab, node):
        if not settings.on_nodes:
            return []
        if node.os == "windows":
            return [NodeFile(path=r"C:\ProgramData\motd\motd.txt", text=f"{settings.text}\r\n")]
        return [NodeFile(path="/etc/motd.d/winlab", template="motd.j2", mode="0640", owner="root:adm")]

    def registry(self, settings, lab, node):
        if not settings.on_nodes or node.os != "windows":
            return []
        key = r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\Policies\System"
        return [RegistryValue(key=key, name="LegalNoticeText", type="string", value=settings.text)]

    def steps(self, settings: MotdSettings, installation: Installation) -> list[Step]:
        from winlab.engine.state import Kind
        from winlab.engine.step import Step
        from winlab.steps.states import API

        run = installation.run
        rules = [one for one in installation.row.artifacts if isinstance(one, Manifest)]

        def work(progress: Progress) -> None:
            installation.obtain(rules, progress)
            progress.say(settings.text)

        told = Kind("motd-told", lambda _: "message of the day")(run.lab)
        return [Step(told, work, lambda: False, [API(run.lab)]), *super().steps(settings, installation)]

    def checks(self, settings: Any) -> list[Check]:
        return [Check("the message can be read", "cluster", 60, lambda cluster: _read(cluster, settings.text))]


def _read(cluster: Cluster, text: str) -> str:
    return f"{len(cluster.nodes)} nodes: {text}"


ADDON = Motd()
