"""What guests, libvirt and OVN are given, as values, text and bytes. Pure: nothing here touches a host."""
