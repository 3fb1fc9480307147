"""What is approved and believed of a node's certificates. tests/integration/test_identity.py asks real API servers."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from certificates import CA
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from lab_fakes import Api

from winlab.adapters.kube import identity, signing
from winlab.errors import ClusterError, NotFoundError, UsageError, WinlabError

ADDRESS = "10.77.0.101"
NODE_NAME = x509.Name(
    [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
        x509.NameAttribute(NameOID.COMMON_NAME, "system:node:win-1"),
    ]
)
GOOD = (x509.DNSName("win-1"), x509.IPAddress(ipaddress.ip_address(ADDRESS)))


def csr(subject: x509.Name = NODE_NAME, names: tuple[x509.GeneralName, ...] = GOOD, *more: x509.ExtensionType) -> str:
    builder = x509.CertificateSigningRequestBuilder(subject)
    for extension in (*([x509.SubjectAlternativeName(names)] if names else []), *more):
        builder = builder.add_extension(extension, critical=False)
    made = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return base64.b64encode(made.public_bytes(Encoding.PEM)).decode()


def serving(
    request: str, user: str = "system:node:win-1", usages: tuple[str, ...] = ("server auth",), **more: Any
) -> Api:
    spec = {"request": request, "username": user, "usages": list(usages)}
    rows = {"items": [{"metadata": {"name": "csr-1"}, "spec": spec, **more}]}
    return Api({"get certificatesigningrequests": rows, "certificate approve": ""})


def approved(api: Api) -> list[str]:
    return [line for line, _ in api.asked if line.startswith("certificate approve")]


def test_what_the_plan_says_is_approved() -> None:
    api = serving(csr())
    assert identity.approve_serving(api, "win-1", [ADDRESS]) == (1, [])
    assert approved(api) == ["certificate approve csr-1"]


OTHER = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "system:node:win-1")])
FOREIGN = x509.DNSName("kubernetes.default.svc")


@pytest.mark.parametrize(
    ("request_", "usages", "why"),
    [
        (csr(OTHER), ("server auth",), "another subject"),
        (csr(names=(*GOOD, FOREIGN)), ("server auth",), "other names or addresses"),
        (csr(names=(x509.IPAddress(ipaddress.ip_address("10.77.0.102")),)), ("server auth",), "other names"),
        (csr(names=(x509.IPAddress(ipaddress.ip_network("10.77.0.101/32")),)), ("server auth",), "other names"),
        (csr(names=()), ("server auth",), "can't be understood"),
        (csr(), ("server auth", "client auth"), "other usages"),
        (csr(), (), "other usages"),
        (csr(NODE_NAME, GOOD, x509.BasicConstraints(True, None)), ("server auth",), "other usages"),
        ("AAAA", ("server auth",), "can't be understood"),
        ("A" * (signing.LARGEST + 1), ("server auth",), "more than 32 KiB"),
        (7, ("server auth",), "can't be understood"),
    ],
)
def test_anything_else_is_not(request_: Any, usages: tuple[str, ...], why: str) -> None:
    api = serving(request_, usages=usages)
    count, (reason,) = identity.approve_serving(api, "win-1", [ADDRESS])
    assert count == 0
    assert why in reason
    assert approved(api) == []


def test_requests_of_others_are_left_alone() -> None:
    for api in (
        serving(csr(), user="system:node:win-2"),
        serving(csr(), user="somebody"),
        serving(csr(), status={"conditions": [{"type": "Denied"}]}),
    ):
        assert identity.approve_serving(api, "win-1", [ADDRESS]) == (0, [])
        assert approved(api) == []


def test_a_missing_ca_is_named() -> None:
    with pytest.raises(NotFoundError, match=r"kube-root-ca\.crt"):
        identity.authorities(Api({}))
    published = {"metadata": {"name": "one"}, "data": {"ca.crt": CA, "client-ca-file": CA}}
    found = identity.authorities(Api({"get configmap": published}))
    assert (found.server, found.clients) == (CA, CA)
    for data in ({}, {"ca.crt": "x" * (signing.LARGEST + 1)}, {"ca.crt": "nonsense"}, {"ca.crt": 7}):
        with pytest.raises((ClusterError, UsageError)):
            identity.authorities(Api({"get configmap": {**published, "data": data}}))


# -- the certificate that comes back


def asked() -> signing.Requested:
    api = Api({"certificate approve": ""})
    made = identity.request(api, "win-1")
    (line, text), (approval, _) = api.asked
    given = yaml.safe_load(text or "")
    assert line.startswith("apply --server-side")
    assert given["spec"]["signerName"] == "kubernetes.io/kube-apiserver-client-kubelet"
    assert given["spec"]["usages"] == ["digital signature", "client auth"]
    assert given["metadata"]["labels"] == {"winlab.internal/node": "win-1"}
    assert approval == f"certificate approve {made.name}"
    assert "PRIVATE" not in (text or "")
    assert "PRIVATE" not in repr(made)
    return made


def signed(subject: x509.Name, key: ec.EllipticCurvePublicKey) -> str:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(NODE_NAME, subject, key, 1, now, now + timedelta(days=1))
    made = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return base64.b64encode(made.public_bytes(Encoding.PEM)).decode()


def answer(**status: Any) -> Api:
    return Api({"get certificatesigningrequest": {"metadata": {"name": "one"}, "status": status}})


def test_a_certificate_that_was_asked_for_is_taken() -> None:
    made = asked()
    pem, _ = signing.issued(answer(certificate=signed(NODE_NAME, made.key.public_key())), made)
    assert pem.startswith("-----BEGIN CERTIFICATE-----")
    assert signing.issued(answer(), made) == ("", "")
    pending = answer(conditions=[{"type": "Approved", "message": "by winlab\x1b[2J"}])
    assert signing.issued(pending, made) == ("", "Approved: by winlab\N{REPLACEMENT CHARACTER}[2J")


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (lambda _: {"conditions": [{"type": "Denied", "message": "no"}]}, "refuses to sign"),
        (lambda _: {"conditions": [{"type": "Failed", "message": "no"}]}, "refuses to sign"),
        (
            lambda _: {"certificate": signed(NODE_NAME, ec.generate_private_key(ec.SECP256R1()).public_key())},
            "another key",
        ),
        (lambda made: {"certificate": signed(OTHER, made.key.public_key())}, "another name"),
        (lambda _: {"certificate": "A" * (signing.LARGEST + 1)}, "can't be understood"),
        (lambda _: {"certificate": "AAAA"}, "can't be understood"),
        (lambda _: {"certificate": ["x"]}, "can't be understood"),
        (lambda _: {"conditions": ["x"]}, "can't be understood"),
    ],
)
def test_any_other_answer_is_not(status: Callable[[signing.Requested], dict[str, Any]], says: str) -> None:
    made = asked()
    with pytest.raises(WinlabError, match=says):
        signing.issued(answer(**status(made)), made)


def test_without_roles_nothing_is_bound() -> None:
    api = Api({})
    identity.allow_renewal(api, "win-1")
    assert [line for line, _ in api.asked if line.startswith("apply")] == []
    api = Api({"get clusterrole": {"metadata": {"name": "system:node-proxier"}}})
    identity.allow_renewal(api, "win-1")
    given = yaml.safe_load(api.asked[-1][1] or "")
    assert given["subjects"] == [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:node:win-1"}]


def test_everything_is_removed_by_the_node_s_name() -> None:
    api = Api({})
    identity.remove(api, "win-1")
    assert all("--selector=winlab.internal/node=win-1" in line for line, _ in api.asked)
    assert [line.split()[1] for line, _ in api.asked] == [
        "clusterrolebindings", "serviceaccounts", "certificatesigningrequests",
    ]  # fmt: skip


def test_what_is_missing_is_named() -> None:
    roles = {"get clusterrole ": {"metadata": {"name": "system:node-proxier"}}}
    gone = ["clusterrolebinding/winlab:renewal:win-1", "clusterrolebinding/winlab:proxy:win-1"]
    account = "serviceaccount/winlab-kube-proxy-win-1"
    assert identity.missing(Api(roles), "win-1", proxy=True) == [*gone, account]
    assert identity.missing(Api(roles), "win-1", proxy=False) == gone[:1]
    assert identity.missing(Api({}), "win-1", proxy=True) == [account]  # without roles nothing is bound
    there = {"metadata": {"name": "x"}}
    whole = Api({**roles, "get clusterrolebinding ": there, "get serviceaccount ": there})
    assert identity.missing(whole, "win-1", proxy=True) == []


def test_what_is_left_is_seen() -> None:
    assert identity.is_left(Api({"get clusterrolebindings,": "clusterrolebinding/winlab:renewal:win-1\n"}), "win-1")
    assert not identity.is_left(Api({"get clusterrolebindings,": ""}), "win-1")


def test_a_kubelet_that_asked_is_known_however_that_was_decided() -> None:
    row = {"metadata": {"name": "csr-1"}, "spec": {"username": "system:node:win-1"}, "status": {"conditions": [{}]}}
    api = Api({"get certificatesigningrequests": {"items": [row]}})
    assert identity.has_asked_to_serve(api, "win-1")
    assert not identity.has_asked_to_serve(api, "win-2")
