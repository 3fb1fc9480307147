"""Every unit test is guarded (guard.py) and waits for no disk (quick_disk.py).

Packages of other authors: see tests/fakes/distributions.py.
"""

from addons import fresh_registry
from distributions import distribution
from guard import touch_nothing
from quick_disk import quick_disk

__all__ = ["distribution", "fresh_registry", "quick_disk", "touch_nothing"]
