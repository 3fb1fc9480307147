"""The lab's network through OVN's northbound database."""
