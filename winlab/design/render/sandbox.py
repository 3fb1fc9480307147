"""Jinja for templates that somebody else wrote: no Python objects behind the values, and an end to time and memory.

Jinja's sandbox keeps a template from Python, and not from ``"a" * 10 ** 9``, from loops in loops, or from a text that
doubles itself. Here whatever makes, repeats, compares or looks through values draws on one budget, by their size. So do
what a template is compiled from, and each turn of a loop and call of a macro or block, by what is in its body. Filters
and methods whose result can be much larger than what they are given are left out.
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
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

BUDGET = 2_000_000  # of a whole rendering; winlab's own template takes some 50,000
LARGEST = 1 << 16  # characters, or items, of one value with all that is in it
TURN = 10  # of the budget, for one turn of a loop or one call
NODE = 10  # for what a turn or call may evaluate: each name, operator, text ... in the body
COMPILED = 200  # for one such node of a template, once: the time to compile them grows with their square
BITS = 60  # of a whole number: from 2 ** 61 on many have the same hash, and a mapping of those takes hours
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


class _Own(str):
    """The name of a method of the environment, for a filter's node that no template can write."""


class _Generator(CodeGenerator):
    """Has ``~``, and what is to be paid for, done by the environment."""

    def visit_Filter(self, node: nodes.Filter, frame: Frame) -> None:
        """Write the call."""
        if not isinstance(node.name, _Own):
            super().visit_Filter(node, frame)
            return
        self.write(f"environment.{node.name}(")
        if node.node is None:  # a block that is assigned
            self.write(f"concat({frame.buffer})")
        else:
            self.visit(node.node, frame)
        for arg in node.args:
            self.write(", ")
            self.visit(arg, frame)
        self.write(")")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        """Write the call."""
        self.write("environment.concatenate(context.eval_ctx, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class _Context(Context):
    """Variables, paid for: included templates and scoped blocks get a copy of all."""

    def __init__(self, environment: Sandbox, parent: dict[str, Any], *args: Any, **named: Any) -> None:
        environment.spend(len(parent))
        super().__init__(environment, parent, *args, **named)


class _Namespace(Namespace):
    """Shows nothing of what is in it: two of one in another double it."""

    def __repr__(self) -> str:
        return "<Namespace>"


class Sandbox(ImmutableSandboxedEnvironment):
    """An environment for one rendering: its budget is not filled up again."""

    code_generator_class = _Generator
    context_class = _Context
    intercepted_binops = frozenset({"+", "-", "*", "**", "%"})

    def __init__(self, **options: Any) -> None:
        # not optimized: what is computed while it is compiled would be paid for once, and not by each turn of a loop
        super().__init__(finalize=self._shown, optimized=False, **options)
        self._left = BUDGET
        self.filters = {name: self._bounded(name, self.filters[name]) for name in FILTERS}
        self.tests = {name: self._bounded(name, test) for name, test in self.tests.items()}  # type: ignore[arg-type]
        self.globals["namespace"] = _Namespace
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

    def _turns(self, values: Iterable[Any], size: int) -> Iterable[Any]:
        """What a loop goes over, paid for; *size*: of its body, as :func:`_size` tells."""
        try:
            self.spend(len(values) * (TURN + size))  # type: ignore[arg-type]
        except TypeError:
            return self._one_by_one(values, TURN + size)
        return values

    def _one_by_one(self, values: Iterable[Any], cost: int) -> Iterator[Any]:
        for value in values:
            self.spend(cost)
            yield value

    def _bounded(self, name: str, made: Callable[..., Any]) -> Callable[..., Any]:
        """A filter or test that is paid for."""

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
        if operator in ("+", "-") and not numbers:  # what mappings' keys() give can be subtracted
            self.spend(_weight(left) + _weight(right))
        elif operator == "*" and not numbers:
            many, times = (right, left) if isinstance(left, int) else (left, right)
            if isinstance(times, int) and times > 0 and (1 + _weight(many)) * times > LARGEST:
                raise SecurityError("it takes too much time or memory")
        elif operator in ("*", "**") and isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * max(right, 1) if operator == "**" else left.bit_length() + right.bit_length()
            if bits > BITS:
                raise SecurityError("a number in it is too large")
        return self._sized(super().call_binop(context, operator, left, right))

    def call(self, context: Context, callee: Any, /, *args: Any, **named: Any) -> Any:
        """Call something from the template."""
        of = getattr(callee, "__self__", None)  # "find" looks through all of its text
        self.spend(TURN + sum(map(_weight, (of, *args, *named.values()))))
        return self._paid(super().call(context, callee, *args, **named))

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Get an item; a long key takes long to look up."""
        self.spend(TURN + _weight(argument))
        return super().getitem(obj, argument)

    def wrap_str_format(self, value: Any) -> None:
        """Texts have no ``format``: Jinja's own would come before :meth:`is_safe_attribute`."""

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Of Python's own types, only what gives no more than it gets."""
        if isinstance(obj, _BUILTIN) and callable(value):
            return attr in METHODS
        return super().is_safe_attribute(obj, attr, value)

    def _load_template(self, name: str, *args: Any) -> Any:
        self.spend(TURN + _weight(name))  # there may be none of this name, nor of the next
        if self.loader is not None:
            self.spend(len(self.loader.get_source(self, name)[0]))
        return super()._load_template(name, *args)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for _ in tree.find_all(nodes.Node):
            self.spend(COMPILED)
        for const in tree.find_all(nodes.Const):
            _weight(const.value)  # is refused if it is too large
        for loop in tree.find_all(nodes.For):
            if loop.recursive:
                raise TemplateAssertionError("'recursive' loops are not allowed here", loop.lineno, name, filename)
            loop.iter = _filtered(loop.iter, "_turns", nodes.Const(_size(loop)))
        bodies: Iterable[Any] = tree.find_all((nodes.Macro, nodes.CallBlock, nodes.Block))
        for called in bodies:
            paid = _filtered(nodes.Const(_size(called)), "spend")
            called.body.insert(0, nodes.ExprStmt(paid, lineno=called.lineno))
        for block in tree.find_all(nodes.AssignBlock):
            block.filter = _filtered(block.filter, "_sized")
        return _Paid().visit(tree)  # type: ignore[no-any-return]


class _Paid(NodeTransformer):
    """Has paid for what is compared or sliced; and for lists, tuples and mappings: two of one in another double it."""

    def visit_Compare(self, node: nodes.Compare, *args: Any) -> Any:
        """The same, of values that are paid for."""
        made: Any = self.generic_visit(node, *args)
        for one in (made, *made.ops):
            one.expr = _filtered(one.expr, "_sized")
        return made

    def visit_Getitem(self, node: nodes.Getitem, *args: Any) -> Any:
        """The same; what a slice is taken of is paid for."""
        made: Any = self.generic_visit(node, *args)
        if isinstance(made.arg, nodes.Slice):
            made.node = _filtered(made.node, "_sized")
        return made

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
    return nodes.Filter(node, _Own(name), list(args), [], None, None)


def _size(body: nodes.Node) -> int:
    """What one pass through a part of a template costs: its text, and all that may be evaluated in it."""
    return sum(
        NODE + (len(one.data) if isinstance(one, nodes.TemplateData) else 0) for one in body.find_all(nodes.Node)
    )


def _weight(value: Any) -> int:
    """How large a value is, with all that is in it; what is there twice counts twice.

    :raises SecurityError: it is larger than :data:`LARGEST`, or has a number of more than :data:`BITS`.
    """
    weight, left = 0, [value]
    while left:
        one = left.pop()
        weight += 1
        if isinstance(one, str | bytes | range):
            weight += len(one)
        elif isinstance(one, int) and one.bit_length() > BITS:
            raise SecurityError("a number in it is too large")
        elif isinstance(one, Mapping):
            left += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | AbstractSet | ValuesView):
            left += one
        if weight + len(left) > LARGEST:
            raise SecurityError("a value in it is too large")
    return weight
