"""Which networks can be a lab's. Pure."""

from __future__ import annotations

from ipaddress import IPv4Network

THIS_NETWORK = IPv4Network("0.0.0.0/8")  # RFC 1122, 3.2.1.3: never a destination


def is_ordinary(network: IPv4Network) -> bool:
    """Whether machines can have the network's addresses: Linux, OVN and Kubernetes refuse or drop all others."""
    special = network.is_loopback or network.is_link_local or network.is_multicast or network.is_reserved
    return not special and not network.overlaps(THIS_NETWORK)


def private(value: str, longest: int, shortest: int, example: str) -> str:
    """A private network, in the one form that all tools read: 10.77.0.0/24, not 10.77.0.0/255.255.255.0.

    :param longest: the fewest bits of its prefix, for the largest network; *shortest* the most.
    :raises ValueError: it is not such a network.
    """
    network = IPv4Network(value)  # ValueError says what is wrong
    # Python counts loopback, link-local and reserved addresses as private, too
    if not network.is_private or not is_ordinary(network) or not longest <= network.prefixlen <= shortest:
        raise ValueError(
            f"{value} should be a private IPv4 network between /{longest} and /{shortest}, such as {example}"
        )
    return str(network)
