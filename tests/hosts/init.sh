#!/bin/bash
# The first process of a host, in new mount, pid, uts, ipc and network namespaces: init.sh BASE NAME NUMBER BIND...
# It makes the host's file tree, moves into it, starts sshd, and becomes an init that reaps. The host's disk is
# BASE/NAME, and survives "power off". When this process is killed, the kernel ends all processes of the host and drops
# its mounts.
set -eu
base=$1 name=$2 number=$3; shift 3
disk=$base/$name root=$base/$name/root
mount --make-rprivate /
mkdir -p "$root"; mount -t tmpfs -o mode=755 tmpfs "$root"; cd "$root"
mkdir usr etc var root home opt mnt srv run tmp dev proc sys old
for link in bin sbin lib lib32 lib64 libx32; do [ ! -L "/$link" ] || cp -a "/$link" "$link"; done
mount --bind /usr usr; mount -o remount,bind,ro usr
for part in etc var root home opt; do
  mkdir -p "$disk/upper/$part" "$disk/work/$part"
  mount -t overlay -o "lowerdir=/$part,upperdir=$disk/upper/$part,workdir=$disk/work/$part" overlay "$part"
done
mkdir -p opt/winlab; mount --bind "$base/venv" opt/winlab; mount -o remount,bind,ro opt/winlab
for path; do mkdir -p "./$path"; mount --bind "$path" "./$path"; mount -o remount,bind,ro "./$path"; done
mount -t tmpfs -o mode=755 tmpfs run; mkdir -p run/lock run/sshd
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm dev/net
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts; mount -t tmpfs tmpfs dev/shm
while read -r path kind; do mknod -m 666 "dev/$path" c $kind; done <<NODES
null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
tty 5 0
net/tun 10 200
NODES
ln -s pts/ptmx dev/ptmx; ln -s /proc/self/fd dev/fd
for item in "0 stdin" "1 stdout" "2 stderr"; do ln -s "/proc/self/fd/${item% *}" "dev/${item#* }"; done
if [ ! -e "$disk/made" ]; then # the first boot: without what the machine that runs the tests has
  # a folder that is made again hides the machine's for good, also what the machine's tests put there later
  for folder in etc/openvswitch etc/ovn etc/libvirt/qemu etc/ssh/sshd_config.d var/lib/openvswitch var/lib/ovn \
    var/log/openvswitch var/log/ovn var/lib/libvirt/qemu var/lib/libvirt/images var/cache/libvirt var/log/libvirt/qemu; do
    [ -d "$folder" ] || continue
    was=$(stat -c '%u:%g %a' "$folder")
    # again where a test adds a file to the folder below meanwhile: then the kernel says that it is not empty
    until rm -rf "$folder"; do sleep 0.1; done
    mkdir "$folder"; chown "${was% *}" "$folder"; chmod "${was#* }" "$folder"
  done
  rm -rf etc/winlab etc/libvirt/hooks etc/libvirt/storage etc/ssh/ssh_host_* root/.ssh var/lib/winlab
  tr -d - <proc/sys/kernel/random/uuid >etc/machine-id
  echo "$name" >etc/hostname
  cp "$base/hosts" etc/hosts
  cp "$base/host-key" etc/ssh/ssh_host_ed25519_key; chmod 600 etc/ssh/ssh_host_ed25519_key
  cp "$base/known_hosts" etc/ssh/ssh_known_hosts
  printf 'HostKey /etc/ssh/ssh_host_ed25519_key\nUsePAM no\nPasswordAuthentication no\n' >etc/ssh/sshd_config
  useradd --root "$root" --create-home --shell /bin/bash --password '*' ann
  mkdir -p etc/sudoers.d; echo 'ann ALL=(ALL) NOPASSWD: ALL' >etc/sudoers.d/ann
  for home in root home/ann; do
    mkdir -m 700 "$home/.ssh"; cp "$base/key" "$home/.ssh/id_ed25519"; cp "$base/key.pub" "$home/.ssh/authorized_keys"
  done
  chown -R --reference=home/ann home/ann/.ssh
  touch "$disk/made"
fi
# each boot has an id of its own
cat proc/sys/kernel/random/uuid >run/boot_id; mount --bind run/boot_id proc/sys/kernel/random/boot_id
hostname "$name"
pivot_root . old; cd /; umount -l /old; rmdir /old
ip link set lo up
until ip link show eth1 >/dev/null 2>&1; do sleep 0.02; done # the cables are plugged in from outside
for card in eth0 eth1; do ethtool -K "$card" tx off >/dev/null; ip link set "$card" up; done
ip address add "198.51.100.$number/24" dev eth0
/usr/sbin/sshd
# what networkd or ifupdown do on a real host: Open vSwitch makes the device, and it then gets its address
(
  exec {never}<> <(:) # nothing ever comes from it: a wait that starts no process
  until [ -e /sys/class/net/br-phy ]; do read -r -t 0.2 -u "$never" || true; done
  ip address add "203.0.113.$number/24" dev br-phy; ip link set br-phy up
) &
touch /run/booted
exec /usr/bin/tini -s -- sleep infinity </dev/null >/dev/null 2>&1
