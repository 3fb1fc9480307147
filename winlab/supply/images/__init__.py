"""Images: the cache, the builders, Windows media, golden images."""
