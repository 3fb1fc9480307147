"""Formats of media: ISO, UDF, WIM; what they hold, and what is written for guests."""
