"""External clusters by what made them: how they are recognized, what is known about them, what workers need. Pure.

Each distribution is one file in :mod:`winlab.design.clusters.kinds`; docs/join has a page for each.
"""
