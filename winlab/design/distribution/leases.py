"""How long leaders of a slow control plane keep their leases. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from winlab.design.catalog.versions import Versions

# A leader that can't renew its lease within 10 s exits, and a starved CPU is often that late. Without leader
# election the controller manager exits, too, if the API server does not answer 10 s after its start
SLOW_LEASE = {
    "leader-elect-lease-duration": "60s",
    "leader-elect-renew-deadline": "45s",
    "leader-elect-retry-period": "5s",
}
# If it does exit, the next start must not wait for its own old lease. Alpha, which is acceptable in a lab
RELEASE_LEASE = {"feature-gates": "ControllerManagerReleaseLeaderElectionLockOnExit=true"}
RELEASE_LEASE_SINCE = 36  # the minor version


def slow(versions: Versions) -> Mapping[str, Mapping[str, str]]:
    """The flags of both programs that elect leaders, by program."""
    release = RELEASE_LEASE if versions.minor >= RELEASE_LEASE_SINCE else {}
    return {"kube-controller-manager": SLOW_LEASE | release, "kube-scheduler": SLOW_LEASE}
