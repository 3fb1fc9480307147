#!/bin/sh
# What the guest agent calls.
action=poweroff
for word in "$@"; do
    [ "$word" = -r ] && action=reboot
done
exec /bin/busybox $action
