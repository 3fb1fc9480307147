"""A site of several hosts: how a host joins, the certificates of hosts, and OVN's southbound database over TLS."""
