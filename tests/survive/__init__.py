"""The kill matrix: winlab, the host's daemons and guests are killed at every step, and the next command ends the work.

``make survive`` runs all of it (docs/survive.md); tests/integration/test_survive.py runs a sample.
"""
