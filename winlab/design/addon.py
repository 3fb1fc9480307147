"""Add-ons, as far as a plan needs them. Pure; for their steps see :mod:`winlab.addons.api`.

``spec.addons`` turns them on::

    addons:
      metrics-server: {replicas: 1}

An add-on is a folder under winlab/addons/, or a package with an entry point of the group ``winlab.addons``. Its
settings are a model of its own. This module combines them into one model, which a spec is validated with.
"""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol

import yaml
from jinja2 import DictLoader, Environment, StrictUndefined, TemplateError
from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError, create_model
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from winlab import extensions
from winlab.design.catalog import releases
from winlab.design.catalog.artifact import Artifact
from winlab.design.catalog.releases import Releases
from winlab.design.node_files import NodeFile, RegistryValue
from winlab.design.problem import Problem
from winlab.errors import HostError

Object = dict[str, Any]  # a Kubernetes object, as the API server takes it
NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")


class AddonSettings(BaseModel):
    """The base of every add-on's settings: what ``spec.addons.NAME`` takes."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PlannedNode(Protocol):
    """What add-ons may rely on in a machine of the lab."""

    @property
    def name(self) -> str:
        """``controller-1``."""

    @property
    def role(self) -> Literal["controller", "worker", "machine"]:
        """What it is for; a ``machine`` is beside the cluster."""

    @property
    def os(self) -> Literal["linux", "windows"]:
        """What it runs."""

    @property
    def pool(self) -> str:
        """The pool of a worker: one of the spec, or one that an add-on requests. Empty for controllers."""

    @property
    def memory_mib(self) -> int:
        """Its memory."""


class PlannedHost(Protocol):
    """What add-ons may rely on in the hypervisor."""

    @property
    def accelerator(self) -> str:
        """``kvm``, or ``tcg`` where guests are emulated: everything takes several times as long."""


class PlannedCluster(Protocol):
    """What add-ons may rely on in the lab's cluster."""

    @property
    def releases(self) -> dict[str, str]:
        """Every version by name: ``kubernetes``, ``containerd``, ..., and those of the CNI profile."""

    @property
    def profile(self) -> str:
        """The CNI profile."""

    @property
    def domain(self) -> str:
        """The cluster's domain, such as ``cluster.local``."""

    @property
    def pod_cidr(self) -> str:
        """The pods' network."""


class PlannedLab(Protocol):
    """What add-ons may rely on in a plan."""

    @property
    def lab(self) -> str:
        """The lab's name."""

    @property
    def host(self) -> PlannedHost:
        """The site's first hypervisor."""

    @property
    def hypervisors(self) -> Mapping[str, PlannedHost]:
        """Those that the nodes are on, by name."""

    @property
    def nodes(self) -> Sequence[PlannedNode]:
        """All machines."""

    @property
    def cluster(self) -> PlannedCluster:
        """The cluster."""


class Addon(ABC):
    """One thing that a lab can have besides Kubernetes. Subclasses are made from :class:`winlab.addons.api.Addon`."""

    name: str  # in spec.addons: lower-case letters, digits and hyphens
    summary: str  # one line, for lists and the schema
    Settings: ClassVar[type[AddonSettings]] = AddonSettings
    pins: Path | None = None  # its pins.yaml
    templates: Path | None = None  # a folder of its manifests, *.yaml.j2, and of templates of nodes' files, other *.j2

    def load(self) -> Releases:
        """Read its files once: versions, pins and builds, and its manifests' templates.

        :raises HostError: a file can't be used.
        """
        if self.templates is not None:
            _texts(self.templates)
        return Releases() if self.pins is None else releases.read(self.pins, Releases)

    def machines(self, settings: Any) -> Sequence[BaseModel]:  # noqa: ARG002
        """The pools that it adds to the lab, each a :class:`winlab.addons.api.Pool`. Their nodes join as workers,
        unless ``cluster`` is false.

        Settings alone decide, not the lab: the stock that a plan is made from depends on its pools.
        """
        return ()

    def problems(self, settings: Any, lab: PlannedLab) -> list[Problem]:  # noqa: ARG002
        """Why this lab can't have it; empty if it can. Called before anything is touched."""
        return []

    def required(self, settings: Any, lab: PlannedLab, versions: Mapping[str, str]) -> list[Artifact]:  # noqa: ARG002
        """What has to be obtained. Images and programs go to the nodes of their system.

        :param versions: the versions in its pins.yaml that go with the lab's Kubernetes.
        """
        return []

    def manifests(self, settings: Any, lab: PlannedLab, versions: Mapping[str, str]) -> list[Object]:
        """The objects that winlab applies, in this order: the templates, rendered.

        A template is YAML with Jinja. It sees *settings*, *lab*, *versions*, and what :meth:`values` adds.
        """
        if self.templates is None:
            return []
        seen = {"settings": settings, "lab": lab, "versions": versions, **self.values(settings, lab, versions)}
        return _rendered(self.templates, seen)

    def values(self, settings: Any, lab: PlannedLab, versions: Mapping[str, str]) -> dict[str, Any]:  # noqa: ARG002
        """Further names for the templates."""
        return {}

    def node_files(self, settings: Any, lab: PlannedLab, node: PlannedNode) -> Sequence[NodeFile]:  # noqa: ARG002
        """The text files that this node gets, before it joins. A template sees *node*, too."""
        return ()

    def registry(self, settings: Any, lab: PlannedLab, node: PlannedNode) -> Sequence[RegistryValue]:  # noqa: ARG002
        """The values of the registry that this Windows node gets, before it joins."""
        return ()

    def text(
        self, file: NodeFile, settings: Any, lab: PlannedLab, versions: Mapping[str, str], node: PlannedNode
    ) -> str:
        """The text of one of :meth:`node_files`.

        :raises ValueError: there is no such template, or it can't be rendered.
        """
        if not file.template:
            return file.text
        if self.templates is None:
            raise ValueError("the add-on has no folder of templates")
        seen = {"settings": settings, "lab": lab, "versions": versions, "node": node}
        try:
            template = _environment(self.templates).get_template(file.template)
            return template.render(seen | self.values(settings, lab, versions))
        except TemplateError as error:
            raise ValueError(f"its template: {error}") from error


@cache
def _texts(folder: Path) -> dict[str, str]:
    """The templates of a folder by name, read once."""
    try:
        return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.j2"))}
    except (OSError, ValueError) as error:
        raise HostError(f"The templates in '{folder}' can't be read.", why=str(error)) from error


def _environment(folder: Path) -> Environment:
    # StrictUndefined: a misspelled name is an error, not an empty value. The result is not HTML, so nothing is escaped
    return Environment(
        loader=DictLoader(_texts(folder)),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701
        keep_trailing_newline=True,
    )


def _rendered(folder: Path, values: Mapping[str, Any]) -> list[Object]:
    environment, names = _environment(folder), [name for name in _texts(folder) if name.endswith(".yaml.j2")]
    rendered = (yaml.safe_load_all(environment.get_template(name).render(values)) for name in names)
    return [document for documents in rendered for document in documents if document]


@cache
def registry() -> dict[str, Addon]:
    """All add-ons by name: winlab's own, then those of other packages.

    :raises HostError: one can't be loaded, or two have one name; the message names the package.
    """
    addons: dict[str, Addon] = {}
    for extension in extensions.load(extensions.ADDONS):
        addon = extension.value
        if not isinstance(addon, Addon) or not NAME.fullmatch(addon.name):
            raise HostError(
                f"The package '{extension.origin}' provides no add-on.",
                why=f"Its entry point of the group {extensions.ADDONS.name} should name an object of a subclass of "
                "winlab.addons.api.Addon with a name of lower-case letters, digits and hyphens.",
                cure="docs/addons.md explains how to write one.",
            )
        if addon.name in addons:
            raise HostError(
                f"Two add-ons are called '{addon.name}', one of them from the package '{extension.origin}'.",
                cure="Uninstall one of the packages.",
            )
        addons[addon.name] = addon
    return addons


def read(names: Mapping[str, object]) -> None:
    """Load the files of these add-ons into memory, so that making a plan reads nothing.

    :raises HostError: one can't be used.
    """
    for name in names:
        registry()[name].load()


@cache
def _model() -> type[BaseModel]:
    """One model with an optional field for each add-on."""
    fields: dict[str, Any] = {name: (addon.Settings | None, None) for name, addon in registry().items()}
    return create_model(
        "Addons", __config__=ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True), **fields
    )


def _validated(raw: object) -> dict[str, AddonSettings]:
    """The settings of what is turned on; ``NAME:`` without a value means all defaults."""
    if not isinstance(raw, Mapping):
        raise PydanticCustomError("addons", "addons should be a mapping: the name of each add-on, and its settings")
    try:
        validated = _model().model_validate({name: {} if value is None else value for name, value in raw.items()})
    except ValidationError as error:
        raise ValidationError.from_exception_data("Addons", list(_named(error)), hide_input=True) from error
    return {name: getattr(validated, name) for name in raw}


def _named(error: ValidationError) -> Iterator[InitErrorDetails]:
    """The errors, with a list of the known add-ons in place of pydantic's 'extra inputs are not permitted'."""
    for item in error.errors():
        kind: str | PydanticCustomError = PydanticCustomError(item["type"], item["msg"], item.get("ctx"))
        if item["type"] == "extra_forbidden":
            name = str(item["loc"][0])
            if len(item["loc"]) == 1:
                text = f"there is no add-on '{name}'; choose from {', '.join(registry()) or 'none'}"
            else:
                known = ", ".join(sorted(registry()[name].Settings.model_fields))
                text = f"there is no such setting; choose from {known}" if known else "it has no settings"
            kind = PydanticCustomError("unknown", text)
        yield InitErrorDetails(type=kind, loc=item["loc"], input=item["input"])


class _Validated:
    """Makes pydantic ask the registry when a spec is validated or described, not when the module is imported."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        plain = core_schema.plain_serializer_function_ser_schema(_shown)
        return core_schema.no_info_plain_validator_function(_validated, serialization=plain)

    @property
    def section(self) -> type[BaseModel]:
        """The model of the allowed values, for the table of options."""
        return _model()

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return handler(_model().__pydantic_core_schema__)


def _shown(settings: Mapping[str, AddonSettings]) -> dict[str, Any]:
    return {name: values.model_dump(mode="json") for name, values in settings.items()}


ByName = Annotated[dict[str, AddonSettings], _Validated()]  # a field of a pydantic model
