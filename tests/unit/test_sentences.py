"""English that is read without stopping: no sentence of the documents and docstrings has more than 30 words.

Counted is what a reader reads. Inline code is one word, and so are several that only commas, "and" or "or" join; of a
link its text counts. List items, headings and cells of tables are texts of their own. Left out are blocks of code, and
what a docstring lays out by hand. A colon or a semicolon ends no sentence.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
MOST = 30  # words
PACKAGES = ("winlab", "standin/winlab_standin", "tools")
BUILT = {"build", "dist"}  # of winlab and of winlab-standin

CODE = "\0"  # stands for inline code
END = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)[\"'”)*_]*\s+")
ITEM = re.compile(r"\s*(?:[-*+] |\d+[.)] |(?=:[a-z]+[^:]*: ))\s*")  # of a list, or a docstring's ":param x:"
LAID_OUT = re.compile(r"\S {3,}\S")  # in columns
BESIDE = re.compile(rf"{CODE}(?:(?:, |,? and |,? or | / | · |/){CODE})+")


def plain(text: str) -> str:
    """*text* as it is read: code as one sign, links as their text, without emphasis."""
    text = re.sub(r"(?::[a-z]+:)?(`+)(?!`).+?(?<!`)\1(?!`)", CODE, text)
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text)
    return BESIDE.sub(CODE, text.replace("**", ""))


def blocks(text: str) -> Iterator[str]:
    """The paragraphs, list items, headings and cells of a document, each on one line, without blocks of code."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"^( *)(```|~~~).*?^ *\2 *$", "", text, flags=re.S | re.M)
    block: list[str] = []
    in_item = False
    for line in [*text.splitlines(), ""]:
        item = ITEM.match(line)
        alone = not line.strip() or line.startswith(("#", "|")) or LAID_OUT.search(line)
        if block and (item or alone):
            yield " ".join(block)
            block = []
        if line.startswith("|"):
            yield from re.split(r"(?<!\\)\|", line)
        elif line.startswith("#"):
            yield line.lstrip("# ")
        elif not alone and (item or in_item or block or not line.startswith(" ")):
            in_item = bool(item) or (in_item and line.startswith(" "))
            block.append(line[item.end() if item else 0 :].strip())


def too_long(text: str) -> list[str]:
    """How many words each sentence with too many has, and its first ones."""
    found = []
    for sentence in (one for block in blocks(text) for one in END.split(plain(block))):
        words = [word for word in sentence.split() if re.search(rf"[\w{CODE}]", word)]
        if len(words) > MOST:
            found.append(f"{len(words)} words: {' '.join(words[:8]).replace(CODE, '`…`')} ...")
    return found


def files(pattern: str, top: Path = TOP) -> list[Path]:
    """The project's own files of a *pattern*, without what is installed, built or cached beside them."""
    found = [(path, path.relative_to(TOP).parts) for path in sorted(top.rglob(pattern))]
    return [path for path, names in found if BUILT.isdisjoint(names[:2]) and not any(n[0] == "." for n in names)]


def docstrings(path: Path) -> Iterator[str]:
    """The docstrings of a module, its classes and functions."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield inspect.cleandoc(ast.get_docstring(node) or "")


def test_documents() -> None:
    pages = files("*.md")
    assert TOP / "README.md" in pages
    found = [f"{path.relative_to(TOP)}: {one}" for path in pages for one in too_long(path.read_text(encoding="utf-8"))]
    assert not found, "split these sentences:\n" + "\n".join(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings(package: str) -> None:
    texts = [(path.relative_to(TOP), text) for path in files("*.py", TOP / package) for text in docstrings(path)]
    assert texts
    found = [f"{path}: {one}" for path, text in texts for one in too_long(text)]
    assert not found, "split these sentences:\n" + "\n".join(found)


LONG = "word " * MOST
MORE = [
    "Short. {0}\nmore. Short.",
    "- {0}\n  more",
    "| a | {0} more |",
    "# {0} more",
    "{0}: `more`",
    "{0} [more](a.md)",
]
BROKEN = ["{0}. {0}.", "{0}\n\n{0}", "- {0}\n- {0}", "| {0} | {0} |", "# {0}\n{0}", "```\n{0}\n{0}\n```"]


@pytest.mark.parametrize("text", [*MORE, "Short.\n\n- Short.\n\n  {0}\n  more"])
def test_a_long_sentence_is_noticed(text: str) -> None:
    assert [one.partition(":")[0] for one in too_long(text.format(LONG))] == ["31 words"]


@pytest.mark.parametrize("text", [*BROKEN, "`a b`, `c`, `d` and `e` " * MOST, "[one](a/long_way.md) " * MOST])
def test_short_sentences_are_accepted(text: str) -> None:
    assert too_long(text.format(LONG)) == []
