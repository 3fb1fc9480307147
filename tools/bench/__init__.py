"""``make bench``: what winlab's verbs cost, and what other tools cost (docs/benchmarks.md).

A group of measurements is a module; each measurement is a generator (framework.py). ``python -m bench`` runs them.
"""
