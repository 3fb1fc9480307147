"""A certificate authority, as a cluster made elsewhere names it."""

from __future__ import annotations

# openssl req -x509 -newkey ec ...; its public key by
# openssl x509 -pubkey -noout | openssl pkey -pubin -outform der | openssl dgst -sha256
CA = """-----BEGIN CERTIFICATE-----
MIIBgDCCASegAwIBAgIUAJ50+Oydt/VLgnSoMt2/wuGjYw8wCgYIKoZIzj0EAwIw
FTETMBEGA1UEAwwKa3ViZXJuZXRlczAgFw0yNjExMjExNTI0MjZaGA8yMTI2MTAy
ODE1MjQyNlowFTETMBEGA1UEAwwKa3ViZXJuZXRlczBZMBMGByqGSM49AgEGCCqG
SM49AwEHA0IABGgKR4r8/qcDJFhAajYlCzLdU3FA6rIAmsccM8H4qD6bnGkSJpXO
OKi2oi4Z68065xD+MwLHVD8WRBmk22GN7fmjUzBRMB0GA1UdDgQWBBRAGySST6q2
k5DusjM8ptqo4/DQsTAfBgNVHSMEGDAWgBRAGySST6q2k5DusjM8ptqo4/DQsTAP
BgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0cAMEQCIDTbjPtgGLAN/WUiuvby
qFRWfrc6Egn0G7iCC3VhLvODAiAyBcf/F1m4fJ5kxWJDFIFuIeRTA0qmYN6m8j0q
E0Urow==
-----END CERTIFICATE-----
"""
