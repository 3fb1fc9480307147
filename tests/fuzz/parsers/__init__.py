"""The parsers under test, by where their input comes from. Importing this registers them."""

from . import archives, catalog, guests, kube, machines, media, mirrors, records, snapshots, specs

__all__ = ["archives", "catalog", "guests", "kube", "machines", "media", "mirrors", "records", "snapshots", "specs"]
