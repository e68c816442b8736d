"""A virtual machine's initramfs: busybox, the required modules, additional programs, and one script.

It is built on the guest's host from programs installed there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from ringroad_lab.host.interface import Host

READY = "ringroad-lab: the guest is up"
FAILED = "ringroad-lab: the guest failed"

_BUILD = """\
set -e
tree=$1 modules=$2 archive=$3; shift 3
mkdir -p "$tree/bin" "$tree/dev" "$tree/proc" "$tree/sys" "$tree/run" "$tree/tmp" "$tree/var/run" "$tree/modules"
add() {
    mkdir -p "$tree$(dirname "$1")"
    cp -L "$1" "$tree$1"
    for library in $(ldd "$1" 2>/dev/null | grep -o '/[^ ]*'); do
        [ -e "$tree$library" ] || { mkdir -p "$tree$(dirname "$library")"; cp -L "$library" "$tree$library"; }
    done
}
add "$(command -v busybox)"
cp "$tree$(command -v busybox)" "$tree/bin/busybox" 2>/dev/null || true
number=10
for module in $(cat "$tree.modules"); do
    file=$(find "$modules" -name "$module.ko*" | head -n 1)
    number=$((number + 1))
    # A missing module is built into the kernel.
    case $file in
        *.ko) cp "$file" "$tree/modules/$number-$module.ko" ;;
        *.ko.xz) xz -dc "$file" >"$tree/modules/$number-$module.ko" ;;
        *.ko.zst) zstd -qdc "$file" >"$tree/modules/$number-$module.ko" ;;
        *.ko.gz) gzip -dc "$file" >"$tree/modules/$number-$module.ko" ;;
    esac
done
for file in "$@"; do add "$file"; done
cp "$tree.init" "$tree/init"
chmod 755 "$tree/init"
cd "$tree"
find . | busybox cpio -o -H newc >"$archive" 2>"$archive.log" || { cat "$archive.log" >&2; exit 1; }
rm -rf "$tree"
"""

_INIT = """\
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/sbin:/usr/bin:/usr/sbin:/usr/local/bin:/usr/local/sbin HOME=/
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
exec </dev/null >/dev/console 2>&1
for module in /modules/*.ko; do insmod "$module"; done
work() {{
set -e
{script}
}}
work
"""


def build_initramfs(
    host: Host, folder: PurePosixPath, modules: PurePosixPath, names: Sequence[str], script: str, files: Sequence[str] = ()
) -> PurePosixPath:
    """Build the archive in `folder`; return its path.

    Args:
        host: Where the guest will run.
        folder: Private to the guest.
        modules: Folder with the kernel's modules.
        names: Modules, in the order in which they are loaded.
        script: Shell script that the guest runs; it must print `READY` when the guest is up.
        files: Programs and libraries to copy from the host, with the libraries that they need.

    Raises:
        HostError: a required file or program is missing.
    """
    tree, archive = folder / "tree", folder / "initramfs"
    # The guest prints FAILED and powers off after a failure.
    body = f"trap 'echo \"{FAILED}\"; poweroff -f' EXIT\n{script}"
    host.write_text(folder / "tree.init", _INIT.format(script=body))
    host.write_text(folder / "tree.modules", "\n".join(names) + "\n")
    host.run(["sh", "-c", _BUILD, "sh", str(tree), str(modules), str(archive), *files], timeout_s=60)
    return archive
