# Runs a script over a foreign file, without privileges, where nothing else can be named or written:
#   confine.sh SOURCE BUILD SCRATCH BYTES SCRIPT [ARGUMENT...]
# The script sees SOURCE (a file or folder, read-only) as /source, the folders BUILD and SCRATCH as /build and /scratch, and the programs
# of the system, read-only. It is root without capabilities, so that its files belong to the caller: it makes no device, changes no owner
# and no mount. It has no network, sees no other process, and writes no file longer than BYTES.
set -eu
umask 022
if [ "$1" != --inside ]; then
    # Only root makes the other namespaces without a user namespace.
    user=
    [ "$(id -u)" = 0 ] || user='--user --map-root-user'
    # shellcheck disable=SC2086
    exec env -i PATH="$PATH" LC_ALL=C.UTF-8 TMPDIR=/tmp \
        unshare $user --mount --net --ipc --uts --pid --fork --kill-child=KILL --propagation private -- sh "$0" --inside "$@"
fi
source=$2 build=$3 scratch=$4 bytes=$5 script=$6
shift 6
root=$scratch/root

bind() { # FROM TO OPTIONS
    mount --bind "$1" "$2"
    mount -o "remount,bind,nosuid,nodev$3" "$2"
}

mkdir "$root" "$scratch/files"
mount -t tmpfs -o size=64m,nr_inodes=16k,mode=755,nosuid,nodev confined "$root"
cd "$root"
mkdir build dev etc old proc scratch tmp
for folder in /usr /bin /sbin /lib*; do
    if [ -L "$folder" ]; then
        cp --no-dereference "$folder" ".$folder"
    elif [ -d "$folder" ]; then
        mkdir ".$folder"
        bind "$folder" ".$folder" ,ro
    fi
done
for setting in /etc/ld.so.cache /etc/alternatives /etc/rpm; do
    [ ! -e "$setting" ] || cp --recursive "$setting" etc
done
cp "$script" script
touch dev/null
mount --bind /dev/null dev/null
if [ -d "$source" ]; then mkdir source; else touch source; fi
bind "$source" source ,ro
bind "$build" build ''
bind "$scratch/files" scratch ''
# umount reads the list of mounts there.
mount --rbind /proc proc
pivot_root . old
cd /
umount --lazy /old
umount --lazy /proc
# Without a bounding set root gains no capability by executing a program.
exec setpriv --no-new-privs --inh-caps=-all --bounding-set=-all prlimit --fsize="$bytes" --core=0 sh /script "$bytes" "$@"
