"""What Windows Setup refuses of an answer file as a whole: one value that is too long, or a wrong Order.

Then nothing of the file counts: Setup stops with 0x80220005 or 0x8007000D, or asks. winlab's own template keeps to it;
one of the user's own may not. Sources: Microsoft's Unattended Windows Setup Reference for the lengths and for the Order
of commands at logon, and for the other Orders reports of runs with media of build 26100.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from lxml import etree

# The most characters of what a list's element starts or names, by element and the value in it
LENGTHS = {
    ("RunSynchronousCommand", "Path"): 259,
    ("RunAsynchronousCommand", "Path"): 259,
    ("PathAndCredentials", "Path"): 259,
    ("SynchronousCommand", "CommandLine"): 1024,
    ("AsynchronousCommand", "CommandLine"): 1024,
}
# Elements that Setup takes in the order of their numbers, which must not have gaps
GAPLESS = ("RunSynchronousCommand", "RunAsynchronousCommand", "CreatePartition", "ModifyPartition")
# Commands at logon (FirstLogonCommands, LogonCommands): Windows reads them when it is installed, and takes gaps
SPARSE = ("SynchronousCommand", "AsynchronousCommand")
LAST = 500
DIGITS = 10  # a number with more is none
SHOWN = 20  # numbers of a list that are shown


def problems(root: etree._Element) -> Iterator[str]:
    """A sentence for each thing that Setup would refuse in this answer file; each names the place."""
    for (name, value), most in LENGTHS.items():
        for element in root.iterfind(f".//{{*}}{name}/{{*}}{value}"):
            # Windows counts UTF-16; comments inside don't count
            length = len(str(element.xpath("string()")).strip().encode("utf-16-le")) // 2
            if length > most:
                place, number = _place(element), _order(element.getparent())
                yield f"{place}: {value} of {name} {number} has {length} characters; at most {most} are allowed."
    for name in (*GAPLESS, *SPARSE):
        lists: dict[etree._Element, list[str]] = defaultdict(list)
        for element in root.iterfind(f".//{{*}}{name}"):
            lists[element.getparent()].append(_order(element))
        for parent, numbers in lists.items():
            if rule := _broken(name, numbers):
                shown = ", ".join(numbers[:SHOWN])
                yield f"{_place(parent)}: Order of {name} is {shown}; it must {rule}, each once."


def _broken(name: str, numbers: list[str]) -> str:
    """The rule for *name* that a list's numbers break; empty if they keep it."""
    if name in SPARSE:
        allowed = {str(number) for number in range(1, LAST + 1)}
        return "" if len(allowed.intersection(numbers)) == len(numbers) else f"be from 1 to {LAST}"
    counted = sorted(map(str, range(1, len(numbers) + 1)))
    return "" if sorted(numbers) == counted else "count from 1, without gaps"


def _order(element: etree._Element) -> str:
    """The number of a list's element as Setup reads it: 01 is 1."""
    text = element.findtext("{*}Order", "").strip()
    return str(int(text)) if text.isascii() and text.isdecimal() and len(text) < DIGITS else text[:DIGITS] or "missing"


def _place(element: etree._Element) -> str:
    """The component that an element is in, with its pass."""
    component = next(element.iterancestors("{*}component"), None)
    settings = next(element.iterancestors("{*}settings"), None)
    names = [one.get(key, "") for one, key in ((component, "name"), (settings, "pass")) if one is not None]
    return " in ".join(filter(None, names)) or "Outside of a component"
