"""Commands about winlab itself: completion, version, docs, help."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from winlab import data
from winlab.cli.app import NoResult
from winlab.cli.common import print_table, say
from winlab.cli.session import current
from winlab.errors import NotFoundError
from winlab.near import did_you_mean
from winlab.version import __version__

PROGRAM = "winlab"
VARIABLE = "_WINLAB_COMPLETE"  # the shell's request for completions


def register(app: typer.Typer) -> None:
    """Add the commands to *app*."""
    app.command(cls=NoResult)(completion)
    app.command()(version)
    app.command()(docs)
    app.command("help", cls=NoResult)(show_help)


def prepare_completion() -> None:
    """Have Typer know the shells, if one asks for completions."""
    if VARIABLE in os.environ:
        from typer._completion_classes import completion_init

        completion_init()


def completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish"], typer.Argument(help="bash, zsh or fish.", metavar="SHELL", show_default=False)
    ],
) -> None:
    """Print the script that makes your shell complete commands, labs, nodes and images.

    Examples:
      winlab completion bash > ~/.local/share/bash-completion/completions/winlab
      winlab completion zsh > ~/.zfunc/_winlab   # a folder of $fpath
      winlab completion fish > ~/.config/fish/completions/winlab.fish
    """
    from typer._completion_shared import get_completion_script

    say(get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell))


def version() -> None:
    """Print the version.

    Examples:
      winlab version
      winlab version -o json
    """
    from winlab.cli.kinds import supplies as kinds

    row = kinds.Version(name=PROGRAM, version=__version__, python=platform.python_version(), program=sys.argv[0])
    if not current().answer(kinds.Version, [row]):
        say(f"{PROGRAM} {__version__}")


def _complete_topics() -> list[str]:
    return list(_topics())


def _topics() -> dict[str, Path]:
    return {path.stem: path for path in sorted(data.folder("docs").glob("*.md"))}


def docs(
    topic: Annotated[
        str | None,
        typer.Argument(
            help="The page; without it, all pages are listed.",
            metavar="[TOPIC]",
            autocompletion=_complete_topics,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Read a page of the documentation, in $PAGER at a terminal.

    Examples:
      winlab docs
      winlab docs specs
      winlab docs exit-codes | grep 20
    """
    from winlab.cli.kinds import supplies as kinds

    topics = _topics()
    if topic is None:
        rows = [kinds.Topic(name=name, title=_title(path)) for name, path in topics.items()]
        if not current().answer(kinds.Topic, rows):
            print_table(["TOPIC", "TITLE"], [[row.name, row.title] for row in rows])
        return
    name = topic.removesuffix(".md")
    if name not in topics:
        cure = f"{did_you_mean(name, topics)}'winlab docs' lists all pages."
        raise NotFoundError(f"There is no page '{topic}'.", cure=cure)
    text = topics[name].read_text(encoding="utf-8")
    if current().answer(kinds.Topic, [kinds.Topic(name=name, title=_title(topics[name]), text=text)]):
        return
    pager = shlex.split(os.environ.get("PAGER", "less"))
    if sys.stdout.isatty() and pager and shutil.which(pager[0]):
        from winlab import run

        run.replace([*pager, topics[name]])
    say(text, end="")


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.readline().removeprefix("# ").strip()


def show_help(
    ctx: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(help="The command.", metavar="[COMMAND...]", show_default=False)
    ] = None,
) -> None:
    """Show the help page of a command.

    Examples:
      winlab help
      winlab help node add
    """
    context = ctx.find_root()
    for name in names or ():
        command = getattr(context.command, "get_command", lambda *_: None)(context, name)
        if command is None:
            here = f"{context.command_path} --help"
            raise NotFoundError(f"There is no command '{' '.join(names or ())}'.", cure=f"'{here}' lists the commands.")
        context = command.make_context(name, [], parent=context, resilient_parsing=True)
    say(context.get_help())
