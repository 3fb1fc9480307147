#!/bin/sh
# The first program of the stand-in's root file system: writes busybox init's configuration, then runs busybox init.
mount -t tmpfs -o mode=1777 tmpfs /tmp
mkdir -p /dev/pts /dev/shm /run/standin /run/sshd
mount -t devpts -o gid=5,mode=620 devpts /dev/pts
cat >/etc/inittab <<'END'
::once:/usr/bin/python3 -s -m winlab_standin.guest.main >/dev/kmsg 2>&1
::ctrlaltdel:/bin/busybox reboot
::shutdown:/bin/sh -c "timeout 30 sync; timeout 30 /bin/busybox umount -a -r 2>/dev/null; timeout 30 sync"
END
export PATH=/usr/sbin:/usr/bin:/sbin:/bin PYTHONPATH=/usr/lib/standin PYTHONDONTWRITEBYTECODE=1 LANG=C.UTF-8
exec /bin/busybox init
