"""winlab: a hybrid Kubernetes lab on your own hypervisor, in one command."""

__version__ = "0.1.0"
