"""Every unit test is guarded: see guard.py. Packages of other people: see tests/fakes/distributions.py."""

from addons import fresh_registry
from distributions import distribution
from guard import touch_nothing

__all__ = ["distribution", "fresh_registry", "touch_nothing"]
