"""Runs as one HTML page that needs no other file, no script and no network: bars by node, and the critical path.

Guests and mirrors may have written parts of the texts: all are escaped, and the page's policy lets nothing run or load.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape

from winlab.history import critical
from winlab.history.critical import Link
from winlab.history.runs import RunRecord, RunState, StepRecord, StepState

ROW = 20  # pixels
LABEL, CHART, NUMBERS = 210, 720, 150  # widths: titles, bars, how long the steps took
LONGEST = 200  # characters of a text that are shown in one line
MOST = 4000  # characters of a failure's reason that are shown
NICE = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)  # seconds between ticks

STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1c2430; --faint: #66717f; --line: #d8dde3; --band: #f4f6f8;
  --done: #4c8fd6; --skipped: #aeb8c2; --failed: #d13b3b; --stopped: #e0a030; --critical: #c2560c; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181d; --ink: #e6e9ed; --faint: #98a3af; --line: #343c46;
  --band: #1b2027; --done: #4384c8; --skipped: #5a6571; --failed: #e05a5a; --stopped: #d9a441; --critical: #ff9d52; } }
body { margin: 2rem; background: var(--paper); color: var(--ink); font: 14px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 .5rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .25rem; } p { margin: .25rem 0; }
.chart { overflow-x: auto; } svg { display: block; background: var(--paper); font: 12px system-ui, sans-serif; }
text { fill: var(--ink); } .faint { fill: var(--faint); color: var(--faint); } .group { font-weight: 600; }
.band { fill: var(--band); } .tick { stroke: var(--line); } .usual { stroke: var(--faint); stroke-dasharray: 2 2; }
.done, .running, .checking { fill: var(--done); } .skipped { fill: var(--skipped); } .failed { fill: var(--failed); }
.stopped { fill: var(--stopped); } .critical { stroke: var(--critical); stroke-width: 2.5; }
.key { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 1em; border-radius: 2px; }
table { border-collapse: collapse; } th, td { padding: .1rem .8rem .1rem 0; text-align: left; }
th { color: var(--faint); font-weight: normal; } td.number, th.number { text-align: right; }
.failure { color: var(--failed); white-space: pre-wrap; }
""".strip()
CLASSES = {
    StepState.CHECKING: "checking",
    StepState.RUNNING: "running",
    StepState.SKIPPED: "skipped",
    StepState.DONE: "done",
    StepState.FAILED: "failed",
    StepState.STOPPED: "stopped",
    StepState.CUT: "stopped",
}
KEYS = (("done", "done"), ("done already", "skipped"), ("failed", "failed"), ("stopped or cut off", "stopped"))


def page(lab: str, runs: Sequence[RunRecord]) -> str:
    """The page."""
    title = escape(f"Timeline of {lab}")
    key = "".join(f'<span class="key" style="background: var(--{name})"></span>{words}' for words, name in KEYS)
    outline = '<span class="key" style="border: 2px solid var(--critical)"></span>on the critical path'
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>",
            f"<style>\n{STYLE}\n</style></head>",
            f"<body><h1>{title}</h1>",
            f'<p class="faint">{key}{outline}. A dotted line ends where the step usually does.</p>',
            *(_run(run) for run in runs),
            *(() if runs else ("<p>There is no run in the journal.</p>",)),
            "</body></html>\n",
        ]
    )


def clock(seconds: float) -> str:
    """75 → ``1:15``."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


def moment(seconds: float) -> str:
    """Seconds since 1970 as date and time of day here."""
    try:
        return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:.0f} s since 1970"


def ending(run: RunRecord) -> str:
    """How a run ended, for display."""
    if run.state is RunState.SILENT:
        return f"killed (no final event); last heard of at {moment(run.last)}, {clock(run.elapsed)} after its begin"
    if run.state is RunState.RUNNING:
        return f"running, {clock(run.elapsed)} so far"
    code = f" with exit code {run.exit_code}" if run.state is RunState.FAILED else ""
    return f"{run.state}{code} after {clock(run.elapsed)}"


def runner(run: RunRecord) -> str:
    """What ran it, for display; empty if the journal does not say."""
    parts = [f"by {run.user}" if run.user else "", f"process {run.pid}" if run.pid else ""]
    parts.append(f"winlab {run.version}" if run.version else "")
    return ", ".join(filter(None, parts))


def short(text: str) -> str:
    """A text in one line of limited length."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 4]} ..."


def _run(run: RunRecord) -> str:
    links = critical.path(run)
    waiting = [step for step in run.steps if step.begun is None]
    head = f"Run {run.number}: {run.command or 'run'}, {ending(run)}"
    facts = f"Began at {moment(run.began)}. {run.done} of {len(run.steps)} steps are done."
    parts = [f"<h2>{escape(short(head))}</h2>", f'<p class="faint">{escape(facts)} {escape(short(runner(run)))}</p>']
    parts += [
        f'<p class="failure">{escape(short(step.planned.step))}: {escape(step.failure[:MOST])}</p>'
        for step in run.begun
        if step.failure
    ]
    if run.begun:
        parts.append(f'<div class="chart">{chart(run, links)}</div>')
    if waiting:
        parts.append(f"<p>Not begun: {escape(', '.join(short(step.planned.step) for step in waiting))}.</p>")
    if links:
        parts.append(_path_table(run, links))
    return "\n".join(parts)


def _path_table(run: RunRecord, links: Sequence[Link]) -> str:
    worked = sum(link.step.seconds for link in links)
    waited = sum(link.waited for link in links)
    rows = [
        f'<tr><td>{escape(short(link.step.planned.step))}</td><td class="number">{clock(link.step.begun or 0)}</td>'
        f'<td class="number">{clock(link.step.seconds)}</td><td class="number">{_usual(link.step)}</td>'
        f'<td class="number">{clock(link.waited) if link.waited >= 1 else ""}</td></tr>'
        for link in links
    ]
    waits = f", and {clock(waited)} between them" if waited >= 1 else ""
    return (
        f"<h2>Critical path of run {run.number}</h2><p>{len(links)} steps, which took {clock(worked)}{waits}: "
        "the run ends sooner only if one of them does.</p>"
        '<table><tr><th>step</th><th class="number">began</th><th class="number">took</th>'
        f'<th class="number">usually</th><th class="number">waited before</th></tr>{"".join(rows)}</table>'
    )


def _usual(step: StepRecord) -> str:
    return clock(step.planned.measured) if step.planned.measured else ""


def chart(run: RunRecord, links: Sequence[Link]) -> str:
    """The bars of a run as SVG."""
    span = max([run.elapsed, *(step.ended for step in run.begun), 1.0])
    on_path = {link.step.number for link in links}
    groups: dict[str, list[StepRecord]] = {}
    for step in run.begun:
        groups.setdefault(run.group(step), []).append(step)
    parts: list[str] = []
    top = ROW
    for name, steps in groups.items():
        parts.append(f'<rect class="band" x="0" y="{top}" width="{LABEL + CHART + NUMBERS}" height="{ROW}"/>')
        parts.append(f'<text class="group" x="4" y="{top + 14}">{escape(short(name))}</text>')
        top += ROW
        for step in steps:
            parts.append(_bar(step, top, span, step.number in on_path))
            top += ROW
    height = top + 4
    parts = [*_ticks(span, height), *parts]
    width = LABEL + CHART + NUMBERS
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="Steps by node">{"".join(parts)}</svg>'
    )


def _bar(step: StepRecord, top: int, span: float, on_path: bool) -> str:
    begun = step.begun or 0.0
    left, width = _x(begun, span), max(1.5, step.seconds / span * CHART)
    kind = CLASSES[step.state] + (" critical" if on_path else "")
    usual = f", usually {clock(step.planned.measured)}" if step.planned.measured else ""
    hint = f"{short(step.planned.step)}: {step.state}. Began at {clock(begun)}, took {step.seconds:.1f} s{usual}."
    hint += f" {short(step.failure or step.text)}" if step.failure or step.text else ""
    title = step.planned.step if len(step.planned.step) <= 30 else f"{step.planned.step[:28]} …"
    line = ""
    if step.planned.measured > step.seconds and step.state is not StepState.SKIPPED:
        end = min(LABEL + CHART, _x(begun + step.planned.measured, span))
        line = f'<path class="usual" d="M{left + width:.1f} {top + 10} H{end:.1f}"/>'
    took = clock(step.seconds) if step.seconds >= 0.5 else ""
    return (
        f"<g><title>{escape(hint)}</title>"
        f'<text x="12" y="{top + 14}">{escape(title)}</text>{line}'
        f'<rect class="{kind}" x="{left:.1f}" y="{top + 4}" width="{width:.1f}" height="{ROW - 8}" rx="2"/>'
        f'<text x="{LABEL + CHART + 8}" y="{top + 14}">{took}<tspan class="faint" dx="6">{escape(_note(step))}</tspan>'
        "</text></g>"
    )


def _note(step: StepRecord) -> str:
    if step.state in (StepState.DONE, StepState.RUNNING, StepState.CHECKING):
        return f"usually {_usual(step)}" if step.planned.usual >= 1 else ""
    return str(step.state)


def _x(seconds: float, span: float) -> float:
    return LABEL + min(1.0, seconds / span) * CHART


def _ticks(span: float, height: int) -> list[str]:
    pause = next((nice for nice in NICE if span / nice <= 12), span / 12)
    parts = []
    for number in range(int(span / pause) + 1):
        x = _x(number * pause, span)
        parts.append(f'<path class="tick" d="M{x:.1f} {ROW - 4} V{height}"/>')
        parts.append(f'<text class="faint" x="{x:.1f}" y="12" text-anchor="middle">{clock(number * pause)}</text>')
    return parts
