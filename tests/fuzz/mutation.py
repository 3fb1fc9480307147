"""Corrupts valid inputs. Everything depends only on the random generator, so that an input can be made again."""

from __future__ import annotations

import hashlib
import io
import json
import random
import re
import struct
import tarfile
from collections.abc import Callable, Sequence
from typing import Any

import yaml

from winlab import documents

Mutator = Callable[[random.Random, bytes], bytes]

EXTREMES = (
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    1 << 40,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
)
TEXTS: tuple[str, ...] = (
    "",
    "\0",
    "a\0b",
    "../../../../etc/passwd",
    "/etc/passwd",
    "C:\\x",
    "~",
    "~nobody-such/x",
    "..",
    ".",
    "a" * 5000,
    "a/" * 3000,
    "\x1b[2J\x1b]0;x\x07",
    "\u202ex",
    "\ud800",
    "\N{SUPERSCRIPT TWO}",
    "\u0663",
    "-1",
    "1e999",
    "0x" + "f" * 5000,
    "9" * 5000,
    "NaN",
    "-",
    "--help",
    "{{ 7*7 }}",
    "%s%n",
    "$(id)",
    "`id`",
    "null",
    "true",
    "sha256:" + "0" * 64,
    "http://[",
    "http://[::1",
    "://",
    "\r\nHost: x",
    "\ufeff",
    "a" * 64,
    "2026-02-30",
    "0:0:0",
    "1:" * 30 + "1",
    "!!python/object:os.system x",
    "*a",
    "&a",
    "<<",
)
TOKENS = tuple(text.encode("utf-8", "surrogatepass") for text in TEXTS) + (
    b"\xff\xfe",
    b"\xc0\x80",
    b"\xf5",
    b"\n",
    b"\n---\n",
    b"%YAML 9.9\n",
    b"!!bool x",
    b"!!timestamp x",
    b"!!int ''",
    b"!!float ''",
    b"!!binary x",
    b"!!set [a]",
    b"!!omap x",
    b"!!pairs [1]",
    b"? [a]\n: b\n",
    b"[" * 3000,
    b"{a: " * 2000,
    b"{" * 3000,
    b'{"a":' * 3000,
    b"- " * 1500,
    b"<" * 3000,
    b'<!DOCTYPE x [<!ENTITY a "aaaa">]>',
    b"&a;",
    b"=" * 100,
)


# -- bytes


def flip(rng: random.Random, content: bytes) -> bytes:
    made = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        if made:
            made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
    return bytes(made)


def cut(rng: random.Random, content: bytes) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def number(rng: random.Random, content: bytes) -> bytes:
    """A binary number anywhere becomes an extreme one."""
    form = rng.choice("BHHIIQ")
    if len(content) < 8:
        return content + b"\xff"
    made, order = bytearray(content), rng.choice("<>")
    value = rng.choice(EXTREMES) + rng.choice((0, 0, 1, -1))
    at = rng.randrange(len(made) - 7)
    struct.pack_into(order + form, made, at, value % (1 << 8 * struct.calcsize(form)))
    return bytes(made)


def words(rng: random.Random, content: bytes) -> bytes:
    """A number in digits becomes another one."""
    places = list(re.finditer(rb"\d+", content))
    if not places:
        return content + b"9"
    place = rng.choice(places)
    text = rng.choice(
        (b"0", b"-1", b"99999999999999999999", b"1e999", b"9" * 5000, b"", b"0x10", b"1.5", b"x", "\u00b2".encode())
    )
    return content[: place.start()] + text + content[place.end() :]


def token(rng: random.Random, content: bytes) -> bytes:
    at = rng.randrange(len(content) + 1)
    return content[:at] + rng.choice(TOKENS) + content[at + rng.choice((0, 0, 1, 10)) :]


def block(rng: random.Random, content: bytes) -> bytes:
    """A part is removed, repeated, or moved."""
    begin = rng.randrange(len(content) + 1)
    end = min(len(content), begin + rng.choice((1, 4, 16, 512, 2048)))
    part = content[begin:end]
    at = rng.randrange(len(content) + 1)
    return rng.choice(
        (
            content[:begin] + content[end:],
            content[:end] + part * rng.choice((1, 2, 50)) + content[end:],
            content[:at] + part + content[at:],
        )
    )


def noise(rng: random.Random, content: bytes) -> bytes:
    return rng.randbytes(rng.choice((0, 1, 7, 512, 4096)))


def lines(rng: random.Random, content: bytes) -> bytes:
    """Lines are removed, repeated, swapped, indented."""
    every = content.splitlines(keepends=True)
    if not every:
        return b"\n"
    at, other = rng.randrange(len(every)), rng.randrange(len(every))
    match rng.randrange(4):
        case 0:
            del every[at]
        case 1:
            every.insert(other, every[at])
        case 2:
            every[at], every[other] = every[other], every[at]
        case _:
            every[at] = b"  " + every[at]
    return b"".join(every)


BYTES: Sequence[Mutator] = (flip, flip, cut, number, number, words, token, block, noise)
TEXT: Sequence[Mutator] = (flip, cut, words, words, token, token, lines, lines, block)


# -- trees: JSON and YAML


def value(rng: random.Random) -> Any:
    """Any value, an odd one."""
    deep: Any = 1
    for _ in range(rng.choice((3, 60, 400))):
        deep = [deep] if rng.random() < 0.5 else {"a": deep}
    return rng.choice(
        (
            None,
            True,
            False,
            0,
            -1,
            1 << 31,
            1 << 63,
            1 << 64,
            10**40,
            10**400,
            -(10**400),
            0.5,
            1e308,
            float("inf"),
            float("nan"),
            [],
            {},
            [None],
            [[]],
            {"": None},
            {"a": 1},
            [{}],
            deep,
            ["a"] * 50,
            {"name": "a"},
            {str(n): n for n in range(50)},
            *(rng.choice(TEXTS),) * 12,
        )
    )


def tree(rng: random.Random, root: Any) -> Any:
    """One place of a tree is changed, removed, repeated, or renamed."""
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key in list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
            places.append((node, key))
            walk(node[key])

    walk(root)
    if not places or rng.random() < 0.02:
        return value(rng)
    node, key = rng.choice(places)
    match rng.randrange(7):
        case 0:
            del node[key]
        case 1 if isinstance(node, dict):
            node[rng.choice(TEXTS)] = node.pop(key)
        case 1 | 2 if isinstance(node, list):
            node.extend([node[key]] * rng.choice((1, 1, 60)))
        case 3:
            node[key] = [node[key]]
        case 4 if isinstance(node[key], str) and node[key]:
            text = node[key]
            at = rng.randrange(len(text) + 1)
            node[key] = text[:at] + rng.choice(TEXTS)[:300] + text[at:]
        case 5:
            node[key] = rng.choice(places)[0] if rng.random() < 0.2 and node is not root else value(rng)
            try:
                json.dumps(root)
            except (ValueError, RecursionError):  # it contains itself now
                node[key] = None
        case _:
            node[key] = value(rng)
    return root


def in_json(rng: random.Random, content: bytes) -> bytes:
    try:
        root = documents.from_json(content)
    except ValueError:
        return token(rng, content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        root = tree(rng, root)
    try:
        return json.dumps(root).encode()
    except (ValueError, RecursionError):
        return b"[" * 500


def in_yaml(rng: random.Random, content: bytes) -> bytes:
    try:
        root = documents.from_yaml(content) if b"&" not in content else None
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            root = tree(rng, root)
        return yaml.safe_dump(root, sort_keys=False).encode("utf-8", "surrogatepass")
    except Exception:  # the seed was corrupted before
        return lines(rng, content)


def bomb(rng: random.Random, content: bytes) -> bytes:
    """YAML whose aliases or merges grow endlessly."""
    how = rng.choice(
        ("[*{0}, *{0}, *{0}, *{0}, *{0}, *{0}, *{0}, *{0}]", "{{<<: [*{0}, *{0}, *{0}, *{0}, *{0}, *{0}, *{0}, *{0}]}}")
    )
    rows = ["x0: &x0 {a: lol, b: c}"] + [
        f"x{n}: &x{n} {how.format(f'x{n - 1}')}" for n in range(1, rng.choice((5, 9, 30)))
    ]
    text = "\n".join(rows) + "\n"
    if rng.random() < 0.5:
        return text.encode() + content
    key = rng.choice([*re.findall(rb"(?m)^([a-z]+):", content), b"a"])
    return text.encode() + key + b": *x4\n"


def flat(rng: random.Random, content: bytes) -> bytes:
    """YAML with more values than a document has."""
    return content + b"\nflat: [" + b"1," * rng.choice((1000, 600_000)) + b"1]\n"


JSON: Sequence[Mutator] = (in_json, in_json, in_json, in_json, in_json, flip, cut, token, words)
YAML: Sequence[Mutator] = (in_yaml, in_yaml, in_yaml, in_yaml, bomb, flat, *TEXT)


# -- tar archives


def unpacked(content: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
    rows = []
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isreg() else None
            rows.append((member, file.read() if file else b""))
    return rows


def packed(rows: Sequence[tuple[tarfile.TarInfo, bytes]], how: int = tarfile.PAX_FORMAT) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=how, errors="surrogateescape") as archive:
        for member, content in rows:
            archive.addfile(member, io.BytesIO(content))
    return target.getvalue()


def members(rng: random.Random, content: bytes) -> bytes:
    """Members of a tar archive are renamed, retyped, swapped, removed, repeated; or their headers say more."""
    try:
        rows = unpacked(content)
        at = rng.randrange(len(rows))
    except (tarfile.TarError, ValueError, OSError, EOFError):
        return block(rng, content)
    member, text = rows[at]
    match rng.randrange(7):
        case 0:
            del rows[at]
        case 1:
            rows.insert(rng.randrange(len(rows) + 1), rows[at])
        case 2:
            rows.append(rows.pop(0))
        case 3:
            member.name = rng.choice(TEXTS).replace("\0", "") or "x"
        case 4:
            member.type = rng.choice((b"1", b"2", b"3", b"5", b"6", b"7", b"S", b"L", b"x", b"g", b"K", b"Z"))
            member.linkname = rng.choice(("x", "/etc/passwd", "../x", member.name))
        case 5:
            key = rng.choice(
                (
                    "size",
                    "path",
                    "GNU.sparse.major",
                    "GNU.sparse.size",
                    "GNU.sparse.map",
                    "mtime",
                    "hdrcharset",
                    "GNU.sparse.realsize",
                    "GNU.sparse.offset",
                    "GNU.sparse.numbytes",
                )
            )
            member.pax_headers = {key: rng.choice(("1", "0", "-1", "x", "1,x", "9" * 30, "NaN", "", "\0", "BINARY"))}
            if rng.random() < 0.5:
                member.pax_headers |= {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
        case _:
            rows[at] = (member, rng.choice((in_json, flip, token, cut))(rng, text))
            member.size = len(rows[at][1])
    try:
        return packed(rows)
    except (ValueError, OSError, TypeError, UnicodeError):
        return flip(rng, content)


def headers(rng: random.Random, content: bytes) -> bytes:
    """A field of a tar header becomes extreme, and its checksum right."""
    made = bytearray(content)
    places = [at for at in range(0, len(made) - 511, 512) if made[at + 257 : at + 262] == b"ustar"]
    if not places:
        return number(rng, content)
    at = rng.choice(places)
    begin, size = rng.choice(
        (
            (0, 100),
            (100, 8),
            (124, 12),
            (124, 12),
            (136, 12),
            (156, 1),
            (157, 100),
            (257, 8),
            (345, 155),
            (386, 24),
            (483, 12),
        )
    )
    text = rng.choice(
        (
            b"\x80" + bytes(size - 1),
            b"\xff" * size,
            b"\x80" + b"\x7f" * (size - 1),
            b"7" * size,
            b"-1",
            b" " * size,
            b"\0" * size,
            b"x",
            rng.randbytes(size),
            b"LKSgxX"[: rng.randrange(1, 6)][-1:],
        )
    )
    made[at + begin : at + begin + size] = text[:size].ljust(size, b"\0")
    made[at + 148 : at + 156] = b" " * 8
    made[at + 148 : at + 156] = b"%06o\0 " % sum(made[at : at + 512])
    return bytes(made)


def image(rng: random.Random, content: bytes) -> bytes:
    """A document of an OCI archive is changed, and all digests that lead to it are made right again."""
    try:
        rows = unpacked(content)
    except (tarfile.TarError, ValueError, OSError, EOFError):
        return flip(rng, content)
    texts = {member.name: text for member, text in rows}
    documents = [name for name, text in texts.items() if text[:1] == b"{"]
    if not documents:
        return flip(rng, content)
    name = rng.choice(documents)
    changed = [(name, in_json(rng, texts[name]))]
    for _ in range(6):  # deeper than any such archive is
        if not changed:
            break
        old, text = changed.pop()
        before = texts.pop(old)
        if not old.startswith("blobs/"):
            texts[old] = text
            continue
        was, now = hashlib.sha256(before).hexdigest().encode(), hashlib.sha256(text).hexdigest().encode()
        texts[f"blobs/sha256/{now.decode()}"] = text
        size = (b'"size":%d' % len(before), b'"size":%d' % len(text))
        changed += [
            (one, other.replace(was, now).replace(*size))
            for one, other in texts.items()
            if was in other and other[:1] == b"{"
        ]
    made = []
    for one, text in texts.items():
        row = tarfile.TarInfo(one)
        row.size = len(text)
        made.append((row, text))
    return packed(made)


TAR: Sequence[Mutator] = (members, members, members, headers, headers, *BYTES)
OCI: Sequence[Mutator] = (image, image, image, members, headers, *BYTES)
