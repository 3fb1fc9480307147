"""The description of the host that is measured."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

from winlab import Site, run
from winlab.adapters.vm import connection


def describe() -> dict[str, str]:
    """What results depend on, by name.

    :raises WinlabError: libvirt or OVN does not answer.
    """
    model = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M)
    kernel = platform.release().partition("-")[0]  # a build of the same version is the same host
    facts = Site().host_facts
    with connection.connected() as conn:
        versions = connection.versions(conn)
    return {
        "processor": model[1] if model else platform.machine(),
        "cores": f"{os.cpu_count()} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') >> 30} GiB",
        "KVM": "KVM" if facts.accelerator == "kvm" else "no KVM: guests are emulated",
        "system": f"{platform.freedesktop_os_release()['PRETTY_NAME']}, Linux {kernel}",
        "QEMU": versions["QEMU"],
        "libvirt": versions["libvirt"],
        "OVN": run.run(["ovn-nbctl", "--version"]).stdout.split("\n")[0].split()[-1],
        "Python": platform.python_version(),
    }
