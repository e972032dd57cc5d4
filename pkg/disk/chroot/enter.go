package chroot

// inside are the capabilities of a command in the root: those that package managers and their scripts use, about what
// builds of container images get. Without the others root in there makes no device node, mounts nothing, loads no kernel
// module, changes no clock or network, traces no other process and reads no raw memory. It is no boundary: chroot(2) itself
// is among them, and user ids and the network are the host's.
const inside = "-all,+chown,+dac_override,+dac_read_search,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,+setfcap,+sys_chroot,+audit_write"

// making are the capabilities of the host's program that makes a root: it also mounts and makes device nodes.
const making = inside + ",+sys_admin,+mknod"

// enter prepares the namespaces and runs the script given to it. Arguments: the root, how many binds,
// for each bind where and what, and the script. It stays process 1 of its namespace, so that the
// script is not (a process 1 ignores signals that it does not handle), and ends with the script's
// status. What goes wrong before the script starts is written to descriptor 3.
//
// /dev is made anew: the host's disks are not to be seen from inside. The resolver's file is bound over
// what /etc/resolv.conf resolves to inside the root.
//
// The script given to it can only have the capabilities in inside: no program gains what its bounding set
// lacks. What prepares the namespaces needs more, and runs before.
const enter = `
exec 9>&2 2>&3
set -eu
root=$1 binds=$2; shift 2
umask 022
mount --make-rprivate /
mount -t tmpfs -o mode=755,nosuid,noexec tmpfs "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/dev/shm"
umask 000
for node in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
	name=${node%%:*} numbers=${node#*:}
	mknod -m 666 "$root/dev/$name" c "${numbers%:*}" "${numbers#*:}"
done
umask 022
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s fd/0 "$root/dev/stdin"
ln -s fd/1 "$root/dev/stdout"
ln -s fd/2 "$root/dev/stderr"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs "$root/sys"
echo localhost >"$root/proc/sys/kernel/hostname"
# The kernel's parameters are the host's, and root needs no capability to write them.
for path in sys sysrq-trigger; do
	[ -e "$root/proc/$path" ] || continue
	mount --bind "$root/proc/$path" "$root/proc/$path"
	mount -o remount,bind,ro,nosuid,nodev,noexec "$root/proc/$path"
done
if [ -e /etc/resolv.conf ] && [ -x "$root/usr/bin/readlink" ]; then
	# The root's own program says where, so it has no more rights than the script, and must not lead out.
	resolver=$(setpriv --inh-caps=-all --ambient-caps=-all --bounding-set=` + inside + ` chroot "$root" /usr/bin/readlink -m /etc/resolv.conf)
	case $resolver/ in */../*) echo "/etc/resolv.conf leads to $resolver" >&2; exit 1;; esac
	mkdir -p "$root${resolver%/*}"
	[ -e "$root$resolver" ] || : >"$root$resolver"
	mount --bind /etc/resolv.conf "$root$resolver"
fi
if [ "$binds" -gt 0 ]; then
	mount -t tmpfs -o mode=755 tmpfs "$root/mnt"
fi
while [ "$binds" -gt 0 ]; do
	case $1 in /mnt/*) ;; *) echo "bind at $1: not below /mnt" >&2; exit 1;; esac
	mkdir -p "$root$1"
	mount --bind "$2" "$root$1"
	shift 2
	binds=$((binds - 1))
done
[ -x "$root/bin/sh" ] || { echo "no /bin/sh in it" >&2; exit 1; }
exec 2>&9 9>&- 3>&-
set +e
setpriv --inh-caps=-all --ambient-caps=-all --bounding-set=` + inside + ` chroot "$root" /bin/sh -c "$1"
exit $?
`

// isolate runs a host's program in the same namespaces, without changing its root; /proc is mounted
// anew so that it shows the namespace. Arguments: the program and its arguments.
const isolate = `
exec 3>&-
set -eu
mount --make-rprivate /
mount -t proc proc /proc
set +e
setpriv --inh-caps=-all --ambient-caps=-all --bounding-set=` + making + ` "$@"
exit $?
`
