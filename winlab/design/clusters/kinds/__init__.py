"""One file for each distribution; each defines ``KIND``. A new file is found without an edit elsewhere."""
