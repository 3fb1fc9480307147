"""Runs steps in parallel, reports progress as events, and learns how long things take."""
