//! Frames of many kinds, few of each, so that several entries match one. Some have other content than their headers
//! claim.

use proptest::prelude::*;

/// Parts of a frame.
#[derive(Debug, Clone)]
pub struct Parts {
    to: u8,
    from: u8,
    /// VLAN tags, the outermost first.
    tags: Vec<(u16, u16)>,
    ethertype: u16,
    /// First byte of an IP header: version and header length.
    version: u8,
    fragment: u16,
    proto: u8,
    traffic_class: u8,
    addresses: (u8, u8),
    ports: (u16, u16),
    ttl: u8,
    /// Bytes that are left after the frame is cut.
    length: usize,
}

pub fn parts() -> impl Strategy<Value = Parts> {
    let tag = (prop::sample::select(&[0x8100u16, 0x88a8][..]), prop::sample::select(&[0u16, 1, 0x2001][..]));
    let ethertype = prop_oneof![
        6 => Just(0x0800u16),
        2 => Just(0x86dd),
        1 => Just(0x0806),
        1 => prop::sample::select(&[0x8847u16, 0x88e7, 0x0100, 0x88b5][..]),
    ];
    let version = prop_oneof![8 => Just(0x45u8), 1 => Just(0x46), 1 => any::<u8>()];
    let fragment =
        prop_oneof![8 => prop::sample::select(&[0u16, 0x4000][..]), 1 => Just(0x2000), 1 => Just(0x0005)];
    let proto = prop::sample::select(&[6u8, 17, 17, 132, 1, 58, 0, 44, 99][..]);
    let length = prop_oneof![6 => Just(1000usize), 1 => 0..120usize];
    let ends = (0..3u8, 0..3u8);
    let heads = (ends.clone(), proptest::collection::vec(tag, 0..3), ethertype, version);
    let ip = (fragment, proto, prop::sample::select(&[0u8, 0x28, 1][..]), ends);
    let last = ((1..3u16, 1..3u16), prop::sample::select(&[0u8, 1, 64][..]), length);
    (heads, ip, last).prop_map(|(heads, ip, last)| {
        let ((to, from), tags, ethertype, version) = heads;
        let (fragment, proto, traffic_class, addresses) = ip;
        let (ports, ttl, length) = last;
        Parts {
            to,
            from,
            tags,
            ethertype,
            version,
            fragment,
            proto,
            traffic_class,
            addresses,
            ports,
            ttl,
            length,
        }
    })
}

/// Makes the frame, cut to its length.
pub fn bytes(parts: &Parts) -> Vec<u8> {
    let Parts { to, from, tags, ethertype, version, fragment, proto, traffic_class, .. } = parts;
    let mut frame = vec![2, 0, 0, 0, 0, *to, 2, 0, 0, 0, 1, *from];
    for (kind, control) in tags {
        frame.extend(kind.to_be_bytes());
        frame.extend(control.to_be_bytes());
    }
    frame.extend(ethertype.to_be_bytes());
    let (source, destination) = parts.addresses;
    match ethertype {
        0x0806 => frame.extend([
            0,
            1,
            8,
            0,
            6,
            4,
            0,
            to % 2 + 1,
            2,
            0,
            0,
            0,
            0,
            *from,
            10,
            0,
            0,
            source,
            2,
            0,
            0,
            0,
            0,
            *to,
            10,
            0,
            0,
            destination,
        ]),
        0x86dd => {
            frame.extend([
                0x60 | traffic_class >> 4,
                traffic_class << 4,
                0,
                source,
                0,
                40,
                *proto,
                parts.ttl,
            ]);
            for last in [source, destination] {
                frame.extend([0x20, 1, 0, 0, 0, 0, 0, last, 0, 0, 0, 0, 0, 0, 0, 1]);
            }
            if matches!(proto, 0 | 44) {
                frame.extend([17, 0, 0, fragment.to_be_bytes()[1] & 8, 0, 0, 0, 0]);
            }
        }
        0x8847 => frame.extend([0, 0, source << 4 | 1, parts.ttl]),
        0x88e7 => frame.extend([0, 0, 0, source]),
        _ => {
            frame.extend([*version, *traffic_class, 0, 46, 0, 0]);
            frame.extend(fragment.to_be_bytes());
            frame.extend([parts.ttl, *proto, 0, 0, 10, 0, 0, source, 10, 0, 0, destination]);
            if *version == 0x46 {
                frame.extend([1; 4]);
            }
        }
    }
    match proto {
        58 => frame.extend([
            135, 0, 0, 0, 0, 0, 0, 0, 0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, source, 1, 1, 2, 0, 0,
            0, 0, *from,
        ]),
        _ => {
            frame.extend(parts.ports.0.to_be_bytes());
            frame.extend(parts.ports.1.to_be_bytes());
        }
    }
    frame.extend([0; 30]);
    frame.truncate(parts.length);
    frame
}
