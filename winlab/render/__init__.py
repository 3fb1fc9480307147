"""What guests and libvirt are given, as text and bytes. Pure: nothing here touches a host."""
