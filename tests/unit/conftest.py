"""Every unit test is guarded (guard.py), waits for no disk or key (quick_disk.py, quick_keys.py), and has its results
checked.

Packages of other authors: see tests/fakes/distributions.py.
"""

from addons import fresh_registry
from distributions import distribution
from documents_checked import documents_checked
from guard import touch_nothing
from quick_disk import quick_disk
from quick_keys import quick_keys

__all__ = ["distribution", "documents_checked", "fresh_registry", "quick_disk", "quick_keys", "touch_nothing"]
