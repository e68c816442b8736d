//! Sample frames made from headers, to explain the path of such a frame.

use ringroad_openflow::action::{Action, PortNo};
use ringroad_openflow::oxm::{FieldValue, OxmField, VLAN_PRESENT};
use ringroad_openflow::text::Headers;

use crate::packet::Packet;
use ringroad_wire::checksum::{counted, fold, sum_bytes};
use ringroad_wire::headers::ADDRESSES_BYTES;
use ringroad_wire::{ether_type, ip_protocol};

/// Bytes of the shortest frame without its FCS.
const SHORTEST_FRAME: usize = 60;

/// Makes a frame with these headers. All other fields are zero, and checksums are right. Fields that are not in frames,
/// such as the port, are left out.
///
/// # Errors
/// The field whose value no frame can have.
pub fn sample_frame(headers: &Headers) -> Result<Vec<u8>, OxmField> {
    let mut frame = skeleton(headers);
    frame.resize(frame.len().max(SHORTEST_FRAME), 0);
    let mut packet = Packet::default();
    packet.load(PortNo(0), &frame, frame.len(), false);
    let fields = headers.fields.fields().iter().map(|one| (one.field, one.value));
    let in_frame = fields.filter(|(field, value)| match field {
        OxmField::InPort | OxmField::InPhyPort | OxmField::Metadata | OxmField::TunnelId => false,
        OxmField::VlanVid => value & VLAN_PRESENT != 0,
        _ => true,
    });
    for (field, value) in in_frame.clone() {
        // The skeleton already has the fields that select headers.
        if !matches!(
            field,
            OxmField::EthType | OxmField::IpProto | OxmField::Icmpv6Type | OxmField::Ipv6Exthdr
        ) {
            let _ = packet.apply(&Action::SetField(FieldValue { field, value }));
        }
    }
    let ttls = [headers.nw_ttl.map(Action::SetNwTtl), headers.mpls_ttl.map(Action::SetMplsTtl)];
    for ttl in ttls.into_iter().flatten() {
        let _ = packet.apply(&ttl);
    }
    match in_frame.clone().find(|&(field, value)| packet.field(field) != Some(value)) {
        Some((field, _)) => Err(field),
        None => Ok(packet.header_bytes().to_vec()),
    }
}

/// Makes the required headers, with only the fields that mark their presence.
fn skeleton(headers: &Headers) -> Vec<u8> {
    let value = |field| headers.fields.exact(field);
    let mut frame = vec![0; ADDRESSES_BYTES];
    if value(OxmField::VlanVid).is_some_and(|vid| vid & VLAN_PRESENT != 0) {
        frame.extend(ether_type::VLAN.to_be_bytes());
        frame.extend([0; 2]);
    }
    let found = value(OxmField::EthType).map_or(0, |found| found as u16);
    frame.extend(found.to_be_bytes());
    let protocol = value(OxmField::IpProto).unwrap_or(0) as u8;
    match found {
        ether_type::ARP => {
            // ARP for Ethernet and IPv4.
            frame.extend([0, 1, 8, 0, 6, 4]);
            frame.extend([0; 22]);
        }
        ether_type::MPLS | ether_type::MPLS_MULTICAST => frame.extend([0; 4]),
        ether_type::PBB => frame.extend([0; 4 + ADDRESSES_BYTES + 2]),
        ether_type::IPV4 => {
            let transport = transport(protocol, value(OxmField::Icmpv6Type));
            let [high, low] = (20 + transport.len() as u16).to_be_bytes();
            let mut header = [0x45, 0, high, low, 0, 0, 0, 0, 0, protocol, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            set_checksum(&mut header, 10, 0);
            frame.extend(header);
            frame.extend(transport);
        }
        ether_type::IPV6 => {
            let transport = transport(protocol, value(OxmField::Icmpv6Type));
            let [high, low] = (transport.len() as u16).to_be_bytes();
            frame.extend([0x60, 0, 0, 0, high, low, protocol, 0]);
            frame.extend([0; 32]);
            frame.extend(transport);
        }
        _ => {}
    }
    frame
}

/// Makes a header above IP, with its checksum for addresses of zeros.
fn transport(protocol: u8, icmpv6_type: Option<u128>) -> Vec<u8> {
    let (mut header, checksum_at) = match protocol {
        ip_protocol::TCP => {
            let mut header = vec![0; 20];
            header.splice(12..13, [5 << 4]);
            (header, 16)
        }
        ip_protocol::UDP => (vec![0, 0, 0, 0, 0, 8, 0, 0], 6),
        ip_protocol::SCTP => {
            let mut header = vec![0; 12];
            let checksum = crc32c::crc32c(&header).to_le_bytes();
            header.splice(8..12, checksum);
            return header;
        }
        ip_protocol::ICMP => (vec![0; 8], 2),
        ip_protocol::ICMPV6 => {
            let kind = icmpv6_type.unwrap_or(0) as u8;
            let mut header = vec![kind, 0, 0, 0, 0, 0, 0, 0];
            // Target address, and the option with a link-layer address (RFC 4861, 4.6.1).
            let option = match kind {
                135 => 1,
                136 => 2,
                _ => 0,
            };
            if option != 0 {
                header.extend([0; 16]);
                header.extend([option, 1, 0, 0, 0, 0, 0, 0]);
            }
            (header, 2)
        }
        _ => return Vec::new(),
    };
    let pseudo_header =
        if protocol == ip_protocol::ICMP { 0 } else { u16::from(protocol) + header.len() as u16 };
    set_checksum(&mut header, checksum_at, pseudo_header);
    header
}

/// Sets the internet checksum of a header, in which it is still zero; `more` is the sum of the other data.
fn set_checksum(header: &mut [u8], at: usize, more: u16) {
    let checksum = !fold(sum_bytes(header, 0) + u64::from(counted(more, 0)));
    if let Some(target) = header.get_mut(at..at + 2) {
        target.copy_from_slice(&checksum.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};

    use super::*;

    fn frame(text: &str) -> Vec<u8> {
        sample_frame(&text.parse().unwrap()).unwrap_or_else(|field| panic!("{text}: {field}"))
    }

    fn headers_of(frame: &[u8], in_port: u32) -> Headers {
        let mut packet = Packet::default();
        packet.load(PortNo(in_port), frame, frame.len(), false);
        packet.headers()
    }

    #[test]
    fn a_frame_has_the_headers_that_it_was_made_from() {
        for text in [
            "in_port=1,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,dl_type=0x88b5",
            "in_port=1,dl_vlan=7,dl_vlan_pcp=3,dl_src=02:00:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff,dl_type=0x88b5",
            "arp,in_port=1,arp_spa=10.0.0.1,arp_tpa=10.0.0.2,arp_op=2,arp_sha=02:00:00:00:00:01,arp_tha=02:00:00:00:00:02",
            "tcp,in_port=2,dl_vlan=4095,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_tos=32,nw_ecn=1,nw_ttl=64,tp_src=80,tp_dst=8080",
            "udp,in_port=2,nw_src=10.0.0.1,tp_dst=53",
            "sctp,in_port=2,nw_src=10.0.0.1,tp_dst=53",
            "icmp,in_port=2,nw_dst=10.0.0.1,icmp_type=8,icmp_code=0",
            "ip,in_port=2,nw_proto=47",
            "tcp6,in_port=2,ipv6_src=fd00::1,ipv6_dst=fd00::2,ipv6_label=0x12345,nw_ttl=3,tp_dst=80",
            "udp6,in_port=2,ipv6_src=fd00::1,tp_src=80",
            "icmp6,in_port=2,icmp_type=135,nd_target=fd00::2,nd_sll=02:00:00:00:00:01",
            "icmp6,in_port=2,icmp_type=136,nd_target=fd00::2,nd_tll=02:00:00:00:00:01",
            "mpls,in_port=2,mpls_label=5,mpls_tc=3,mpls_bos=1,mpls_ttl=9",
            "dl_type=0x88e7,in_port=2,pbb_isid=9",
        ] {
            let wanted: Headers = text.parse().unwrap();
            let made = headers_of(&frame(text), wanted.fields.exact(OxmField::InPort).unwrap() as u32);
            for word in wanted.words() {
                assert!(made.words().contains(&word), "{text}: {word:?} is not in {made}");
            }
            assert_eq!(made.to_string().parse(), Ok(made));
        }
    }

    #[test]
    fn checksums_are_right() {
        let ip = "nw_src=10.1.2.3,nw_dst=10.4.5.6,nw_ttl=9";
        for text in
            [format!("tcp,{ip},tp_dst=80"), format!("udp,{ip},tp_dst=80"), format!("icmp,{ip},icmp_type=8")]
        {
            let frame = frame(&text);
            let packet = SlicedPacket::from_ethernet(&frame).unwrap();
            let Some(NetSlice::Ipv4(ip)) = &packet.net else { panic!("{text}") };
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum(), "{text}");
            match packet.transport.unwrap() {
                TransportSlice::Tcp(tcp) => {
                    let whole = tcp.to_header();
                    assert_eq!(tcp.checksum(), whole.calc_checksum_ipv4(&header, &[]).unwrap());
                }
                TransportSlice::Udp(udp) => {
                    let whole = udp.to_header();
                    assert_eq!(udp.checksum(), whole.calc_checksum_ipv4(&header, &[]).unwrap());
                }
                TransportSlice::Icmpv4(icmp) => {
                    let whole = icmp.header();
                    assert_eq!(icmp.checksum(), whole.icmp_type.calc_checksum(&[]));
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_no_frame_can_have_is_refused() {
        for (text, field) in
            [("ipv6,ipv6_exthdr=0x10", OxmField::Ipv6Exthdr), ("dl_type=0x0123", OxmField::EthType)]
        {
            assert_eq!(sample_frame(&text.parse().unwrap()), Err(field), "{text}");
        }
    }
}
