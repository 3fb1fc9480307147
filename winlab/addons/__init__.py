"""Add-ons: one folder each, found by listing them; docs/addons.md explains how to write one."""
