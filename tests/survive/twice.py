"""A look into a Linux node of a lab: does anything run there twice at once that must not?

A small program in the node looks once a second, and notes two kubeadm, or two of winlab's scripts that have started
programs of their own. Those that wait for each other have none.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

LOG = "/run/winlab-survive.log"
UNIT = "winlab-survive"
VERBS = ("prepare", "run-kubeadm", "forget-member", "cni", "routes", "push", "load")
PROGRAM = f"""
import os, time
def look():
    rows = {{}}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open(f"/proc/{{pid}}/cmdline", "rb").read().decode(errors="replace").split(chr(0))[:-1]
            parent = open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[1]
        except OSError:
            continue
        rows[pid] = (words, parent)
    parents = {{parent for _, parent in rows.values()}}
    kubeadm = [p for p, (w, _) in rows.items() if w and os.path.basename(w[0]) == "kubeadm"]
    verbs = [p for p, (w, _) in rows.items() if len(w) > 2 and "python" in w[0] and w[-1] in {VERBS!r} and p in parents]
    return [" ".join(rows[p][0][-2:]) for many in (kubeadm, verbs) if len(many) > 1 for p in many]
while True:
    if both := look():
        print(round(time.time()), *both, sep=" | ", file=open("{LOG}", "a"))
    time.sleep(1)
"""


def watch(execute: Callable[..., str]) -> bool:
    """Start looking in a node, unless that is running already; whether it is running now.

    :param execute: runs a command in the node, as root, and returns what it printed.
    """
    code = base64.b64encode(PROGRAM.encode()).decode()
    line = f"import base64; exec(base64.b64decode('{code}'))"
    active, start = f"systemctl is-active {UNIT}", f'systemd-run -q --unit={UNIT} python3 -c "{line}"'
    quoted = f"{active} -q || {start}; {active}"
    return "active" in execute("sudo", "sh", "-c", quoted).split()


def seen(execute: Callable[..., str]) -> list[str]:
    """What was noted in a node so far, a line each."""
    return execute("sudo", "sh", "-c", f"cat {LOG} 2>/dev/null || true").splitlines()
