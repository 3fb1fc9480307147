"""Kubernetes in the lab: versions, configuration, CNI profiles, joining, checks."""
