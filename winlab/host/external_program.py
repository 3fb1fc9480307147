"""The program that joins a host's external bridge to those of its site's other hosts: its text and its unit. Pure.

The bridges are joined by tunnels (Geneve) of their own. OVN's controller already has a tunnel to each host of the site,
as the southbound database says. The program follows those. So nothing has to be done on a host when another one joins,
leaves or changes its address. ``protected`` ports forward nothing to each other, so a full mesh has no loops
(man ovs-vswitchd.conf.db, Port). OVN uses no keys as high as KEY.

All labs' routers send what leaves to the address of the first host, at the MAC of its bridge. On another host, flows
answer for that address, and take what goes further than to the first host itself. So the way out is on the host that a
router's gateway is on, also while the first host is off. Routers need not learn another MAC when a gateway moves.

OVN checks the API servers behind a lab's address only from their own hosts, so what it found last stays if a host is
gone. The hosts that have OVN's databases correct that: if a tunnel does not answer (BFD), they mark the API servers of
the host at its end as offline. A controller that still runs there marks them as online again at once (pinctrl.c,
sync_svc_monitors).

Open vSwitch loses flows, and on the userspace datapath the bridge's address, when it is restarted: the program puts
them back. It is a shell script, so that root runs nothing at boot that others can change (:mod:`winlab.host.boot`).
"""

from __future__ import annotations

from pathlib import Path

from winlab.settings import BRIDGE, HOST_FILE, SB_SOCKET

PROGRAM = HOST_FILE.with_name("external")
PID = Path("/run/winlab-external.pid")
UNIT = Path("/etc/systemd/system/winlab-external.service")
KEY = 0xFFFFFE
COOKIE = 0x77696E  # of the flows
SECONDS = 5  # between two looks

# Names of ports follow from the address, so that a port's name says whether it is still right
_TEXT = r"""#!/bin/sh
# Written by 'winlab host setup'; removed by 'winlab host teardown'.
# Joins this host's external bridge to those of its site's other hosts, by tunnels to where OVN's controller has some.
#   external once     do it now, and write the flows again
#   external follow   do it every few seconds, and mark API servers as offline if their host does not answer
#   external undo     remove the tunnels and flows
bridge=@BRIDGE@
ovs() { ovs-vsctl --timeout=10 "$@"; }
sb() { ovn-sbctl --db=unix:@SB@ --no-leader-only --timeout=10 --bare "$@"; }
ports() { ovs list-ports "$bridge" | grep '^wl-[0-9a-f]\{8\}$'; }
flows() { cat <<'FLOWS'
@FLOWS@FLOWS
}
remotes() {
  options=$(ovs --bare --columns=options find Interface type=geneve "$@") || return
  echo "$options" | sed -n 's/.*remote_ip="\{0,1\}\([0-9.]*\).*/\1/p' | sort -u
}
tunnels() {
  addresses=$(remotes options:key=flow) || return
  present=" $(ports | tr '\n' ' ') "
  for address in $addresses; do
    port=$(IFS=.; printf 'wl-%02x%02x%02x%02x' $address)
    case $present in
    *" $port "*) present=$(echo "$present" | sed "s/ $port / /") ;;
    *) ovs --may-exist add-port "$bridge" "$port" \
        -- set Interface "$port" type=geneve options:remote_ip="$address" options:key=@KEY@ options:csum=true \
        bfd:enable=true -- set Port "$port" protected=true ;;
    esac
  done
  for port in $present; do ovs --if-exists del-port "$bridge" "$port"; done
}
silent() {
  [ -S @SB@ ] || return
  for address in $(remotes options:key=@KEY@ bfd_status:state=down); do
    name=$(sb --columns=chassis_name find Encap "ip=\"$address\"") && [ -n "$name" ] || return
    chassis=$(sb --columns=_uuid find Chassis "name=\"$name\"") && [ -n "$chassis" ] || return
    there=" $(sb --columns=logical_port find Port_Binding "chassis=$chassis" | tr '\n' ' ') "
    sb --columns=_uuid,logical_port find Service_Monitor status=online | while read -r row && read -r port; do
      case $there in *" $port "*) sb set Service_Monitor "$row" status=offline ;; esac
      read -r _
    done
  done
}
look() {
  tunnels
  if [ -n "$(flows)" ] && ! ovs-ofctl dump-flows "$bridge" cookie=@COOKIE@/-1 | grep -q priority; then
    flows | ovs-ofctl add-flows "$bridge" -
  fi
  if ! ip -4 -o address show dev "$bridge" | grep -qF ' @ADDRESS@ '; then
    ip address replace @ADDRESS@ dev "$bridge"
    ip link set "$bridge" up
  fi
}
case $1 in
once)
  for port in $(ports); do ovs set Interface "$port" bfd:enable=true; done
  ovs-ofctl del-flows "$bridge" cookie=@COOKIE@/-1
  look
  ;;
follow) { look; silent; } 2>/dev/null; sleep @SECONDS@; exec "$0" follow ;;
undo)
  for port in $(ports); do ovs --if-exists del-port "$bridge" "$port"; done
  ovs-ofctl del-flows "$bridge" cookie=@COOKIE@/-1
  ovs clear Interface "$bridge" mtu_request ;;
esac
"""


def text(address: str, flows: str = "") -> str:
    """The program.

    :param address: of this host on the external bridge, with the length of the prefix.
    :param flows: what :func:`flows_for` returns; empty on the first host, which has the address that routers send to.
    """
    values = {
        "BRIDGE": BRIDGE,
        "FLOWS": flows,
        "KEY": str(KEY),
        "SB": str(SB_SOCKET),
        "COOKIE": hex(COOKIE),
        "ADDRESS": address,
        "SECONDS": str(SECONDS),
    }
    made = _TEXT
    for name, value in values.items():
        made = made.replace(f"@{name}@", value)
    return made


def flows_for(gateway: str, gateway_mac: str, own_mac: str) -> str:
    """The flows of a host that is not the first one, one a line.

    :param gateway: the first host's address on its external bridge.
    :param gateway_mac: the MAC of the first host's external bridge.
    :param own_mac: the MAC of this host's.
    """
    answer = ",".join(  # man ovs-actions; an ARP request is turned into its answer
        (
            "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]",
            f"mod_dl_src:{gateway_mac}",
            "load:2->NXM_OF_ARP_OP[]",
            "move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[]",
            "move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[]",
            f"load:0x{gateway_mac.replace(':', '')}->NXM_NX_ARP_SHA[]",
            f"load:{_number(gateway)}->NXM_OF_ARP_SPA[]",
            "IN_PORT",
        )
    )
    rows = (
        f"priority=300,arp,arp_op=1,arp_tpa={gateway} actions={answer}",
        f"priority=200,ip,dl_dst={gateway_mac},nw_dst={gateway} actions=NORMAL",
        f"priority=100,ip,dl_dst={gateway_mac} actions=mod_dl_dst:{own_mac},NORMAL",
    )
    return "".join(f"cookie={hex(COOKIE)},{row}\n" for row in rows)


def _number(address: str) -> str:
    return "0x" + "".join(f"{int(part):02x}" for part in address.split("."))


def unit_text() -> str:
    """The program's systemd unit."""
    return f"""\
# Written by 'winlab host setup'; removed by 'winlab host teardown'.
[Unit]
Description=The external network of the hosts of winlab's site
After=openvswitch-switch.service openvswitch.service ovn-host.service ovn-controller.service

[Service]
ExecStart={PROGRAM} follow
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
"""
