"""The PowerShell of the project outside of script files."""

from __future__ import annotations

import ast
import html
import re
from collections.abc import Iterator

from powershell.conftest import SCRIPTS
from powershell.engine import ROOT

# A cmdlet's name, by the verbs that winlab uses; a method of a type
_COMMAND = re.compile(
    r"(?<![\w:-])(Add|ConvertFrom|ConvertTo|Get|Install|Invoke|New|Remove|Rename|Restart|Set|Start|Stop|Test|Wait|Write)"
    r"-[A-Z][A-Za-z]+\b|\[[A-Z][A-Za-z.]+\]::"
)
_LINE = re.compile(r'powershell\.exe[^<\n]*? -Command "(.*?)"', re.DOTALL)


def fragments() -> dict[str, str]:
    """Each one by what it is part of: templates, a script of a task, strings of the program."""
    return dict([*_of_templates(), *_of_tasks(), *_of_program()])


def _of_templates() -> Iterator[tuple[str, str]]:
    for path in SCRIPTS.rglob("*"):
        if path.suffix in (".j2", ".xml", ".cmd"):
            for number, command in enumerate(_LINE.findall(html.unescape(path.read_text()))):
                yield f"{path.name}-{number}", command


def _of_tasks() -> Iterator[tuple[str, str]]:
    for path in SCRIPTS.rglob("*.ps1"):
        for number, text in enumerate(re.findall(r"\$TaskScript = @'\n(.*?)\n'@", path.read_text(), re.DOTALL)):
            yield f"{path.stem}-task-{number}", text


def _of_program() -> Iterator[tuple[str, str]]:
    """Strings that have a cmdlet's name in them; of an f-string each value is a 0."""
    causes = ROOT / "winlab/design/cause"  # its texts name commands, and are not PowerShell
    for path in sorted((ROOT / "winlab").rglob("*.py")):
        if path.is_relative_to(causes):
            continue
        for node, text in _strings(ast.parse(path.read_text())):
            if _COMMAND.search(text):
                yield f"{'-'.join(path.relative_to(ROOT).parts)}-{node.lineno}", text


def _strings(tree: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    nodes = list(ast.walk(tree))
    passed = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    passed |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # documentation
    for node in nodes:
        if id(node) in passed:
            continue
        if isinstance(node, ast.JoinedStr):
            yield node, "".join(str(part.value) if isinstance(part, ast.Constant) else "0" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node, node.value
