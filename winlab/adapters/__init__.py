"""What touches the world at run time: libvirt, OVN, guests, the cluster's API server."""
