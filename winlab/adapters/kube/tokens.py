"""Bootstrap tokens, with which nodes join. They are short-lived, and only allow a node to request its own certificate.

A token is a Secret of type ``bootstrap.kubernetes.io/token`` in kube-system; source:
https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/. It reaches the API server on kubectl's
standard input; a process's arguments contain at most its id, which is public. Its group depends on the distribution
(:class:`~winlab.design.distribution.model.Distribution`).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from winlab.adapters.kube import authority
from winlab.adapters.kube.kubectl import Kubectl
from winlab.errors import ClusterError, UsageError

ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
FORMAT = re.compile(r"[a-z0-9]{6}\.[a-z0-9]{16}")
TTL = 7200.0  # seconds; emulated nodes need long to join


def new() -> str:
    """A random token that no API server knows yet."""
    return f"{_word(6)}.{_word(16)}"


def mint(kubectl: Kubectl, group: str, ttl: float = TTL) -> str:
    """Make a new token and return it: ``abcdef.0123456789abcdef``. It expires by itself.

    :param group: whose rights it gives.
    :param ttl: seconds until it expires.
    :raises ClusterError: the API server refuses it.
    """
    token = new()
    kubectl.apply([secret(token, group, datetime.now(UTC) + timedelta(seconds=ttl))])
    return token


def revoke(kubectl: Kubectl, token: str) -> None:
    """Delete a token. Safe to repeat.

    :raises ClusterError: the API server refuses.
    """
    kubectl.run("delete", "secret", "--namespace=kube-system", name(token), "--ignore-not-found")


@contextmanager
def lent(kubectl: Kubectl, group: str, ttl: float = TTL) -> Iterator[str]:
    """A token for the length of a with-block; always deleted afterwards.

    :param group: whose rights it gives.
    :param ttl: seconds until it expires, if winlab can't delete it.
    :raises ClusterError: the API server refuses it.
    """
    made = mint(kubectl, group, ttl)
    try:
        yield made
    finally:
        with suppress(ClusterError):  # it expires by itself; an error inside the block matters more
            revoke(kubectl, made)


def secret(token: str, group: str, expiration: datetime) -> dict[str, Any]:
    """The Secret of a token.

    :raises UsageError: *token* does not have the form of one.
    """
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name(token), "namespace": "kube-system"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "description": "winlab: for nodes that join now",
            "token-id": token.partition(".")[0],
            "token-secret": token.partition(".")[2],
            "expiration": expiration.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "usage-bootstrap-authentication": "true",
            "usage-bootstrap-signing": "true",  # of the ConfigMap with which a node verifies the server
            "auth-extra-groups": group,
        },
    }


def name(token: str) -> str:
    """The name of a token's Secret.

    :raises UsageError: *token* does not have the form of one.
    """
    if not FORMAT.fullmatch(token):
        raise UsageError("This is not a bootstrap token.", why="One looks like abcdef.0123456789abcdef.")
    return f"bootstrap-token-{token.partition('.')[0]}"


def ca_hash(ca_pem: str | bytes) -> str:
    """The pin of a cluster's CA for ``caCertHashes``: ``sha256:`` and the SHA-256 of its public key (SPKI, DER).

    Of several certificates the first counts: a node accepts the cluster if it has any of the pinned ones.

    :raises UsageError: it has no certificate.
    """
    return authority.key_hashes(ca_pem.encode() if isinstance(ca_pem, str) else ca_pem)[0]


def _word(length: int) -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(length))
