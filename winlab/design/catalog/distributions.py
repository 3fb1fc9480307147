"""The names of the distributions of Kubernetes that labs can have. Imports nothing, so that commands start quickly."""

from __future__ import annotations

DEFAULT = "kubeadm"  # the only one in this version
