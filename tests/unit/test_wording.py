"""Plain English: the files in SCOPE use none of the phrases that CONTRIBUTING's glossary replaces.

Left out are code, text in double quotes (a program's own words), headings of documents (links name them) and the parts
that are generated from code.
SCOPE only grows: add a file once it is clean.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_sentences import TOP

SCOPE = ["*.md", "docs/*.md", "docs/join/*.md", "tools/README.md", "standin/README.md"]
SCOPE += ["winlab/addons/metrics_server/README.md"]
SCOPE += ["winlab/**/*.py", "unattend/linux/**/*.py", "tools/**/*.py", "tests/**/*.py"]
SCOPE += ["standin/winlab_standin/**/*.py", "standin/tests/*.py"]

START = r"(?:(?<=[.:;|*-] )|(?<=\()|^)"  # of a sentence, item or cell
PHRASES = {
    r"deaf(?:ness)?": "unresponsive",
    r"told|tells?(?! you\b)": "report, say, show, distinguish",
    r"(?:go|goes|going|went|gone) on(?! (?:a|an|each|every|the|to)\b)": "resume, continue, keep running",
    r"carr(?:y|ies|ied|ying) on": "resume, continue",
    r"mend(?:s|ed|ing|able)?": "repair, fix",
    rf"(?:(?<=, )since|{START}since)(?! (?:then|\d))": "because",
    r"anew": "again, from scratch",
    r"vouch(?:es|ed|ing)?": "verify, trust",
    r"be had": "be obtained, be available",
    r"faults? on purpose": "injected fault",
    r"(?<!there )(?:is|are|was|were) no(?! (?:longer|more|less|better|newer|older|later)\b)": "is not a",
    r"(?:made|created) elsewhere|foreign": "external cluster",
    r"doubles?(?! (?:the|quotes?)\b)": "fake",
    r"play(?:s|ed|ing|ers?)?": "simulate; run",
    r"floors?": "layer",
    r"(?:some|any|no|every)body": "someone, anyone, no one, everyone",
    r"whoever|whomever": "anyone who",
    r"for ever|without end": "forever, endless",
    r"as (?:ever|wanted)": "as before, as requested",
    r"one's own": "your own",
    rf"{START}else": "otherwise",
    rf"{START}so (?:is|are|was|were|do|does|did|can)": "the same is true of; ... too",
    r"beforehand|at hand|in words": "before; available; as text",
    r"all else": "everything else",
    r"looks? whether": "check whether",
    r"spoil(?:s|ed|t|ing)?": "corrupt",
    r"what (?:it|they|each|each node) (?:is|are|was|were) at": "what ... is doing",
}
PHRASES_BY_GROUP = {f"p{n}": better for n, better in enumerate(PHRASES.values())}
WORDING = re.compile("|".join(rf"(?P<p{n}>\b(?:{p})\b)" for n, p in enumerate(PHRASES)), re.I)
ITEM = re.compile(r"\s*(?:$|[-*+|#] ?|\d+[.)] )")  # begins a text of its own
GLOSSARY = re.compile(r"^\| use \| not \|.*?\n\n", re.S | re.M)  # names the phrases
BLANK = re.compile(  # what is not the author's prose
    r"^( *)(?P<fence>```|~~~).*?^ *(?P=fence) *$"
    r"|^#+ [^\n]*$"
    r"|<!-- (?:generated|table).*?<!-- (?:end|table: end)"
    r"|(?P<code>`+)(?!`)(?:(?!\n\s*\n).)+?(?<!`)(?P=code)(?!`)"
    r'|"[^"\n]*(?:\n[^"\n]+)?"'
    r"|\]\([^)]*\)"
    r"|(?<=:param )\w+(?=:)",
    re.S | re.M,
)


def blank(found: re.Match[str]) -> str:
    """A sign in place of what was found; its lines stay."""
    return "\0" + "\n" * found[0].count("\n")


def prose(text: str) -> str:
    """*text* with code, links' targets and quotations replaced by a sign; its lines stay."""
    return BLANK.sub(blank, text)


def hits(text: str, first: int = 1) -> Iterator[str]:
    """The line, the phrase and what to use instead; *first* is the number of the first line of *text*."""
    block, starts = "", list[tuple[int, int]]()  # a paragraph as one line; where each of its lines begins in it
    for number, line in enumerate([*prose(text).splitlines(), ""], first):
        if ITEM.match(line):
            for found in WORDING.finditer(block):
                place = max(at for start, at in starts if start <= found.start())
                yield f"{place}: {found[0]!r}: {PHRASES_BY_GROUP[str(found.lastgroup)]}"
            block, starts = "", []
        starts.append((len(block), number))
        block += f"{line.strip()} "


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """The docstrings, comments and names of tests of a module, each with the number of its first line."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.lineno, node.name.replace("_", " ")
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    with path.open("rb") as source:
        for token in tokenize.tokenize(source.readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string.lstrip("#: ")


def scope() -> list[Path]:
    """The files that are checked."""
    return sorted({path for pattern in SCOPE for path in TOP.glob(pattern)})


def test_wording() -> None:
    found = []
    for path in scope():
        text = path.read_text(encoding="utf-8")
        parts = comments(path) if path.suffix == ".py" else [(1, GLOSSARY.sub(blank, text))]
        found += [f"{path.relative_to(TOP)}:{hit}" for first, part in parts for hit in hits(part, first)]
    assert not found, "see the glossary in CONTRIBUTING.md:\n" + "\n".join(found)


@pytest.mark.parametrize("pattern", SCOPE)
def test_the_scope_exists(pattern: str) -> None:
    assert any(TOP.glob(pattern))


BAD = [
    "A script is told.",
    "It tells where it is.",
    "It goes on.",
    "No digest vouches for it",
    "It can't be had",
    "It works, since it can.",
    "| Since it can, it works |",
    "Ports (else none)",
    "A program that is none; it is no member",
    "- Somebody plays it",
    "The first line goes\n  on in the second",
]
GOOD = [
    "The command tells you.",
    "`deaf` and `goes on`",
    '"an error that was mended"',
    "There is no limit. It is no longer than that. Since 1970",
    "```\nit goes on\n```",
    "<!-- generated: x -->\nit goes on\n<!-- end: x -->",
    "[one](since/anew.md)",
    "They go on a CD. Nothing else.",
    ":param told: the name of a parameter",
]


@pytest.mark.parametrize("text", BAD)
def test_a_phrase_is_noticed(text: str) -> None:
    assert list(hits(text))


@pytest.mark.parametrize("text", GOOD)
def test_plain_text_is_accepted(text: str) -> None:
    assert not list(hits(text))


def test_docstrings_comments_and_names_of_tests_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "test_x.py"
    path.write_text('"""One."""\n\n\ndef test_it_is_told() -> None:\n    x = "three"  # two\n')
    assert sorted(comments(path)) == [(1, "One."), (4, "test it is told"), (5, "two")]


def test_a_hit_names_line_phrase_and_replacement() -> None:
    assert list(hits("One.\n\nIt is made\nanew here.")) == ["4: 'anew': again, from scratch"]
