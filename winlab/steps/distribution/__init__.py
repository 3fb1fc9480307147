"""What distributions of Kubernetes do in nodes, one folder each; their pure half is in winlab/design/distribution."""
