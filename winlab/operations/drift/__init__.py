"""How a lab differs from its plan, and how each drift is repaired. There is one module for each kind of object."""
