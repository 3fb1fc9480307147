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
from winlab.cli.common import AcceptEula, Anyone, Mirror, SourceKind, Until, UntilWhen
from winlab.cli.complete import complete_specs, complete_systems
from winlab.cli.tree import SPEC, SUPPLIES
from winlab.cli.words import SpecWord
from winlab.design.catalog import distributions

if TYPE_CHECKING:
    from winlab import Origin, Spec

P = ParamSpec("P")
T = TypeVar("T")

OWN_HELP = "Your own program in place of the source's. Its format shows which system it is for. Can be repeated."
OWN: dict[str, Any] = {"help": OWN_HELP, "metavar": "FILE", "rich_help_panel": SUPPLIES}


def _own(program: str) -> Any:
    return typer.Option(f"--{program}", envvar=f"WINLAB_{program.replace('-', '_').upper()}", **OWN)


Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        allow_from_autoenv=False,  # each field has a variable
        help="Change a field, as in --set workers.cpus=4. @FILE reads a secret. Can be repeated.",
        metavar="FIELD=VALUE",
        rich_help_panel=SPEC,
    ),
]
AllowPath = Annotated[
    list[Path] | None,
    typer.Option(
        "--allow-path",
        envvar="WINLAB_ALLOW_PATH",
        help="Let the spec name files in this folder, too, not only in its own. Can be repeated.",
        metavar="DIR",
        rich_help_panel=SPEC,
    ),
]
Iso = Annotated[
    str | None,
    typer.Option(
        "--iso",
        envvar="WINLAB_ISO",
        help="Your own Windows Server ISO. It is not changed.",
        metavar="FILE",
        rich_help_panel=SPEC,
    ),
]


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
            help="The spec.",
            autocompletion=complete_specs,
            metavar="SPEC",
        ),
    ] = "1-1-1"
    spec_word: SpecWord = None


@dataclass(frozen=True)
class ChangeFlags:
    """The changes to a spec."""

    changes: Changes = None
    os: Annotated[
        str | None,
        typer.Option(
            "--os",
            envvar="WINLAB_OS",
            help="The workers' image, such as windows-2022 ('winlab image list').",
            autocompletion=complete_systems,
            metavar="IMAGE",
            rich_help_panel=SPEC,
        ),
    ] = None
    iso: Iso = None
    rehearse: Annotated[
        bool,
        typer.Option(
            "--rehearse",
            envvar="WINLAB_REHEARSE",
            help="Use stand-in Windows media, built here: tests everything except Windows itself.",
            rich_help_panel=SPEC,
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
            envvar="WINLAB_INSECURE_MIRROR",
            help="Accept artifacts without a known digest from a plain-http mirror.",
            rich_help_panel=SUPPLIES,
        ),
    ] = False
    source: Annotated[
        SourceKind | None,
        typer.Option(
            "--source",
            envvar="WINLAB_SOURCE",
            help="Where Kubernetes comes from. Default: the first of bundle, upstream, build that has it.",
            metavar="|".join(SourceKind),
            rich_help_panel=SUPPLIES,
        ),
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
            "--bundle",
            envvar="WINLAB_BUNDLE",
            help="Take everything from this bundle, nothing from the internet.",
            metavar="FILE",
            rich_help_panel=SUPPLIES,
        ),
    ] = None
    bundle_digest: Annotated[
        str | None,
        typer.Option(
            "--bundle-digest",
            envvar="WINLAB_BUNDLE_DIGEST",
            help="The digest (sha256:...) that the bundle must have.",
            metavar="DIGEST",
            rich_help_panel=SUPPLIES,
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

    kubelet: Annotated[list[Path] | None, _own("kubelet")] = None
    installer: Annotated[list[Path] | None, _own(distributions.DEFAULT)] = None  # the distribution's program
    kube_proxy: Annotated[list[Path] | None, _own("kube-proxy")] = None

    @property
    def origin(self) -> Origin:
        """These flags as operations take them."""
        from dataclasses import replace

        given = {"kubelet": self.kubelet, distributions.DEFAULT: self.installer, "kube-proxy": self.kube_proxy}
        own = tuple((program, account.expanded(path)) for program, paths in given.items() for path in paths or ())
        return replace(super().origin, own=own)


@dataclass(frozen=True)
class MakingFlags(SourceFlags):
    """How machines are made: from what, how far, under which terms, and of whose lab."""

    until: UntilWhen = Until.CLUSTER
    accept_eula: AcceptEula = False
    anyone: Anyone = False
