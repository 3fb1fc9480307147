"""Commands that show what a lab's commands are doing and have done: events, timeline; and ``status --watch``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from winlab import files, settings
from winlab.cli import table
from winlab.cli.common import drop_output, print_table, say
from winlab.cli.session import LabName, current
from winlab.cli.words import LabWord
from winlab.digits import is_number
from winlab.errors import UsageError

if TYPE_CHECKING:
    from winlab import Event, Lab, View
    from winlab.history.runs import RunRecord, StepRecord

BAR = 32  # characters of a bar on a terminal

Run = Annotated[
    str, typer.Option("--run", help="Which run: last, all, or a number; the oldest is 1.", metavar="last|all|N")
]


def register(app: typer.Typer) -> None:
    """Add the commands to *app*."""
    app.command()(events)
    app.command()(timeline)


def events(
    _word: LabWord = None,
    lab: LabName = settings.DEFAULT_LAB,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep showing new events, until Ctrl-C.")] = False,
    run: Run = "all",
) -> None:
    """Show what commands did to a lab, from its journal. With --follow, each event is a separate document.

    Examples:
      winlab events -f
      winlab events ci --run last
    """
    from winlab import Lab
    from winlab.cli.kinds import labs as kinds

    with _until_interrupted(follow):
        found = Lab(lab).events(_which(run), follow=follow)
        if not follow and current().answer(kinds.Event, map(_item, found)):
            return
        for event in found:
            if follow and current().stream(kinds.Event, _item(event)):
                continue
            if (line := _line(event)) is not None:
                say(line)
            if follow:
                sys.stdout.flush()


def timeline(
    _word: LabWord = None,
    lab: LabName = settings.DEFAULT_LAB,
    run: Run = "last",
    html: Annotated[
        Path | None, typer.Option("--html", help="Write one self-contained HTML page; '-': print it.", metavar="FILE")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", help="Write a trace file that Perfetto opens; '-': print it.", metavar="FILE"),
    ] = None,
) -> None:
    """Show when the steps of a run began and ended, and its critical path.

    Examples:
      winlab timeline
      winlab timeline ci --html timeline.html
    """
    from winlab import Lab
    from winlab.cli.kinds import labs as kinds

    for file in (html, trace):
        current().keep_apart(file)
    made = Lab(lab).timeline(_which(run))
    if html is not None:
        _write(html, made.html())
    if trace is not None:
        _write(trace, json.dumps(made.trace(), indent=1))
    document = made.document()
    rows = ({"name": str(one["number"]), "lab": document["lab"], **one} for one in document["runs"])
    if current().answer(kinds.Run, rows):
        return
    if html is None and trace is None:
        for one in made.runs:
            _show_run(one)


def follow(lab: Lab) -> None:
    """Show a lab as it changes, until Ctrl-C: a table on a terminal, otherwise a block or a document per change."""
    from rich.console import Console
    from rich.live import Live

    from winlab.cli.kinds import labs as kinds

    console = Console()
    with _until_interrupted(True), closing(lab.watch()) as views:
        people = current().for_people
        if people and console.is_terminal:
            with Live(console=console, auto_refresh=False) as live:
                for view in views:
                    live.update(_table(view, console.width), refresh=True)
        last = None
        for view in views:
            document = view.document()
            sign = _sign(view) if people else _document_sign(document)
            if sign != last and not current().stream(kinds.View, {"name": view.lab, **document}):
                say(_block(view))
                sys.stdout.flush()
            last = sign


@contextmanager
def _until_interrupted(endless: bool) -> Iterator[None]:
    """Treat Ctrl-C as the normal end of a command that is *endless*, and the same for a reader that has seen enough."""
    try:
        yield
    except KeyboardInterrupt:
        if not endless:
            raise
    except BrokenPipeError:
        drop_output()


def _which(text: str) -> int | Literal["last", "all"]:
    if text in ("last", "all"):
        return text  # type: ignore[return-value]
    if is_number(text):
        return int(text)
    raise UsageError(f"--run {text} does not name a run.", cure="Give 'last', 'all', or the number of a run.")


def _write(file: Path, text: str) -> None:
    try:
        files.write_named(file, text)
    except OSError as error:
        raise UsageError(f"'{file}' can't be written.", why=str(error)) from error
    say(f"{file} is written.", error=True)


def _item(event: Event) -> dict[str, Any]:
    """An event as an item of a result."""
    from winlab import events

    return {"name": type(event).__name__, **events.record(event)}


def _line(event: Event) -> str | None:
    """An event as a line for people; None if the next one says everything."""
    from winlab import events as known
    from winlab.cli.progress import describe, finished
    from winlab.history.page import moment

    match event:
        case known.RunStarted():
            by = ", ".join(filter(None, (event.user, f"process {event.pid}" if event.pid else "", event.version)))
            text = f"== {event.command or 'a run'} of {len(event.steps)} steps" + (f" ({by})" if by else "")
        case known.RunEnded():
            text = "== done" if event.exit_code == 0 else f"== ended with exit code {event.exit_code}"
        case known.StepChecking():
            return None
        case known.StepStarted():
            text = f"> {event.step}"
        case known.StepSkipped():
            text = f"= {event.step}: done already"
        case known.StepProgress():
            text = f"… {describe(event)}"
        case _:
            text = finished(event) or type(event).__name__
    return f"{moment(event.time)[:19]}  {text}"


def _show_run(run: RunRecord) -> None:
    from winlab.history import critical, page

    links = critical.path(run)
    on_path = {link.step.number for link in links}
    by = f" ({page.runner(run)})" if page.runner(run) else ""
    say(f"Run {run.number} of {run.lab}: {run.command or 'a run'}{by}, began at {page.moment(run.began)}, ", end="")
    say(f"{page.ending(run)}. {run.done} of {len(run.steps)} steps are done.")
    rows = [_row(run, step, "*" if step.number in on_path else "") for step in run.begun]
    if rows:
        print_table(["", "STEP", "NODE", "BEGAN", "TOOK", "USUALLY", "WHEN", "STATE"], rows, drop=("WHEN",))
    for step in run.begun:
        if step.failure:
            say(f"✗ {step.planned.step}: {page.short(step.failure)}")
    if links:
        worked, waited = sum(link.step.seconds for link in links), sum(link.waited for link in links)
        between = f", and {page.clock(waited)} between them" if waited >= 1 else ""
        say(f"* The critical path: {len(links)} steps, which took {page.clock(worked)}{between}.")


def _row(run: RunRecord, step: StepRecord, mark: str) -> list[str]:
    from winlab.history.page import clock, short
    from winlab.history.runs import StepState

    begun, usual = step.begun or 0.0, step.planned.measured
    state = "" if step.state is StepState.DONE else str(step.state)
    cells = [mark, short(step.planned.step), short(run.group(step)), clock(begun), clock(step.seconds)]
    return [*cells, clock(usual) if usual else "", _bar(begun, step.ended, run.elapsed), state]


def _bar(begun: float, ended: float, span: float) -> str:
    first = min(BAR - 1, int(begun / max(span, 1e-9) * BAR))
    last = max(first + 1, min(BAR, round(ended / max(span, 1e-9) * BAR)))
    return "·" * first + "█" * (last - first) + "·" * (BAR - last)


def _headline(view: View) -> list[str]:
    from winlab.cli.progress import clock
    from winlab.history import page
    from winlab.history.runs import RunState

    run, worker = view.run, view.worker
    lines = []
    if run is not None and run.state is RunState.RUNNING:
        by = f" by {worker.user} (process {worker.pid})" if worker else ""
        left = "" if view.left is None else f", about {clock(view.left)} left"
        done = f"{run.done} of {len(run.steps)} steps are done"
        lines.append(f"{view.lab}: {run.command or 'a run'}{by}: {done}, {clock(view.elapsed)} so far{left}")
    else:
        lines.append(f"{view.lab}: " + ("no command is changing it" if worker is None else "it is being changed"))
        if worker is not None:
            lines[-1] += f" by {worker.user} (process {worker.pid})"
            lines += [f"  {text}" for text in (view.outside and _line(view.outside),) if text]
        if run is not None:
            lines.append(f"  last run: {run.command or 'a run'}, {page.ending(run)}")
            lines += [f"  ✗ {step.planned.step}: {page.short(step.failure)}" for step in run.begun if step.failure]
    return [*lines, *([f"  {page.short(view.trouble)}"] if view.trouble else [])]


HEADS = ("NODE", "STATE", "ANSWERS", "STEPS", "AT")


def _cells(view: View) -> list[list[str]]:
    rows = []
    for node in view.nodes:
        answers = {True: "yes", False: "no", None: "-"}[node.answers]
        steps = f"{node.done} of {node.total}" if node.total else ""
        at = "; ".join(_at(view, step) for step in node.steps)
        rows.append([node.name, node.state or "-", answers, steps, at or node.problem])
    return rows


def _at(view: View, step: StepRecord) -> str:
    from winlab.cli.progress import clock
    from winlab.history.page import short
    from winlab.history.runs import StepState

    text = "looking whether it is done" if step.state is StepState.CHECKING else step.text
    line = short(f"{step.planned.step}: {text}" if text else step.planned.step)
    line += "" if step.fraction is None else f" {step.fraction:.0%}"
    usually = f", usually {clock(step.planned.measured)}" if step.planned.measured else ""
    return f"{line} ({clock(view.spent(step))}{usually})"


def _table(view: View, room: int) -> Any:
    """The view for a terminal of this width."""
    from rich.text import Text

    from winlab.printable import printable

    rows = ["".join(line).rstrip() for line in table.lines(HEADS, _cells(view), room, drop=("ANSWERS",))]
    ends = "Ctrl-C ends this view, and nothing else."
    return Text("\n".join([*map(printable, _headline(view)), "", *rows, "", ends]))


def _block(view: View) -> str:
    from winlab.history.page import moment

    first, *others = _headline(view)
    rows = ["  " + "  ".join(cell for cell in (row[0], *row[1:]) if cell) for row in _cells(view)]
    return "\n".join([f"{moment(view.time)[:19]} {first}", *others, *rows])


def _sign(view: View) -> object:
    """What must change before another block is printed."""
    run = view.run
    about = run and (run.number, run.id, run.state, run.done)
    nodes = [
        (node.name, node.state, node.answers, node.done, [(step.number, step.state) for step in node.steps])
        for node in view.nodes
    ]
    return (about, nodes, view.worker, view.outside, view.trouble)


def _document_sign(document: dict[str, Any]) -> object:
    """What must change before another line is printed: everything except the running times."""
    nodes = [{**node, "steps": [{**step, "seconds": 0} for step in node["steps"]]} for node in document["nodes"]]
    run = document["run"] and {**document["run"], "seconds": 0, "left": 0}
    return {**document, "time": 0, "run": run, "nodes": nodes}
