# Sets a network card with a kernel driver to pass frames unmodified. Before the first change, writes its old settings to the script UNDO.
# sh card_settings.sh INTERFACE MTU UNDO FEATURE on|off ...  (features of `ethtool -K`)
set -eu
interface=$1 mtu=$2 undo=$3
shift 3
ipv6=/proc/sys/net/ipv6/conf/$interface/disable_ipv6
link=/sys/class/net/$interface
[ -e "$link" ] || { echo "there is no interface $interface" >&2; exit 1; }
if [ ! -e "$undo" ]; then
    mkdir -p "${undo%/*}"
    {
        echo "ip link set dev $interface mtu $(cat "$link/mtu")"
        # The features that the card can change, by the names that `ethtool -K` accepts.
        ethtool -k "$interface" | sed -n "s/^\([a-z0-9-]*\): \(on\|off\)\$/ethtool -K $interface \1 \2/p" | grep -E --             ' (rx-checksumming|tx-checksumming|tcp-segmentation-offload|generic-segmentation-offload|generic-receive-offload) '
        [ ! -e "$ipv6" ] || echo "echo $(cat "$ipv6") >$ipv6"
        [ $(($(cat "$link/flags") & 1)) = 1 ] || echo "ip link set dev $interface down"
    } >"$undo.new"
    mv "$undo.new" "$undo"
fi
[ ! -e "$ipv6" ] || echo 1 >"$ipv6"
# A feature that the card cannot change stays as it is; the others are set.
ethtool -K "$interface" "$@" >/dev/null 2>&1 || true
ip link set dev "$interface" mtu "$mtu" up
