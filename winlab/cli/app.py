"""The classes of all commands: they have one look, share options, and take words in several places."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from winlab import settings
from winlab.cli import words
from winlab.cli.session import current
from winlab.cli.tree import MODULES, SHARED
from winlab.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])
NO_RESULT = ("quiet", "debug")


def _with_shared(command: Any, ctx: Any, own: list[Any], shared: Sequence[str] = SHARED) -> list[Any]:
    main = ctx.find_root().command
    return own if main is command else [*own, *(one for one in main.params if one.name in shared)]


def settle(ctx: Any) -> None:
    """Give a command's options what other places of the command line say of them.

    :raises UsageError: two places contradict each other, the command has no such option, or a variable of the
        environment is not valid.
    """
    if ctx.resilient_parsing:
        return
    words.merge(ctx)
    settings.check_environment()
    current().lab = ctx.params.get("lab") or current().lab
    current().is_parsed = True


def _pages() -> Any:
    from winlab.cli import pages  # most commands show no help

    return pages


class Command(TyperCommand):
    """A command that does something."""

    shared: Sequence[str] = SHARED  # the options of the main command that it has, too

    def get_params(self, ctx: Any) -> list[Any]:
        """Its own parameters and the shared ones."""
        return _with_shared(self, ctx, list(super().get_params(ctx)), self.shared)

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        """Write the line that errors of usage begin with."""
        formatter.write(f"{_pages().usage(self, ctx)}\n")

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write its help page."""
        formatter.write(_pages().page(self, ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words; the command's options get what other places say of them."""
        rest: list[str] = super().parse_args(ctx, args)
        settle(ctx)
        return rest


class NoResult(Command):
    """A command that prints what is not winlab's result: it has no ``--output`` and no ``--events``."""

    shared: Sequence[str] = NO_RESULT


class Group(TyperGroup):
    """A command that has commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its own parameters and the shared ones."""
        return _with_shared(self, ctx, list(super().get_params(ctx)))

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        """Write the line that errors of usage begin with."""
        formatter.write(f"{_pages().usage(self, ctx)}\n")

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write its help page."""
        formatter.write(_pages().page(self, ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names.

        :raises UsageError: there is no such command; the error names similar ones.
        """
        if not ctx.resilient_parsing and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise _unknown(self, ctx, args[0])
        return super().resolve_command(ctx, args)


def _unknown(group: Group, ctx: Any, word: str) -> UsageError:
    from winlab.cli.tree import FOREIGN
    from winlab.near import guess

    names = [name for name in group.list_commands(ctx) if not getattr(group.get_command(ctx, name), "hidden", False)]
    meant = FOREIGN.get(word, "") if group is ctx.find_root().command else ""
    meant = f"'winlab {meant}'" if meant else guess(word, names)
    return UsageError(
        f"There is no command '{ctx.command_path} {word}'.",
        cure=f"Did you mean {meant}?" if meant else f"'{ctx.command_path} --help' lists the commands.",
    )


class App(typer.Typer):
    """A Typer application whose commands are of these classes."""

    def __init__(self, *, cls: type[TyperGroup] = Group, **more: Any) -> None:
        more = {"add_completion": False, "pretty_exceptions_enable": False, "rich_markup_mode": None, **more}
        super().__init__(cls=cls, **more)

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = Command, **more: Any
    ) -> Callable[[F], F]:
        """Register a function as a command."""
        return super().command(name, cls=cls, **more)


class Commands(Mapping[str, Any]):
    """winlab's commands, by name. A command's module is imported when it is asked for: all of them take too long."""

    def __init__(self) -> None:
        self._homes = {name: module for module, names in MODULES.items() for name in names.split()}
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            app = App()
            importlib.import_module(f"winlab.cli.{self._homes[name]}").register(app)
            self._made |= typer.main.get_group(app).commands
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)
