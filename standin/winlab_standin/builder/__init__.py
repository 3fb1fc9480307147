"""The builder of the media, on the host."""
