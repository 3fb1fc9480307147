"""Pages in the browser: a node's screen, and all labs. They are served on the loopback, to the user who started them."""
