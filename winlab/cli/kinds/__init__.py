"""The kinds of results: what ``-o json`` and ``-o yaml`` print (docs/output.md). Each kind is a class.

The ``name`` of an item is what ``-o name`` prints. A new field does not change ``apiVersion``; removing one,
or changing its meaning, does.
"""
