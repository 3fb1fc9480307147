"""What of a lab is not as its plan says, and how each such thing is mended. One module for each kind of thing."""
