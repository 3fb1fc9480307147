"""Add-ons: one folder each. docs/addons.md explains how to write one."""
