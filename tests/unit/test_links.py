"""Links in documents lead somewhere: to a file of the checkout, and to a heading of it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from test_sentences import TOP, files

FENCE = re.compile(r"^( *)(```|~~~).*?^ *\2 *$", re.M | re.S)
LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")


@cache
def anchors(path: Path) -> set[str]:
    """The anchors that headings have, as GitHub makes them."""
    found = re.findall(r"^#+ (.*)$", FENCE.sub("", path.read_text(encoding="utf-8")), re.M)
    texts = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in found]
    return {re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-") for text in texts}


def broken(path: Path, text: str) -> list[str]:
    """The links of a document that lead nowhere; those to other sites are not followed."""
    found = []
    for target in LINK.findall(re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))):
        name, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        file = (path.parent / name).resolve() if name else path
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            found.append(target)
    return found


def test_links_lead_somewhere() -> None:
    found = [
        f"{path.relative_to(TOP)}: {target}"
        for path in files("*.md")
        for target in broken(path, path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


def test_a_broken_link_is_noticed() -> None:
    page = TOP / "docs/README.md"
    text = (
        "[a](nowhere.md) [b](host.md#nothing) [c](#start) [d](host.md#firewalls) `[e](x.md)` [f](https://example.com)"
    )
    assert broken(page, text) == ["nowhere.md", "host.md#nothing"]


def test_every_page_is_in_the_index() -> None:
    index = (TOP / "docs/README.md").read_text(encoding="utf-8")
    pages = [path.name for path in (TOP / "docs").glob("*.md") if path.name != "README.md"]
    linked = index + (TOP / "docs/troubleshooting.md").read_text(encoding="utf-8")
    assert [name for name in pages if f"({name}" not in linked] == []
