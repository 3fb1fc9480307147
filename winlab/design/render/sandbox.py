"""Jinja for templates that somebody else wrote: no Python objects behind the values, and an end to time and memory.

Jinja's sandbox keeps a template from Python, and not from ``"a" * 10 ** 9``, from loops in loops, or from a text that
doubles itself. Here whatever makes or repeats values draws on one budget: loops, calls, operators, literals, output,
included texts. Filters and methods whose result can be much larger than what they are given are left out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, ValuesView
from collections.abc import Set as AbstractSet
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError, TemplateAssertionError
from jinja2.runtime import Context, markup_join, str_join
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

BUDGET = 2_000_000  # of a whole rendering; winlab's own template takes some 20,000
LARGEST = 1 << 16  # characters, or items, of one value with all that is in it
TURN = 10  # of the budget, for one turn of a loop or one call
BITS = 4096  # of a whole number
MOST_PLACES = 100  # of a number, or of an indentation
PLACES = {"tojson": 2, "round": 1}  # from which argument on a filter takes such a count

FILTERS = (
    *("abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "forceescape", "int"),
    *("items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace"),
    *("reverse", "round", "safe", "select", "selectattr", "sort", "string", "striptags", "title", "tojson", "trim"),
    *("truncate", "unique", "upper", "urlencode", "wordcount"),
)
METHODS = frozenset(
    {"capitalize", "count", "endswith", "find", "get", "index", "isalnum", "isalpha", "isdigit", "islower", "isupper"}
    | {"items", "keys", "lower", "lstrip", "partition", "removeprefix", "removesuffix", "rpartition", "rstrip", "split"}
    | {"splitlines", "startswith", "strip", "swapcase", "title", "upper", "values"}
)
_BUILTIN = (str, bytes, int, float, list, tuple, dict, set, frozenset, range)


class _Generator(CodeGenerator):
    """Has ``~`` done by the environment."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        """Write the call."""
        self.write("environment.concatenate(context.eval_ctx, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class Sandbox(ImmutableSandboxedEnvironment):
    """An environment for one rendering: its budget is not filled up again."""

    code_generator_class = _Generator
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, **options: Any) -> None:
        super().__init__(finalize=self._shown, **options)
        self._left = BUDGET
        self.filters = {name: self._bounded(name, self.filters[name]) for name in FILTERS}
        self.filters.update({"_turns": self._turns, "_sized": self._sized})
        del self.globals["lipsum"]

    def add_filter(self, name: str, made: Callable[..., Any]) -> None:
        """Add a filter of winlab's own."""
        self.filters[name] = self._bounded(name, made)

    def spend(self, count: int) -> None:
        """Take from the budget.

        :raises SecurityError: there is not enough left.
        """
        self._left -= count
        if self._left < 0:
            raise SecurityError("it takes too much time or memory")

    def _sized(self, value: Any) -> Any:
        """The value, paid for."""
        self.spend(_weight(value))
        return value

    @pass_context
    def _shown(self, _context: Context, value: Any) -> Any:
        """What a template shows, paid for. With the context Jinja folds no constants: each turn of a loop pays."""
        return self._sized(value)

    def _turns(self, values: Iterable[Any], text: int) -> Iterable[Any]:
        """What a loop goes over, paid for; *text*: the characters in its body."""
        try:
            self.spend(len(values) * (TURN + text))  # type: ignore[arg-type]
        except TypeError:
            return self._one_by_one(values, TURN + text)
        return values

    def _one_by_one(self, values: Iterable[Any], cost: int) -> Iterator[Any]:
        for value in values:
            self.spend(cost)
            yield value

    def _bounded(self, name: str, made: Callable[..., Any]) -> Callable[..., Any]:
        """A filter that is paid for."""

        @functools.wraps(made)
        def call(*args: Any, **named: Any) -> Any:
            given = [_weight(value) for value in (*args, *named.values())]
            self.spend(TURN + sum(given))
            places = (*args[PLACES[name] :], *named.values()) if name in PLACES else ()
            if any(isinstance(one, int) and abs(one) > MOST_PLACES for one in places):
                raise SecurityError(f"the filter '{name}' takes numbers up to {MOST_PLACES}")
            if name in ("join", "replace"):  # the one repeats its separator, the other what it puts in
                # Jinja gives both its context first
                size = given[1] * (1 + max(given[2:], default=1))
                if size > LARGEST * 64:
                    raise SecurityError("it takes too much time or memory")
                self.spend(size // 64)
            return self._paid(made(*args, **named))

        return call

    def _paid(self, result: Any) -> Any:
        if isinstance(result, Iterator):
            return self._one_by_one(result, TURN)
        return self._sized(result)

    def concatenate(self, about: nodes.EvalContext, parts: tuple[Any, ...]) -> Any:
        """What ``~`` does."""
        self.spend(sum(map(_weight, parts)))
        return self._sized((markup_join if about.autoescape else str_join)(parts))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """What an operator does; results are bounded before they are made."""
        if operator == "%" and not (isinstance(left, int | float) and isinstance(right, int | float)):
            raise SecurityError("'%' is for numbers here")
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if operator == "+" and not numbers:
            self.spend(_weight(left) + _weight(right))
        elif operator == "*" and not numbers:
            many, times = (right, left) if isinstance(left, int) else (left, right)
            if isinstance(times, int) and times > 0 and (1 + _weight(many)) * times > LARGEST:
                raise SecurityError("it takes too much time or memory")
        elif isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * max(right, 1) if operator == "**" else left.bit_length() + right.bit_length()
            if bits > BITS:
                raise SecurityError("a number in it is too large")
        return self._sized(super().call_binop(context, operator, left, right))

    def call(self, context: Context, callee: Any, /, *args: Any, **named: Any) -> Any:
        """Call something from the template."""
        self.spend(TURN)
        return self._paid(super().call(context, callee, *args, **named))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Of Python's own types, only what gives no more than it gets."""
        if isinstance(obj, _BUILTIN) and callable(value):
            return attr in METHODS
        return super().is_safe_attribute(obj, attr, value)

    def _load_template(self, name: str, *args: Any) -> Any:
        if self.loader is not None:
            self.spend(TURN + len(self.loader.get_source(self, name)[0]))
        return super()._load_template(name, *args)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            if loop.recursive:
                raise TemplateAssertionError("'recursive' loops are not allowed here", loop.lineno, name, filename)
            text = sum(len(data.data) for data in loop.find_all(nodes.TemplateData))
            loop.iter = _filtered(loop.iter, "_turns", nodes.Const(text))
        for block in tree.find_all(nodes.AssignBlock):
            block.filter = _filtered(block.filter, "_sized")
        return _Literals().visit(tree)  # type: ignore[no-any-return]


class _Literals(NodeTransformer):
    """Has lists, tuples and mappings paid for when they are made: two of one in another double it."""

    def visit_List(self, node: nodes.List, *args: Any) -> nodes.Node:
        """The same, paid for."""
        return _filtered(self.generic_visit(node, *args), "_sized")

    def visit_Dict(self, node: nodes.Dict, *args: Any) -> nodes.Node:
        """The same, paid for."""
        return _filtered(self.generic_visit(node, *args), "_sized")

    def visit_Tuple(self, node: nodes.Tuple, *args: Any) -> nodes.Node:
        """The same; a tuple may also be what is assigned to."""
        made = self.generic_visit(node, *args)
        return _filtered(made, "_sized") if node.ctx == "load" else made


def _filtered(node: Any, name: str, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None)


def _weight(value: Any) -> int:
    """How large a value is, with all that is in it; what is there twice counts twice.

    :raises SecurityError: it is larger than :data:`LARGEST`.
    """
    weight, left = 0, [value]
    while left:
        one = left.pop()
        weight += 1
        if isinstance(one, str | bytes | range):
            weight += len(one)
        elif isinstance(one, Mapping):
            left += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | AbstractSet | ValuesView):
            left += one
        if weight + len(left) > LARGEST:
            raise SecurityError("a value in it is too large")
    return weight
