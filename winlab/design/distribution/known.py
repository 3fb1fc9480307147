"""The distributions that winlab knows, and how nodes join an external cluster: the one place that names them. Pure."""

from __future__ import annotations

from winlab.design.catalog import distributions
from winlab.design.distribution.external import External
from winlab.design.distribution.kubeadm import Kubeadm
from winlab.design.distribution.model import Distribution, Membership

DISTRIBUTIONS: tuple[Distribution, ...] = (Kubeadm(),)
DEFAULT = next(one for one in DISTRIBUTIONS if one.name == distributions.DEFAULT)
EXTERNAL = External(DEFAULT)
MEMBERSHIPS: tuple[Membership, ...] = (*DISTRIBUTIONS, EXTERNAL)
