"""The plan: everything that will exist, decided before anything is touched."""
