"""What ``winlab test`` checks: whether a lab's cluster is ready, and whether it works."""
