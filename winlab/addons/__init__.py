"""Add-ons: one folder each, found by looking; docs/addons.md tells how to write one."""
