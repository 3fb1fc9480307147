"""Hosts for tests: namespaces with their own files, processes, users and network cards, on which winlab is run.

``Hosts`` makes them, ``Host`` is one of them. Nothing is prepared but sshd and the cards: a test runs ``winlab host
setup`` in a host, which starts libvirt, Open vSwitch and OVN there. ``one_site`` does that on several, and joins them.
See ``Hosts`` for what is the same on all of them.
"""

from __future__ import annotations

from hosts.host import Host as Host
from hosts.lan import MANAGEMENT as MANAGEMENT
from hosts.lan import TUNNELS as TUNNELS
from hosts.make import Hosts as Hosts
from hosts.make import install as install
from hosts.site import add as add
from hosts.site import one_site as one_site
from hosts.site import within as within
