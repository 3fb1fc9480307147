"""The source build: programs and container images compiled here from Go modules."""
