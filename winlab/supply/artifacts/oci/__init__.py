"""Container images: reading, writing and pulling them, without a container engine."""
