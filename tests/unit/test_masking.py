"""Secrets are taken out in every form, wherever they are, and nothing else is."""

from __future__ import annotations

import base64
import html
import json
import random
import string
from collections.abc import Callable
from functools import cache
from urllib.parse import quote, quote_plus
from xml.sax.saxutils import escape, quoteattr

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from hypothesis import given, settings
from hypothesis import strategies as st

from winlab.design.plan import credentials
from winlab.masking import Masker

VALUES = st.one_of(
    st.text(string.ascii_letters + string.digits + "-", min_size=8, max_size=40),
    st.text(string.ascii_letters + string.digits + "+/=&<>\"'%\\ ", min_size=8, max_size=40),
).filter(lambda value: value == value.strip() and len(set(value)) > 5 and "secret" not in value)
AROUND = st.binary(max_size=60)
FORMS: dict[str, Callable[[str], bytes]] = {
    "plain": str.encode,
    "JSON": lambda value: json.dumps({"value": value}).encode(),
    "XML": lambda value: f"<a b={quoteattr(value)}>{escape(value)}</a>".encode(),
    "HTML": lambda value: html.escape(value).encode(),
    "URL": lambda value: f"{quote(value)} {quote(value, safe='')} {quote_plus(value)}".encode(),
    "UTF-16": lambda value: value.encode("utf-16-le"),
    "UTF-16 of the other order": lambda value: value.encode("utf-16-be"),
    "UTF-16 with a mark": lambda value: value.encode("utf-16"),
    "base64": lambda value: base64.b64encode(value.encode()),
    "base64 for URLs": lambda value: base64.urlsafe_b64encode(value.encode()),
    "base64 of UTF-16": lambda value: base64.b64encode(value.encode("utf-16-le")),
    "base64 in a URL": lambda value: quote(base64.b64encode(value.encode()), safe="").encode(),
    "base64 in UTF-16": lambda value: base64.b64encode(value.encode("utf-16-le")),
}


def _decodes(content: bytes, value: str) -> bool:
    """Whether a content still has the value, by the simplest of searches."""
    views = [content, content.replace(b"\0", b"")]
    return any(value.encode() in view for view in views)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=40)
@given(value=VALUES, before=AROUND, after=AROUND)
def test_no_form_of_a_secret_is_left(form: str, value: str, before: bytes, after: bytes) -> None:
    hidden = FORMS[form](value)
    masker = Masker({"of mine": value})
    for content in (hidden, b"." + before + b" " + hidden + b" " + after):
        masked = masker.mask(content)
        assert hidden not in masked
        assert not _decodes(masked, value)
        assert b"secret of mine" in masked.replace(b"\0", b"")
        assert masker.mask(masked) == masked


@given(value=VALUES, before=st.binary(max_size=9), after=st.binary(max_size=9), wide=st.booleans())
def test_base64_of_something_larger(value: str, before: bytes, after: bytes, wide: bool) -> None:
    """At whichever of the three offsets the secret is."""
    inner = value.encode("utf-16-le") if wide else value.encode()
    encoded = base64.b64encode(before + inner + after)
    masked = Masker({"it": value}).mask(b"data: " + encoded + b"\n")
    assert b"[secret it]" in masked
    left = masked.replace(b"[secret it]", b"").removeprefix(b"data: ").strip()
    assert len(left) <= len(encoded) - len(inner) * 4 / 3 + 4  # no more than the ends that belong to the neighbours


@given(value=st.text(string.ascii_letters + string.digits, min_size=12, max_size=40), length=st.integers(20, 80))
def test_base64_over_several_lines(value: str, length: int) -> None:
    encoded = base64.b64encode(b"x" * 31 + value.encode() + b"y" * 40).decode()
    for end in ("\n", "\r\n", "\n    ", "\\n"):
        wrapped = end.join(encoded[at : at + length] for at in range(0, len(encoded), length))
        assert b"[secret it]" in Masker({"it": value}).mask(f"before\n{wrapped}\nafter".encode())


BREAKS = {
    "a line end": ("\n", "utf-8"),
    "a line end of Windows": ("\r\n", "utf-8"),
    "an indent": ("\r\n          ", "utf-8"),
    "a line end in JSON": ("\\r\\n    ", "utf-8"),
    "zeros": ("\0", "utf-8"),
    "colours": ("\x1b[0m\x1b[31;1m", "utf-8"),
    "an indent in UTF-16": ("\r\n   ", "utf-16-le"),
    "an indent in UTF-16 of the other order": ("\r\n   ", "utf-16-be"),
}


@pytest.mark.parametrize("way", BREAKS)
@given(value=st.text(string.ascii_letters + string.digits + "+/=-", min_size=12, max_size=40), data=st.data())
def test_a_secret_that_is_interrupted(way: str, value: str, data: st.DataObject) -> None:
    """N16: by the width of a console, by Format-List, by a terminal's colours."""
    between, encoding = BREAKS[way]
    at = sorted(data.draw(st.sets(st.integers(1, len(value) - 1), min_size=1, max_size=3)))
    pieces = [value[begin:end] for begin, end in zip([0, *at], [*at, len(value)], strict=True)]
    content = f"Password : {between.join(pieces)}\r\n".encode(encoding)
    masker = Masker({"pw": value})
    masked = masker.mask(content)
    assert masked.decode(encoding) == "Password : [secret pw]\r\n"
    assert masker.mask(masked) == masked


def test_lines_that_only_begin_like_a_secret_stay() -> None:
    text = b"Abcdef-\n12346\r\nAbcdef-\x1b[0m1234\nAbcdef- 12345\n\\nAbcdef"
    assert Masker({"one": "Abcdef-12345"}).mask(text) == text


@cache
def _keys() -> tuple[str, str]:
    private = serialization.PrivateFormat
    return tuple(  # type: ignore[return-value]
        key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()
        for key, form in (
            (rsa.generate_private_key(65537, 2048), private.PKCS8),
            (ed25519.Ed25519PrivateKey.generate(), private.OpenSSH),
        )
    )


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("known", [True, False])
def test_a_private_key(which: int, known: bool) -> None:
    key = _keys()[which]
    body = key.splitlines()[1:-1]
    masker = Masker({"host key": key} if known else {})
    name = b"[secret host key]" if known else b"[secret private key]"
    indented = key.replace("\n", "\n      ")
    for content in (key, indented, json.dumps({"key": key}), f"a\n{key}b\n{key}c"):
        masked = masker.mask(content.encode())
        assert name in masked
        assert b"PRIVATE KEY" not in masked
        assert not [line for line in body if line.encode() in masked]
    assert masker.mask(f"a\n{key}b\n".encode()).replace(b"\n", b"") in (b"a" + name + b"b",)


@pytest.mark.parametrize("which", [0, 1])
def test_a_part_of_a_private_key(which: int) -> None:
    """A log that was cut in the middle of one: known lines go by themselves, others with the marker that is left."""
    lines = _keys()[which].splitlines()
    for part in (lines[2:], lines[:-2]):
        masked = Masker({}).mask("\n".join(["words of a log", *part, ""]).encode())
        assert not [line for line in part if line.encode() in masked]
        assert b"words of a log" in masked
    masked = Masker({"key": _keys()[which]}).mask("\n".join(lines[2:4]).encode())
    assert masked == b"[secret key]\n[secret key]"


def test_a_private_key_in_base64() -> None:
    key = base64.b64encode(_keys()[0].encode()).decode()
    certificate = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n").decode()
    kubeconfig = f"    certificate-authority-data: {certificate}\n    client-key-data: {key}\n    other: {key}\n"
    masked = Masker({}).mask(kubeconfig.encode()).decode()
    assert masked.splitlines()[0].endswith(certificate)
    assert masked.count("[secret") == 2
    assert key[100:140] not in masked
    assert key[100:140] not in Masker({"admin": key}).mask(key[80:].encode()).decode()


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("kubeadm join --token abcdef.0123456789abcdef x", "kubeadm join --token [secret bootstrap token] x"),
        ("-ABCDE-FGHIJ-KLMNO-PQRST-UVWX1", "-ABCDE-FGHIJ-KLMNO-PQRST-UVWX1"),
        ("key ABCDE-FGHIJ-KLMNO-PQRST-UVWX1.", "key [secret product key]."),
        ("http://me:geheim@proxy.example:3128/", "http://me:[secret password of a URL]@proxy.example:3128/"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer [secret header]"),
        ("token: eyJhbGciOiJSUzI1.eyJpc3MiOiJrdWJl.c2lnbmF0dXJl", "token: [secret JSON web token]"),
        ("certificateKey: " + "0a" * 32, "certificateKey: [secret key of certificates]"),
        ("sha256:" + "0a" * 32, "sha256:" + "0a" * 32),
        ("coredns-7d764666f9-abcde.186f3e9a0b1c2d3e", "coredns-7d764666f9-abcde.186f3e9a0b1c2d3e"),
        ("2026-11-23T05:46:06.123456Z at 10.77.0.11:6443", "2026-11-23T05:46:06.123456Z at 10.77.0.11:6443"),
    ],
)
def test_text_that_looks_like_a_secret(text: str, masked: str) -> None:
    assert Masker({}).mask(text.encode()).decode() == masked
    assert Masker({}).mask(masked.encode()) == masked.encode()


def test_other_text_stays() -> None:
    made = random.Random(7)
    text = bytes(made.choices(range(256), k=200_000))
    assert Masker({"one": "Abcdef-12345", "two": "hunter2hunter2"}).mask(text[2:]) == text[2:]


def test_windows_text_becomes_readable() -> None:
    assert (
        Masker({"pw": "Geheim-123"}).mask("Passwort Geheim-123 ü".encode("utf-16")) == "Passwort [secret pw] ü".encode()
    )


@pytest.mark.parametrize(("mark", "order"), [(b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")])
def test_a_byte_order_mark_that_lies_hides_nothing(mark: bytes, order: str) -> None:
    masked = Masker({"pw": "Geheim-123"}).mask(mark + b"Geheim-123 and abcdef.0123456789abcdef")
    assert "Geheim" not in masked.decode().encode(order).decode()
    assert "0123456789" not in masked.decode().encode(order).decode()


def test_overlapping_secrets_leave_nothing() -> None:
    masker = Masker({"long": "abcdefghijkl", "part": "defghi", "next": "jklmnopq"})
    assert masker.mask(b"_abcdefghijklmnopq_") == b"_[secret long]_"


@given(content=st.binary(max_size=4000))
def test_masking_is_done_once(content: bytes) -> None:
    masker = Masker({"a": "aaaaaaab", "b": credentials.password(8)})
    masked = masker.mask(content)
    assert masker.mask(masked) == masked


@pytest.mark.parametrize(
    "line", [b"A", b"A" * 64 + b"\n", b"-----BEGIN PRIVATE KEY-----\n", b"-----END PRIVATE KEY-----", b"eyJ", b"://a:"]
)
def test_hostile_content_takes_no_longer(line: bytes) -> None:
    """A guest may write anything: no pattern may need more than time in proportion. This would take hours."""
    Masker({"key": _keys()[0]}).mask(line * ((1 << 19) // len(line)))
