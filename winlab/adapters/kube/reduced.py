"""What is taken from a kubeconfig that someone else wrote: certificates and keys as text, and nothing that acts.

A kubeconfig can name programs that kubectl runs (``exec``), files that it sends to the server (``tokenFile``), a proxy,
and a server that is not verified. Fields: kubernetes.io/docs/reference/config-api/kubeconfig.v1.
"""

from __future__ import annotations

import base64
import re
from typing import Any, NamedTuple

import yaml
from cryptography import x509

from winlab import documents
from winlab.adapters.kube import authority
from winlab.design.distribution import known
from winlab.design.distribution.model import Distribution
from winlab.errors import GuestError, UsageError

CA, CERTIFICATE, KEY = "certificate-authority-data", "client-certificate-data", "client-key-data"
LARGEST = 1 << 16  # characters of an admin.conf; one has some 6,000
TOP = {"apiVersion", "kind", "preferences", "clusters", "users", "contexts", "current-context"}
# what a kubeconfig that is merged into the user's may have
CLUSTER = {"server", CA, "tls-server-name", "extensions"}
USER = {CERTIFICATE, KEY, "token"}
LABELS = {CA: "CERTIFICATE", CERTIFICATE: "CERTIFICATE", KEY: "(?:RSA |EC )?PRIVATE KEY"}
PEM = {
    field: re.compile(f"(-----BEGIN {label}-----\\n[A-Za-z0-9+/=\\n]+-----END {label}-----\\n?)+")
    for field, label in LABELS.items()
}


class Identity(NamedTuple):
    """A cluster's CA, and its administrator's certificate and key; each base64 of PEM, as a kubeconfig has them."""

    authority: str
    certificate: str
    key: str

    @property
    def keys(self) -> frozenset[str]:
        """The hashes of the CA's public keys."""
        return frozenset(authority.key_hashes(base64.b64decode(self.authority)))


def identity(admin: str, node: str, distribution: Distribution = known.DEFAULT) -> Identity:
    """What the administrator's kubeconfig on a controller contains. Its server's address is not used.

    :param node: the controller, for errors.
    :raises GuestError: it has anything that the distribution does not write.
    """
    try:
        if len(admin) > LARGEST:
            raise ValueError(f"it has more than {LARGEST >> 10} KiB")
        whole = _mapping(documents.from_yaml(admin), TOP, "it")
        (cluster,), (user,) = (_rows(whole, key) for key in ("clusters", "users"))
        cluster = _mapping(cluster.get("cluster"), {"server", CA}, "its cluster")
        user = _mapping(user.get("user"), {CERTIFICATE, KEY}, "its user")
        credentials = Identity(_pem(cluster, CA), _pem(user, CERTIFICATE), _pem(user, KEY))
        if not credentials.keys or not x509.load_pem_x509_certificates(base64.b64decode(credentials.certificate)):
            raise ValueError("it has no certificate")
    except (ValueError, UsageError, RecursionError, yaml.YAMLError) as error:
        raise GuestError(
            f"The kubeconfig of '{node}' is not as {distribution.name} writes it; nothing of it was used.",
            why=str(error) or type(error).__name__,
            cure="Someone changed it, or took over the node. Find out who, or destroy the lab and create it again.",
            evidence=f"winlab exec {node} -- sudo cat {distribution.admin_file}",
        ) from error
    return credentials


def own_identity(own: str) -> Identity:
    """What a kubeconfig that winlab wrote for a lab's own cluster contains.

    :raises UsageError: it is damaged.
    """
    try:
        whole = _mapping(documents.from_yaml(own), TOP, "it")
        (cluster,), (user,) = (_rows(whole, key) for key in ("clusters", "users"))
        cluster = _mapping(cluster.get("cluster"), CLUSTER, "its cluster")
        user = _mapping(user.get("user"), USER, "its user")
        return Identity(_pem(cluster, CA), _pem(user, CERTIFICATE), _pem(user, KEY))
    except (ValueError, UsageError, RecursionError, yaml.YAMLError) as error:
        raise UsageError("The kubeconfig of the lab is damaged.", why=str(error) or type(error).__name__) from error


def harmless(own: str, lab: str) -> str:
    """A lab's kubeconfig, unless it has something that acts, which does not belong in the user's file.

    The kubeconfig of an external cluster is the user's own and may have all that.

    :raises UsageError: it has something that acts.
    """
    try:
        whole = _mapping(documents.from_yaml(own), TOP, "it")
        for row in _rows(whole, "clusters"):
            _mapping(row.get("cluster"), CLUSTER, "its cluster")
        for row in _rows(whole, "users"):
            _mapping(row.get("user"), USER, "its user")
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise UsageError(
            f"The kubeconfig of the lab '{lab}' is not merged into yours; nothing was changed.",
            why=str(error) or type(error).__name__,
            cure="For an external cluster, use the context that you gave to 'winlab join'; 'winlab kubeconfig' "
            "without --merge prints the lab's.",
        ) from error
    return own


def _mapping(value: object, allowed: set[str], what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not a mapping")
    if others := sorted({str(key) for key in value} - allowed):
        raise ValueError(f"{what} has the field {', '.join(others)[:200]}")
    return value


def _rows(whole: dict[str, Any], key: str) -> list[dict[str, Any]]:
    rows = whole.get(key)
    if not isinstance(rows, list) or len(rows) != 1 or not isinstance(rows[0], dict):
        raise ValueError(f"it does not have exactly one of {key}")
    return rows


def _pem(entry: dict[str, Any], field: str) -> str:
    """A field that has to be base64 of PEM, of the right kind and nothing else."""
    value = entry.get(field)
    try:
        text = base64.b64decode(value if isinstance(value, str) else "", validate=True).decode("ascii")
    except ValueError as error:
        raise ValueError(f"{field} is not base64 of PEM") from error
    if PEM[field].fullmatch(text) is None:
        raise ValueError(f"{field} is not base64 of PEM")
    return str(value)
