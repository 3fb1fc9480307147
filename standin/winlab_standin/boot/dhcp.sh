#!/bin/sh
# busybox udhcpc runs this. It ignores the MTU option, as Windows does.
case $1 in
deconfig)
    ip link set dev "$interface" up
    ip -4 addr flush dev "$interface"
    ;;
bound | renew)
    ip -4 addr flush dev "$interface"
    ip addr add "$ip/${mask:-24}" ${broadcast:+broadcast $broadcast} dev "$interface"
    for gateway in $router; do
        ip route replace default via "$gateway" dev "$interface" onlink
        break
    done
    {
        [ -n "$search$domain" ] && echo "search ${search:-$domain}"
        for server in $dns; do echo "nameserver $server"; done
    } >/run/standin/resolv.conf.new
    mv /run/standin/resolv.conf.new /run/standin/resolv.conf
    # as in Windows, the computer's own name resolves to its address
    printf '127.0.0.1 localhost\n::1 localhost\n%s %s\n' "$ip" "$(hostname)" >/etc/hosts
    {
        echo "ip=$ip"
        echo "mask=$subnet"
        echo "router=$router"
        echo "dns=$dns"
        echo "domain=$domain"
        echo "serverid=$serverid"
        echo "lease=$lease"
    } >"/run/standin/lease.$interface"
    ;;
esac
exit 0
