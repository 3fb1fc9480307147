"""The table of docs/survive.md, from what was recorded."""

from __future__ import annotations

from pathlib import Path

from survive import copies
from survive.command import ROOT
from survive.moments import BEGINNING, MOMENTS, PARTS, only_looks
from survive.record import Calm, Kill, Record, Whole

BEGIN, FINISH = "<!-- table: begin -->", "<!-- table: end -->"
GOAL = 1.15  # of the time of an undisturbed create: one that was killed, and the next one, together
TITLES = {
    "kill": "SIGKILL of `create`",
    "term": "SIGTERM of `create`",
    "guest": "SIGKILL of the guest's QEMU",
    "abandon": "SIGKILL of `create`, then `destroy`",
    "destroy": "SIGKILL of `destroy`, then `destroy`",
    "save": "SIGKILL of `snapshot save`, then the same",
    "reset": "SIGKILL of `reset`, then the same",
    "clone": "SIGKILL of `clone`, then the same",
    "delete": "SIGKILL of `snapshot delete`, then the same",
    "export": "SIGKILL of `snapshot export`, then the same",
    "import": "SIGKILL of `snapshot import`, then the same",
}
COLUMNS = (BEGINNING, *PARTS, *MOMENTS[1:])


def write(page: Path, record: Record) -> None:
    """Write the table into the page, between its marks; lives that the record does not know stay as they are."""
    head, _, rest = page.read_text().partition(BEGIN)
    before, _, tail = rest.partition(FINISH)
    lives = {**_by_title(before), **_by_title(table(record))}
    text = "\n\n".join(lives.values())
    page.write_text(f"{head}{BEGIN}\n{text}\n{FINISH}{tail}")


def _by_title(text: str) -> dict[str, str]:
    """The lives of a table, by their titles."""
    parts = f"\n{text}".split("\n### ")[1:]
    return {part.partition("\n")[0]: f"### {part.strip()}" for part in parts}


def table(record: Record) -> str:
    """All lives that were recorded, as Markdown."""
    calms = {(calm.life, calm.spec): calm for calm in record.calms()}
    wholes = {(whole.life, whole.spec): whole for whole in record.wholes()}
    kills: dict[tuple[str, str], list[Kill]] = {}
    for kill in record.kills():
        kills.setdefault((kill.life, kill.spec), []).append(kill)
    parts = [
        _life(life, spec, rows, calms.get((life if life in copies.LIVES else "create", spec)), wholes.get((life, spec)))
        for (life, spec), rows in kills.items()
    ]
    return "\n\n".join(parts)


def _life(life: str, spec: str, kills: list[Kill], calm: Calm | None, whole: Whole | None) -> str:
    title = TITLES.get(life, f"SIGKILL of {life}")
    steps = list(dict.fromkeys(kill.step for kill in kills))
    cells = {(kill.step, kill.moment): _cell(kill) for kill in kills}
    shown = [moment for moment in COLUMNS if any(kill.moment == moment for kill in kills)]
    lines = [f"### {title}: `{spec}`", "", _sum(life, kills, calm, whole), ""]
    lines += [f"| step | {' | '.join(shown)} | faults |", f"| --- |{' --- |' * (len(shown) + 1)}"]
    for step in steps:
        row = [cells.get((step, moment), "") for moment in shown]
        wrong = [f"{kill.moment}: {kill.fault}" for kill in kills if kill.step == step and kill.fault]
        shown_step = step.replace(f"{ROOT}/", "")  # a step may name a folder of this machine
        lines.append(f"| {shown_step} | {' | '.join(row)} | {'; '.join(wrong) or 'none'} |")
    return "\n".join(lines)


def _cell(kill: Kill) -> str:
    """Seconds lost; a cross if anything was wrong."""
    return f"{kill.lost:.0f} s{'' if kill.is_well else ' ✗'}"


def _sum(life: str, kills: list[Kill], calm: Calm | None, whole: Whole | None) -> str:
    bad = sum(not kill.is_well for kill in kills)
    text = f"{len(kills)} kills, {bad or 'none'} with a fault."
    if calm is not None and life in copies.LIVES:
        longest = max(kill.lost for kill in kills)
        text += f" Undisturbed: {calm.seconds:.0f} s. The same command again: {longest:.0f} s at most."
    elif calm is not None and life not in ("destroy", "abandon"):
        worst = max(kills, key=lambda kill: kill.lost)
        mean = sum(kill.lost for kill in kills) / len(kills)
        text += (
            f" Undisturbed: {calm.seconds:.0f} s. Lost by a kill: {mean:.0f} s on average"
            f" ({1 + mean / calm.seconds:.2f} ×), {worst.lost:.0f} s at most ({1 + worst.lost / calm.seconds:.2f} ×:"
            f" {worst.step}, {worst.moment})."
        )
    if looked := sum(any(map(only_looks, kill.again)) for kill in kills):
        text += f" After {looked} of them a step that only looks or waits started again."
    if whole is not None:
        if life not in copies.LIVES:
            text += f" Run twice at once in a node: {'; '.join(whole.twice) or 'nothing'}."
        text += f" Left after the last `destroy`: {'; '.join(whole.left) or 'nothing'}."
        if whole.missed:
            text += f" Points that did not come: {len(whole.missed)}."
    return text
