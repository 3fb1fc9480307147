"""Access to everything outside winlab at run time: libvirt, OVN, guests, the cluster's API server."""
