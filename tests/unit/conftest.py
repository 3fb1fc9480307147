"""Every unit test is guarded (guard.py) and waits for no disk (quick_disk.py); results are checked (documents_checked.py).

Packages of other authors: see tests/fakes/distributions.py.
"""

from addons import fresh_registry
from distributions import distribution
from documents_checked import documents_checked
from guard import touch_nothing
from quick_disk import quick_disk

__all__ = ["distribution", "documents_checked", "fresh_registry", "quick_disk", "touch_nothing"]
