"""The host: what it is (facts), what is wrong with it (doctor), and making it ready (setup, teardown)."""
