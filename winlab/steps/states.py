"""All kinds of states that winlab's own steps reach, with the titles of the steps.

A state names its lab, unless labs share it: images, programs and drivers are in the pool or in the cache. Names never
change: journals, events and recorded times contain them. No two kinds have the same title.
"""

from __future__ import annotations

from collections.abc import Callable

from winlab.design.plan.lab_name import GOLDEN
from winlab.engine.state import Kind, State


def _lab(words: str) -> Callable[[State], str]:
    """A title; with the lab's name if it makes a golden image, which happens at the same time."""
    return lambda state: f"{words} of {state.lab}" if state.lab.startswith(GOLDEN) else words


def _node(verb: str) -> Callable[[State], str]:
    """A title with the node; a golden image's machine has its lab's name, because there may be several at a time."""
    return lambda state: f"{verb} {state.lab if state.lab.startswith(GOLDEN) else state.node}"


def _thing(what: str) -> Callable[[State], str]:
    return lambda state: f"{what} {state.of}"


def _image(state: State) -> str:
    """``base-debian-13-<key>.qcow2`` is the volume of the image debian-13."""
    return f"image {state.of.removeprefix('base-').rsplit('-', 1)[0]}"


# What everything else needs
CREDENTIALS = Kind("credentials", _lab("credentials"))
NETWORK = Kind("network", _lab("network"))
IMAGE = Kind("image", _image, learned=False)  # of=its base volume, in the pool
DRIVERS = Kind("drivers", lambda _: "virtio drivers", learned=False)  # in the cache

# A machine
DISK = Kind("disk", _node("disk"))
SEED = Kind("seed", _node("seed"))
ANSWER = Kind("answer", _node("answer ISO"))
MEDIA = Kind("media", _node("media"))
STARTED = Kind("started", _node("start"))
BOOTED = Kind("booted", _node("boot"))
DRIVE_FREE = Kind("drive-free", _node("detach"))  # the drive for the payload CD is free

# Kubernetes on it
PAYLOAD = Kind("payload", _thing("payload"), learned=False)  # of=the system, in the pool
PAYLOAD_INSERTED = Kind("payload-inserted", _node("insert"))
KUBECTL = Kind("kubectl", _lab("kubectl"))  # on this host
PREPARED = Kind("prepared", _node("prepare"))
FEATURES = Kind("features", _node("features"))
CONTAINERD = Kind("containerd", _node("containerd"))
BINARIES = Kind("binaries", _node("binaries"))
CONFIGURED = Kind("configured", _node("configure"))  # a Windows node has what add-ons give it
UPDATES = Kind("updates", _node("updates"))
KUBELET = Kind("kubelet", _node("kubelet"))

# The cluster
INITIALISED = Kind("initialised", _node("init"))
API = Kind("api", _lab("kubeconfig"))  # this host can talk to the cluster's API server
MEMBER = Kind("member", _node("join"))  # of the cluster
OBJECTS = Kind("cluster-objects", _lab("cluster objects"))
CNI = Kind("cni", _node("cni"))
PROXY = Kind("proxy", _node("proxy"))
PODS_CONNECTED = Kind("pods-connected", _node("pod network"))  # the node's own part of its pods' network is done
ROUTES = Kind("pod-routes", _lab("pod routes"))
READY = Kind("ready", _node("ready"))
DNS = Kind("cluster-dns", _lab("cluster DNS"))
NAMES = Kind("machine-names", _lab("names of machines"))  # cluster DNS knows the machines beside the cluster

# An existing lab that is switched off or on
STOPPED = Kind("stopped", _node("stop"))
SUSPENDED = Kind("suspended", _node("suspend"))
ANSWERING = Kind("answering", _node("log in to"))  # a verified login, and the clock set to the host's
READY_AGAIN = Kind("ready-again", _node("ready again"))  # by a report from after the start

# A snapshot
SAVED = Kind("saved", _thing("save"))  # of=its name: its machines' memory is written, their disks are frozen
STORED = Kind("stored", _node("store"))  # of=its name: the volumes of one machine are as copies need them
FLATTENED = Kind("flattened", _node("flatten"))  # its disks are not based on many frozen ones
RESTORED = Kind("restored", _node("restore"))  # the machine runs as it was in the snapshot
ADMINISTRATOR = Kind("administrator", _lab("new administrator"))  # of the cluster: the old one is refused
RENEWED = Kind("renewed", _node("new credentials of"))  # the node refuses those of the lab that it was copied from

# A node that moves to another hypervisor
BROUGHT = Kind("brought", _node("bring images of"))
MOVED = Kind("moved", _node("move"))
SETTLED = Kind("settled", _node("tidy up after"))

# A golden image
SEALED = Kind("sealed", _node("seal"))
REMOVED = Kind("removed", _node("remove"))

# Commands for a running cluster
LOAD_READY = Kind("load-ready", _lab("container image"))
LOAD_CD = Kind("load-cd", _thing("CD for"))  # of=the system
LOADED = Kind("loaded", _node("load"))

REPAIRED = Kind("repaired", lambda state: f"repair {state.of}", learned=False)  # of=what differed, as text
# A lab that is changed into another one
DRAINED = Kind("drained", _node("drain"))
LEFT = Kind("left", _node("leave"))  # its node is no longer in the cluster
CLEARED = Kind("cleared", _node("clear"))  # nothing is left of a node to be created again: its record says so
ADAPTED = Kind("adapted", _node("redefine"))  # the machine's tag and sizes, from its next start on
SWITCHED_OFF = Kind("switched-off", _node("shut down"))
REGISTERED = Kind("registered", _node("register"))  # the labels and taints of its node
UNINSTALLED = Kind("uninstalled", lambda state: f"remove add-on {state.of}")

WORK = Kind("work", lambda state: state.of, learned=False)  # of=the title itself: a command that is one step
