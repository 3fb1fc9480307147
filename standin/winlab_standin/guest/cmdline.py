"""The syntax of cmd.exe's command lines: variables, quotes, carets, operators, parentheses, redirection. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

COMPUTED = ("DATE", "TIME", "RANDOM", "CMDCMDLINE", "CMDEXTVERSION")
OPERATORS = ("&&", "||", "&", "|")


class SyntaxFault(Exception):
    """The line is not valid for cmd.exe."""


@dataclass
class Redirection:
    """``handle`` goes to ``target`` (or comes from it: handle 0); ``&1`` means where that handle goes."""

    handle: int
    target: str
    append: bool = False


@dataclass
class Simple:
    """One command: its raw text, without redirections."""

    text: str
    redirections: list[Redirection] = field(default_factory=list)


@dataclass
class Group:
    """A command in parentheses."""

    body: Sequence
    redirections: list[Redirection] = field(default_factory=list)


@dataclass
class Sequence:
    """Commands joined by operators: ``items[n]`` is preceded by ``operators[n]`` ('' for the first)."""

    items: list[Simple | Group] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Put variables' values in place of ``%NAME%``; on a command line an unknown name stays as it is.

    :raises SyntaxFault: ``%NAME:...%`` of a known name, or a variable that cmd.exe computes: the stand-in does not.
    """
    names = {name.upper(): value for name, value in variables.items()}
    result, rest = "", text
    while True:
        before, mark, rest = rest.partition("%")
        result += before
        if not mark:
            return result
        name, end, after = rest.partition("%")
        if end and name and name.upper() in names:
            result, rest = result + names[name.upper()], after
        else:
            base = name.partition(":")[0].upper()
            if end and (base in COMPUTED or (":" in name and base in names)):
                raise SyntaxFault(f"The stand-in does not know %{name}%.")
            result += "%"


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def blanks(self) -> None:
        while self.peek() in (" ", "\t", ",", ";", "=") and self.peek():
            self.at += 1

    def operator(self) -> str:
        return next((item for item in OPERATORS if self.text.startswith(item, self.at)), "")


def parse(text: str) -> Sequence:
    """Read a line (variables already expanded).

    :raises SyntaxFault: a parenthesis is not closed, or an operator stands alone.
    """
    reader = _Reader(text)
    result = _sequence(reader, inside=False)
    if reader.at < len(reader.text):
        raise SyntaxFault(f"{reader.text[reader.at :].split()[0]} was unexpected at this time.")
    return result


def _sequence(reader: _Reader, inside: bool) -> Sequence:
    result = Sequence()
    operator = ""
    while True:
        reader.blanks()
        if not reader.peek() or (inside and reader.peek() == ")"):
            if operator not in ("", "&"):
                raise SyntaxFault("The syntax of the command is incorrect.")
            return result
        if reader.operator():
            raise SyntaxFault(f"{reader.operator()} was unexpected at this time.")
        result.items.append(_command(reader, inside))
        result.operators.append(operator)
        reader.blanks()
        operator = reader.operator()
        reader.at += len(operator)
        if not operator:
            return result


def _command(reader: _Reader, inside: bool) -> Simple | Group:
    if reader.peek() == "(":
        reader.at += 1
        body = _sequence(reader, inside=True)
        if reader.peek() != ")":
            raise SyntaxFault("The syntax of the command is incorrect.")
        reader.at += 1
        rest = _simple(reader, inside)
        return Group(body, rest.redirections)
    return _simple(reader, inside)


def _simple(reader: _Reader, inside: bool) -> Simple:
    words, quoted, depth = "", False, 0
    redirections: list[Redirection] = []
    while reader.peek():
        character = reader.peek()
        if character == '"':
            quoted = not quoted
        elif not quoted and character == "^":
            reader.at += 1
            words += reader.peek()
            reader.at += 1
            continue
        elif not quoted and character in "<>":
            words, redirection = _redirection(reader, words)
            redirections.append(redirection)
            continue
        elif not quoted and character == "(":
            depth += 1
        elif not quoted and character == ")" and inside:
            # "if exist x (a) else (b)" keeps its inner parentheses
            if depth == 0:
                break
            depth -= 1
        elif not quoted and depth == 0 and reader.operator():
            break
        elif not quoted and character == ")" and depth:
            depth -= 1
        words += character
        reader.at += 1
    return Simple(words, redirections)


def _redirection(reader: _Reader, words: str) -> tuple[str, Redirection]:
    sign = reader.peek()
    reader.at += 1
    handle = 0 if sign == "<" else 1
    if words[-1:].isdigit() and (len(words) == 1 or words[-2] in " \t,;="):
        handle, words = int(words[-1]), words[:-1]
    append = sign == ">" and reader.peek() == ">"
    if append:
        reader.at += 1
    if reader.peek() == "&":
        reader.at += 1
        target = "&" + reader.peek()
        reader.at += 1
        return words, Redirection(handle, target)
    while reader.peek() in (" ", "\t") and reader.peek():
        reader.at += 1
    target, quoted = "", False
    while reader.peek() and (quoted or reader.peek() not in ' \t&|<>)"'):
        target += reader.peek()
        reader.at += 1
        if reader.peek() == '"':
            quoted = not quoted
            reader.at += 1
    if reader.peek() == '"' and not target:
        reader.at += 1
        end = reader.text.find('"', reader.at)
        end = len(reader.text) if end < 0 else end
        target = reader.text[reader.at : end]
        reader.at = end + 1
    if not target:
        raise SyntaxFault("The syntax of the command is incorrect.")
    return words, Redirection(handle, target, append)


def split(text: str) -> list[str]:
    """Words as a C program on Windows gets them: separated by blanks, kept together by double quotes."""
    words, word, quoted, any_ = [], "", False, False
    at = 0
    while at < len(text):
        character = text[at]
        if character == "\\" and text[at + 1 : at + 2] == '"':
            word, any_ = word + '"', True
            at += 2
            continue
        if character == '"':
            quoted, any_ = not quoted, True
        elif character in " \t" and not quoted:
            if any_:
                words.append(word)
            word, any_ = "", False
        else:
            word, any_ = word + character, True
        at += 1
    return [*words, word] if any_ else words


def program(text: str) -> tuple[str, str]:
    """The first word of a command and the rest, raw: ``echo.x``, ``cd..`` and ``dir/b`` are split as cmd.exe does."""
    text = text.lstrip(" \t,;=@")
    if text.startswith('"'):
        name, _, rest = text[1:].partition('"')
        return name, rest
    at = 0
    while at < len(text) and text[at] not in " \t,;=/" and not (text[at] in ".([:" and text[:at].lower() == "echo"):
        if text[at] in ".\\" and text[:at].lower() in ("cd", "chdir"):
            break
        at += 1
    return text[:at], text[at:]
