"""Bundles: all that a lab needs in one verified file."""
