#!/bin/sh
# Run by mmdebstrap when all packages are in: $1 is the guest's root.
set -eu
root=$1

# Every guest makes its own identity at its first boot.
rm -f "$root"/etc/ssh/ssh_host_* "$root/var/lib/dbus/machine-id"
: >"$root/etc/machine-id"
echo debian >"$root/etc/hostname"
printf '127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n' >"$root/etc/hosts"
ln -sf ../run/systemd/resolve/resolv.conf "$root/etc/resolv.conf"

chroot "$root" systemctl enable systemd-networkd.service systemd-resolved.service
# Housekeeping that a guest of a few hours does not need, and that costs an emulated one seconds.
chroot "$root" systemctl mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
    e2scrub_reap.service fstrim.timer man-db.timer systemd-timesyncd.service systemd-networkd-persistent-storage.service \
    systemd-binfmt.service systemd-pstore.service sys-kernel-debug.mount sys-kernel-tracing.mount modprobe@drm.service
# It asks for VSOCK, which these guests don't have, and fails.
mkdir -p "$root/etc/systemd/system-generators"
ln -s /dev/null "$root/etc/systemd/system-generators/systemd-ssh-generator"
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/log/*.log "$root"/var/log/apt
# All is up to date: systemd need not run ldconfig and its like at the first boot (systemd.unit(5), ConditionNeedsUpdate).
chroot "$root" ldconfig
touch "$root/etc/.updated" "$root/var/.updated"
