"""Snapshots of labs: saved, listed, deleted, exported; labs that are put back to one, and copies of labs."""
