"""Images and media: downloads, the cache, ISO files, the answer ISO and the seed."""
