"""New releases of Kubernetes for images/kubernetes/known-good.yaml: see tools/new_kubernetes.py."""
