"""Runs steps in parallel, tells what happens by events, learns how long things take."""
