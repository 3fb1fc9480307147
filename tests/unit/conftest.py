"""Every unit test is guarded (guard.py), waits for no disk (quick_disk.py), and has its results checked.

Packages of other authors: see tests/fakes/distributions.py.
"""

from addons import fresh_registry
from distributions import distribution
from documents_checked import documents_checked
from guard import touch_nothing
from quick_disk import quick_disk

__all__ = ["distribution", "documents_checked", "fresh_registry", "quick_disk", "touch_nothing"]
