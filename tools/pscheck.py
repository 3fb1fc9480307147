#!/usr/bin/env python3
"""pscheck - check Windows PowerShell 5.1 scripts for mistakes, without Windows.

    pscheck.py [--os 2019] [--allow NAME] [--json] FILE_OR_DIRECTORY...

Reads every .ps1 and .psm1 file given (directories recursively), parses it the
way Windows PowerShell 5.1 does, and compares every command, parameter and
parameter value with the facts in data/powershell-5.1.json.  Nothing is run and
nothing but the Python standard library is needed.

One finding per line: ``path:line:col: CODE message``.  The exit status is 1
when there is an error, 0 when there are at most warnings, 2 when the checker
could not do its work.  README.md explains the codes and the limits.

The file has four parts: the syntax tree, the parser, the catalogue of known
commands, and the checks.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
import unicodedata
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

DATA_FILE = Path(__file__).resolve().parent / "data" / "powershell-5.1.json"

# code: (severity, meaning).  README.md is the long form of this table.
CODES = {
    "S001": ("error", "syntax error"),
    "S002": ("error", "syntax that only PowerShell 7 understands"),
    "S003": ("warning", "backtick that does not continue the line"),
    "S004": ("error", "character outside ASCII in a file without a byte order mark"),
    "S005": ("warning", "comparison written as an assignment or a redirection"),
    "S006": ("warning", "character outside ASCII in a comment"),
    "C001": ("error", "unknown command"),
    "C002": ("error", "command missing from a Windows Server release"),
    "C003": ("error", "alias that hides the program meant"),
    "C004": ("error", "command that only PowerShell 7 has"),
    "C005": ("warning", "command of a module that Windows does not ship"),
    "P001": ("error", "unknown parameter"),
    "P002": ("error", "ambiguous parameter"),
    "P003": ("warning", "abbreviated parameter"),
    "P004": ("warning", "parameter missing from a Windows Server release"),
    "P005": ("error", "parameter given twice"),
    "P006": ("error", "parameter without its argument"),
    "P007": ("warning", "value outside the documented set"),
    "P008": ("error", "switch followed by a value"),
    "P009": ("error", "parameter that only PowerShell 7 has"),
    "P010": ("warning", "more positional arguments than the command takes"),
    "P011": ("warning", "mandatory parameter not given"),
    "P012": ("warning", "parameter that a function without CmdletBinding does not declare"),
    "V001": ("warning", "variable that is never assigned"),
    "V002": ("error", "assignment to a read-only variable"),
    "V003": ("error", "variable name that swallows a colon"),
}


# --------------------------------------------------------------------------
# Part 1: the syntax tree.  Only what the checks need is kept.
# --------------------------------------------------------------------------


class Node:
    """An expression.  ``value`` is its literal text where it has one.

    kind: variable, splat, string, bare, number, block, hash, array, paren,
    sub, type, cast, member, call, index, unary, binary, pipeline, statement.
    """

    __slots__ = ("end", "kids", "kind", "start", "value")

    def __init__(self, kind, start, end, value=None, kids=()):
        self.kind, self.start, self.end = kind, start, end
        self.value, self.kids = value, kids


@dataclass
class Param:
    """``-Name`` or ``-Name:value`` in a command."""

    name: str
    start: int
    end: int
    colon: bool = False
    value: Node | None = None


@dataclass
class Command:
    name: str | None  # None when only known at run time
    start: int
    operator: str = ""  # "", "&" or "."
    elements: list = field(default_factory=list)  # Param and Node, in order
    piped: bool = False  # receives pipeline input
    head: Node | None = None


@dataclass
class Function:
    name: str
    start: int
    end: int = 0
    params: dict = field(default_factory=dict)  # lower-case name: FunctionParam
    advanced: bool = False  # takes the common parameters
    open_ended: bool = False  # reads $args or has dynamic parameters
    depth: int = 1  # how many script blocks it is inside, itself included


@dataclass
class FunctionParam:
    name: str
    aliases: tuple = ()
    switch: bool = False
    values: tuple = ()


@dataclass
class Variable:
    name: str  # without $, with its scope
    start: int
    written: bool = False


class Problem(Exception):
    """A syntax error; parsing of the file ends here."""

    def __init__(self, start, message):
        super().__init__(message)
        self.start, self.message = start, message


# --------------------------------------------------------------------------
# Part 2: the parser.  Recursive descent over the text itself.  PowerShell has
# two modes: in expression mode a word is an error, in command mode (after a
# command name) a word is an argument.  Every method leaves self.i after what
# it has read; a method that returns None has read nothing.
# --------------------------------------------------------------------------

DASHES = "-\u2013\u2014\u2015"
SINGLE = "'\u2018\u2019\u201a\u201b"
DOUBLE = '"\u201c\u201d\u201e'
NEWLINES = "\r\n"
ENDS_WORD = set("\0 \t\v\f\r\n&(),;{|}")  # what ends a word in command mode

VARIABLE_NAME = re.compile(r"[$?^]|(?:\w|:(?!:))(?:[\w?]|:(?!:))*")
WORD = re.compile(r"[^\W\d]\w*")
NUMBER = re.compile(
    r"(?:0[xX][0-9a-fA-F]+|\d+\.(?!\.)\d*(?:[eE][+-]?\d+)?|\d+(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)"
    r"[lLdD]?(?:[kKmMgGtTpP][bB])?"
)
NUMBER_7 = re.compile(r"(?:0[bB][01]+|\d+)(?:[uU][lLsSyY]?|[sSyYnN])?")
REDIRECTION = re.compile(r"(?:\*|[1-6])?>>?(?:&[12])?|<(?!#)")
TYPE_NAME = re.compile(r"[^\W\d][\w.+`]*")
ASSEMBLY = re.compile(r",\s*[\w.]+(?:\s*,\s*\w+\s*=\s*[\w.]+)*\s*(?=\])")  # behind the type name

_COMPARE = "eq ne gt ge lt le like notlike match notmatch replace contains notcontains in notin split".split()
BINARY_WORDS = (
    set("and or xor band bor bxor shl shr f is isnot as join".split())
    | set(_COMPARE)
    | {c + w for c in "ci" for w in _COMPARE}
)
UNARY_WORDS = set("not bnot join split csplit isplit".split())
KEYWORDS = set(
    "if while do for foreach switch function filter workflow configuration class enum return throw "
    "break continue exit try trap data using parallel sequence".split()
)
NAMED_BLOCKS = {"begin", "process", "end", "dynamicparam"}


def is_blank(c):
    if c in " \t\v\f\u00a0\u0085":
        return c != ""
    return c > "\x7f" and unicodedata.category(c) in ("Zs", "Zl", "Zp")


class Parser:
    def __init__(self, text):
        self.s = text
        self.n = len(text)
        self.i = 0
        self.no_comma = False
        self.commands = []
        self.functions = []
        self.variables = []
        self.hashes = []  # (variable name, position, hash Node): for splatting
        self.comments = []  # (start, end)
        self.notes = []  # (position, code, message) that do not stop the parser
        self.names = set()  # variables that a data statement defines
        self.script_function = Function("", 0)  # the script itself, with its param block
        self.functions_open = (self.script_function,)  # the innermost last
        self.attribute_values = []  # arguments of the attribute just read
        self.statement_start = -1
        self.depth = 0  # script blocks being read

    def parse(self):
        """Read the whole text; return the Problem that stopped it, or None."""
        try:
            self.script_body("")
            if self.i < self.n:
                self.unexpected()
            if any(v.name.lower() == "args" for v in self.variables):
                self.script_function.open_ended = True
        except Problem as problem:
            return problem
        except RecursionError:
            return Problem(self.i, "nested too deeply to be checked")
        return None

    # ---- characters ----

    def peek(self, ahead=0):
        j = self.i + ahead
        return self.s[j] if j < self.n else ""

    def at(self, text):
        return self.s.startswith(text, self.i)

    def ends_word(self, c):
        return c == "" or c in ENDS_WORD or (c > "\x7f" and is_blank(c))

    def note(self, start, code, message):
        self.notes.append((start, code, message))

    def unexpected(self, expected=""):
        c = self.peek()
        if c == "":
            raise Problem(self.n, "unexpected end of file" + (f", {expected} expected" if expected else ""))
        word = re.compile(r"\w+|[^\w\s]\w*|\s").match(self.s, self.i)
        shown = repr(word.group() if word else c)
        if c in NEWLINES:
            shown = "end of line"
        raise Problem(self.i, f"unexpected {shown}" + (f", {expected} expected" if expected else ""))

    def expect(self, text, what):
        if not self.at(text):
            self.unexpected(f"{text!r} {what}".strip())
        self.i += len(text)

    def blanks(self):
        """Skip white space, comments and continued lines, but no line end."""
        while self.i < self.n:
            c = self.s[self.i]
            if is_blank(c):
                self.i += 1
            elif c == "#":
                start = self.i
                while self.i < self.n and self.s[self.i] not in NEWLINES:
                    self.i += 1
                self.comments.append((start, self.i))
            elif c == "<" and self.peek(1) == "#":
                end = self.s.find("#>", self.i + 2)
                if end < 0:
                    raise Problem(self.i, "block comment without '#>'")
                self.comments.append((self.i, end + 2))
                self.i = end + 2
            elif c == "`" and self.peek(1) and self.peek(1) in NEWLINES:
                self.i += 3 if self.s.startswith("\r\n", self.i + 1) else 2
            elif c == "`" and self.peek(1) and is_blank(self.peek(1)):
                rest = self.i + 1
                while rest < self.n and is_blank(self.s[rest]):
                    rest += 1
                if rest == self.n or self.s[rest] in NEWLINES:
                    self.note(self.i, "S003", "white space after the backtick: the line is not continued")
                self.i += 1
            else:
                return

    def lines(self, semicolons=False):
        """Skip white space, comments and line ends."""
        while True:
            self.blanks()
            c = self.peek()
            if c and (c in NEWLINES or (semicolons and c == ";")):
                self.i += 1
            else:
                return

    def word_here(self):
        """The keyword at this place, lower case, or ''."""
        found = WORD.match(self.s, self.i)
        if found and self.ends_word(self.s[found.end()] if found.end() < self.n else ""):
            return found.group().lower()
        return ""

    # ---- strings and variables ----

    def single_quoted(self):
        start = self.i
        self.i += 1
        text = []
        while self.i < self.n:
            c = self.s[self.i]
            self.i += 1
            if c in SINGLE:
                if self.peek() and self.peek() in SINGLE:
                    self.i += 1
                else:
                    return Node("string", start, self.i, "".join(text))
            text.append(c)
        raise Problem(start, "string without its closing '")

    def escape(self):
        """A backtick and what it escapes."""
        start = self.i
        self.i += 1
        c = self.peek()
        self.i += 1
        if c == "u" and self.peek() == "{":
            self.note(start, "S002", "`u{...} is a PowerShell 7 escape")
        return {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}.get(c, c)

    def dollar(self, here=False):
        """A $ inside a string or a word: True when something is expanded."""
        c = self.peek(1)
        if c == "(":
            self.sub_in_string(here)
        elif c == "{" or (c and VARIABLE_NAME.match(c)):
            self.variable()
        else:
            return False
        return True

    def sub_in_string(self, here):
        """$( ... ) inside a string.

        PowerShell finds its end by counting parentheses, whatever quotes they
        are in, and takes `" and "" in there for " (but not in here-strings).
        """
        start, depth, j = self.i, 0, self.i + 1
        doubled = []
        while j < self.n:
            c = self.s[j]
            depth += (c == "(") - (c == ")")
            if depth == 0:
                break
            if not here and (c == "`" or c in DOUBLE) and self.s[j + 1 : j + 2] and self.s[j + 1] in DOUBLE:
                doubled.append(j)
                j += 1
            j += 1
        if j >= self.n:
            raise Problem(start, "$( without its )")
        keep_s, keep_n = self.s, self.n
        for k in doubled:
            self.s = self.s[:k] + " " + self.s[k + 1 :]
        self.n = j + 1
        try:
            self.sub()
        finally:
            self.s, self.n = keep_s, keep_n
        if self.i != j + 1:
            raise Problem(start, "$( ... ) with unbalanced parentheses in its strings")

    def double_quoted(self):
        start = self.i
        self.i += 1
        text, literal = [], True
        while self.i < self.n:
            c = self.s[self.i]
            if c in DOUBLE:
                self.i += 1
                if not (self.peek() and self.peek() in DOUBLE):
                    return Node("string", start, self.i, "".join(text) if literal else None)
            elif c == "`":
                text.append(self.escape())
                continue
            elif c == "$" and self.dollar():
                literal = False
                continue
            else:
                self.i += 1
            text.append(c)
            if c in DOUBLE:
                self.i += 1
        raise Problem(start, 'string without its closing "')

    def here_string(self):
        start = self.i
        quotes = SINGLE if self.peek(1) in SINGLE else DOUBLE
        self.i += 2
        while self.peek() and is_blank(self.peek()):
            self.i += 1
        if self.peek() not in ("\r", "\n"):
            raise Problem(self.i, "text after the opening of a here-string must start on a new line")
        literal = True
        body = self.i + (2 if self.at("\r\n") else 1)
        while self.i < self.n:
            c = self.s[self.i]
            if c in NEWLINES:
                self.i += 2 if self.at("\r\n") else 1
                if self.peek() and self.peek() in quotes and self.peek(1) == "@":
                    text = self.s[body : max(body, self.i - 1)].rstrip("\r") if literal else None
                    self.i += 2
                    return Node("string", start, self.i, text)
            elif quotes is DOUBLE and c == "`":
                self.escape()
            elif quotes is DOUBLE and c == "$" and self.dollar(here=True):
                literal = False
            else:
                self.i += 1
        indented = re.compile(rf"[ \t]+[{quotes}]@", re.M).search(self.s, body)
        if indented:
            raise Problem(indented.start(), "the end of a here-string must be at the start of its line")
        raise Problem(start, "here-string without its end")

    def variable(self, splat=False):
        """$name, ${name} or @name; None when there is no name."""
        start = self.i
        if self.peek(1) == "{" and not splat:
            j = self.i + 2
            while j < self.n and self.s[j] != "}":
                j += 2 if self.s[j] == "`" else 1
            if j >= self.n:
                raise Problem(start, "${ without its }")
            name = self.s[self.i + 2 : j].replace("`", "")
            if not name:
                raise Problem(start, "empty variable name ${}")
            self.i = j + 1
        else:
            found = VARIABLE_NAME.match(self.s, self.i + 1)
            if not found:
                return None
            name = found.group()
            self.i = found.end()
            if name.endswith(":"):
                raise Problem(start, f"variable reference ${name} is not valid; write ${{{name.rstrip(':')}}}: instead")
        reference = Variable(name, start)
        self.variables.append(reference)
        return Node("splat" if splat else "variable", start, self.i, reference)

    # ---- expressions ----

    def expression(self):
        left = self.comma_list()
        if left is None:
            return None
        while True:
            self.blanks()
            start = self.i
            operator = self.binary_operator()
            if operator is None:
                return left
            self.lines()
            right = self.comma_list()
            if right is None:
                raise Problem(start, f"nothing to the right of {operator!r}")
            if operator == "?":
                self.lines()
                self.expect(":", "in ?:")
                self.lines()
                if self.expression() is None:
                    self.unexpected("a value")
            left = Node("binary", left.start, self.i, operator, (left, right))

    def binary_operator(self):
        """Read an operator between two values."""
        c = self.peek()
        if c == "":
            return None
        if c in DASHES:
            found = re.compile(r"[A-Za-z]+").match(self.s, self.i + 1)
            if found:
                if found.group().lower() not in BINARY_WORDS:
                    word = re.compile(r"\w+").match(self.s, self.i + 1)
                    raise Problem(self.i, f"unexpected '-{word.group()}' in an expression")
                self.i = found.end()
                return "-" + found.group().lower()
            if self.peek(1) == "=" or (self.peek(1) and self.peek(1) in DASHES):
                return None
            self.i += 1
            return "-"
        if c == ".":
            if self.peek(1) == ".":
                self.i += 2
                return ".."
            return None
        if c in "+*/%":
            if self.peek(1) == "=" or (c == "+" and self.peek(1) == "+") or (c == "*" and self.peek(1) == ">"):
                return None
            self.i += 1
            return c
        if c == "?":
            if self.at("??="):
                return None
            if self.at("??"):
                self.note(self.i, "S002", "the ?? operator needs PowerShell 7")
                self.i += 2
                return "??"
            self.note(self.i, "S002", "the ? : operator needs PowerShell 7")
            self.i += 1
            return "?"
        return None

    def comma_list(self):
        first = self.unary()
        if first is None or self.no_comma:
            return first
        items = [first]
        while True:
            self.blanks()
            if self.peek() != ",":
                break
            comma = self.i
            self.i += 1
            self.lines()
            item = self.unary()
            if item is None:
                raise Problem(comma, "nothing after the comma")
            items.append(item)
        return first if len(items) == 1 else Node("array", first.start, self.i, None, items)

    def unary(self):
        self.blanks()
        start, c = self.i, self.peek()
        if c == "":
            return None
        operator = ""
        if c in DASHES:
            found = re.compile(r"[A-Za-z]+").match(self.s, self.i + 1)
            if found:
                if found.group().lower() not in UNARY_WORDS:
                    return None
                operator = "-" + found.group().lower()
                self.i = found.end()
            else:
                operator = "--" if self.peek(1) and self.peek(1) in DASHES else "-"
                self.i += len(operator)
        elif c == "!":
            if re.compile(r"[^\W\d]").match(self.peek(1) or " "):
                return None  # !word is read as the name of a command
            operator = "!"
            self.i += 1
        elif c == "+":
            operator = "++" if self.peek(1) == "+" else "+"
            self.i += len(operator)
        elif c == "," and not self.no_comma:
            operator = ","
            self.i += 1
        if operator:
            self.lines()
            child = self.unary()
            if child is None:
                if operator in ("-", "+", "--", "++") and start == self.statement_start:
                    self.i = start
                    return None
                raise Problem(start, f"nothing after {operator!r}")
            node = Node("unary", start, self.i, operator, (child,))
        elif c == "[":
            node = self.cast_or_type()
        else:
            node = self.primary()
        if node is None:
            return None
        self.postfix(node)
        return node

    def postfix(self, node):
        """Read ++ or -- behind a value."""
        keep = self.i
        self.blanks()
        two = self.s[self.i : self.i + 2]
        if two == "++" or (len(two) == 2 and two[0] in DASHES and two[1] in DASHES):
            self.i += 2
            self.mark_written(node)
        else:
            self.i = keep

    def cast_or_type(self):
        """[type], [type]value, [type]::member or [attribute()]value."""
        start = self.i
        bracket = self.bracket()
        if bracket is None:
            return None
        name, attribute = bracket
        if not attribute and (self.at("::") or (self.peek() == "." and self.peek(1) != ".")):
            return self.members(Node("type", start, self.i, name))
        keep = self.i
        if attribute:
            self.lines()
        else:
            self.blanks()
        if self.peek() and self.peek() not in NEWLINES and self.peek() != ",":
            child = self.unary()
            if child is not None:
                return Node("cast", start, self.i, name, (child,))
        if attribute:
            raise Problem(start, f"attribute [{name}()] without a variable")
        self.i = keep
        return Node("type", start, self.i, name)

    def bracket(self):
        """[type] or [attribute(...)]: (name, is an attribute)."""
        start = self.i
        self.i += 1
        self.lines()
        name = self.type_name()
        if name is None:
            self.i = start
            raise Problem(start, "type name expected after '['")
        self.lines()
        attribute = False
        if self.peek() == "(":
            attribute = True
            self.attribute_arguments(name)
        elif found := ASSEMBLY.match(self.s, self.i):
            self.i = found.end()
        self.lines()
        self.expect("]", "after the type name")
        return name, attribute

    def type_name(self):
        found = TYPE_NAME.match(self.s, self.i)
        if not found:
            return None
        self.i = found.end()
        name = found.group()
        while re.compile(r"\s*\[").match(self.s, self.i):
            self.lines()
            start = self.i
            self.i += 1
            self.lines()
            while self.peek() == ",":
                self.i += 1
                self.blanks()
            if self.peek() != "]":
                while True:  # arguments of a generic type
                    self.lines()
                    if self.peek() == "[":
                        self.bracket()
                        self.lines()
                    elif self.type_name() is None:
                        self.unexpected("a type name")
                    self.lines()
                    if self.peek() != ",":
                        break
                    self.i += 1
            self.expect("]", "in the type name")
            name += self.s[start : self.i]
        if self.peek() in ("*", "&"):
            self.i += 1
        return name

    def attribute_arguments(self, attribute):
        self.expect("(", "")
        keep_comma, self.no_comma = self.no_comma, True
        self.attribute_values = []
        values = []
        while True:
            self.lines()
            if self.peek() == ")":
                break
            found = WORD.match(self.s, self.i)
            if found:
                self.i = found.end()
                self.blanks()
                value = None
                if self.peek() == "=":
                    self.i += 1
                    self.lines()
                    value = self.expression()
                    if value is None:
                        self.unexpected("a value")
                values.append((found.group().lower(), value))
            else:
                value = self.expression()
                if value is None:
                    self.unexpected("an attribute argument")
                values.append((None, value))
            self.lines()
            if self.peek() != ",":
                break
            self.i += 1
        self.lines()
        self.expect(")", f"after the arguments of [{attribute}]")
        self.no_comma = keep_comma
        self.attribute_values = values

    def primary(self, in_command=False):
        start, c = self.i, self.peek()
        if c == "":
            return None
        if c in SINGLE:
            node = self.single_quoted()
        elif c in DOUBLE:
            node = self.double_quoted()
        elif c == "$":
            if self.peek(1) == "(":
                node = self.sub()
            else:
                node = self.variable()
                if node is None:
                    return None
        elif c == "@":
            d = self.peek(1)
            if d == "(":
                node = self.sub()
            elif d == "{":
                node = self.hash_literal()
            elif d and d in SINGLE + DOUBLE:
                node = self.here_string()
            else:
                node = self.variable(splat=True)
                if node is None:
                    raise Problem(start, "'@' that opens nothing")
        elif c == "(":
            node = self.paren()
        elif c == "{":
            node = self.block()
        elif c.isdigit() or c == ".":
            node = self.number(in_command)
            if node is None:
                return None
        else:
            return None
        return self.members(node, in_command)

    def number(self, in_command=False):
        for pattern in (NUMBER,) if in_command else (NUMBER, NUMBER_7):
            found = pattern.match(self.s, self.i)
            if not found:
                continue
            after = self.s[found.end()] if found.end() < self.n else ""
            if self.ends_word(after) or (not in_command and after and after in "!#%*+-./<=>]" + DASHES):
                start, self.i = self.i, found.end()
                if pattern is NUMBER_7:
                    self.note(start, "S002", f"the number {found.group()} needs PowerShell 7")
                return Node("number", start, self.i, found.group())
        return None

    def members(self, node, in_command=False):
        """.member, ::member, [index] and calls, directly behind a value."""
        while True:
            c = self.peek()
            if c == ".":
                d = self.peek(1)
                if d == "." or (in_command and (d == "" or is_blank(d) or d in NEWLINES)):
                    return node
                self.i += 1
                node = self.member(node)
            elif c == ":" and self.peek(1) == ":":
                d = self.peek(2)
                if in_command and (d == "" or is_blank(d) or d in NEWLINES):
                    return node
                self.i += 2
                node = self.member(node)
            elif c == "[":
                start = self.i
                self.i += 1
                self.lines()
                keep_comma, self.no_comma = self.no_comma, False
                index = self.expression()
                self.no_comma = keep_comma
                if index is None:
                    raise Problem(start, "nothing between the brackets")
                self.lines()
                self.expect("]", "after the index")
                node = Node("index", node.start, self.i, None, (node, index))
            elif c == "?" and self.peek(1) in (".", "["):
                self.note(self.i, "S002", f"the ?{self.peek(1)} operator needs PowerShell 7")
                self.i += 1
            else:
                if c == "<" and self.peek(1) == "#":
                    end = self.s.find("#>", self.i)
                    if end > 0 and self.s[end + 2 : end + 3] in (".", "["):
                        self.blanks()
                        continue
                return node

    def member(self, target):
        self.lines()
        c = self.peek()
        found = re.compile(r"\w+").match(self.s, self.i)
        name = None
        if found:
            self.i = found.end()
            name = found.group()
        elif c and c in SINGLE:
            name = self.single_quoted().value
        elif c and c in DOUBLE:
            name = self.double_quoted().value
        elif c == "$":
            if (self.sub() if self.peek(1) == "(" else self.variable()) is None:
                self.unexpected("a member name")
        elif c == "(":
            self.paren()
        else:
            self.unexpected("a member name")
        node = Node("member", target.start, self.i, name, (target,))
        if self.peek() == "(":
            node = Node("call", target.start, self.i, name, (target, *self.call_arguments()))
        elif self.peek() == "{":
            node = Node("call", target.start, self.i, name, (target, self.block()))
        node.end = self.i
        return node

    def call_arguments(self):
        start = self.i
        self.i += 1
        keep_comma, self.no_comma = self.no_comma, True
        arguments = []
        while True:
            self.lines()
            argument = self.expression()
            if argument is None:
                if arguments:
                    self.unexpected("an argument")
                break
            arguments.append(argument)
            self.lines()
            if self.peek() != ",":
                break
            self.i += 1
        self.lines()
        if self.peek() != ")":
            if self.peek() == "":
                raise Problem(start, "'(' without its ')'")
            self.unexpected("',' or ')' in the arguments of the method")
        self.i += 1
        self.no_comma = keep_comma
        return arguments

    def paren(self):
        start = self.i
        self.i += 1
        self.lines()
        keep_comma, self.no_comma = self.no_comma, False
        inner = self.pipeline()
        self.no_comma = keep_comma
        if inner is None:
            raise Problem(start, "an expression is missing after '('")
        self.lines()
        self.close(")", start)
        return Node("paren", start, self.i, None, (inner,))

    def close(self, text, opened):
        if self.peek() == "":
            opening = self.s[opened : opened + (2 if self.s[opened] in "@$" else 1)]
            raise Problem(opened, f"{opening!r} without its {text!r}")
        if not self.at(text):
            self.unexpected(f"{text!r}")
        self.i += 1

    def sub(self):
        """$( ... ) or @( ... )"""
        start = self.i
        self.i += 2
        keep_comma, self.no_comma = self.no_comma, False
        statements = self.statements()
        self.no_comma = keep_comma
        self.close(")", start)
        return Node("sub", start, self.i, self.s[start], statements)

    def block(self):
        """A script block: { ... }"""
        start = self.i
        self.i += 1
        keep_comma, self.no_comma = self.no_comma, False
        self.script_body("}")
        self.no_comma = keep_comma
        self.close("}", start)
        return Node("block", start, self.i)

    def hash_literal(self):
        start = self.i
        self.i += 2
        keep_comma, self.no_comma = self.no_comma, False
        entries = []
        while True:
            self.lines(semicolons=True)
            if self.peek() in ("}", ""):
                break
            at = self.i
            found = WORD.match(self.s, self.i)
            if found:
                self.i = found.end()
                key = found.group()
            else:
                self.no_comma = True
                node = self.unary()
                self.no_comma = False
                if node is None:
                    self.unexpected("a key")
                key = node.value if node.kind in ("string", "number") else None
            self.blanks()
            if self.peek() != "=":
                self.unexpected("'=' after the key")
            self.i += 1
            self.lines()
            value = self.statement()
            if value is None:
                raise Problem(at, "key without a value")
            entries.append((key, value, at))
            self.blanks()
            if self.peek() not in ("\r", "\n", ";", "}", ""):
                self.unexpected("a new line, ';' or '}'")
        self.no_comma = keep_comma
        self.close("}", start)
        return Node("hash", start, self.i, None, entries)

    # ---- pipelines and commands ----

    def pipeline(self):
        """An assignment or a pipeline; the Node of a lone expression, else a pipeline Node."""
        self.blanks()
        start = self.i
        self.statement_start = start
        first = self.expression()
        if first is not None:
            self.blanks()
            for operator in ("=", "+=", "-=", "*=", "/=", "%=", "??="):
                if self.at(operator):
                    return self.assignment(first, operator)
        count = 0
        result = first
        while True:
            if first is not None:
                if count:
                    raise Problem(first.start, "an expression can only be the first element of a pipeline")
                self.redirections()
            elif not self.command(piped=count > 0):
                if count == 0:
                    return None
                self.unexpected("a command after '|'")
            count += 1
            self.blanks()
            c = self.peek()
            if self.at("||") or self.at("&&"):
                self.note(self.i, "S002", f"the {c * 2} operator needs PowerShell 7")
                self.i += 2
                self.lines()
                if self.pipeline() is None:
                    self.unexpected("a command")
                break
            if c == "|":
                bar = self.i
                self.i += 1
                self.lines()
                if self.peek() == "":
                    raise Problem(bar, "nothing after '|'")
                keep = self.i
                first = self.expression()
                if first is None:
                    self.i = keep
                continue
            if c == "&":
                self.note(self.i, "S002", "the background operator & needs PowerShell 7")
                self.i += 1
                break
            if c in ("", "\r", "\n", ";", ")", "}"):
                if c in ("\r", "\n") and c and self.leading_bar():
                    self.note(self.i, "S002", "a line that starts with | continues a pipeline only in PowerShell 7")
                    self.lines()
                    continue
                break
            self.unexpected()
        if count == 1 and result is not None:
            return result
        return Node("pipeline", start, self.i)

    def leading_bar(self):
        """Whether the next line with code on it starts with |."""
        return re.compile(r"(?:\s|#[^\r\n]*[\r\n])*\|(?!\|)").match(self.s, self.i) is not None

    def assignment(self, target, operator):
        if operator == "??=":
            self.note(self.i, "S002", "the ??= operator needs PowerShell 7")
        elif self.at("==") and target.kind in ("variable", "member", "index"):
            raise Problem(self.i, "'==' is not an operator; compare with -eq")
        at = self.i
        self.i += len(operator)
        if not self.assignable(target):
            raise Problem(at, f"nothing that can be assigned to is left of {operator!r}")
        self.mark_written(target)
        self.lines()
        value = self.statement()
        if value is None:
            self.unexpected(f"a value after {operator!r}")
        self.remember_hash(target, value)
        return Node("assignment", target.start, self.i, operator, (target, value))

    def assignable(self, node):
        if node.kind in ("variable", "member", "index"):
            return True
        if node.kind in ("cast", "array"):
            return all(self.assignable(kid) for kid in node.kids)
        if node.kind == "paren":
            return all(self.assignable(kid) for kid in node.kids)
        return False

    def mark_written(self, node):
        if node.kind == "variable":
            node.value.written = True
        elif node.kind in ("cast", "array", "paren"):
            for kid in node.kids:
                self.mark_written(kid)

    def remember_hash(self, target, value):
        if target.kind == "cast":
            target = target.kids[0]
        while value.kind in ("cast", "paren") and value.kids:
            value = value.kids[0]
        if target.kind == "variable":
            self.hashes.append((target.value.name.lower(), target.start, value if value.kind == "hash" else None))

    def redirections(self):
        while True:
            self.blanks()
            found = REDIRECTION.match(self.s, self.i)
            if not found:
                return
            self.redirection(found)

    def redirection(self, found):
        text, start = found.group(), self.i
        self.i = found.end()
        if text == "<":
            raise Problem(start, "the '<' operator is reserved for future use")
        if "&" in text:
            if text.endswith("&2"):
                raise Problem(start, f"the '{text}' operator is reserved for future use")
            return
        self.blanks()
        if self.argument_item() is None:
            raise Problem(start, f"nothing to redirect to after {text!r}")

    def command(self, piped):
        """Read a command; False when there is none here."""
        self.blanks()
        c = self.peek()
        if c == "" or c in "\r\n;|)},":
            return False
        command = Command(None, self.i, piped=piped)
        if c == "&" or (c == "." and (self.ends_word(self.peek(1)) or self.peek(1) in "$\"'")):
            if self.at("&&"):
                return False
            command.operator = c
            self.i += 1
            self.blanks()
            start = self.i
            head = self.argument_item()
            if head is None:
                self.unexpected(f"a command after {c!r}")
            command.head = head
            command.start = start
            if head.kind in ("string", "bare"):
                command.name = head.value
        else:
            head = self.word()
            command.head = head
            command.name = head.value if head.value is not None else self.s[head.start : head.end]
        self.commands.append(command)
        if command.name == "param" and not command.operator:
            raise Problem(command.start, "param must come before every other statement of its block")
        self.command_elements(command)
        return True

    def command_elements(self, command):
        only_arguments = False
        while True:
            self.blanks()
            start, c = self.i, self.peek()
            if c == "" or c in "\r\n;|)}&":
                return
            if c == ",":
                raise Problem(start, "comma without a value before it")
            found = REDIRECTION.match(self.s, self.i)
            if found:
                self.redirection(found)
                continue
            if c in DASHES and self.peek(1):
                d = self.peek(1)
                if d in DASHES and self.ends_word(self.peek(2)):
                    only_arguments = True
                    self.i += 2
                    continue
                if (d.isalpha() or d in "_?") and not only_arguments:
                    parameter = self.parameter()
                    if parameter is not None:
                        command.elements.append(parameter)
                        continue
            if self.at("--%") and self.ends_word(self.peek(3)):
                while self.peek() and self.peek() not in "\r\n|":
                    self.i += 1
                command.elements.append(Node("verbatim", start, self.i))
                continue
            argument = self.argument()
            if argument is None:
                self.unexpected()
            command.elements.append(argument)

    def parameter(self):
        """-Name or -Name:value; None when quotes make it a plain argument."""
        start = self.i
        j = self.i + 1
        while j < self.n:
            c = self.s[j]
            if c in "{}();,|&.[\r\n:" or is_blank(c):
                break
            if c in SINGLE + DOUBLE:
                return None
            j += 1
        name = self.s[start + 1 : j]
        self.i = j
        found = Param(name, start, j)
        if self.peek() == ":":
            found.colon = True
            self.i += 1
            self.blanks()
            if self.peek() != ",":
                found.value = self.argument()
                if found.value is None:
                    raise Problem(start, f"nothing after -{name}:")
        return found

    def argument(self):
        """One argument, or several joined by commas."""
        first = self.argument_item()
        if first is None:
            return None
        items = [first]
        while True:
            keep = self.i
            self.blanks()
            if self.peek() != ",":
                self.i = keep
                break
            comma = self.i
            self.i += 1
            self.lines()
            item = self.argument_item()
            if item is None:
                raise Problem(comma, "nothing after the comma")
            items.append(item)
        return first if len(items) == 1 else Node("array", first.start, self.i, None, items)

    def argument_item(self):
        start, c = self.i, self.peek()
        if c == "" or c in "\r\n;|)}&,":
            return None
        if c in SINGLE + DOUBLE or c in "({":
            return self.primary(in_command=True)
        if c == "$" and self.peek(1) == "(":
            return self.primary(in_command=True)
        if c == "@" and self.peek(1) and self.peek(1) in "({" + SINGLE + DOUBLE:
            return self.primary(in_command=True)
        if c in "$@":
            counted = len(self.variables)
            node = self.variable(splat=c == "@") if c == "$" or VARIABLE_NAME.match(self.peek(1) or " ") else None
            if node is not None:
                d = self.peek()
                special = node.end - node.start == 2 and self.s[node.start + 1] in "$?^"
                joined = d in ".[" or self.at("::") or (d == "=" and self.s[start + 1] != "{")
                if self.ends_word(d) or (joined and not special):
                    return self.members(node, in_command=True)
                del self.variables[counted:]
                self.i = start
            elif c == "@":
                raise Problem(start, "'@' that opens nothing")
            return self.word()
        if c.isdigit() or (c == "." and self.peek(1).isdigit()):
            node = self.number(in_command=True)
            if node is not None:
                return node
        return self.word()

    def word(self):
        """A bare word; it may hold quotes, escapes and variables."""
        start = self.i
        text, literal = [], True
        while not self.ends_word(self.peek()):
            c = self.s[self.i]
            if c == "`":
                if self.peek(1) and self.peek(1) in NEWLINES:
                    self.note(
                        self.i,
                        "S003",
                        "no white space before the backtick: the line end becomes part of the word",
                    )
                text.append(self.escape())
            elif c in SINGLE:
                text.append(self.single_quoted().value)
            elif c in DOUBLE:
                value = self.double_quoted().value
                literal = literal and value is not None
                text.append(value or "")
            elif c == "$" and self.dollar():
                literal = False
            else:
                text.append(c)
                self.i += 1
        if self.i == start:
            self.unexpected()
        return Node("bare", start, self.i, "".join(text) if literal else None)

    # ---- statements ----

    def statements(self):
        """Statements up to a closing bracket or the end."""
        found = []
        while True:
            self.lines(semicolons=True)
            if self.peek() in ("", ")", "}"):
                return found
            start = self.i
            node = self.statement()
            if node is None or self.i == start:
                self.unexpected()
            found.append(node)

    def script_body(self, end):
        """using, param and then statements or begin/process/end blocks."""
        self.depth += 1
        self.script_body_parts(end)
        self.depth -= 1

    def script_body_parts(self, end):
        self.lines(semicolons=True)
        while self.word_here() == "using":
            self.using()
            self.lines(semicolons=True)
        self.param_block()
        self.lines(semicolons=True)
        if self.word_here() in NAMED_BLOCKS and self.opens_block(self.word_here()):
            while True:
                self.lines(semicolons=True)
                if self.peek() in ("", end) and (self.peek() or not end):
                    return
                word = self.word_here()
                if word == "clean":
                    self.note(self.i, "S002", "a clean block needs PowerShell 7")
                elif word not in NAMED_BLOCKS:
                    self.unexpected("begin, process or end")
                self.i += len(word)
                if word == "dynamicparam":
                    self.functions_open[-1].open_ended = True
                self.statement_block(f"after {word}")
        self.statements()

    def opens_block(self, word):
        return re.compile(r"(?:\s|#[^\r\n]*[\r\n]|<#.*?#>)*\{", re.S).match(self.s, self.i + len(word)) is not None

    def statement_block(self, after=""):
        self.lines()
        start = self.i
        self.expect("{", after)
        keep_comma, self.no_comma = self.no_comma, False
        self.statements()
        self.no_comma = keep_comma
        self.close("}", start)
        return Node("statement", start, self.i)

    def using(self):
        self.i += len("using")
        self.blanks()
        kind = self.word_here()
        if kind not in ("namespace", "module", "assembly", "type", "command"):
            self.unexpected("namespace, module or assembly")
        self.i += len(kind)
        self.blanks()
        if self.argument_item() is None:
            self.unexpected(f"a name after 'using {kind}'")
        self.blanks()
        if self.peek() not in ("", "\r", "\n", ";"):
            self.unexpected()

    def param_block(self):
        """[attributes] param( ... ), if there is one."""
        keep = self.i, len(self.commands), len(self.variables), len(self.notes), len(self.comments)
        attributes = []
        try:
            while self.peek() == "[":
                attributes.append(self.bracket()[0].lower())
                self.lines()
        except Problem:
            attributes = []
            self.i = keep[0]
        if self.word_here() != "param":
            self.i = keep[0]
            for items, count in zip((self.commands, self.variables, self.notes, self.comments), keep[1:], strict=True):
                del items[count:]
            return
        self.i += len("param")
        self.lines()
        if self.peek() != "(":
            self.unexpected("'(' after param")
        params, advanced = self.parameter_list()
        function = self.functions_open[-1]
        if self.depth == function.depth and not function.params:
            function.params, function.advanced = params, advanced or "cmdletbinding" in attributes

    def parameter_list(self):
        """( [attributes] $name = default, ... )"""
        opened = self.i
        self.i += 1
        params, advanced, comma = {}, False, None
        keep_comma = self.no_comma
        while True:
            self.lines()
            self.no_comma = True
            aliases, values, switch = [], [], False
            start = self.i
            while self.peek() == "[":
                self.attribute_values = []
                name, attribute = self.bracket()
                if attribute:
                    given = self.attribute_values
                    if name.lower() == "parameter":
                        advanced = True
                    elif name.lower() == "alias":
                        aliases += [v.value for _, v in given if v is not None and v.kind == "string"]
                    elif name.lower() == "validateset":
                        values += [v.value for k, v in given if k is None and v.kind == "string"]
                elif name.lower() in (
                    "switch",
                    "switchparameter",
                    "system.management.automation.switchparameter",
                ):
                    switch = True
                self.lines()
            if self.peek() != "$":
                if self.i != start or comma is not None:
                    self.unexpected("a parameter")
                break
            node = self.variable()
            if node is None:
                self.unexpected("a parameter")
            node.value.written = True
            params[node.value.name.lower()] = FunctionParam(node.value.name, tuple(aliases), switch, tuple(values))
            self.lines()
            if self.peek() == "=":
                self.i += 1
                self.lines()
                if self.expression() is None:
                    self.unexpected("a default value")
                self.lines()
            comma = None
            if self.peek() != ",":
                break
            comma = self.i
            self.i += 1
        self.no_comma = keep_comma
        self.lines()
        if self.peek() == "":
            raise Problem(opened, "'(' without its ')'")
        if self.peek() != ")":
            self.unexpected("',' or ')' in the parameter list")
        self.i += 1
        return params, advanced

    def statement(self):
        self.blanks()
        start = self.i
        if self.peek() == ":" and WORD.match(self.s, self.i + 1):
            label = WORD.match(self.s, self.i + 1)
            if self.ends_word(self.s[label.end()] if label.end() < self.n else ""):
                self.i = label.end()
                self.lines()
                if self.word_here() not in ("for", "foreach", "while", "do", "switch"):
                    self.unexpected("a loop after the label")
        word = self.word_here()
        if word in KEYWORDS and self.is_statement(word):
            self.i += len(word)
            getattr(self, "do_" + word)(start)
            return Node("statement", start, self.i, word)
        if self.peek() == "[" and (attributed := self.attributes_before_class()):
            self.i = attributed
            return self.statement()
        return self.pipeline()

    def is_statement(self, word):
        if word in ("parallel", "sequence", "data", "configuration", "workflow"):
            behind = {
                "data": r"\s*(?:[\w-]+\s*)?(?:-supportedcommand[^{]*)?\{",
                "configuration": r"\s+[\w\"'$]",
                "workflow": r"\s+\w",
            }
            rest = re.compile(behind.get(word, r"\s*\{"), re.I)
            return rest.match(self.s, self.i + len(word)) is not None
        return True

    def attributes_before_class(self):
        found = re.compile(r"(?:\[[^\]\[]*\]\s*)+(?=(?:class|enum|configuration)\s)", re.I).match(self.s, self.i)
        return found.end() if found else 0

    def condition(self, word):
        self.lines()
        opened = self.i
        self.expect("(", f"after {word}")
        self.lines()
        node = self.pipeline()
        if node is None:
            self.unexpected("a condition")
        self.lines()
        self.close(")", opened)
        return node

    def suspicious_condition(self, node, opened):
        """`if ($a = 1)` and `if ($a > 1)`."""
        if node.kind == "assignment" and node.value == "=" and node.kids[1].kind in ("number", "string"):
            self.note(opened, "S005", "'=' assigns; compare with -eq")
        text = self.s[node.start : node.end]
        found = re.compile(r"\s(>=?|<=?)\s*[\w$]+\s*$").search(self.s[opened : self.i].rstrip(")"))
        if found and node.kind in ("variable", "member", "index", "call", "number", "binary") and ">" in found.group(1):
            self.note(opened, "S005", f"'{found.group(1)}' redirects to a file; compare {text!r} with -gt or -ge")

    def do_if(self, _start):
        word = "if"
        while True:
            self.lines()
            opened = self.i
            node = self.condition(word)
            self.suspicious_condition(node, opened)
            self.statement_block(f"after {word} (...)")
            keep = self.i
            self.lines()
            word = self.word_here()
            if word == "elseif":
                self.i += len(word)
                continue
            if word == "else":
                self.i += len(word)
                self.lines()
                if self.word_here() == "if":
                    raise Problem(self.i, "'else if' is written elseif")
                self.statement_block("after else")
            else:
                self.i = keep
            return

    def do_while(self, _start):
        self.condition("while")
        self.statement_block("after while (...)")

    def do_do(self, _start):
        self.statement_block("after do")
        self.lines()
        word = self.word_here()
        if word not in ("while", "until"):
            self.unexpected("while or until")
        self.i += len(word)
        self.condition(word)

    def do_for(self, _start):
        self.lines()
        opened = self.i
        self.expect("(", "after for")
        for _ in range(2):
            self.lines()
            if self.peek() not in (";", ")"):
                self.pipeline()
            self.blanks()
            while self.peek() and self.peek() in NEWLINES:
                self.i += 1
                self.blanks()
            if self.peek() == ";":
                self.i += 1
        self.lines()
        if self.peek() != ")" and self.pipeline() is None:
            self.unexpected("')' after the for clauses")
        self.lines()
        self.close(")", opened)
        self.statement_block("after for (...)")

    def do_foreach(self, _start):
        self.lines()
        while self.peek() and self.peek() in DASHES:
            flag = re.compile(r".(\w+)").match(self.s, self.i)
            if not flag or flag.group(1).lower() not in ("parallel", "throttlelimit"):
                self.unexpected("'(' after foreach")
            self.i = flag.end()
            self.blanks()
            if flag.group(1).lower() == "throttlelimit":
                self.argument_item()
                self.blanks()
        opened = self.i
        self.expect("(", "after foreach")
        self.lines()
        node = self.variable() if self.peek() == "$" else None
        if node is None:
            self.unexpected("a variable")
        node.value.written = True
        self.lines()
        if self.word_here() != "in":
            self.unexpected("'in'")
        self.i += 2
        self.lines()
        if self.pipeline() is None:
            self.unexpected("a collection after 'in'")
        self.lines()
        self.close(")", opened)
        self.statement_block("after foreach (...)")

    def do_switch(self, _start):
        self.lines()
        from_file = False
        while self.peek() and self.peek() in DASHES:
            flag = re.compile(r".(\w+)").match(self.s, self.i)
            name = flag.group(1).lower() if flag else ""
            options = ("regex", "wildcard", "exact", "casesensitive", "parallel", "file")
            names = [option for option in options if name and option.startswith(name)]
            if not names:
                self.unexpected("a switch option")
            self.i = flag.end()
            self.blanks()
            if names[0] == "file":
                from_file = True
                if self.argument_item() is None:
                    self.unexpected("a file name")
                self.lines()
        if not from_file:
            self.condition("switch")
        self.lines()
        opened = self.i
        self.expect("{", "after switch (...)")
        while True:
            self.lines(semicolons=True)
            if self.peek() in ("}", ""):
                break
            if self.word_here() == "default":
                self.i += len("default")
            elif self.argument_item() is None:
                self.unexpected("a switch condition")
            self.statement_block("after the switch condition")
        self.close("}", opened)

    def do_function(self, _start):
        self.lines()
        begin = self.i
        while not self.ends_word(self.peek()):
            self.i += 1
        name = self.s[begin : self.i]
        if not name or name[0] in "$@'\"":
            self.i = begin
            self.unexpected("a function name")
        name = re.sub(r"^(?:global|script|local|private):", "", name, flags=re.I)
        function = Function(name, begin, depth=self.depth + 1)
        self.functions.append(function)
        self.lines()
        if self.peek() == "(":
            function.params, function.advanced = self.parameter_list()
            self.lines()
        opened = self.i
        self.expect("{", f"after function {name}")
        keep_open, self.functions_open = self.functions_open, (*self.functions_open, function)
        keep_comma, self.no_comma = self.no_comma, False
        counted = len(self.variables)
        self.script_body("}")
        self.no_comma = keep_comma
        self.functions_open = keep_open
        self.close("}", opened)
        function.end = self.i
        if any(v.name.lower() == "args" for v in self.variables[counted:]):
            function.open_ended = True

    do_filter = do_function

    def do_workflow(self, start):
        self.do_function(start)
        self.functions[-1].open_ended = True

    def do_configuration(self, _start):
        """A DSC configuration is read over: it has a language of its own."""
        self.lines()
        name = self.argument_item()
        if name is None:
            self.unexpected("a configuration name")
        self.functions.append(Function(name.value or "", name.start, self.i, open_ended=True))
        self.lines()
        if self.peek() != "{":
            self.unexpected("'{'")
        self.skip_block()

    def skip_block(self):
        opened, depth = self.i, 0
        while self.i < self.n:
            c = self.s[self.i]
            if c in SINGLE:
                self.single_quoted()
            elif c in DOUBLE:
                self.double_quoted()
            elif c == "@" and self.peek(1) and self.peek(1) in SINGLE + DOUBLE:
                self.here_string()
            elif c == "#" or self.at("<#"):
                self.blanks()
            elif c == "`":
                self.i += 2
            else:
                depth += (c == "{") - (c == "}")
                self.i += 1
                if depth == 0:
                    return
        raise Problem(opened, "'{' without its '}'")

    def do_class(self, _start):
        self.lines()
        name = WORD.match(self.s, self.i)
        if not name:
            self.unexpected("a class name")
        self.i = name.end()
        self.lines()
        if self.peek() == ":":
            self.i += 1
            while True:
                self.lines()
                if self.type_name() is None:
                    self.unexpected("a base class")
                self.lines()
                if self.peek() != ",":
                    break
                self.i += 1
        opened = self.i
        self.expect("{", f"after class {name.group()}")
        while True:
            self.lines(semicolons=True)
            if self.peek() in ("}", ""):
                break
            self.class_member()
        self.close("}", opened)

    def class_member(self):
        while True:
            self.lines()
            if self.peek() == "[":
                self.bracket()
            elif self.word_here() in ("static", "hidden"):
                self.i += len(self.word_here())
            else:
                break
        if self.peek() == "$":
            node = self.variable()
            if node is None:
                self.unexpected("a property")
            self.variables.remove(node.value)
            self.blanks()
            if self.peek() == "=":
                self.i += 1
                self.lines()
                if self.expression() is None:
                    self.unexpected("a value")
            self.blanks()
            if self.peek() not in ("\r", "\n", ";", "}"):
                self.unexpected("a new line or ';'")
            return
        name = WORD.match(self.s, self.i)
        if not name:
            self.unexpected("a property or a method")
        self.i = name.end()
        self.blanks()
        if self.peek() != "(":
            self.unexpected("'(' after the method name")
        self.parameter_list()
        self.lines()
        if self.peek() == ":":
            self.i += 1
            self.lines()
            if self.word_here() != "base":
                self.unexpected("base")
            self.i += 4
            self.lines()
            if self.peek() != "(":
                self.unexpected("'(' after base")
            self.call_arguments()
        self.statement_block("after the method's parameters")

    def do_enum(self, _start):
        self.lines()
        name = WORD.match(self.s, self.i)
        if not name:
            self.unexpected("an enum name")
        self.i = name.end()
        self.lines()
        if self.peek() == ":":
            self.note(self.i, "S002", "an enum with a base type needs PowerShell 7")
            self.i += 1
            self.blanks()
            self.type_name()
            self.lines()
        opened = self.i
        self.expect("{", f"after enum {name.group()}")
        while True:
            self.lines(semicolons=True)
            if self.peek() in ("}", ""):
                break
            item = WORD.match(self.s, self.i)
            if not item:
                self.unexpected("an enum value")
            self.i = item.end()
            self.blanks()
            if self.peek() == "=":
                self.i += 1
                self.lines()
                if self.expression() is None:
                    self.unexpected("a value")
        self.close("}", opened)

    def do_return(self, _start):
        self.pipeline()

    do_throw = do_exit = do_return

    def do_break(self, _start):
        self.blanks()
        if self.peek() not in ("", "\r", "\n", ";", "}", ")"):
            if self.argument_item() is None:
                self.unexpected()

    do_continue = do_break

    def do_try(self, start):
        self.statement_block("after try")
        clauses = 0
        while True:
            keep = self.i
            self.lines()
            word = self.word_here()
            if word == "catch":
                self.i += len(word)
                self.lines()
                while self.peek() == "[":
                    self.bracket()
                    self.lines()
                    if self.peek() == ",":
                        self.i += 1
                        self.lines()
                self.statement_block("after catch")
            elif word == "finally":
                self.i += len(word)
                self.statement_block("after finally")
                return
            else:
                if not clauses:
                    raise Problem(start, "try without catch or finally")
                self.i = keep
                return
            clauses += 1

    def do_trap(self, _start):
        self.lines()
        if self.peek() == "[":
            self.bracket()
        self.statement_block("after trap")

    def do_data(self, _start):
        self.blanks()
        name = re.compile(r"[\w-]+").match(self.s, self.i)
        if name and self.peek() not in DASHES:
            self.names.add(name.group().lower())
            self.i = name.end()
            self.blanks()
        if self.peek() and self.peek() in DASHES:
            self.i += len("-supportedcommand")
            self.blanks()
            self.argument()
        self.statement_block("after data")

    def do_parallel(self, _start):
        self.statement_block()

    do_sequence = do_parallel

    def do_using(self, start):
        raise Problem(start, "using must come before every other statement")


# --------------------------------------------------------------------------
# Part 3: the catalogue: what data/powershell-5.1.json says.
# --------------------------------------------------------------------------


@dataclass
class KnownParam:
    name: str
    aliases: tuple = ()
    kind: str = ""  # switch, bool, int, any (documents disagree) or "" (a value)
    values: tuple = ()
    os: tuple = ()  # empty: wherever the command is
    mandatory: bool = False
    common: bool = False


class KnownCommand:
    simple = False  # a function that takes unknown parameters for arguments

    def __init__(self, name, entry, common):
        self.name = name
        self.module = entry.get("module", "")
        self.os = tuple(entry.get("os", ()))  # empty: every release
        self.open = entry.get("open", False)  # parameters not known
        self.dynamic = entry.get("dynamic", False)  # has parameters beyond those known
        self.positional = entry.get("positional", 0)
        self.params = [known_param(n, e) for n, e in entry.get("params", {}).items()]
        self.by_name = index_params(self.params, common)


class KnownFunction(KnownCommand):
    """A function of the scripts themselves, as a command to bind to."""

    def __init__(self, function, common):
        self.name = "function " + function.name
        self.module, self.os, self.positional = "", (), -1
        self.open, self.dynamic = function.open_ended, False
        self.simple = not function.advanced
        if function.advanced:
            common = [*common, KnownParam("WhatIf", ("wi",), "switch", common=True)]
            common.append(KnownParam("Confirm", ("cf",), "switch", common=True))
        self.params = [
            KnownParam(p.name, p.aliases, "switch" if p.switch else "", p.values) for p in function.params.values()
        ]
        self.by_name = index_params(self.params, common if function.advanced else [])


def known_param(name, entry, common=False):
    if isinstance(entry, str):
        entry = {"kind": entry}
    return KnownParam(
        name,
        tuple(entry.get("aliases", ())),
        entry.get("kind", ""),
        tuple(entry.get("values", ())),
        tuple(entry.get("os", ())),
        entry.get("mandatory", False),
        common,
    )


def index_params(params, common):
    """lower-case name or alias: KnownParam.  The command's own names come first."""
    found = {}
    for parameter in common:
        for name in (parameter.name, *parameter.aliases):
            found[name.lower()] = parameter
    for parameter in params:
        for name in parameter.aliases:
            found[name.lower()] = parameter
    for parameter in params:
        found[parameter.name.lower()] = parameter
    return found


def match_param(by_name, name):
    """(parameter, candidates): the way PowerShell resolves a shortened name."""
    name = name.lower()
    if name in by_name:
        return by_name[name], []
    found = {id(p): p for key, p in by_name.items() if key.startswith(name)}
    candidates = list(found.values())
    own = [p for p in candidates if not p.common]
    if len(candidates) > 1 and len(own) == 1:
        candidates = own
    return (candidates[0], candidates) if len(candidates) == 1 else (None, candidates)


class Catalogue:
    def __init__(self, path=DATA_FILE):
        data = json.loads(Path(path).read_text(encoding="ascii"))
        self.releases = data["about"]["os"]
        self.common = [known_param(n, e, common=True) for n, e in data["common_parameters"].items()]
        self.entries = {name.lower(): (name, entry) for name, entry in data["cmdlets"].items()}
        self.extra = {name.lower(): (name, entry) for name, entry in data["extra_modules"].items()}
        self.modules = {entry["module"].lower() for entry in data["cmdlets"].values()}
        self.aliases = {a.lower(): target for a, target in data["aliases"].items()}
        self.executables = set(data["executables"])
        self.commands_7 = {name.lower(): name for name in data["powershell7"]["commands"]}
        self.params_7 = {
            name.lower(): {p.lower() for p in params} for name, params in data["powershell7"]["parameters"].items()
        }
        variables = data["variables"]
        self.variables = {v.lower() for v in variables["automatic"] + variables["preference"]}
        self.variables_7 = {v.lower() for v in variables["powershell7"]}
        self.read_only = {v.lower() for v in variables["read_only"]}
        self.scopes = set(variables["scopes"])
        self._commands = {}
        self._similar = {}

    def command(self, name):
        key = name.lower()
        if key not in self.entries:
            return None
        if key not in self._commands:
            self._commands[key] = KnownCommand(*self.entries[key], self.common)
        return self._commands[key]

    def similar(self, name, more=()):
        """The known name closest to a misspelt one, or ''."""
        key = name.lower()
        if key not in self._similar:
            names = {n.lower(): n for n in more} | {k: v[0] for k, v in self.entries.items()}
            close = difflib.get_close_matches(key, names, n=1, cutoff=0.85)
            self._similar[key] = names[close[0]] if close else ""
        return self._similar[key]


# --------------------------------------------------------------------------
# Part 4: the checks.
# --------------------------------------------------------------------------

PROGRAM_SUFFIXES = (".exe", ".cmd", ".bat", ".com", ".msc", ".vbs", ".cpl")
SC_VERBS = set(
    "config continue control create delete description enumdepend failure failureflag getdisplayname "
    "getkeyname pause qc qdescription qfailure qprivs qsidtype query queryex qtriggerinfo sdset sdshow "
    "sidtype start stop triggerinfo".split()
)
INTEGER = r"\s*[+-]?(?:0x[0-9a-f]+|\d+(?:\.\d+)?)(?:[kmgtp]b)?\s*|.*[*?].*|"
DIRECTIVE = re.compile(r"#\s*pscheck:\s*(allow|ignore)\s+([^\r\n]*)", re.I)


@dataclass(order=True)
class Finding:
    path: str
    line: int
    col: int
    code: str
    message: str

    @property
    def severity(self):
        return CODES[self.code][0]

    def __str__(self):
        kind = "" if self.severity == "error" else "warning: "
        return f"{self.path}:{self.line}:{self.col}: {self.code} {kind}{self.message}"


class Script:
    """A file, parsed."""

    def __init__(self, path, shown):
        self.shown = shown
        raw = path.read_bytes()
        self.marked = raw[:3] == b"\xef\xbb\xbf" or raw[:2] in (b"\xff\xfe", b"\xfe\xff")
        if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
            text = raw.decode("utf-16")
        else:
            try:
                text = raw.decode("utf-8-sig")
            except UnicodeDecodeError:
                text = raw.decode("cp1252", errors="replace")
        self.text = text
        self.starts = [0] + [m.end() for m in re.finditer(r"\r\n|\r|\n", text)]
        self.parser = Parser(text)
        self.problem = self.parser.parse()
        self.functions = list(self.parser.functions)
        if self.problem:  # functions behind the error are still defined
            for found in re.finditer(r"^\s*(?:function|filter)\s+([\w:-]+)", text, re.I | re.M):
                name = re.sub(r"^\w+:", "", found.group(1))
                if all(f.name.lower() != name.lower() for f in self.functions):
                    self.functions.append(Function(name, found.start(1), open_ended=True))
        self.allowed = set()
        self.ignored = {}  # line: codes
        for start, end in self.parser.comments:
            for found in DIRECTIVE.finditer(text, start, end):
                names = re.split(r"[,\s]+", found.group(2).split("--")[0].strip())
                if found.group(1).lower() == "allow":
                    self.allowed.update(n.lower().lstrip("$") for n in names)
                else:
                    self.ignored.setdefault(self.place(found.start())[0], set()).update(n.upper() for n in names)

    def place(self, position):
        low, high = 0, len(self.starts)
        while high - low > 1:
            middle = (low + high) // 2
            if self.starts[middle] <= position:
                low = middle
            else:
                high = middle
        return low + 1, position - self.starts[low] + 1


class Checker:
    def __init__(self, catalogue, releases=(), allowed=()):
        self.known = catalogue
        self.releases = list(releases)
        self.allowed = {name.lower().lstrip("$") for name in allowed}
        self.findings = []

    def check(self, scripts):
        self.scripts = scripts
        self.functions = {}  # lower-case name: every definition
        self.own_aliases = {}
        self.globals = set()
        for script in scripts:
            for function in script.functions:
                self.functions.setdefault(function.name.lower(), []).append((script, function))
            for command in script.parser.commands:
                self.collect_alias(command)
            for variable in script.parser.variables:
                scope, _, name = variable.name.rpartition(":")
                if variable.written and scope.lower() == "global":
                    self.globals.add(name.lower())
        for script in scripts:
            self.script = script
            self.stop = script.problem.start if script.problem else len(script.text) + 1
            if script.problem:
                self.report(script.problem.start, "S001", script.problem.message)
            for start, code, message in script.parser.notes:
                self.report(start, code, message)
            self.check_characters()
            self.made = set()  # variables that commands create
            filters = self.filter_blocks()
            for command in script.parser.commands:
                if command.start < self.stop and not any(a < command.start < b for a, b in filters):
                    self.check_command(command)
            if not script.problem:
                self.check_variables()
        self.findings.sort()
        return self.findings

    def report(self, position, code, message):
        line, col = self.script.place(position)
        ignored = self.script.ignored.get(line, ())
        if code in ignored or "ALL" in ignored:
            return
        finding = Finding(self.script.shown, line, col, code, message)
        if finding not in self.findings:
            self.findings.append(finding)

    def is_allowed(self, name):
        name = name.lower()
        return name in self.allowed or name in self.script.allowed

    # ---- characters ----

    def check_characters(self):
        if self.script.marked or self.script.text.isascii():
            return
        done = set()
        for found in re.finditer(r"[^\x00-\x7f]", self.script.text):
            line, _ = self.script.place(found.start())
            comment = any(start <= found.start() < end for start, end in self.script.parser.comments)
            if (line, comment) in done:
                continue
            done.add((line, comment))
            c = found.group()
            name = unicodedata.name(c, "unnamed character").lower()
            text = f"{c!a} ({name}): 5.1 reads a file without a byte order mark as ANSI"
            self.report(found.start(), "S006" if comment else "S004", text)

    # ---- commands ----

    def collect_alias(self, command):
        if (command.name or "").lower() in ("set-alias", "new-alias", "sal", "nal"):
            values, waiting = {}, None
            for element in command.elements:
                if isinstance(element, Param):
                    waiting = element.name.lower()
                    if element.value is not None:
                        values[waiting], waiting = element.value.value, None
                    elif waiting in ("force", "passthru"):
                        waiting = None
                elif element.kind in ("bare", "string"):
                    key = waiting or ("name" if "name" not in values else "value")
                    values[key], waiting = element.value, None
            if isinstance(values.get("name"), str):
                self.own_aliases[values["name"].lower()] = values.get("value")

    def filter_blocks(self):
        """Script blocks given to -Filter: a query language, not PowerShell."""
        found = []
        for command in self.script.parser.commands:
            for element, follower in pairwise(command.elements):
                if isinstance(element, Param) and element.name.lower() == "filter" and isinstance(follower, Node):
                    if follower.kind == "block":
                        found.append((follower.start, follower.end))
        return found

    def check_command(self, command):
        name = command.name
        self.check_script_call(command)
        if not name:
            return
        if self.is_allowed(name) or name.lower().startswith("function:"):
            return
        head = command.head
        if head is not None and head.kind == "bare" and head.value is None:
            return  # holds a variable
        shown = name
        seen = set()
        key = name.lower()
        while key not in self.functions and key not in seen:
            seen.add(key)
            if key in self.own_aliases:
                target = self.own_aliases[key]
            elif key in self.known.aliases and key not in self.known.entries:
                target = self.known.aliases[key]
            else:
                break
            if not isinstance(target, str):
                return  # an alias of something that is not known here
            key = target.lower()
        alias = name if key != name.lower() else ""
        if key in self.functions:
            self.check_function_call(command, key)
            return
        if "\\" in key and not re.search(r"[./:]", key.split("\\")[0]):
            module, _, rest = key.partition("\\")
            if "\\" not in rest and (module in self.known.modules or rest in self.known.entries):
                key = rest
                if key in self.functions or not self.known.command(key):
                    if module in self.known.modules:
                        self.unknown_command(command, shown, key)
                    return
        known = self.known.command(key)
        if known:
            if self.wrong_alias(command, alias, known):
                return
            self.check_known_command(command, known, alias)
            return
        self.unknown_command(command, shown, key)

    def check_script_call(self, command):
        """Parameters of a script that is among those given."""
        if command.head is None:
            return
        text = self.script.text[command.head.start : command.head.end].strip("\"'")
        if not text.lower().endswith(".ps1"):
            return
        named = re.split(r"[\\/]", text)[-1].lower()
        called = [s for s in self.scripts if Path(s.shown).name.lower() == named]
        if len(called) == 1 and not called[0].problem:
            function = called[0].parser.script_function
            known = KnownFunction(function, self.known.common)
            known.name = "script " + Path(called[0].shown).name
            if not known.open:
                self.bind(command, known, known.name)

    def wrong_alias(self, command, alias, known):
        first = command.elements[0] if command.elements else None
        literal = first.value.lower() if isinstance(first, Node) and isinstance(first.value, str) else ""
        if alias.lower() == "sc" and literal in SC_VERBS:
            self.report(command.start, "C003", f"sc is {known.name} in Windows PowerShell; write sc.exe {literal}")
            return True
        if alias.lower() == "where" and not command.piped and literal and len(command.elements) == 1:
            self.report(
                command.start,
                "C003",
                f"where is {known.name} in Windows PowerShell; write where.exe {literal}",
            )
            return True
        return False

    def unknown_command(self, command, shown, key):
        base = key
        for suffix in PROGRAM_SUFFIXES:
            if key.endswith(suffix):
                base = key[: -len(suffix)]
        if base in self.known.executables:
            return
        if re.search(r"[\\/]|^~|^[a-z]:$", key) or key.endswith((".ps1", ".psm1")) or "%" in key:
            return  # a path
        if re.fullmatch(r"[\d.]+", key):
            return
        start = command.start
        if key in self.known.commands_7:
            self.report(start, "C004", f"{self.known.commands_7[key]} exists in PowerShell 7 only")
            return
        if key in self.known.extra:
            entry = self.known.extra[key][1]
            self.report(
                start,
                "C005",
                f"{self.known.extra[key][0]} comes from {entry['module']}, which Windows does not ship",
            )
            return
        hint = ""
        if key in ("else", "elseif", "catch", "finally", "until"):
            hint = f"; {key} must follow the block it belongs to"
        elif key.startswith("!"):
            hint = "; '!' needs parentheses before a command: !(...)"
        elif key in ("=", "=="):
            hint = "; compare with -eq"
        elif key == "if" or key in KEYWORDS:
            hint = f"; a {key} statement cannot stand inside parentheses, use $(...)"
        else:
            close = self.known.similar(shown, (pairs[0][1].name for pairs in self.functions.values()))
            if close:
                hint = f"; did you mean {close}?"
        self.report(start, "C001", f"unknown command {shown!r}{hint}")

    def check_known_command(self, command, known, alias):
        shown = known.name + (f" (alias {alias})" if alias else "")
        if self.releases and known.os:
            missing = [r for r in self.releases if r not in known.os]
            if missing:
                self.report(
                    command.start,
                    "C002",
                    f"{shown} is not documented for Windows Server {', '.join(missing)} (only {', '.join(known.os)})",
                )
        if known.open:
            return
        given, positional, splatted = self.bind(command, known, shown, alias)
        if splatted or known.dynamic:
            return
        if known.positional >= 0 and positional > known.positional:
            allowed = known.positional or "no"
            plural = "" if known.positional == 1 else "s"
            self.report(
                command.start,
                "P010",
                f"{shown} takes {allowed} positional argument{plural}, {positional} given",
            )
        if command.piped or positional:
            return
        for parameter in known.params:
            if parameter.mandatory and parameter.kind != "switch" and parameter.name not in given:
                self.report(command.start, "P011", f"{shown} needs -{parameter.name}; it would ask for it")
                return

    def bind(self, command, known, shown, alias=""):
        """Match the elements with the parameters: (names given, positional arguments, splatted)."""
        given, positional, splatted = {}, 0, False
        elements = command.elements
        i = 0
        while i < len(elements):
            element = elements[i]
            i += 1
            if isinstance(element, Node):
                if element.kind == "splat":
                    splatted = True
                    self.check_splat(element, known, given)
                elif element.kind == "verbatim":
                    splatted = True
                else:
                    positional += 1
                continue
            parameter = self.resolve(element.name, element.start, known, shown, alias)
            if parameter is None:
                splatted = True  # what follows cannot be told apart
                continue
            value = element.value
            if parameter.kind == "switch":
                follower = elements[i] if i < len(elements) else None
                if (
                    not element.colon
                    and known.name != "Where-Object"
                    and isinstance(follower, Node)
                    and follower.kind == "variable"
                    and follower.value.name.lower() in ("true", "false")
                ):
                    text = self.script.text[follower.start : follower.end]
                    self.report(element.start, "P008", f"-{element.name} is a switch; write -{element.name}:{text}")
                    i += 1
            elif parameter.kind != "any" and not element.colon:
                if i < len(elements) and isinstance(elements[i], Node) and elements[i].kind != "splat":
                    value = elements[i]
                    i += 1
                else:
                    self.report(element.start, "P006", f"-{element.name} of {shown} needs an argument")
            elif parameter.kind == "any" and not element.colon:
                if i < len(elements) and isinstance(elements[i], Node):
                    value = elements[i]
                    i += 1
            if parameter.name in given:
                self.report(element.start, "P005", f"-{parameter.name} of {shown} is given twice")
            given[parameter.name] = value
            if value is not None:
                self.check_value(parameter, value, shown)
        return given, positional, splatted

    def resolve(self, name, start, known, shown, alias=""):
        if name == "?":
            return None
        parameter, candidates = match_param(known.by_name, name)
        if parameter is None and candidates:
            if known.dynamic:
                return None
            options = ", ".join(sorted("-" + p.name for p in candidates))
            self.report(start, "P002", f"-{name} of {shown} is ambiguous: {options}")
            return None
        if parameter is None:
            if known.dynamic or self.is_allowed("-" + name):
                return None
            if name.lower() in self.known.params_7.get(known.name.lower(), ()):
                self.report(start, "P009", f"-{name} of {shown} exists in PowerShell 7 only")
                return None
            names = {p.name.lower(): p.name for p in known.by_name.values()}
            close = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.6)
            hint = f"; did you mean -{names[close[0]]}?" if close else ""
            if alias.lower() in ("curl", "wget", "sc", "sort", "where", "fc"):
                hint = f"; {alias.lower()}.exe may be meant"
            self.report(start, "P012" if known.simple else "P001", f"{shown} has no parameter -{name}{hint}")
            return None
        if candidates:
            self.report(start, "P003", f"-{name} of {shown} is short for -{parameter.name}; write it in full")
        if self.releases and parameter.os:
            missing = [r for r in self.releases if r not in parameter.os and (not known.os or r in known.os)]
            if missing:
                self.report(
                    start,
                    "P004",
                    f"-{parameter.name} of {shown} is not documented for Windows Server {', '.join(missing)}",
                )
        return parameter

    def check_value(self, parameter, value, shown):
        if parameter.name.lower().endswith("variable") or parameter.name == "BindingVariable":
            if isinstance(value.value, str):
                self.made.add(value.value.lstrip("+").lower())
        if parameter.kind == "bool" and value.kind in ("bare", "string") and isinstance(value.value, str):
            self.report(
                value.start,
                "P007",
                f"-{parameter.name} of {shown} takes $true or $false, not {value.value!r}",
            )
        if parameter.kind == "int" and value.kind in ("bare", "string") and isinstance(value.value, str):
            if not re.fullmatch(INTEGER, value.value, re.I):
                self.report(value.start, "P007", f"-{parameter.name} of {shown} takes a number, not {value.value!r}")
        if not parameter.values:
            return
        accepted = {v.lower() for v in parameter.values}
        items = value.kids if value.kind == "array" else [value]
        for item in items:
            if item.kind not in ("bare", "string") or not isinstance(item.value, str):
                continue
            for part in item.value.split(","):
                part = part.strip().lower()
                if part in accepted or not part or part.isdigit() or re.search(r"[*?]", part):
                    continue
                if sum(v.startswith(part) for v in accepted) == 1:
                    continue  # an enumeration takes a shortened value
                options = ", ".join(parameter.values[:12]) + (", ..." if len(parameter.values) > 12 else "")
                self.report(item.start, "P007", f"-{parameter.name} of {shown}: {part!r} is not one of {options}")

    def check_splat(self, element, known, given):
        """Check the keys of the literal hash table that a splatted variable was last given."""
        name = element.value.name.lower()
        literal, start = None, -1
        for variable, position, node in self.script.parser.hashes:
            if variable == name and position < element.start and position > start:
                literal, start = node, position
        if literal is None:
            return
        shown = f"{known.name} (from @{element.value.name})"
        for key, value, at in literal.kids:
            if isinstance(key, str):
                parameter = self.resolve(key, at, known, shown)
                if parameter is not None:
                    given.setdefault(parameter.name, value)
                    self.check_value(parameter, value, shown)

    def check_function_call(self, command, key):
        """A call of a function that the scripts define themselves.

        The definition in the same file counts; without one, any definition of
        that name, or the command of that name, may be the one that is called.
        """
        here = [function for script, function in self.functions[key] if script is self.script]
        functions = here or [function for _, function in self.functions[key]]
        choices = [KnownFunction(function, self.known.common) for function in functions]
        if not here and (known := self.known.command(key)):
            choices.append(known)
        if any(choice.open or choice.dynamic for choice in choices):
            return
        if len(choices) == 1:
            self.bind(command, choices[0], choices[0].name)
            return
        for element in command.elements:
            if isinstance(element, Param) and element.name != "?":
                if not any(match_param(choice.by_name, element.name)[0] for choice in choices):
                    self.resolve(element.name, element.start, choices[0], choices[0].name)

    # ---- variables ----

    def check_variables(self):
        parser = self.script.parser
        written = set(self.globals) | parser.names | self.made
        for variable in parser.variables:
            scope, _, name = variable.name.rpartition(":")
            if variable.written:
                written.add(name.lower())
                if name.lower() in self.known.read_only and scope.lower() in (
                    "",
                    "global",
                    "script",
                    "local",
                ):
                    if not self.is_allowed(name):
                        self.report(variable.start, "V002", f"${name} is a read-only variable of PowerShell")
        dotted = False
        for command in parser.commands:
            self.collect_made(command, written)
            if command.operator == "." and (command.head is None or command.head.kind != "block"):
                dotted = True
        if dotted:
            for other in self.scripts:
                for variable in other.parser.variables:
                    if variable.written:
                        written.add(variable.name.rpartition(":")[2].lower())
        for variable in parser.variables:
            scope, _, name = variable.name.rpartition(":")
            if len(scope) > 1 and scope.lower() not in self.known.scopes and "\\" not in name:
                self.report(
                    variable.start,
                    "V003",
                    f"${variable.name} reads variable {name!r} of drive {scope!r}; write ${{{scope}}}:{name}",
                )
                continue
            if variable.name.endswith("?") and len(variable.name) > 1:
                follower = self.script.text[variable.start + 1 + len(variable.name) :][:1]
                if follower and follower in ".[":
                    self.report(variable.start, "S002", f"the ?{follower} operator needs PowerShell 7")
            if variable.written or scope.lower() in ("env", "function", "alias", "variable") or len(scope) == 1:
                continue
            if name.lower() in self.known.variables_7 and name.lower() not in written:
                self.report(variable.start, "V001", f"${name} exists in PowerShell 7 only")
            elif name.lower() not in written and name.lower() not in self.known.variables and not name.isdigit():
                if (dotted and not self.dot_sources_known()) or self.is_allowed(name):
                    continue
                shown = self.script.text[variable.start : variable.start + len(variable.name) + 3]
                shown = "${" + variable.name + "}" if shown.startswith("${") else "$" + variable.name
                self.report(variable.start, "V001", f"{shown} is never assigned{self.near(name, written)}")

    def near(self, name, written):
        """A hint for a variable that is never assigned."""
        if re.search(r"[.\[]", name):
            return f"; ${{{name}}} is one name, a member is read with $(${name.lstrip('$')})"
        close = difflib.get_close_matches(name.lower(), written, n=1, cutoff=0.8)
        if not close:
            return ""
        spelling = {v.name.rpartition(":")[2].lower(): v.name for v in self.script.parser.variables if v.written}
        return f"; did you mean ${spelling.get(close[0], close[0])}?"

    def dot_sources_known(self):
        """Whether every dot-sourced file is among those given."""
        given = {Path(s.shown).name.lower() for s in self.scripts}
        for command in self.script.parser.commands:
            if command.operator == "." and (command.head is None or command.head.kind != "block"):
                text = self.script.text[command.head.start : command.head.end].strip("\"'")
                if re.split(r"[\\/]", text)[-1].lower() not in given:
                    return False
        return True

    def collect_made(self, command, written):
        """Variables made by Set-Variable, -OutVariable and the like."""
        name = (command.name or "").lower()
        name = (self.known.aliases.get(name) or name).lower()
        previous = None
        maker = name in ("set-variable", "new-variable", "get-variable", "clear-variable", "remove-variable")
        for element in command.elements:
            if isinstance(element, Param):
                previous = element
                value = element.value
            else:
                value = element
            label = previous.name.lower() if previous else ""
            if value is not None and value.kind in ("bare", "string") and isinstance(value.value, str):
                named = label.endswith("variable") or label in ("ev", "ov", "wv", "iv", "pv", "sv")
                if named or (maker and label in ("", "name")):
                    written.add(value.value.lstrip("+").lower())
            if not isinstance(element, Param):
                previous = None


# --------------------------------------------------------------------------


def collect(paths):
    """[(path, path as shown)] of the scripts named, directories searched."""
    found = []
    for given in paths:
        path = Path(given)
        if path.is_dir():
            for inner in sorted(path.rglob("*")):
                if inner.suffix.lower() in (".ps1", ".psm1") and inner.is_file():
                    found.append((inner, str(inner)))
        else:
            found.append((path, str(given)))
    return found


def main(arguments=None):
    options = argparse.ArgumentParser(description="Check Windows PowerShell 5.1 scripts without Windows.")
    add = options.add_argument
    add("paths", nargs="+", metavar="FILE_OR_DIRECTORY", help="directories are searched for .ps1 and .psm1")
    add(
        "--os",
        action="append",
        default=[],
        choices=["2019", "2022", "2025"],
        help="Windows Server release (repeatable)",
    )
    add(
        "--allow",
        action="append",
        default=[],
        metavar="NAME",
        help="accept a command or $variable (repeatable)",
    )
    add("--ignore", action="append", default=[], metavar="CODE", help="leave out this code (repeatable)")
    add("--strict", action="store_true", help="exit with 1 for warnings too")
    add("--json", action="store_true", help="print a JSON list instead of lines")
    add("--data", default=DATA_FILE, type=Path, help="facts to use instead of data/powershell-5.1.json")
    chosen = options.parse_args(arguments)
    sys.setrecursionlimit(10000)
    try:
        catalogue = Catalogue(chosen.data)
        scripts = [Script(path, shown) for path, shown in collect(chosen.paths)]
    except (OSError, ValueError) as problem:
        print(f"pscheck: {problem}", file=sys.stderr)
        return 2
    left_out = {code.upper() for code in chosen.ignore}
    findings = [f for f in Checker(catalogue, chosen.os, chosen.allow).check(scripts) if f.code not in left_out]
    if chosen.json:
        print(json.dumps([asdict(f) | {"severity": f.severity} for f in findings], indent=1))
    else:
        for finding in findings:
            print(finding)
    failing = findings if chosen.strict else [f for f in findings if f.severity == "error"]
    return 1 if failing else 0


if __name__ == "__main__":
    sys.exit(main())
