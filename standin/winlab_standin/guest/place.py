"""Where things are in the running stand-in."""

from __future__ import annotations

from pathlib import Path

C = Path("/c")
STATE = Path("/run/standin")  # until the next start: files that the stand-in's processes leave for each other
REGISTRY = "standin-registry.json"  # in System32\\config
PORT = Path("/dev/ttyS0")  # the first serial port
