"""Networks, nodes and versions for the tests of CNI profiles."""

import ipaddress
import json

from winlab.design import cni
from winlab.design.cni.model import Endpoint, NodeNetwork

ALL = cni.names()
ENDPOINT = Endpoint("10.77.0.11")

LINUX = NodeNetwork("controller-1", "linux", "10.77.0.11", "10.244.0.0/24")
WINDOWS = NodeNetwork("node-1", "windows", "10.77.0.101", "10.244.1.0/24")
NODES = [LINUX, WINDOWS]


VERSIONS = {"calico": "v3.32.1", "tigera_operator": "v1.42.3", "flannel": "v0.28.10", "cni_plugins": "1.9.1"}


def make(name, **changes):
    settings = {
        "pod_cidr": "10.244.0.0/16",
        "service_cidr": "10.96.0.0/16",
        "lab_cidr": "10.77.0.0/24",
        "external_cidr": "192.0.2.0/24",
        "mtu": 1500,
        "cluster_domain": "cluster.local",
    } | changes
    dns = str(ipaddress.IPv4Network(settings["service_cidr"])[10])
    return cni.network(cni.get(name), **settings, cluster_dns=dns)


def conflist(files):
    ((name, text),) = files.items()
    assert name == "10-winlab.conflist"
    return json.loads(text)
