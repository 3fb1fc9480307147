"""Records commands in a terminal, and draws the recording as an animated SVG (``make cast``)."""
