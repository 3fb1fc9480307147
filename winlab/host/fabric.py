"""The host's part of the network: its OVS bridges, its entry in OVN, and the labs' external switch."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

from winlab import settings
from winlab.errors import ConflictError
from winlab.events import Progress
from winlab.host import ovn_sockets
from winlab.host.changes import Record
from winlab.host.daemons import OVN_RUN
from winlab.run import Result, run

Datapath = Literal["system", "netdev"]

NB = f"unix:{OVN_RUN / 'ovnnb_db.sock'}"
SB = f"unix:{OVN_RUN / 'ovnsb_db.sock'}"
LOCALNET = f"{settings.EXTERNAL_SWITCH}-localnet"
OWNER = "winlab=host"  # external_ids of the rows that setup makes


def vsctl(*words: str, check: bool = True) -> Result:
    """Run ovs-vsctl; it waits at most 20 s for the switch."""
    return run(["ovs-vsctl", "--timeout=20", *words], check=check, timeout=40)


def sbctl(*words: str, check: bool = True) -> Result:
    """Run ovn-sbctl against this host's own southbound database, as root."""
    return run(["ovn-sbctl", f"--db={SB}", "--no-leader-only", "--timeout=20", *words], check=check, timeout=40)


def nbctl(*words: str, check: bool = True) -> Result:
    """Run ovn-nbctl against this host's own northbound database, as root."""
    return run(["ovn-nbctl", f"--db={NB}", "--no-leader-only", "--timeout=20", *words], check=check, timeout=40)


def rows(result: Result) -> list[dict[str, Any]]:
    """The rows in the output of a ``--format=json`` command, each a mapping by column."""
    table = json.loads(result.stdout)
    return [dict(zip(table["headings"], row, strict=True)) for row in table["data"]]


def ovs_ids() -> dict[str, str]:
    """``external_ids`` of the Open_vSwitch record."""
    records = rows(vsctl("--format=json", "--columns=external_ids", "list", "Open_vSwitch"))
    return dict(records[0]["external_ids"][1]) if records else {}


def merge_mappings(text: str, physnet: str, bridge: str) -> str:
    """``ovn-bridge-mappings`` with ours added; the others are unchanged.

    :raises ConflictError: another bridge has the name.
    """
    pairs = [pair.strip() for pair in text.split(",") if pair.strip()]
    for pair in pairs:
        name, _, mapped = pair.partition(":")
        if name == physnet:
            if mapped == bridge:
                return ",".join(pairs)
            raise ConflictError(
                f"OVN's bridge mapping '{pair}' is in the way.",
                why=f"winlab needs the name '{physnet}' for its own bridge '{bridge}'.",
                cure="If nothing needs that mapping, remove it from external_ids:ovn-bridge-mappings.",
            )
    return ",".join([*pairs, f"{physnet}:{bridge}"])


def drop_mapping(text: str, physnet: str, bridge: str) -> str:
    """``ovn-bridge-mappings`` without ours."""
    pairs = [pair.strip() for pair in text.split(",") if pair.strip()]
    return ",".join(pair for pair in pairs if pair != f"{physnet}:{bridge}")


def check_foreign_ovn(ids: dict[str, str], own: str = SB) -> None:
    """Check that this host's controller does not belong to someone else's OVN.

    :param own: the southbound database of winlab's site.
    :raises ConflictError: it does.
    """
    remote = ids.get("ovn-remote", "")
    local = all(
        item.startswith("unix:") or "127.0.0.1" in item or "[::1]" in item for item in remote.split(",") if item
    )
    same = set(remote.split(",")) & set(own.split(","))  # hosts with databases come and go
    if not same and (not local or (own != SB and remote)):
        raise ConflictError(
            "This host belongs to another OVN already.",
            why=f"Its ovn-remote is '{remote}', so the labs' network would have to be created there.",
            cure="Use another host for labs, or name that OVN's northbound database in WINLAB_OVN_NB.",
        )


def mac_for(chassis: str) -> str:
    """A fixed MAC address for the external bridge, from the locally administered range.

    By default a bridge takes the lowest address of its ports, so it would change as ports come and go. A port that
    shares its address with the bridge confuses the host's own network stack on the userspace datapath.
    """
    digest = hashlib.sha256(f"{settings.BRIDGE}/{chassis}".encode()).hexdigest()
    return ":".join(["02", "57", *(digest[i : i + 2] for i in range(0, 8, 2))])


def find_datapath() -> Datapath:
    """Which OVS datapath works here, found by creating one.

    An integration bridge with ports decides: patch ports join only bridges of the same kind. One without may be
    ovn-controller's: it makes one of the kind "system", whatever the kernel can do, and changes that to the kind in
    external_ids later (process_br_int in OVN's controller/ovn-controller.c).
    """
    if vsctl("br-exists", settings.INTEGRATION_BRIDGE, check=False).returncode == 0:
        kind = vsctl("get", "bridge", settings.INTEGRATION_BRIDGE, "datapath_type").stdout.strip().strip('"')
        if kind == "netdev":
            return "netdev"
        if vsctl("list-ports", settings.INTEGRATION_BRIDGE).stdout.strip():
            return "system"
    # Loads the module if there is one; fails silently if there is none or it is built in.
    run(["modprobe", "openvswitch"], check=False, timeout=30)
    if "system@" in run(["ovs-appctl", "dpif/show"], check=False, timeout=30).stdout:
        return "system"
    probe = "winlab-probe"
    if run(["ovs-dpctl", "add-dp", probe], check=False, timeout=30).returncode != 0:
        return "netdev"
    run(["ovs-dpctl", "del-dp", probe], check=False, timeout=30)
    return "system"


def ensure_bridge(name: str, datapath: Datapath, extra: tuple[str, ...], record: Record, progress: Progress) -> None:
    """Create the bridge *name*; an existing one is unchanged."""
    if vsctl("br-exists", name, check=False).returncode == 0:
        return
    progress.say(f"making the bridge {name}")
    record.add("bridges", name)
    kind = ("datapath_type=netdev",) if datapath == "netdev" else ()
    words = ("--", "set", "bridge", name, *kind, *extra) if kind or extra else ()
    vsctl("--may-exist", "add-br", name, *words)


def set_id(key: str, value: str, record: Record) -> None:
    """Set one of the ``external_ids`` of Open vSwitch; teardown restores what it was."""
    record.changes.ovs_ids.setdefault(key, ovs_ids().get(key))
    record.save()
    vsctl("set", "Open_vSwitch", ".", f'external_ids:{key}="{value}"')


def ensure_ids(datapath: Datapath, record: Record, progress: Progress, remote: str = SB) -> None:
    """Configure ovn-controller with OVN's address and the bridges; existing values are kept.

    :param remote: the southbound database.
    :raises ConflictError: the host belongs to another OVN.
    """
    ids = ovs_ids()
    check_foreign_ovn(ids, remote)
    wanted = {
        "ovn-remote": remote,
        "ovn-encap-type": "geneve",
        "ovn-encap-ip": "127.0.0.1",
        "ovn-bridge": settings.INTEGRATION_BRIDGE,
    }
    if datapath == "netdev":
        wanted["ovn-bridge-datapath-type"] = "netdev"
    missing = {key: value for key, value in wanted.items() if key not in ids}
    merged = merge_mappings(ids.get("ovn-bridge-mappings", ""), settings.PHYSNET, settings.BRIDGE)
    if merged != ids.get("ovn-bridge-mappings"):
        record.mark("mapping")
        missing["ovn-bridge-mappings"] = merged
    if not missing:
        return
    progress.say("configuring ovn-controller for this host")
    for key in missing:
        if key != "ovn-bridge-mappings":
            record.changes.ovs_ids.setdefault(key, None)
    record.save()
    vsctl("set", "Open_vSwitch", ".", *(f'external_ids:{key}="{value}"' for key, value in missing.items()))


def ensure_address(gateway: str, prefix: int, progress: Progress) -> None:
    """Give the external bridge the host's address."""
    said = run(["ip", "-j", "addr", "show", "dev", settings.BRIDGE], timeout=20).stdout
    link = json.loads(said)[0]
    have = [(item["local"], item["prefixlen"]) for item in link["addr_info"] if item["family"] == "inet"]
    if have != [(gateway, prefix)]:
        progress.say(f"address {gateway}/{prefix} for {settings.BRIDGE}")
        for local, length in have:
            run(["ip", "addr", "del", f"{local}/{length}", "dev", settings.BRIDGE], timeout=20)
        run(["ip", "addr", "add", f"{gateway}/{prefix}", "dev", settings.BRIDGE], timeout=20)
    if "UP" not in link["flags"]:
        run(["ip", "link", "set", settings.BRIDGE, "up"], timeout=20)


def bridge_trouble(gateway: str, prefix: int) -> str:
    """What is wrong with the external bridge's address, as the end of a sentence; empty if nothing is."""
    said = run(["ip", "-j", "addr", "show", "dev", settings.BRIDGE], check=False, timeout=20)
    if said.returncode != 0:
        return "is missing"
    link = json.loads(said.stdout)[0]
    have = [(item["local"], item["prefixlen"]) for item in link["addr_info"] if item["family"] == "inet"]
    if (gateway, prefix) not in have or "UP" not in link["flags"]:
        return f"is down or does not have its address {gateway}/{prefix}"
    return ""


def restore_address(gateway: str, prefix: int, progress: Progress) -> None:
    """Give the external bridge the host's address, beside others that it may have. Needs root."""
    progress.say(f"address {gateway}/{prefix} for {settings.BRIDGE}")
    run(["ip", "addr", "replace", f"{gateway}/{prefix}", "dev", settings.BRIDGE], timeout=20)
    run(["ip", "link", "set", settings.BRIDGE, "up"], timeout=20)


def guest_ports() -> dict[str, str]:
    """The interfaces of machines in Open vSwitch: their names by their logical ports. Needs root."""
    interfaces = rows(vsctl("--format=json", "--columns=name,external_ids", "list", "Interface"))
    ids = {str(row["name"]): dict(row["external_ids"][1]) for row in interfaces}
    return {row["iface-id"]: name for name, row in ids.items() if "iface-id" in row}


def plug(interface: str, *, mac: str, port: str, machine: str) -> None:
    """Plug a machine's interface into the integration bridge as libvirt does (virnetdevopenvswitch.c). Needs root.

    :param port: the logical port's name.
    :param machine: the domain's UUID.
    """
    ids = {"attached-mac": mac, "iface-id": port, "vm-id": machine, "iface-status": "active"}
    words = [f'external_ids:{key}="{value}"' for key, value in ids.items()]
    vsctl(
        *("--if-exists", "del-port", interface, "--", "add-port", settings.INTEGRATION_BRIDGE, interface),
        *("--", "set", "Interface", interface, *words),
    )


def drop_dead_ports(progress: Progress) -> None:
    """Take ports of machines off the integration bridge whose device is gone.

    libvirt can't take them off if Open vSwitch is down when the machine ends, as in a crash of the host; its database
    keeps them. A machine that is just being started has its device: libvirt makes that before the port.
    """
    interfaces = rows(vsctl("--format=json", "--columns=name,external_ids", "list", "Interface"))
    machines = {str(row["name"]) for row in interfaces if "vm-id" in dict(row["external_ids"][1])}
    ports = set(vsctl("list-ports", settings.INTEGRATION_BRIDGE).stdout.split())
    for name in sorted(machines & ports):
        if not Path("/sys/class/net", name).exists():
            progress.say(f"removing the port {name} from {settings.INTEGRATION_BRIDGE}: its machine is gone")
            vsctl("--if-exists", "del-port", settings.INTEGRATION_BRIDGE, name)


def ensure_switch(record: Record, progress: Progress) -> None:
    """Create the external logical switch, joined to the external bridge, if it is missing.

    :raises ConflictError: a switch of that name exists and is not ours.
    """
    switch = settings.EXTERNAL_SWITCH
    switches = rows(nbctl("--format=json", "--columns=external_ids,ports", "find", "Logical_Switch", f"name={switch}"))
    if switches and dict(switches[0]["external_ids"][1]).get("winlab") != "host":
        raise ConflictError(
            f"OVN has a logical switch '{switch}' that winlab did not create.",
            cure=f"Remove it with 'ovn-nbctl ls-del {switch}', if nothing needs it.",
        )
    if switches and nbctl("lsp-get-type", LOCALNET, check=False).stdout.strip() == "localnet":
        return
    progress.say(f"making the logical switch {switch}")
    record.mark("switch")
    nbctl(
        *("--", "--may-exist", "ls-add", switch, "--", "set", "Logical_Switch", switch, f"external_ids:{OWNER}"),
        *("--", "--may-exist", "lsp-add", switch, LOCALNET, "--", "lsp-set-type", LOCALNET, "localnet"),
        *("--", "lsp-set-addresses", LOCALNET, "unknown"),
        *("--", "lsp-set-options", LOCALNET, f"network_name={settings.PHYSNET}"),
        *("--", "set", "Logical_Switch_Port", LOCALNET, f"external_ids:{OWNER}"),
    )


def undo_rows(record: Record, progress: Progress) -> None:
    """Remove what setup wrote to OVN, while OVN still runs, so that it removes flows and patch ports, too."""
    if record.changes.switch:
        progress.say(f"removing the logical switch {settings.EXTERNAL_SWITCH}")
        nbctl("--if-exists", "ls-del", settings.EXTERNAL_SWITCH, check=False)
        nbctl("--timeout=5", "--wait=hv", "sync", check=False)
        record.changes.switch = False
        record.save()
    ovn_sockets.undo(record)


def map_bridge(physnet: str, bridge: str) -> None:
    """Give one of this host's bridges a name in OVN.

    :raises ConflictError: another bridge has the name.
    """
    before = ovs_ids().get("ovn-bridge-mappings", "")
    if (merged := merge_mappings(before, physnet, bridge)) != before:
        vsctl("set", "Open_vSwitch", ".", f'external_ids:ovn-bridge-mappings="{merged}"')


def unmap_bridge(physnet: str, bridge: str) -> None:
    """Take that name away again."""
    if left := drop_mapping(ovs_ids().get("ovn-bridge-mappings", ""), physnet, bridge):
        vsctl("set", "Open_vSwitch", ".", f'external_ids:ovn-bridge-mappings="{left}"')
    else:
        vsctl("remove", "Open_vSwitch", ".", "external_ids", "ovn-bridge-mappings")


def undo_ids(record: Record) -> None:
    """Remove our mapping and the other external_ids that setup set."""
    if record.changes.mapping:
        unmap_bridge(settings.PHYSNET, settings.BRIDGE)
        record.changes.mapping = False
    for key, was in record.changes.ovs_ids.items():
        if was is None:
            vsctl("remove", "Open_vSwitch", ".", "external_ids", key)
        else:
            vsctl("set", "Open_vSwitch", ".", f'external_ids:{key}="{was}"')
    record.changes.ovs_ids = {}
    record.save()


def undo_bridges(record: Record, progress: Progress) -> None:
    """Remove the bridges that setup made."""
    for name in record.changes.bridges:
        progress.say(f"removing the bridge {name}")
        vsctl("--if-exists", "del-br", name)
    record.changes.bridges = []
    record.save()


def bridges() -> list[str]:
    """The bridges of this host's Open vSwitch."""
    return vsctl("list-br", check=False).stdout.split()
