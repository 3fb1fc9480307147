"""When an administrator's certificate expires. A cluster's other certificates expire with it."""

from __future__ import annotations

import base64
from datetime import datetime

import yaml
from cryptography import x509


def of(kubeconfig: str) -> datetime | None:
    """When the certificate of a kubeconfig's first user expires; None if it has none, as one with a token."""
    try:
        encoded = yaml.safe_load(kubeconfig)["users"][0]["user"]["client-certificate-data"]
        certificate = x509.load_pem_x509_certificate(base64.b64decode(encoded))
    except (LookupError, TypeError, ValueError, yaml.YAMLError):
        return None
    return certificate.not_valid_after_utc
