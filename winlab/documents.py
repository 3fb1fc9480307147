"""Reads YAML and JSON that may come from anyone: a small text must not use up memory or time, or raise a surprise.

A few hundred bytes of YAML can stand for billions of values, by aliases and merges that multiply each other. PyYAML's
constructors raise whatever they meet (``!!bool x``: KeyError), and both parsers raise RecursionError for deep nesting.
Of equal keys PyYAML drops all but the last; here they are an error.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

import yaml
from yaml._yaml import CParser

DEEPEST = 100  # collections within each other
WRITTEN = 50_000  # values of a YAML text; each takes some 25 microseconds and 700 bytes
MOST = 300_000  # the same, with aliases written out
DIGITS = 40  # of a whole number
LARGEST = 32 << 20  # bytes or characters of a JSON text
PARTS = 3_000_000  # values and keys of a JSON text; each takes up to some 100 bytes
STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)  # of JSON; the quantifiers keep the search linear
SURROGATE = re.compile("[\ud800-\udfff]")  # half of a character, by an escape


class Written(float):
    """A number with a fraction that knows its text: a version such as 1.40 is another one than 1.4."""

    text: str


class _Loader(yaml.composer.Composer, CParser, yaml.constructor.SafeConstructor, yaml.resolver.Resolver):
    """PyYAML's safe loader, which gives up early.

    libyaml reads the text, as it does for kubectl (in Go): PyYAML's own scanner refuses most tabs. Its errors do not
    show the line, which may hold a secret.
    """

    def __init__(self, text: str | bytes) -> None:
        CParser.__init__(self, text)
        yaml.composer.Composer.__init__(self)
        yaml.constructor.SafeConstructor.__init__(self)
        yaml.resolver.Resolver.__init__(self)
        self._depth = 0
        self._made = 0
        self._sizes: dict[int, int] = {}  # of composed nodes, by identity: a document keeps them all

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()
        alias, begin = isinstance(event, yaml.AliasEvent), event.start_mark
        if self._depth > DEEPEST:
            raise _refused("it is nested too deeply", begin)
        self._made += 1
        if self._made > WRITTEN:  # now: a collection's own size is known when all of it was made
            raise _refused(f"it has more than {WRITTEN:,} values", begin)
        self._depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        if node is None:
            return None
        if isinstance(node, yaml.ScalarNode) and SURROGATE.search(node.value):
            raise _refused("a text in it can't be written as UTF-8", begin)
        if not alias:
            _refuse_repeated(node)
            self._sizes[id(node)] = 1 + sum(self._sizes[id(part)] for part in _parts(node))
        elif id(node) not in self._sizes:
            raise _refused("it contains itself", begin)
        if self._sizes[id(node)] > MOST:
            raise _refused(f"it has more than {MOST:,} values, with its aliases", begin)
        return node


class _Values(_Loader):
    """Makes values. Numbers are decimal: 010 is ten, and 12:34 and 0x10 are texts."""


def _whole_number(loader: _Values, node: yaml.ScalarNode) -> int:
    return _whole(str(loader.construct_scalar(node)))


def _fraction(loader: _Values, node: yaml.ScalarNode) -> float:
    text = str(loader.construct_scalar(node))
    if not re.fullmatch(_FRACTION, text):
        raise ValueError("no decimal number")
    value = Written(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    value.text = text
    return value


_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_FRACTION = r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
_Values.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rows if tag not in (_INT, _FLOAT)]
    for first, rows in yaml.resolver.Resolver.yaml_implicit_resolvers.items()
}
_Values.add_implicit_resolver(_INT, re.compile("[-+]?[0-9]+$"), list("-+0123456789"))
_Values.add_implicit_resolver(_FLOAT, re.compile(f"(?:{_FRACTION})$"), list("-+.0123456789"))
_Values.add_constructor(_INT, _whole_number)  # type: ignore[type-var]
_Values.add_constructor(_FLOAT, _fraction)  # type: ignore[type-var]
yaml.SafeDumper.add_representer(Written, yaml.SafeDumper.represent_float)


def _parts(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _refuse_repeated(node: yaml.Node) -> None:
    """Refuse a mapping with equal keys (YAML 1.2.2, section 3.2.1.1: keys are unique)."""
    seen = set()
    for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        if isinstance(key, yaml.ScalarNode):
            if (key.tag, key.value) in seen:
                raise _refused(f"the key '{key.value[:100]}' is there twice", key.start_mark)
            seen.add((key.tag, key.value))


def _refused(why: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=why, problem_mark=mark)


def from_yaml(text: str | bytes) -> Any:
    """The value that a YAML text stands for; None for an empty one.

    :raises yaml.YAMLError: it is not YAML, or stands for more than a document of winlab's can be. No other error.
    """
    try:
        value = _Values(text).get_single_data()
        _check_numbers(value, set())
    except yaml.YAMLError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise yaml.YAMLError(f"a value in it can't be read ({type(error).__name__})") from error
    return value


def nodes(text: str | bytes) -> yaml.Node | None:
    """The nodes of a YAML text, which know their lines; None for an empty one. Tags are PyYAML's, which writes them.

    :raises yaml.YAMLError: as :func:`from_yaml`.
    """
    try:
        root: yaml.Node | None = _Loader(text).get_single_node()
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise yaml.YAMLError(f"it can't be read ({type(error).__name__})") from error
    return root


def _check_numbers(value: Any, seen: set[int]) -> None:
    """Refuse numbers that Python can't print: it turns only so many digits into text."""
    if isinstance(value, int):
        if abs(value) >= 10**DIGITS:
            raise yaml.YAMLError("a number in it has too many digits")
    elif isinstance(value, dict | list | tuple | set) and id(value) not in seen:
        seen.add(id(value))
        for part in (*value.keys(), *value.values()) if isinstance(value, dict) else value:
            _check_numbers(part, seen)


def from_json(text: str | bytes | bytearray) -> Any:
    """The value that a JSON text stands for.

    :raises ValueError: it is not JSON (neither is ``NaN``), or has half of a character. Or it, its depth, a number or
        the count of its values is too large. No other error.
    """
    _check_size(text)
    try:
        value = json.loads(text, parse_int=_whole, parse_float=_real, parse_constant=_no_number)
        escapes = "\\" in text if isinstance(text, str) else b"\\" in text
        plain = text.isascii() and not escapes  # a look at the values costs as much as reading them
        if not plain and SURROGATE.search(json.dumps(value, ensure_ascii=False)):
            raise ValueError("a text in it can't be written as UTF-8")
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return value


def _check_size(text: str | bytes | bytearray) -> None:
    """Refuse a JSON text of which a few bytes each become an object: ``[[],[],[], ...`` takes 30 times its size.

    :raises ValueError: it is too large, or has too many values.
    """
    if len(text) > LARGEST:
        raise ValueError(f"it has more than {LARGEST >> 20} MiB")
    if _parts_of(text) > PARTS:
        # commas in texts don't count; such a look is slower
        words = text if isinstance(text, str) else text.decode("latin-1")
        if _parts_of(STRING.sub("", words)) > PARTS:
            raise ValueError(f"it has more than {PARTS:,} values")


def _parts_of(text: str | bytes | bytearray) -> int:
    """The values and keys of a JSON text, and commas and the like in its texts."""
    if isinstance(text, str):
        return sum(text.count(sign) for sign in ",:[{")
    return sum(text.count(sign) for sign in (b",", b":", b"[", b"{"))


def _whole(digits: str) -> int:
    if len(digits) > DIGITS:
        raise ValueError("a number in it has too many digits")
    return int(digits)


def _real(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError("a number in it is too large")
    return value


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")
