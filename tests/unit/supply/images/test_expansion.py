"""A user's own template: its errors, and that it takes no more than the kernel gives its child process."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import plans
import pytest

from winlab.design import spec
from winlab.design.render import templates
from winlab.errors import UsageError
from winlab.operations import render
from winlab.supply.images import expansion, requirements

MEMORY = "It took more than 256 MiB of memory."
PROCESSOR = "It took more than 1 s of a processor."
RECURSION = "RecursionError"


def refused(text: str) -> str:
    """Why a template is refused."""
    with pytest.raises(UsageError, match=r"The template 'own\.j2' can't be used") as caught:
        expansion.expand({"own.j2": text}, "own.j2", {"install": True})
    assert "docs/windows.md" in caught.value.cure
    return caught.value.why


def test_the_child_makes_the_same_text() -> None:
    texts = {"own.j2": "{% extends 'more.j2' %}", "more.j2": "{{ name }} {{ name | unattend_password('x') }}\r\n"}
    values = {"name": "<\u00e4\U0001f600>", "key": None}
    made = expansion.expand(texts, "own.j2", values)
    assert made == templates.expand(texts, "own.j2", values)
    assert made.startswith("&lt;\u00e4\U0001f600&gt; ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<unattend>{{ colour }}</unattend>", "'colour' is undefined"),
        ("{% if %}", "TemplateSyntaxError"),
        ('{% extends "winlab/none.j2" %}', "TemplateNotFound"),
        ("{% set name = '../secret' %}{% include name %}", "TemplateNotFound"),  # known only when it is rendered
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ '\ud800' }}", "can't be written as UTF-8"),
    ],
)
def test_a_bad_template_is_named(text: str, says: str) -> None:
    assert says in refused(text)


@pytest.mark.parametrize(
    "text",
    [
        "{{ cycler.__init__.__globals__.os.popen('touch ' ~ marker).read() }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ ('' | unattend_password('x')).format.__self__.__class__ }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ self.__init__.__globals__ }}",
        "{{ [].append(1) }}",
    ],
)
def test_a_template_reaches_no_python_objects(tmp_path: Path, text: str) -> None:
    marker = tmp_path / "marker"
    assert refused(f"{{% set marker = '{marker}' %}}{text}").startswith("SecurityError")
    assert not marker.exists()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{{ 'a' * 10 ** 9 }}", MEMORY),
        ("{{ [0] * 10 ** 9 }}", MEMORY),
        ("{{ 'a' | center(10 ** 9) }}", MEMORY),
        ("{{ '%1000000000d' % 1 }}", MEMORY),
        ("{{ '{:1000000000}'.format(1) }}", MEMORY),
        ("{{ ('a' * 60000) | replace('a', 'b' * 60000) }}", MEMORY),
        ("{{ [[1]] | tojson(10 ** 9) }}", MEMORY),
        ("{{ [1] | batch(10 ** 9, 'x') | list }}", MEMORY),
        ("{% set ns = namespace(s='x') %}{% for n in range(40) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", MEMORY),
        (
            "{% set ns = namespace(s='x') %}{% for n in range(40) %}{% set v %}{{ ns.s }}{{ ns.s }}{% endset %}"
            "{% set ns.s = v %}{% endfor %}",
            MEMORY,
        ),
        ("{% for a in range(60000) %}{% for b in range(60000) %}{% endfor %}{% endfor %}", PROCESSOR),
        (
            "{% macro g(n) %}{% if n %}{{ g(n - 1) }}{{ g(n - 1) }}{% endif %}{% endmacro %}{{ g(50) }}",
            PROCESSOR,
        ),
        (  # in C alone: no signal handler of Python's would be called
            "{% set ns = namespace(s=3) %}{% for n in range(60) %}{% set ns.s = ns.s * ns.s %}{% endfor %}",
            PROCESSOR,
        ),
        # numbers with one hash
        (f"{{% set m = range(0, {20000 * (2**61 - 1)}, {2**61 - 1}) | unique | list %}}", PROCESSOR),
        ("{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}", RECURSION),
        ("{% for a in [[1]] recursive %}{{ loop([a, a]) }}{% endfor %}", RECURSION),
        ("{% include 'own.j2' %}{% include 'own.j2' %}", RECURSION),
        ("{{ " + "(" * 2000, RECURSION),
        ("{% for i in range(1100) %}" + "<!-- more -->" * 80 + "{% endfor %}", "it makes more than 1048576 characters"),
    ],
)
def test_a_template_takes_little_time_and_memory(monkeypatch: pytest.MonkeyPatch, text: str, why: str) -> None:
    if why == PROCESSOR:
        monkeypatch.setattr(expansion, "LIMITS", dataclasses.replace(expansion.LIMITS, seconds=1))
    assert why in refused(text)


def test_the_largest_template_is_rendered() -> None:
    """And the largest text in JSON: each character takes twelve bytes."""
    text = "{#" + "a" * (templates.SOURCE - 100) + "#}{{ '\U0001f600' * " + str(templates.LONGEST) + " }}"
    assert expansion.expand({"own.j2": text}, "own.j2", {}) == "\U0001f600" * templates.LONGEST


def test_templates_of_users_are_rendered_within_limits(tmp_path: Path) -> None:
    """Before anything is touched, and for 'winlab plan --render'. In this process there would be memory enough."""
    (tmp_path / "own.j2").write_text("{{ 'a' * 10 ** 9 }}")
    plan = plans.make(plans.KVM, "1-1-1", f"workers.template={tmp_path / 'own.j2'}")
    at_hand = plans.stock(spec.load("1-1-1"))
    with pytest.raises(UsageError) as caught:
        requirements.check(plan, at_hand, consent=True)
    assert caught.value.why == MEMORY
    with pytest.raises(UsageError) as caught:
        render.write(plan, tmp_path / "rendered")
    assert caught.value.why == MEMORY
