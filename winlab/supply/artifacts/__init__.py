"""What a cluster is made of: programs, container images and manifests, from one chosen source, verified."""
