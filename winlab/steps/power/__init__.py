"""Steps that stop, start, suspend and resume the machines of a standing lab. They need its tags, and no plan."""
