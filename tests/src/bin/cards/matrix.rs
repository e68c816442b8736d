//! Drivers and mechanisms of the matrix.

/// Name of the interface that Ringroad serves.
pub(crate) const NEAR: &str = "near";
/// Name of the interface at the other end of its cable.
pub(crate) const FAR: &str = "far";
/// Names of the interfaces at both ends of a second cable, which emulated cards have.
pub(crate) const SECOND: &str = "second";
pub(crate) const BEYOND: &str = "beyond";
/// Names of the emulated cards, two for each cable, with their hardware addresses.
pub(crate) const CARDS: [(&str, [u8; 6]); 4] = [
    (NEAR, [2, 0, 0, 0, 0xca, 1]),
    (FAR, [2, 0, 0, 0, 0xca, 2]),
    (SECOND, [2, 0, 0, 0, 0xca, 3]),
    (BEYOND, [2, 0, 0, 0, 0xca, 4]),
];

/// A driver of network interfaces.
#[derive(Debug)]
pub(crate) struct MatrixDriver {
    pub(crate) name: &'static str,
    /// Kernel modules of its interfaces.
    pub(crate) modules: &'static [&'static str],
    pub(crate) source: InterfaceSource,
}

/// The way in which the guest gets [`NEAR`] and [`FAR`].
#[derive(Debug)]
pub(crate) enum InterfaceSource {
    /// Cards of QEMU: QEMU's name with options, and whether they are for PCI Express.
    Cards { model: &'static str, is_express: bool },
    /// These arguments of ip(8), a command each.
    Commands(&'static [&'static str]),
    /// A TAP, whose far end is a program.
    Tap,
    /// These arguments of ip(8) make [`NEAR`]; frames end there.
    Ending(&'static [&'static str]),
}

const fn card(name: &'static str, modules: &'static [&'static str], model: &'static str) -> MatrixDriver {
    MatrixDriver { name, modules, source: InterfaceSource::Cards { model, is_express: true } }
}

/// All drivers, in the order of the table.
pub(crate) static DRIVERS: [MatrixDriver; 13] = [
    card("igb", &["igb"], "igb"),
    card("virtio-net", &["virtio_net"], "virtio-net-pci,disable-legacy=on,iommu_platform=on,queue_reset=on"),
    card(
        "virtio-net-without-queue-reset",
        &["virtio_net"],
        "virtio-net-pci,disable-legacy=on,iommu_platform=on,queue_reset=off",
    ),
    card("vmxnet3", &["vmxnet3"], "vmxnet3"),
    card("e1000e", &["e1000e"], "e1000e"),
    MatrixDriver {
        name: "rtl8139",
        modules: &["8139cp"],
        source: InterfaceSource::Cards { model: "rtl8139", is_express: false },
    },
    MatrixDriver {
        name: "veth",
        modules: &["veth"],
        source: InterfaceSource::Commands(&["link add near type veth peer name far"]),
    },
    MatrixDriver { name: "tap", modules: &["tun"], source: InterfaceSource::Tap },
    MatrixDriver {
        name: "dummy",
        modules: &["dummy"],
        source: InterfaceSource::Ending(&["link add near type dummy"]),
    },
    MatrixDriver {
        name: "bond",
        modules: &["veth", "bonding"],
        source: InterfaceSource::Commands(&[
            "link add below type veth peer name far",
            "link add near type bond mode active-backup miimon 100",
            "link set below master near",
        ]),
    },
    MatrixDriver {
        name: "bridge",
        modules: &["veth", "bridge"],
        source: InterfaceSource::Commands(&[
            "link add below type veth peer name far",
            "link add near type bridge mcast_snooping 0",
            "link set below master near",
            "link set below up",
        ]),
    },
    MatrixDriver {
        name: "vlan",
        modules: &["veth", "8021q"],
        source: InterfaceSource::Commands(&[
            "link add below type veth peer name under",
            "link add link below name near type vlan id 5",
            "link add link under name far type vlan id 5",
            "link set below up",
            "link set under up",
        ]),
    },
    MatrixDriver {
        name: "macvlan",
        modules: &["veth", "macvlan"],
        source: InterfaceSource::Commands(&[
            "link add below type veth peer name far",
            "link add link below name near type macvlan mode passthru",
            "link set below up",
        ]),
    },
];

/// A mechanism that serves interfaces.
#[derive(Debug)]
pub(crate) struct MatrixMechanism {
    pub(crate) name: &'static str,
    /// Driver of the port.
    pub(crate) port: &'static str,
    /// Beginning of the reported mode.
    pub(crate) mode: &'static str,
}

/// Name of the mechanism that chooses one of the others.
pub(crate) const AUTO: &str = "auto";

/// All mechanisms, best first; the last one chooses.
pub(crate) static MECHANISMS: [MatrixMechanism; 5] = [
    MatrixMechanism { name: "zero-copy", port: "xdp:near@mode=zero-copy", mode: "AF_XDP zero-copy" },
    MatrixMechanism { name: "native", port: "xdp:near@mode=native", mode: "AF_XDP copy, native" },
    MatrixMechanism { name: "generic", port: "xdp:near@mode=generic", mode: "AF_XDP copy, generic" },
    MatrixMechanism { name: "packet", port: "packet:near", mode: "AF_PACKET" },
    MatrixMechanism { name: AUTO, port: "near", mode: "" },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_of_each_mechanism_is_the_near_one() {
        assert!(MECHANISMS.iter().all(|mechanism| mechanism.port.contains(NEAR)));
        let made = DRIVERS.iter().filter_map(|driver| match driver.source {
            InterfaceSource::Commands(commands) => Some((commands, FAR)),
            InterfaceSource::Ending(commands) => Some((commands, NEAR)),
            _ => None,
        });
        for (commands, end) in made {
            assert!(commands.iter().any(|command| command.contains(&format!(" {end}"))), "{commands:?}");
        }
    }
}
