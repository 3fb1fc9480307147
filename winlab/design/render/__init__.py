"""The input of guests, libvirt and OVN as values, text and bytes. Pure: nothing here touches a host."""
