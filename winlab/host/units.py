"""The texts of the files that make the host ready again after a reboot. Pure."""

from __future__ import annotations

from pathlib import Path

from winlab import settings

UNIT = Path("/etc/systemd/system/winlab-host.service")
TMPFILES = Path("/etc/tmpfiles.d/winlab.conf")
DROP_IN = Path("/etc/systemd/system/ovn-ovsdb-server-nb.service.d/winlab.conf")

# After the network, because setup records the host's name servers (man systemd.special, network-online.target).
# After firewalls and Docker, so that their chains exist; after OVS and OVN, so that they can be configured.
AFTER = (
    *("network-online.target", "nftables.service", "ufw.service", "firewalld.service", "docker.service"),
    *("openvswitch-switch.service", "openvswitch.service", "ovn-central.service", "ovn-northd.service"),
    *("ovn-host.service", "ovn-controller.service", "ovn-ovsdb-server-nb.service"),
    *("libvirtd.socket", "libvirtd.service", "virtqemud.socket", "virtstoraged.socket"),
)


def unit_text(python: str, *, trust: bool = False) -> str:
    """The systemd unit that runs setup at boot, with the current interpreter.

    Isolated (python -I): neither the environment nor the current folder or a user's own packages decide what runs.

    It follows a restart of Open vSwitch (PartOf): on the userspace datapath the bridge loses its address with it.
    It tries again if setup fails, because a daemon may need longer to start on a busy host; after five failures within
    five minutes it stays failed.

    :param trust: others than root can change what it runs, and the user accepted that.
    """
    quoted = python.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f"""\
# Written by 'winlab host setup'; removed by 'winlab host teardown'.
[Unit]
Description=Make this host ready for winlab's labs
After={" ".join(AFTER)}
Wants=network-online.target
Before=libvirt-guests.service
PartOf=openvswitch-switch.service openvswitch.service
StartLimitIntervalSec=300
StartLimitBurst=5

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart="{quoted}" -I -m winlab host setup{" --trust-python" if trust else ""}
TimeoutStartSec=300
Restart=on-failure
RestartSec=20

[Install]
WantedBy=multi-user.target
"""


def tmpfiles_text(owner: str = "root") -> str:
    """The tmpfiles.d entry of the folder with the northbound socket (/run is empty after a boot)."""
    return (
        "# Written by 'winlab host setup'. Setgid: the socket made in it belongs to the group.\n"
        f"d {settings.NB_SOCKET.parent} 2750 {owner} {settings.GROUP} -\n"
    )


def drop_in_text(umask: str) -> str:
    """The drop-in that lets ovsdb-server create a socket that the group can write to."""
    return f"# Written by 'winlab host setup': lets the group open winlab's socket.\n[Service]\nUMask={umask}\n"
