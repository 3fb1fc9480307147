"""Pure: from what is requested and what exists to every name, address and file. Nothing here reads or touches anything."""
