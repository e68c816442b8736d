# Binds a network card to vfio-pci, and prints its PCI address. Before the first change, writes the way back to the script UNDO.
# sh card_to_vfio.sh INTERFACE|PCI-ADDRESS VIRTUAL-FUNCTION UNDO  (an empty number: the card itself)
set -eu
card=$1 function=$2 undo=$3
fail() { echo "$*" >&2; exit 1; }
# A virtio device is a child of the card.
card_of() {
    found=$(readlink -f "$1")
    while [ ! -e "$found/resource" ]; do
        found=${found%/*}
        [ -n "$found" ] || fail "$card is not a PCI device"
    done
    echo "$found"
}
if [ -e "/sys/class/net/$card" ]; then
    device=$(card_of "/sys/class/net/$card/device")
elif [ -e "/sys/bus/pci/devices/$card" ]; then
    device=$(readlink -f "/sys/bus/pci/devices/$card")
elif [ -e "$undo" ]; then
    # The card is bound already, and its interface is gone.
    sed -n 's/^device=.* address=//p' "$undo"
    exit 0
else
    fail "there is no interface and no PCI device $card"
fi
mkdir -p "${undo%/*}"
if [ -n "$function" ]; then
    [ -e "$device/sriov_numvfs" ] || fail "$card has no virtual functions (SR-IOV)"
    if [ ! -e "$device/virtfn$function" ]; then
        had=$(cat "$device/sriov_numvfs")
        [ "$had" = 0 ] || fail "$card has $had virtual functions, but not number $function: create it, or remove all virtual functions"
        echo "echo 0 >$device/sriov_numvfs" >"$undo-functions"
        echo $((function + 1)) >"$device/sriov_numvfs"
    fi
    device=$(readlink -f "$device/virtfn$function")
fi
address=${device##*/}
driver=
[ ! -e "$device/driver" ] || driver=$(basename "$(readlink -f "$device/driver")")
if [ "$driver" != vfio-pci ]; then
    [ -e "$device/iommu_group" ] || fail \
        "the kernel has no IOMMU for $address: boot it with intel_iommu=on or amd_iommu=on, and enable the IOMMU in the firmware"
    for other in "$device"/iommu_group/devices/*; do
        other=$(readlink -f "$other")
        case $(cat "$other/class") in 0x0604*) continue ;; esac
        [ "$other" != "$device" ] && [ -e "$other/driver" ] || continue
        its=$(basename "$(readlink -f "$other/driver")")
        [ "$its" = vfio-pci ] || fail "$address shares its IOMMU group with ${other##*/}, which is bound to $its: unbind that device too"
    done
    names=
    for net in "$device"/net/* "$device"/*/net/*; do
        [ -e "$net" ] || continue
        names="$names ${net##*/}"
        used=$(ip -o address show dev "${net##*/}" scope global)
        [ -z "$used" ] || fail "$address, ${net##*/}, has an address: it carries traffic of its machine"
    done
    [ -e /sys/bus/pci/drivers/vfio-pci ] || modprobe vfio-pci || fail "the kernel of this machine has no vfio-pci"
    {
        echo "device=$device address=$address"
        # The write waits until the process that uses the card has released it.
        echo 'if [ -e "$device/driver" ]; then echo "$address" >"$device/driver/unbind"; fi'
        echo 'echo >"$device/driver_override"'
        [ -z "$driver" ] || echo "echo \"\$address\" >/sys/bus/pci/drivers/$driver/bind"
        for name in $names; do
            [ $(($(cat "/sys/class/net/$name/flags") & 1)) = 1 ] && up=up || up=down
            cat <<END
for _ in \$(seq 100); do
    for net in "\$device"/net/* "\$device"/*/net/*; do
        [ -e "\$net" ] || continue
        [ "\${net##*/}" = $name ] || ip link set dev "\${net##*/}" name $name
        ip link set dev $name mtu $(cat "/sys/class/net/$name/mtu") $up
        break 2
    done
    sleep 0.1
done
END
        done
    } >"$undo.new"
    mv "$undo.new" "$undo"
    echo vfio-pci >"$device/driver_override"
    [ -z "$driver" ] || echo "$address" >"$device/driver/unbind"
    echo "$address" >/sys/bus/pci/drivers/vfio-pci/bind || fail "vfio-pci does not accept $address: $(dmesg 2>/dev/null | tail -n 1)"
fi
echo "$address"
