//! An independent check of frames: etherparse's parsers and checksums.

use etherparse::{
    EtherType, Ethernet2Slice, Icmpv4Slice, Icmpv6Slice, IpNumber, Ipv4HeaderSlice, Ipv6HeaderSlice,
    SingleVlanSlice, TcpSlice, UdpSlice,
};

/// Result of the check.
pub(super) struct Judged<'a> {
    /// Names of the headers, outermost first.
    pub(super) headers: Vec<&'static str>,
    /// The bytes after the last header.
    pub(super) payload: &'a [u8],
}

/// Asserts that all lengths and checksums of `frame` are right, and that each header names the next header.
pub(super) fn judge(frame: &[u8]) -> Judged<'_> {
    let mut headers = Vec::new();
    let payload = ethernet(frame, &mut headers);
    Judged { headers, payload }
}

fn ethernet<'a>(frame: &'a [u8], headers: &mut Vec<&'static str>) -> &'a [u8] {
    headers.push("ethernet");
    let ethernet = Ethernet2Slice::from_slice_without_fcs(frame).unwrap();
    by_ether_type(ethernet.ether_type(), ethernet.payload_slice(), headers)
}

fn by_ether_type<'a>(ether_type: EtherType, bytes: &'a [u8], headers: &mut Vec<&'static str>) -> &'a [u8] {
    match ether_type.0 {
        0x8100 | 0x88a8 => {
            headers.push("vlan");
            let vlan = SingleVlanSlice::from_slice(bytes).unwrap();
            by_ether_type(vlan.ether_type(), vlan.payload_slice(), headers)
        }
        // etherparse does not know MPLS.
        0x8847 => {
            headers.push("mpls");
            let bottom = bytes[2] & 1 == 1;
            match (bottom, bytes[4] >> 4) {
                (false, _) => by_ether_type(ether_type, &bytes[4..], headers),
                (true, 4) => ipv4(&bytes[4..], headers),
                (true, 6) => ipv6(&bytes[4..], headers),
                _ => ethernet(&bytes[4..], headers),
            }
        }
        0x0800 => ipv4(bytes, headers),
        0x86dd => ipv6(bytes, headers),
        0x0806 => {
            headers.push("arp");
            let arp = etherparse::ArpPacketSlice::from_slice(bytes).unwrap().to_packet();
            arp.try_eth_ipv4().unwrap();
            &bytes[28..]
        }
        other => {
            assert_eq!(other, 0x88b5);
            bytes
        }
    }
}

/// Addresses of the preceding IP header.
enum Addresses {
    V4([u8; 4], [u8; 4]),
    V6([u8; 16], [u8; 16]),
}

fn ipv4<'a>(bytes: &'a [u8], headers: &mut Vec<&'static str>) -> &'a [u8] {
    headers.push("ipv4");
    let ip = Ipv4HeaderSlice::from_slice(bytes).unwrap();
    assert_eq!(usize::from(ip.total_len()), bytes.len());
    assert_eq!(ip.header_checksum(), ip.to_header().calc_header_checksum());
    let addresses = Addresses::V4(ip.source(), ip.destination());
    by_protocol(ip.protocol(), &bytes[ip.slice().len()..], &addresses, headers)
}

fn ipv6<'a>(bytes: &'a [u8], headers: &mut Vec<&'static str>) -> &'a [u8] {
    headers.push("ipv6");
    let ip = Ipv6HeaderSlice::from_slice(bytes).unwrap();
    assert_eq!(usize::from(ip.payload_length()), bytes.len() - 40);
    by_protocol(ip.next_header(), &bytes[40..], &Addresses::V6(ip.source(), ip.destination()), headers)
}

fn by_protocol<'a>(
    protocol: IpNumber,
    bytes: &'a [u8],
    addresses: &Addresses,
    headers: &mut Vec<&'static str>,
) -> &'a [u8] {
    match protocol {
        IpNumber::UDP => {
            headers.push("udp");
            let udp = UdpSlice::from_slice(bytes).unwrap();
            assert_eq!(usize::from(udp.length()), bytes.len());
            let expected = match *addresses {
                Addresses::V4(from, to) => udp.to_header().calc_checksum_ipv4_raw(from, to, udp.payload()),
                Addresses::V6(from, to) => udp.to_header().calc_checksum_ipv6_raw(from, to, udp.payload()),
            };
            assert_eq!(udp.checksum(), expected.unwrap(), "UDP in {headers:?}");
            assert_ne!(udp.checksum(), 0, "RFC 768: 0 means no checksum");
            if udp.destination_port() == 4789 {
                headers.push("vxlan");
                assert_eq!((udp.payload()[0], udp.payload()[7]), (8, 0));
                return ethernet(&udp.payload()[8..], headers);
            }
            udp.payload()
        }
        IpNumber::TCP => {
            headers.push("tcp");
            let tcp = TcpSlice::from_slice(bytes).unwrap();
            let expected = match *addresses {
                Addresses::V4(from, to) => tcp.calc_checksum_ipv4(from, to),
                Addresses::V6(from, to) => tcp.calc_checksum_ipv6(from, to),
            };
            assert_eq!(tcp.checksum(), expected.unwrap(), "TCP in {headers:?}");
            tcp.payload()
        }
        IpNumber::ICMP => {
            headers.push("icmp");
            let icmp = Icmpv4Slice::from_slice(bytes).unwrap();
            assert_eq!(
                icmp.checksum(),
                icmp.icmp_type().calc_checksum(icmp.payload()),
                "ICMP in {headers:?}"
            );
            icmp.payload()
        }
        IpNumber::IPV6_ICMP => {
            headers.push("icmpv6");
            let icmp = Icmpv6Slice::from_slice(bytes).unwrap();
            let Addresses::V6(from, to) = *addresses else { panic!("ICMPv6 in IPv4") };
            assert!(icmp.is_checksum_valid(from, to), "ICMPv6 in {headers:?}");
            icmp.payload()
        }
        IpNumber::IPV4 => ipv4(bytes, headers),
        IpNumber::IPV6 => ipv6(bytes, headers),
        other => {
            assert_eq!(other, IpNumber::EXPERIMENTAL_AND_TESTING_0);
            bytes
        }
    }
}
