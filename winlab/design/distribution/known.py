"""The distributions that winlab knows, and how nodes join an external cluster: the one place that names them. Pure."""

from __future__ import annotations

from winlab.design.distribution.external import External
from winlab.design.distribution.k3s import K3s
from winlab.design.distribution.kubeadm import Kubeadm
from winlab.design.distribution.model import Distribution, Membership

DEFAULT = Kubeadm()
EXTERNAL = External(DEFAULT)
DISTRIBUTIONS: tuple[Distribution, ...] = (DEFAULT, K3s(EXTERNAL))
MEMBERSHIPS: tuple[Membership, ...] = (*DISTRIBUTIONS, EXTERNAL)
BY_NAME = {one.name: one for one in DISTRIBUTIONS}
