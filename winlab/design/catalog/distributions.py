"""The names of the distributions of Kubernetes that labs can have. Imports little, so that commands start quickly."""

from __future__ import annotations

from typing import Literal, get_args

DEFAULT = "kubeadm"
Name = Literal["kubeadm", "k3s"]
NAMES: tuple[Name, ...] = get_args(Name)
