"""YAML and JSON from any source: bounded, and with one kind of error each."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from winlab import documents


def doubling(how: str, rows: int = 30) -> str:
    """A few hundred bytes that stand for 8 ** *rows* values."""
    lines = ["x0: &x0 {a: b}"]
    lines += [f"x{n}: &x{n} {how.replace('#', ', '.join([f'*x{n - 1}'] * 8))}" for n in range(1, rows)]
    return "\n".join(lines)


@pytest.mark.parametrize("how", ["[#]", "{<<: [#]}"])
def test_aliases_and_merges_are_limited(how: str) -> None:
    for read in (documents.from_yaml, documents.nodes):
        with pytest.raises(yaml.YAMLError, match="more than 300,000 values"):
            read(doubling(how))
    assert documents.from_yaml(doubling(how, 4))["x1"] in ([{"a": "b"}] * 8, {"a": "b"})


@pytest.mark.parametrize(
    ("text", "second"),
    [("a: 1\nb: 2\na: 3\n", "a: 3"), ("x: [{a: 1, 'a': 2}]", "'a'"), ("{<<: {a: 1}, <<: {b: 1}}", "<<: {b")],
)
def test_a_key_twice_is_refused_with_its_place(text: str, second: str) -> None:
    for read in (documents.from_yaml, documents.nodes):
        with pytest.raises(yaml.MarkedYAMLError, match=r"the key '(a|<<)' is there twice") as caught:
            read(text)
        assert caught.value.problem_mark is not None
        assert caught.value.problem_mark.index == text.index(second)


@pytest.mark.parametrize("text", ["token: one\ntoken: s3cret\n", "token: [s3cret\nx: s3cret]", "a: !odd s3cret"])
def test_an_error_does_not_show_the_line(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match="line ") as caught:
        documents.from_yaml(text)
    assert "s3cret" not in str(caught.value)


def test_a_merged_key_may_be_written_over() -> None:
    assert documents.from_yaml("x: &x {a: 1}\ny: {<<: *x, a: 2}\n1: c\n'1': d\n")["y"] == {"a": 2}


@pytest.mark.parametrize("text", ["[" + "1," * 200_000 + "1]", "- [1]\n" * 100_000, "{" + "a: 1," * 100_000 + "}"])
def test_a_flat_text_is_limited_by_its_values(text: str) -> None:
    for read in (documents.from_yaml, documents.nodes):
        with pytest.raises(yaml.MarkedYAMLError, match="more than 50,000 values") as caught:
            read(text)
        assert caught.value.problem_mark is not None
        assert 50_000 < caught.value.problem_mark.index < len(text) * 0.6  # it stopped there, and not at the end


@pytest.mark.parametrize(
    "text",
    [
        *("!!bool x", "!!timestamp x", "!!int ''", "!!float ''", "!!binary x", "2026-02-30", "&a [*a]", "[" * 3000),
        *(
            "1" * 41,
            "1" * 5000,
            "!!int 0x10",
            "!!int 1:1",
            "!!float 1:1.5",
            "a: *b",
            "\0",
            "{[a]: b}",
            "? {a: b}\n: c",
            "!!python/object:os.system x",
        ),
        *("- " * 1500, "{a: " * 2000),
        *(r'a: "\ud800"', r'"\udfff": 1'),
    ],
)
def test_malformed_yaml_has_one_kind_of_error(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        documents.from_yaml(text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 3000,
        '{"a":' * 3000,
        "1" * 5000,
        "NaN",
        "-Infinity",
        "1e999",
        "",
        "{",
        b"\xff",
        "1" * 41,
        r'"\ud800"',
        r'{"\udc00": 1}',
    ],
)
def test_malformed_json_has_one_kind_of_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each has its own words
        documents.from_json(text)


@pytest.mark.parametrize("value", [None, 1, -(10**38), 1.5, "a", [{"a": [1, None, True]}], {"a": {"b": "c"}}])
def test_everything_else_is_unchanged(value: Any) -> None:
    assert documents.from_json(json.dumps(value)) == value
    assert documents.from_yaml(yaml.safe_dump(value)) == value


def test_characters_beyond_the_first_plane_may_be_escaped() -> None:
    assert documents.from_json(r'"\ud83d\ude00"') == "\U0001f600"
    assert documents.from_yaml(r'"\U0001F600"') == "\U0001f600"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("010", 10), ("-7", -7), ("1.40", 1.4), ("-.5", -0.5), ("1.5e+3", 1500.0), ("0b1", "0b1"), ("0x10", "0x10")),
        *(("1_000", "1_000"), ("1.3_6", "1.3_6"), ("12:34", "12:34"), ("1:1.5", "1:1.5"), ("0x" + "f" * 5000, ...)),
        *(("1:" * 400_000 + "1", ...), ("yes", True)),
    ],
)
def test_numbers_are_decimal(text: str, value: Any) -> None:
    assert documents.from_yaml(text) == (text if value is ... else value)


def test_a_number_with_a_fraction_knows_its_text() -> None:
    assert documents.from_yaml("1.40").text == "1.40"
    assert yaml.safe_dump(documents.from_yaml("[1.40]")) == "- 1.4\n"


@pytest.mark.parametrize("text", ["a: 1\t# mine", "a: 1\t", "{\t'a':\t1}", "a:\t1", "[\t]", "a:\n  - |\t# b\n    c\n"])
def test_tabs_are_accepted_where_kubectl_accepts_them(text: str) -> None:
    assert documents.from_yaml(text) == documents.from_yaml(text.replace("\t", " "))
    assert documents.nodes(text) is not None


@pytest.mark.parametrize("text", ["\ta: 1", "a:\n\tb: 1"])
def test_tabs_do_not_indent(text: str) -> None:
    with pytest.raises(yaml.MarkedYAMLError, match="line "):
        documents.from_yaml(text)


def test_merges_and_aliases_still_work() -> None:
    text = "a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: [*a, *a]\n"
    assert documents.from_yaml(text) == yaml.safe_load(text)
    assert documents.from_yaml("") is None
    assert documents.nodes("") is None


@pytest.mark.parametrize("kind", [str, str.encode])
def test_json_of_more_values_than_memory_is_not_read(
    kind: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """N6: 61 MiB of it took 1.6 GB."""
    assert documents.LARGEST == 32 << 20
    monkeypatch.setattr(documents, "LARGEST", 1 << 20)  # for speed
    monkeypatch.setattr(documents, "PARTS", 30_000)
    read: list[object] = []
    monkeypatch.setattr("winlab.documents.json.loads", lambda text, **_: read.append(text))
    many = documents.PARTS // 2 + 1
    large = '{"a": "' + "x" * documents.LARGEST
    for text in ("[" + "[]," * many + "1]", "[" + "{}," * many + "1]", "[" * documents.PARTS + "[]", large):
        with pytest.raises(ValueError, match="it has more than"):
            documents.from_json(kind(text))
    assert not read
    log = json.dumps('a, b: [c] " {d}, \\') + "," + json.dumps("{[,:" * documents.PARTS)  # commas in texts
    documents.from_json(kind(f"[{log}]"))
    documents.from_json(kind('{"items": [' + '{"name": "a"},' * (documents.PARTS // 5) + "{}]}"))
    assert len(read) == 2
