#!/bin/sh
# The guest agent calls this.
action=poweroff
for word in "$@"; do
    [ "$word" = -r ] && action=reboot
done
exec /bin/busybox $action
