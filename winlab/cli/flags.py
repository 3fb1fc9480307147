"""Groups of flags that several commands share: declared once, given to a command as one frozen value.

::

    @app.command()
    @spread
    def create(selection: SpecFlags = SpecFlags(), sources: SourceFlags = SourceFlags()) -> None: ...

Typer sees every flag of the groups. A flag's default comes from the group's default instance. A group without one uses
the defaults of its fields, and may have required flags.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar, cast, get_type_hints

import typer

from winlab import account
from winlab.cli.common import Mirror, SourceKind
from winlab.cli.complete import complete_specs, complete_systems
from winlab.design.catalog import distributions

if TYPE_CHECKING:
    from winlab import Origin, Spec

P = ParamSpec("P")
T = TypeVar("T")

OWN_HELP = "Your own program in place of the source's; its format shows which system it is for. Can be repeated."
Own = Annotated[list[Path] | None, typer.Option(help=OWN_HELP, metavar="PATH")]
OwnInstaller = Annotated[list[Path] | None, typer.Option(f"--{distributions.DEFAULT}", help=OWN_HELP, metavar="PATH")]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Change a field of the spec: --set workers.cpus=4; a secret one from a file: --set "
        "workers.product_key=@FILE. Can be repeated.",
        metavar="PATH=VALUE",
    ),
]
AllowPath = Annotated[
    list[Path] | None,
    typer.Option(
        help="Another folder, apart from the spec's own, in which the spec may name files. Can be repeated.",
        metavar="DIR",
    ),
]
Iso = Annotated[str | None, typer.Option("--iso", help="Your own Windows Server ISO; it is not changed.")]


def spread(command: Callable[P, T]) -> Callable[..., T]:
    """The command with the flags of its groups in place of each group."""
    signature, work = inspect.signature(command, eval_str=True), cast(Callable[..., T], command)
    groups: dict[str, Any] = {
        one.name: one.annotation for one in signature.parameters.values() if is_dataclass(one.annotation)
    }
    flags: list[inspect.Parameter] = []
    for one in signature.parameters.values():
        if one.name not in groups:
            flags.append(one.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        hints = get_type_hints(one.annotation, include_extras=True)
        for field in fields(one.annotation):
            if one.default is not inspect.Parameter.empty:
                default = getattr(one.default, field.name)
            else:
                default = inspect.Parameter.empty if field.default is MISSING else field.default
            flags.append(
                inspect.Parameter(
                    field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[field.name]
                )
            )

    @functools.wraps(command)
    def call(**given: Any) -> T:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        return work(**given)

    del call.__wrapped__  # Typer would read its signature
    call.__signature__ = signature.replace(parameters=flags)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in flags}
    return call


@dataclass(frozen=True)
class _Named:
    spec: Annotated[
        str,
        typer.Option(
            "--spec",
            "-s",
            envvar="WINLAB_SPEC",
            help="controllers-workers-hypervisors, a name in specs/, or a YAML file.",
            autocompletion=complete_specs,
        ),
    ] = "1-1-1"


@dataclass(frozen=True)
class ChangeFlags:
    """The changes to a spec."""

    changes: Changes = None
    os: Annotated[
        str | None,
        typer.Option("--os", help="The workers' system: an image from images/.", autocompletion=complete_systems),
    ] = None
    iso: Iso = None
    rehearse: Annotated[
        bool,
        typer.Option(
            "--rehearse",
            help="Use stand-in Windows media of each release, made here: tests everything except Windows itself.",
        ),
    ] = False
    allow_path: AllowPath = None

    def of(self, source: str) -> Spec:
        """The spec *source* with the changes.

        :raises UsageError: the flags contradict each other, or the spec is not valid.
        """
        from winlab import Spec

        return Spec.load(
            source,
            self.changes or (),
            os=self.os,
            iso=self.iso,
            rehearse=self.rehearse,
            allow=self.allow_path or (),
        )


@dataclass(frozen=True)
class SpecFlags(ChangeFlags, _Named):
    """The spec, and the changes to it."""

    def load(self) -> Spec:
        """The spec.

        :raises UsageError: the flags contradict each other, or the spec is not valid.
        """
        return self.of(self.spec)


@dataclass(frozen=True)
class FromFlags:
    """Where images and Kubernetes come from."""

    mirror: Mirror = None
    insecure_mirror: Annotated[
        bool,
        typer.Option(
            "--insecure-mirror",
            help="Let a mirror over plain http vouch for artifacts without a known digest.",
        ),
    ] = False
    source: Annotated[
        SourceKind | None,
        typer.Option("--source", help="Where Kubernetes comes from; default: whatever is available."),
    ] = None

    @property
    def origin(self) -> Origin:
        """These flags as operations take them."""
        from winlab import Origin

        return Origin(
            self.source.value if self.source else None, mirror=self.mirror, insecure_mirror=self.insecure_mirror
        )


@dataclass(frozen=True)
class BundleFlags(FromFlags):
    """Where images and Kubernetes come from, possibly a bundle."""

    bundle: Annotated[
        Path | None,
        typer.Option(
            "--bundle", help="Take everything from this bundle, and nothing from the internet.", metavar="FILE"
        ),
    ] = None
    bundle_digest: Annotated[
        str | None,
        typer.Option(
            "--bundle-digest",
            help="The digest that the bundle must have; it then vouches for everything in the bundle.",
            metavar="sha256:...",
        ),
    ] = None

    @property
    def origin(self) -> Origin:
        """These flags as operations take them."""
        from dataclasses import replace

        return replace(super().origin, bundle=self.bundle, bundle_digest=self.bundle_digest)


@dataclass(frozen=True)
class SourceFlags(BundleFlags):
    """Where images and Kubernetes come from, and the user's own programs."""

    kubelet: Own = None
    installer: OwnInstaller = None  # the distribution's program
    kube_proxy: Own = None

    @property
    def origin(self) -> Origin:
        """These flags as operations take them."""
        from dataclasses import replace

        given = {"kubelet": self.kubelet, distributions.DEFAULT: self.installer, "kube-proxy": self.kube_proxy}
        own = tuple((program, account.expanded(path)) for program, paths in given.items() for path in paths or ())
        return replace(super().origin, own=own)
