//! Device names of Ringroad, and the options with which the devices are opened.

use ringroad::catalogue::{DeviceName, InterfaceUse, OpenedBy, Spelling, kinds};
use ringroad::{OpenOptions, PortName};

use crate::handle::Settings;

/// Default size of a slot's buffer, bytes.
const BUFFER_BYTES: u32 = 2048;
/// Minimum and maximum number of slots of a ring.
const SLOTS: (u32, u32) = (64, 4096);
/// Default numbers of slots and AF_XDP descriptors of an interface. Traffic from the wire does not wait for a slow
/// reader: at a million frames a second a program that shares its processor loses half of the frames with the usual
/// 1024 and 2048, and none with these. libpcap's own default holds some 14000 short frames.
const INTERFACE_SLOTS: u32 = 4096;
const INTERFACE_DESCRIPTORS: &str = "ring-size=8192";

/// Whether a device of this name is served here. Plain names of interfaces (`eth0`, `any`) belong to the system's
/// libpcap.
pub(crate) fn is_ours(name: &str) -> bool {
    match name.parse::<PortName>() {
        Ok(parsed) => {
            let plain = !name.starts_with("netmap:") && !name.contains('@');
            !(plain && parsed.base.device().is_some_and(|device| device.kind.spelling == Spelling::Bare))
        }
        Err(_) => {
            // An invalid name with a scheme of Ringroad is accepted, so that Ringroad reports the error.
            let Some((scheme, _)) = name.split_once(':') else { return false };
            scheme == "netmap"
                || scheme.starts_with("vale")
                || kinds().any(|kind| matches!(kind.spelling, Spelling::Scheme(own) if own == scheme))
        }
    }
}

/// Port name of a device: options for the program's settings are appended unless the name has them already.
pub(crate) fn port_name(name: &str, requested: &Settings) -> String {
    let Ok(parsed) = name.parse::<PortName>() else { return name.to_owned() };
    let Some(device) = parsed.base.device().filter(|device| is_wire(device)) else { return name.to_owned() };
    let takes_away = matches!(device.interface(), Some((_, InterfaceUse::Wire)));
    let candidates = [
        (requested.promiscuous, "promisc", "promisc=1"),
        (requested.immediate, "immediate", "immediate=1"),
        (takes_away, "ring-size", INTERFACE_DESCRIPTORS),
    ];
    let missing = |key| device.kind.has_option(key) && !parsed.options.device.has(key);
    let options: Vec<_> = candidates
        .into_iter()
        .filter(|(chosen, key, _)| *chosen && missing(key))
        .map(|(.., option)| option)
        .collect();
    if options.is_empty() {
        return name.to_owned();
    }
    let separator = if name.contains('@') { ',' } else { '@' };
    format!("{name}{separator}{}", options.join(","))
}

/// Options with which the port of a device is opened.
pub(crate) fn open_options(name: &str, settings: &Settings) -> OpenOptions {
    let parsed = name.parse::<PortName>();
    let interface = parsed.is_ok_and(|parsed| parsed.base.device().is_some_and(is_wire));
    let buffer_bytes = u32::try_from(settings.buffer_bytes).ok().filter(|bytes| *bytes > 0);
    let slots = buffer_bytes.map(|bytes| {
        let slots = bytes.div_ceil(BUFFER_BYTES).checked_next_power_of_two().unwrap_or(SLOTS.1);
        slots.clamp(SLOTS.0, SLOTS.1)
    });
    OpenOptions { slots: slots.or(interface.then_some(INTERFACE_SLOTS)), ..OpenOptions::default() }
}

/// Whether a port lives in the program that opens it, so that no daemon knows of it.
pub(crate) fn is_without_daemon(name: &str) -> bool {
    let parsed = name.parse::<PortName>();
    parsed.is_ok_and(|parsed| {
        parsed.base.device().is_some_and(|device| device.kind.access == OpenedBy::Program)
    })
}

/// Whether a device is an interface's side to the wire.
fn is_wire(device: &DeviceName) -> bool {
    matches!(device.interface(), Some((_, InterfaceUse::Wire | InterfaceUse::Copies)))
}

/// Interface of this network namespace behind a device, if there is one.
pub(crate) fn interface(name: &str) -> Option<String> {
    let parsed: PortName = name.parse().ok()?;
    let (interface, _) = parsed.base.device()?.interface()?;
    (!parsed.options.device.has("netns")).then(|| interface.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_interfaces_go_to_libpcap_and_ports_to_ringroad() {
        for name in
            ["eth0", "any", "lo", "enp0s31f6.100", "wlan0", "usbmon1", "nflog:3", "rpcap://h/eth0", ""]
        {
            assert!(!is_ours(name), "{name}");
        }
        for name in [
            "vale0:1",
            "vale:a",
            "x{1",
            "x}1",
            "netmap:eth0",
            "netmap:x{1",
            "xdp:eth0",
            "packet:eth0",
            "eth0^",
            "netmap:eth0^",
            "null:",
            "null:size=60",
            "pcap:a.pcap",
            "tap:t0",
            "eth0@slots=256",
        ] {
            assert!(is_ours(name), "{name}");
        }
    }

    #[test]
    fn wrong_port_names_are_refused_by_ringroad() {
        for name in ["vale0:", "xdp:", "null:size=3", "vale0:a@colour=3", "packet:a b"] {
            assert!(is_ours(name), "{name}");
        }
    }

    #[test]
    fn settings_become_options_unless_the_name_has_them() {
        let all = &Settings { promiscuous: true, immediate: true, ..Settings::default() };
        assert_eq!(port_name("xdp:eth0", all), "xdp:eth0@promisc=1,ring-size=8192");
        assert_eq!(port_name("packet:eth0", all), "packet:eth0@promisc=1,immediate=1");
        assert_eq!(port_name("xdp:eth0@mode=native", all), "xdp:eth0@mode=native,promisc=1,ring-size=8192");
        assert_eq!(port_name("xdp:eth0@promisc=0,ring-size=64", all), "xdp:eth0@promisc=0,ring-size=64");
        for name in ["vale0:a", "x{1", "null:", "tap:t0", "eth0^"] {
            assert_eq!(port_name(name, all), name);
        }
        assert_eq!(port_name("packet:eth0", &Settings::default()), "packet:eth0");
    }

    #[test]
    fn a_buffer_size_becomes_a_number_of_slots() {
        let slots =
            |buffer_bytes| open_options("vale0:a", &Settings { buffer_bytes, ..Settings::default() }).slots;
        assert_eq!((slots(0), slots(-1)), (None, None));
        assert_eq!(slots(2 << 20), Some(1024));
        assert_eq!(slots(1), Some(64));
        assert_eq!(slots(i32::MAX), Some(4096));
        assert_eq!(open_options("xdp:eth0", &Settings::default()).slots, Some(4096));
    }

    #[test]
    fn an_interface_elsewhere_is_not_in_this_namespace() {
        assert_eq!(interface("xdp:eth0@mode=native").as_deref(), Some("eth0"));
        assert_eq!(interface("eth0^").as_deref(), Some("eth0"));
        assert_eq!(interface("xdp:eth0@netns=blue"), None);
        assert_eq!(interface("vale0:a"), None);
    }
}
