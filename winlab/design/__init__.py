"""Pure: from what is wanted and what exists to every name, address and file. Nothing here reads or touches anything."""
