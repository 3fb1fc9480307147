"""``winlab test``: whether a lab's cluster is ready, and whether it works."""
