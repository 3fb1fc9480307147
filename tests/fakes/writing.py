"""A libvirt that writes the memory of a domain, for a winlab that was killed, and resumes it only after that."""

from __future__ import annotations

import libvirt
import pytest

from winlab.steps import paused


class Writing:
    """``left`` is how often it is asked until it has ended; ``said`` what was reported meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, domain: str, left: int = 3) -> None:
        self.left, self.said, self._domain = left, list[str](), domain
        resume = libvirt.virDomain.resume

        def refusing(one: libvirt.virDomain) -> None:
            if one.name() == self._domain and self.left > 0:
                raise libvirt.libvirtError("Timed out during operation: cannot acquire state change lock")
            resume(one)

        monkeypatch.setattr(libvirt.virDomain, "resume", refusing)
        monkeypatch.setattr(libvirt.virDomain, "jobInfo", lambda one: self._job(one))
        monkeypatch.setattr(paused, "POLL", 0)

    def _job(self, one: libvirt.virDomain) -> list[int]:
        """As libvirt has it: a complete job is one that is still being ended."""
        kinds = [libvirt.VIR_DOMAIN_JOB_NONE, libvirt.VIR_DOMAIN_JOB_COMPLETED, libvirt.VIR_DOMAIN_JOB_UNBOUNDED]
        left = self.left if one.name() == self._domain else 0
        self.left -= left > 0
        return [kinds[min(left, 2)], 900, 0, 512 << 20, max(0, 512 - 100 * left) << 20, *[0] * 7]

    def say(self, text: str, fraction: float | None = None) -> None:
        """Hear what a step reports."""
        if "still writing" in text:
            self.said.append(f"{text}, {fraction:.0%}")
