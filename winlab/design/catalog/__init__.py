"""What exists: image recipes, versions that go together, pins, and the artifacts that they name."""
