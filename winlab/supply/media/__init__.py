"""Formats of media: ISO, UDF, WIM; reading the user's media, and writing ISOs for guests."""
