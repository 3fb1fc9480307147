"""Pure: from what is requested and what exists to every name, address and file. It reads and touches nothing."""
