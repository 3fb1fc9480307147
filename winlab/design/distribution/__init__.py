"""Distributions of Kubernetes: what a control plane is made with, one folder each. Pure.

Only :mod:`winlab.design.distribution.known` names them. What they share is in the other modules here. Their steps are
in winlab/steps/distribution/.
"""
