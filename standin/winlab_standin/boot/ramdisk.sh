#!/bin/sh
# The initial RAM disk of the stand-in: finds the root file system, adds a writable layer to it, switches to it.
# Two ways: "winlab.mode=setup" takes the root out of install.wim on the media (at winlab.offset bytes), and
# "winlab.mode=disk" takes it from the NTFS volume that Setup filled.
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev

say() {
    echo "$*"
    echo "setup: $*" >/dev/ttyS0 2>/dev/null
}

# On a busy host Linux may measure an emulated processor as several times too slow; its clock is then that much too fast
if dmesg | grep -q "tsc: PIT calibration deviates from"; then
    say "boot: the clock was measured wrongly; starting again"
    reboot -f
fi

probe() {
    # shellcheck disable=SC2046  # one word per device is intended
    modprobe -a -q $(cat /sys/bus/*/devices/*/modalias 2>/dev/null | sort -u) 2>/dev/null
}

stop() {
    say "boot: $1"
    while :; do sleep 3600; done
}

mode=disk
offset=0
for word in $(cat /proc/cmdline); do
    case $word in
    winlab.mode=*) mode=${word#*=} ;;
    winlab.offset=*) offset=${word#*=} ;;
    esac
done
probe
probe
# By name, because the root has no modprobe: file systems that are mounted later, the power button, efivars
modprobe -a -q loop squashfs overlay udf isofs vfat ntfs3 nls_cp437 nls_iso8859_1 nls_utf8 nls_ascii evdev button sd_mod sr_mod
mkdir -p /media /c /lower /layer
found=
tries=0
if [ "$mode" = setup ]; then
    while [ -z "$found" ]; do
        for device in /dev/sr*; do
            [ -b "$device" ] || continue
            if mount -t udf -o ro "$device" /media 2>/dev/null; then
                if [ -f /media/sources/install.wim ] && [ -f /media/boot/standin ]; then
                    found=$device
                    break
                fi
                umount /media
            fi
        done
        tries=$((tries + 1))
        [ $tries -gt 120 ] && stop "the installation media can't be found"
        [ -n "$found" ] || sleep 0.25
    done
    losetup -r -o "$offset" /dev/loop0 /media/sources/install.wim || stop "install.wim can't be opened"
    root=/dev/loop0
else
    while [ -z "$found" ]; do
        for device in /dev/sd*[0-9] /dev/vd*[0-9] /dev/nvme*p*; do
            [ -b "$device" ] || continue
            # "force": Windows, too, mounts a volume that was not unmounted
            if mount -t ntfs3 -o force,noatime,prealloc "$device" /c 2>/dev/null; then
                if [ -f /c/Windows/System32/standin/root.sqfs ]; then
                    found=$device
                    break
                fi
                umount /c
            fi
        done
        tries=$((tries + 1))
        [ $tries -gt 120 ] && stop "no volume with Windows on it was found"
        [ -n "$found" ] || sleep 0.25
    done
    losetup -r /dev/loop0 /c/Windows/System32/standin/root.sqfs || stop "the root file system can't be opened"
    root=/dev/loop0
fi
mount -t squashfs -o ro $root /lower || stop "the root file system can't be mounted"
mount -t tmpfs -o mode=0755 tmpfs /layer
mkdir -p /layer/upper /layer/work /root
mount -t overlay -o lowerdir=/lower,upperdir=/layer/upper,workdir=/layer/work overlay /root
mkdir -p /root/media /root/c /root/run/standin /root/lib/modules
mount --move /media /root/media 2>/dev/null
mount --move /c /root/c 2>/dev/null
echo "$mode" >/root/run/standin/mode
echo "$found" >/root/run/standin/device
cp -a /lib/modules/. /root/lib/modules/
for folder in dev sys proc; do mount --move /$folder /root/$folder; done
exec switch_root /root /usr/lib/standin/init
