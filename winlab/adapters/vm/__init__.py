"""Virtual machines through libvirt: connection, volumes, domains, consoles."""
