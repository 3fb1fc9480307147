"""Runs steps in parallel, reports progress as events, learns how long things take."""
