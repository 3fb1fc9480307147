"""Answer files: how Setup finds one, reads it, and refuses it.

The search order is Microsoft's ("Methods for running Windows Setup", "Windows Setup automation overview"). The settings
are those of the Unattended Windows Setup Reference (reference.json; facts by Microsoft, CC BY 4.0). Like Setup, this
checks each pass when it begins, except for offlineServicing, which it checks at the start. Windows silently ignores a
component or setting in a pass in which it has no effect. The stand-in refuses it, so that the mistake is visible.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from xml.parsers import expat

from winlab_standin.guest.releases import LANGUAGES

NAMESPACE = "urn:schemas-microsoft-com:unattend"
WCM = "http://schemas.microsoft.com/WMIConfig/2002/State"
NAME = "autounattend.xml"
DELETED = "*SENSITIVE*DATA*DELETED*"
LOCALES = ("Microsoft-Windows-International-Core-WinPE", "Microsoft-Windows-International-Core")
TOKEN = "31bf3856ad364e35"  # noqa: S105  # the public key token of Microsoft's components


class AnswerError(Exception):
    """Setup refuses the answer file. The text is Setup's own message; ``detail`` is for the log."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


@dataclass
class Node:
    """An element: name without namespace, attributes by (namespace, name), text, children, line."""

    name: str
    namespace: str
    attributes: dict[tuple[str, str], str]
    line: int
    children: list[Node] = field(default_factory=list)
    text: str = ""

    def all(self, path: str) -> list[Node]:
        """All descendants at *path*, names joined by slashes."""
        nodes = [self]
        for name in path.split("/"):
            nodes = [child for node in nodes for child in node.children if child.name == name]
        return nodes

    def first(self, path: str) -> Node | None:
        """The first descendant at *path*."""
        found = self.all(path)
        return found[0] if found else None

    def value(self, path: str, default: str = "") -> str:
        """The text at *path*, without white space around it."""
        node = self.first(path)
        return node.text.strip() if node is not None else default


@cache
def reference() -> dict[str, Any]:
    """The facts about components and settings."""
    loaded: dict[str, Any] = json.loads(Path(__file__).with_name("reference.json").read_text(encoding="utf-8"))
    return loaded


def invalid(path: str, step: str, detail: str, component: str = "") -> AnswerError:
    """Setup's refusal of a file, or of its settings for one pass."""
    if component:
        text = (
            f"Windows could not parse or process the unattend answer file [{path}] for pass [{step}]. "
            "A component or setting specified in the answer file does not exist or is not valid. "
            f"The error was detected while processing settings for component [{component}]."
        )
    else:
        text = (
            f"Windows could not parse or process unattend answer file [{path}] for pass [{step}]. "
            "The answer file is invalid."
        )
    return AnswerError(text, detail)


def parse(data: bytes, path: str = "", step: str = "windowsPE") -> Node:
    """Read an answer file.

    :raises AnswerError: it is not well-formed, has a DOCTYPE, or its root is not ``unattend``.
    """
    parser = expat.ParserCreate(namespace_separator=" ")
    stack: list[Node] = []
    roots: list[Node] = []

    def split(name: str) -> tuple[str, str]:
        space, _, local = name.rpartition(" ")
        return space, local

    def start(name: str, attributes: dict[str, str]) -> None:
        space, local = split(name)
        node = Node(local, space, {split(key): value for key, value in attributes.items()}, parser.CurrentLineNumber)
        (stack[-1].children if stack else roots).append(node)
        stack.append(node)

    def text(characters: str) -> None:
        stack[-1].text += characters

    def doctype(*_: object) -> None:
        raise invalid(path, step, f"line {parser.CurrentLineNumber}: a DOCTYPE is not allowed")

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: stack.pop()
    parser.CharacterDataHandler = text
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, LookupError, ValueError) as error:
        raise invalid(path, step, f"the XML is not well-formed: {error}") from error
    root = roots[0]
    if (root.name, root.namespace) != ("unattend", NAMESPACE):
        raise invalid(path, step, f"the root is <{root.name}> in namespace '{root.namespace}'")
    return root


def passes(root: Node) -> set[str]:
    """The configuration passes that a file has settings for."""
    return {node.attributes.get(("", "pass"), "") for node in root.all("settings")}


def candidates(
    removable: Iterable[Path], discs: Iterable[Path], sources: Path | None, name: str = NAME
) -> Iterator[Path]:
    """Where Setup looks for an answer file: in the roots of removable writable media, then of CDs, both by drive
    letter, then in ``\\sources`` of the distribution. The name's case does not matter."""
    for folder in [*removable, *discs, *([sources] if sources else [])]:
        if folder.is_dir():
            yield from sorted(child for child in folder.iterdir() if child.name.lower() == name and child.is_file())


def find(places: Iterable[Path], step: str = "windowsPE") -> tuple[Path, Node] | None:
    """The first file among *places* that has settings for the pass *step*; others are ignored.

    :raises AnswerError: a file that comes before it can't be read.
    """
    for path in places:
        root = parse(path.read_bytes(), str(path), step)
        if step in passes(root):
            return path, root
    return None


def refuse_second(taken: Path, places: Iterable[Path], step: str) -> None:
    """Refuse a second answer file: drive letters decide which one is used, and Setup of 2016 and before stops at it.

    :raises AnswerError: there is a second one in addition to *taken*.
    """
    for other in places:
        if other != taken:
            raise invalid(str(taken), step, f"two answer files are there: {taken} and {other}")


def components(root: Node, step: str) -> list[Node]:
    """The components of a pass that are for this architecture."""
    return [
        node
        for settings in root.all("settings")
        if settings.attributes.get(("", "pass")) == step
        for node in settings.all("component")
        if node.attributes.get(("", "processorArchitecture")) in ("amd64", "neutral")
    ]


def component(root: Node, step: str, name: str) -> Node:
    """One component of a pass; an empty one if it is missing."""
    for node in components(root, step):
        if node.attributes.get(("", "name"), "").lower() == name.lower():
            return node
    return Node("component", NAMESPACE, {}, 0)


def check(
    root: Node, step: str, path: str = "", languages: Sequence[str] = LANGUAGES, *, gapless: bool = False
) -> None:
    """Check all settings of a file for the pass *step*.

    :param languages: those of the media.
    :param gapless: numbers in ``Order`` must have no gaps.
    :raises AnswerError: an unknown component or setting, one that is not valid in this pass, or a bad value.
    """
    known = reference()
    number = str(known["passes"].index(step))
    seen: set[tuple[str, str]] = set()
    for settings in root.children:
        if settings.namespace != NAMESPACE or settings.name == "servicing":
            continue
        name = settings.attributes.get(("", "pass"), "")
        if settings.name != "settings" or name not in known["passes"]:
            raise invalid(path, step, f"line {settings.line}: <{settings.name}> or its pass '{name}' is unknown")
        if name != step:
            continue
        for node in settings.children:
            _check_component(node, step, number, path)
            about = node.attributes[("", "name")], node.attributes[("", "processorArchitecture")]
            if about in seen:
                raise invalid(path, step, f"line {node.line}: the component {about[0]} is given twice", about[0])
            seen.add(about)
            _check_abilities(node, about[0], step, path, languages)
            if gapless:
                _check_order(node, about[0], step, path)


def _check_order(node: Node, name: str, step: str, path: str) -> None:
    """Refuse numbers with gaps in a list of commands, as Setup from build 26040 does by its users' logs.

    Commands at logon may have gaps, as many public answer files do, but no number twice.

    :raises AnswerError: there are gaps.
    """
    for parent in (node, *node.all("RunSynchronous"), *node.all("FirstLogonCommands")):
        orders = sorted(number(child.value("Order")) for child in parent.children if child.name.endswith("Command"))
        allowed = sorted(set(orders)) if parent.name == "FirstLogonCommands" else list(range(1, len(orders) + 1))
        if orders != allowed:
            listed = ", ".join(map(str, orders))
            raise invalid(
                path, step, f"0x8007000D: the numbers in Order have gaps or repeat in {parent.name}: {listed}", name
            )


def _check_abilities(node: Node, name: str, step: str, path: str, languages: Sequence[str]) -> None:
    """Refuse what is valid, but not available on these media."""
    language = node.value("UILanguage", languages[0]) if name in LOCALES else languages[0]
    if language.lower() not in [one.lower() for one in languages]:
        theirs = ", ".join(languages)
        raise invalid(path, step, f"UILanguage: the media have no language '{language}'; theirs are {theirs}", name)
    for wish in node.all("RunSynchronous/RunSynchronousCommand/WillReboot"):
        if wish.text.strip().lower() != "never":
            detail = f"line {wish.line}: WillReboot is '{wish.text.strip()}': the stand-in knows only Never"
            raise invalid(path, step, detail, name)


def _check_component(node: Node, step: str, number: str, path: str) -> None:
    name = node.attributes.get(("", "name"), "")
    facts = reference()["components"].get(name)
    if node.name != "component" or facts is None:
        raise invalid(path, step, f"line {node.line}: there is no component '{name or node.name}'", name or node.name)
    expected = {"publicKeyToken": TOKEN, "language": "neutral", "versionScope": "nonSxS"}
    for attribute, value in expected.items():
        if node.attributes.get(("", attribute), "").lower() != value.lower():
            raise invalid(path, step, f"line {node.line}: {attribute} of {name} is not '{value}'", name)
    if node.attributes.get(("", "processorArchitecture")) not in ("amd64", "neutral", "x86", "wow64", "arm64"):
        raise invalid(path, step, f"line {node.line}: processorArchitecture of {name} is unknown", name)
    if number not in facts["passes"]:
        raise invalid(path, step, f"line {node.line}: {name} has no setting for the pass {step}", name)
    _check_children(node, "", name, facts["settings"], step, number, path)


def _check_children(
    node: Node, prefix: str, name: str, settings: dict[str, Any], step: str, number: str, path: str
) -> None:
    seen: set[str] = set()
    keys: set[str] = set()
    for child in node.children:
        place = f"{prefix}{child.name}"
        fact = settings.get(place)
        if fact is None or child.namespace != NAMESPACE:
            raise invalid(path, step, f"line {child.line}: {name} has no setting '{place}'", name)
        limits: dict[str, Any] = fact[2] if len(fact) > 2 else {}
        if number not in fact[0]:
            raise invalid(path, step, f"line {child.line}: {place} is not valid in the pass {step}", name)
        if not limits.get("list") and child.name in seen:
            raise invalid(path, step, f"line {child.line}: {place} is given twice", name)
        if limits.get("list"):
            if child.attributes.get((WCM, "action")) != "add":
                raise invalid(path, step, f'line {child.line}: {place} needs wcm:action="add"', name)
            if child.name.endswith("Command") and f"{place}/Order" in settings and child.first("Order") is None:
                raise invalid(path, step, f"line {child.line}: {place} has no Order", name)
            key = child.attributes.get((WCM, "keyValue")) or _plain(child.value("Order"))
            if key and key in keys:
                raise invalid(path, step, f"line {child.line}: two {place} have the key '{key}'", name)
            keys.add(key)
        seen.add(child.name)
        problem = _bad_value(child, fact[1], limits)
        if problem:
            raise invalid(path, step, f"line {child.line}: {place} {problem}", name)
        if fact[1] == "c":
            _check_children(child, f"{place}/", name, settings, step, number, path)


def number(text: str) -> int:
    """A number as answer files have them: decimal, or hexadecimal after ``0x``.

    :raises ValueError: it is none.
    """
    if not re.fullmatch(r"\s*(0[xX][0-9a-fA-F]+|[+-]?[0-9]+)\s*", text):
        raise ValueError(f"'{text}' is not a number")
    return int(text, 16 if "x" in text.lower() else 10)


def _plain(text: str) -> str:
    """A number in decimal, so that two spellings of it are equal; anything else unchanged."""
    try:
        return str(number(text))
    except ValueError:
        return text


def _bad_value(node: Node, kind: str, limits: dict[str, Any]) -> str:
    """What is wrong with an element's own text; empty if nothing."""
    text = node.text.strip()
    if kind == "c":
        missing = [name for name in limits.get("children", []) if node.first(name) is None]
        return "holds text" if text else f"has no {missing[0]}" if missing else ""
    if node.children:
        return "holds elements"
    if kind == "b" and text.lower() not in ("true", "false", "0", "1"):
        return f"is '{text}', not true or false"
    if kind == "i":
        try:
            value = number(text)
        except ValueError:
            return f"is '{text}', not a number"
        if value < limits.get("min", value) or value > limits.get("max", value):
            return f"is {value}, out of range"
    if kind == "e" and text.lower() not in [str(value).lower() for value in limits.get("values", [text])]:
        return f"is '{text}', not one of {', '.join(map(str, limits['values']))}"
    if len(text.encode("utf-16-le")) // 2 > limits.get("max_length", 1 << 30):
        return f"is longer than {limits['max_length']} characters"
    return ""


def password(node: Node | None) -> str | None:
    """The password in an element such as ``AdministratorPassword``; None if there is none.

    With ``PlainText`` false, Windows expects base64 of UTF-16LE of the password and the element's own name.

    :raises ValueError: it is not encoded like this.
    """
    if node is None or node.first("Value") is None:
        return None
    text = node.all("Value")[0].text
    if node.value("PlainText", "true").lower() in ("true", "1"):
        return text
    try:
        plain = base64.b64decode(text.strip(), validate=True).decode("utf-16-le")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ValueError("it is not base64 of UTF-16LE text") from error
    if not plain.endswith(node.name):
        raise ValueError(f"the decoded value does not end with '{node.name}'")
    return plain.removesuffix(node.name)


def commands(node: Node, path: str, text: str) -> list[str]:
    """The commands at *path* (``RunSynchronous/RunSynchronousCommand``, ...) in their ``Order``; *text* names the child
    that has the command."""
    items = sorted(node.all(path), key=lambda item: number(item.value("Order") or "0"))
    return [item.value(text) for item in items]


def driver_paths(root: Node) -> list[str]:
    """Where the answer file has Windows PE look for drivers."""
    return [
        item.value("Path")
        for item in component(root, "windowsPE", "Microsoft-Windows-PnpCustomizationsWinPE").all(
            "DriverPaths/PathAndCredentials"
        )
    ]


def encoding(data: bytes) -> str:
    """The encoding of an XML file: by the byte order mark, or by the declaration."""
    for start, name in (
        (BOM_UTF8, "utf-8-sig"),
        (BOM_UTF16_LE, "utf-16"),
        (BOM_UTF16_BE, "utf-16"),
        (b"<\0", "utf-16-le"),
        (b"\0<", "utf-16-be"),
    ):
        if data.startswith(start):
            return name
    declared = re.match(rb"<\?xml[^>]*?\sencoding\s*=\s*[\"']([A-Za-z0-9._-]+)[\"']", data)
    return declared[1].decode("ascii") if declared else "utf-8"


def conceal(data: bytes) -> bytes:
    """The file as Windows caches it, with ``*SENSITIVE*DATA*DELETED*`` in place of passwords and product keys. The
    encoding stays."""
    how = encoding(data)
    text = data.decode(how)
    for name in ("AdministratorPassword", "OfflineAdministratorPassword", "Password"):
        element = rf"(?s)(<((?:\w+:)?{name})(?:\s[^>]*)?(?<!/)>).*?(</\2\s*>)"
        text = re.sub(element, rf"\1{DELETED}\3", text)
    return re.sub(r"(<Key(?:\s[^>]*)?>)\s*[A-Za-z0-9-]{29}\s*(</Key\s*>)", rf"\1{DELETED}\2", text).encode(how)
