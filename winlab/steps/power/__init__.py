"""Steps that stop, start, suspend and resume the machines of an existing lab. They need its tags but no plan."""
