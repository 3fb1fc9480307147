"""Takes secrets out of what others are to read: known ones in every usual form, and what looks like one.

A content is masked as a whole, so that there are no borders of blocks at which a secret could hide.
"""

from __future__ import annotations

import base64
import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import quote, quote_plus
from xml.sax.saxutils import escape

SHORTEST = 6  # characters; anything shorter is not a secret, and would be everywhere
LINE = 16  # characters of a line of a key that count as a secret of its own
KEY = 16 << 10  # bytes that a private key in PEM may have
BOMS = (b"\xff\xfe", b"\xfe\xff")

MARKER = re.compile(rb"-----(BEGIN|END) [A-Z0-9 ]{0,40}PRIVATE KEY-----")
BODY = re.compile(rb"(?:(?:[\s\"',|]|\\[rn])*[A-Za-z0-9+/=]{16,})*")
BODY_LINE = re.compile(rb"\s*[A-Za-z0-9+/=]+\s*")
# Base64 over several lines; the look-behind keeps the search linear
WRAPPED = re.compile(
    rb"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{20,}+(?:(?:\r?\n[ \t]*|(?:\\r)?\\n)(?!-)[A-Za-z0-9+/_-]{4,}+={0,2})+"
)
BREAK = re.compile(rb"\r?\n[ \t]*|(?:\\r)?\\n")
# What a terminal or a formatter puts between the characters of a long value: the end of a line and an indent, also in
# JSON's spelling, the zeros of UTF-16, and colours
BETWEEN = re.compile(rb"\r?\n[ \t\0]*|[\r\0]+|\\[rn][ \t]*|\x1b\[[0-9;?]{0,20}[A-Za-z]")
# base64 of "-----BEGIN", wherever the key that may follow ends
PEM64 = re.compile(rb"LS0tLS1CRUdJTi[A-Za-z0-9+/]{16,}={0,2}")
# What the rarer forms have: only a content that has it, too, is searched for them
SIGNS = (b"\0", b"%2", rb"\u00", rb"\/", b"&")
# What looks like a secret: the group is what is masked
PATTERNS = (
    # source: https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/
    ("bootstrap token", re.compile(rb"(?<![A-Za-z0-9])([a-z0-9]{6}\.[a-z0-9]{16})(?![A-Za-z0-9])")),
    ("JSON web token", re.compile(rb"(?<![A-Za-z0-9_-])(eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,})")),
    ("product key", re.compile(rb"(?<![A-Z0-9-])((?:[A-Z0-9]{5}-){4}[A-Z0-9]{5})(?![A-Z0-9-])")),
    ("password of a URL", re.compile(rb"://[^\s/:@\"'\[]{1,200}:([^\s/@\"']{1,200})@")),
    ("header", re.compile(rb"(?i)authorization[\"']?: *[\"']?(?:basic|bearer|negotiate|ntlm) +([^\s\"'\[]+)")),
    ("key of certificates", re.compile(rb"(?i)certificate-?key[\"']?[ :=]+[\"']?([0-9a-f]{64})")),
    ("key of a client", re.compile(rb"client-key-data[\"']?: *[\"']?([A-Za-z0-9+/=]{16,})")),
)


class _Needle(NamedTuple):
    """One form of a secret, and what is put in its place."""

    content: bytes
    instead: bytes


class _Place(NamedTuple):
    """A part of a content that is masked."""

    begin: int
    end: int
    instead: bytes


class Masker:
    """Masks secrets: ``[secret NAME]`` takes their place.

    :param secrets: values by their names. Each line of a key in PEM counts by itself.
    """

    def __init__(self, secrets: Mapping[str, str]) -> None:
        made: dict[bytes, bytes] = {}
        self._broken: dict[bytes, str] = {}  # names of secrets by their texts, without what may be between
        for name, value in secrets.items():
            narrow, wide = _instead(name), _wide(f"[secret {name}]")
            for part in _parts(value):
                self._broken.setdefault(BETWEEN.sub(b"", part.encode()), name)
                for form in _forms(part):
                    made.setdefault(form, wide if b"\0" in form else narrow)
        self._needles: dict[bytes, list[_Needle]] = {}  # by what a content must have for any of them to be in it
        for form, instead in made.items():
            sign = next((sign for sign in SIGNS if sign in form), b"")
            self._needles.setdefault(sign, []).append(_Needle(form, instead))

    def mask(self, content: bytes) -> bytes:
        """The content without secrets. UTF-16 with a byte order mark becomes UTF-8."""
        masked = self._masked(content)
        # after it was masked as it is: the mark may lie
        return self._masked(masked.decode("utf-16", "replace").encode()) if content[:2] in BOMS else masked

    def _masked(self, content: bytes) -> bytes:
        masked = _replaced(content, [*self._known(content), *self._wrapped(content), *self._interrupted(content)])
        masked = _replaced(masked, _private_keys(masked))
        masked = PEM64.sub(_key_in_base64, masked)
        for name, pattern in PATTERNS:
            masked = _replaced(masked, (_Place(*hit.span(1), _instead(name)) for hit in pattern.finditer(masked)))
        return masked

    def _known(self, content: bytes) -> Iterator[_Place]:
        for needle in self._possible(content):
            begin = content.find(needle.content)
            while begin >= 0:
                yield _Place(begin, begin + len(needle.content), needle.instead)
                begin = content.find(needle.content, begin + 1)

    def _wrapped(self, content: bytes) -> Iterator[_Place]:
        """Base64 over several lines that has a secret across a line's end."""
        for block in WRAPPED.finditer(content):
            joined = BREAK.sub(b"", block[0])
            for needle in self._possible(joined):
                if joined.count(needle.content) > block[0].count(needle.content):
                    yield _Place(*block.span(), needle.instead)
                    break

    def _interrupted(self, content: bytes) -> Iterator[_Place]:
        """Secrets that line ends, indents, zeros or colours interrupt."""
        joined = BETWEEN.sub(b"", content)
        if len(joined) == len(content):
            return
        hits = [
            (hit.start(), hit.end(), name)
            for text, name in self._broken.items()
            if len(text) >= SHORTEST
            for hit in re.finditer(re.escape(text), joined)
        ]
        if not hits:
            return
        places = _Places(content)
        for first, end, name in hits:
            begin, last = places.of(first), places.of(end - 1)
            wide = content[begin : last + 1].count(b"\0") >= end - first - 1
            yield _Place(begin, last + 1, _wide(f"[secret {name}]") if wide else _instead(name))

    def _possible(self, content: bytes) -> Iterator[_Needle]:
        for sign, needles in self._needles.items():
            if sign in content:
                yield from needles


class _Places:
    """Where each byte of a content without :data:`BETWEEN` is in the content itself."""

    def __init__(self, content: bytes) -> None:
        self._joined, self._gone = [0], [0]  # from this byte on, so many are left out
        gone = 0
        for hit in BETWEEN.finditer(content):
            gone += len(hit[0])
            self._joined.append(hit.end() - gone)
            self._gone.append(gone)

    def of(self, byte: int) -> int:
        return byte + self._gone[bisect_right(self._joined, byte) - 1]


def _replaced(content: bytes, places: Iterator[_Place] | list[_Place]) -> bytes:
    """The content with the places masked; those that overlap become one."""
    made, done = bytearray(), 0
    for place in sorted(places, key=lambda place: (place.begin, -place.end)):
        if place.begin >= done:
            made += content[done : place.begin] + place.instead
        done = max(done, place.end)
    return bytes(made + content[done:]) if done else content


def _instead(name: str) -> bytes:
    return f"[secret {name}]".encode()


def _private_keys(content: bytes) -> Iterator[_Place]:
    """Private keys in PEM, also those of which the beginning or the end is missing."""
    markers = list(MARKER.finditer(content))
    done = 0
    for number, marker in enumerate(markers):
        if marker.start() < done:
            continue
        begin, end = marker.span()
        if marker[1] == b"BEGIN":
            follower = markers[number + 1] if number + 1 < len(markers) else None
            if follower is not None and follower[1] == b"END" and follower.end() - begin < KEY:
                end = follower.end()
            elif (body := BODY.match(content, end, end + KEY)) is not None:
                end = body.end()
        else:
            lines = content[max(done, begin - KEY) : begin].splitlines(keepends=True)
            while lines and BODY_LINE.fullmatch(lines[-1]):
                begin -= len(lines.pop())
        known = re.search(rb"\[secret [^\]]*\]", content[begin:end])
        yield _Place(begin, end, known[0] if known else _instead("private key"))
        done = end


def _key_in_base64(hit: re.Match[bytes]) -> bytes:
    head = hit[0][:80].rstrip(b"=")
    whole = base64.b64decode(head[: len(head) // 4 * 4])
    return _instead("private key") if b"PRIVATE KEY" in whole else hit[0]


def _parts(value: str) -> Iterator[str]:
    """The texts to look for: the value, or the lines of a key in PEM; also of one that is in base64."""
    if not value.startswith("-----BEGIN"):
        if len(value) >= SHORTEST:
            yield value
        try:
            value = base64.b64decode(value, validate=True).decode("ascii")
        except ValueError:
            return
    if value.startswith("-----BEGIN"):
        lines = (line.strip() for line in value.splitlines())
        yield from (line for line in lines if len(line) >= LINE and not line.startswith("-----"))


def _forms(text: str) -> Iterator[bytes]:
    """The forms of a text as bytes."""
    for written in _written(text):
        yield written.encode()
        yield _wide(written)
    for content in (text.encode(), _wide(text)):
        for core in _in_base64(content):
            yield core
            yield core.translate(bytes.maketrans(b"+/", b"-_"))  # for URLs
            yield core.replace(b"/", rb"\/")
            yield quote(core, safe="").encode()


def _wide(text: str) -> bytes:
    """A text in UTF-16 without its last byte: so it is in either byte order."""
    return text.encode("utf-16-le")[:-1]


def _written(text: str) -> set[str]:
    """A text as it is, and as XML, JSON, a URL and their writers have it."""
    quoted = quote(text, safe="")
    strict = "".join(one if one.isalnum() or one in "-_." else f"\\u{ord(one):04x}" for one in text)
    plain = {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], text.replace("/", r"\/"), strict}
    marks = ({'"': "&quot;", "'": "&apos;"}, {'"': "&#34;", "'": "&#39;"}, {'"': "&quot;", "'": "&#x27;"})
    in_xml = {escape(text), escape(text, {'"': "&quot;"}), *(escape(text, each) for each in marks)}
    return {*plain, *in_xml, quoted, quoted.lower() if quoted != text else text, quote(text), quote_plus(text)}


def _in_base64(content: bytes) -> Iterator[bytes]:
    """Base64 of a content inside of something larger, at each of the three offsets that it may have there.

    Only the characters that depend on nothing else.
    """
    for shift in range(3):
        first, last = -(-shift * 8 // 6), (shift + len(content)) * 8 // 6
        yield base64.b64encode(bytes(shift) + content)[first:last]
