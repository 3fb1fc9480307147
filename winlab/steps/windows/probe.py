"""The first command in a Windows node: checks what all others rely on, and explains each problem in a clear sentence.

WinRM, its input, the console's encoding and the token of a local account each have settings that a medium, a template
or a policy can change. Without this, a script fails much later, for a reason that is hard to guess.
"""

from __future__ import annotations

import hashlib
import time

from winlab.adapters.guests.scripts import NodeScripts
from winlab.adapters.guests.systems import ways
from winlab.design.contract import on_windows
from winlab.design.contract.call import QUESTION
from winlab.design.contract.on_windows import Probed
from winlab.errors import GuestCommandError, GuestError, SilentError, logs
from winlab.events import Progress
from winlab.printable import printable

TEXT = "winlab: Grüße, 日本語, \"quoted\" <&'%PATH%'>"
BLOCK = "0123456789abcdef" * 9600  # 150 KB: more than one message of WinRM
DIGEST = hashlib.sha256(BLOCK.encode()).hexdigest()
CODE = 3  # an exit code that nothing else has
VERSION = "5.1."
WRONG = 30.0  # seconds by which the clock may be wrong


def check(there: NodeScripts, progress: Progress) -> None:
    """Check what winlab's scripts need of a Windows node; set its clock if it is wrong.

    :raises GuestError: something is wrong; the message names each problem.
    """
    progress.say("checking input, output, rights and the clock")
    asked = time.time()
    try:
        facts = there.run(on_windows.Probe(text=TEXT, block=BLOCK), progress.say)
    except SilentError as error:
        raise _unfit(there, [_silence(there)]) from error
    answered = time.time()
    problems = [*_problems(facts), *_exit_code(there)]
    if problems:
        raise _unfit(there, problems)
    told = facts.clock / 1000
    if not asked - WRONG <= told <= answered + WRONG:
        off = told - answered
        progress.say(f"its clock is {abs(off):.0f} s {'ahead' if off > 0 else 'behind'}: setting it")
        there.execute([ways(there.tag.system).step_clock(round(-off * 1000))])


def _unfit(there: NodeScripts, problems: list[str]) -> GuestError:
    return GuestError(
        f"winlab's scripts can't work in '{there.tag.node}'.",
        why=" ".join(problems),
        cure="Look for what changes that: a policy, workers.template, workers.scripts. Then create the lab again.",
        evidence=logs(there.tag.node, there.tag.lab),
    )


def _silence(there: NodeScripts) -> str:
    """Why the probe is silent: PowerShell begins a script only when its input has ended."""
    try:
        there.execute([ways(there.tag.system).clock], silence=QUESTION)  # without input
    except GuestError:
        return "powershell.exe does not answer, with input or without."
    return "Input does not end: a script waits for more."


def _problems(facts: Probed) -> list[str]:
    problems = []
    if facts.text != TEXT:
        problems.append(f"Letters don't come back as they were sent: {printable(facts.text)!r} for {TEXT!r}.")
    if facts.sha256 != DIGEST:
        problems.append(f"Input of {len(BLOCK) >> 10} KiB does not arrive whole.")
    if not facts.elevated:
        problems.append("Commands run with a filtered token, not an administrator's (LocalAccountTokenFilterPolicy).")
    if facts.language != "FullLanguage":
        problems.append(f"A policy restricts PowerShell to {printable(facts.language)}.")
    if not facts.version.startswith(VERSION):
        problems.append(f"powershell.exe is {printable(facts.version)}, not {VERSION.rstrip('.')}.")
    return problems


def _exit_code(there: NodeScripts) -> list[str]:
    try:
        there.execute([f"cmd.exe /c exit {CODE}"])
    except GuestCommandError as error:
        return [] if error.code == CODE else [f"An exit code of {CODE} comes back as {error.code}."]
    return [f"An exit code of {CODE} comes back as 0."]
