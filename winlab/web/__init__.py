"""Pages in the browser: a node's screen, and all labs. Served on the loopback, to the user who started them alone."""
