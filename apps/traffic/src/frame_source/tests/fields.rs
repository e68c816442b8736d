//! Checks that each field is at the position where other parsers expect it.

use etherparse::{
    Ethernet2Slice, Icmpv4Slice, Ipv4HeaderSlice, Ipv6HeaderSlice, SingleVlanSlice, TcpSlice, UdpSlice,
};

use super::*;

#[test]
fn etherparse_reads_every_field() {
    let mut source = source(
        "size = 256
         packet = [
            {ethernet = {source = '02:00:00:00:00:0a', destination = '02:00:00:00:00:0b'}},
            {vlan = {id = 0xabc, priority = 5, dei = true}}, {vlan = {id = 7}},
            {ipv4 = {source = '10.1.2.3', destination = '10.4.5.6', ttl = 9, dscp = 46, ecn = 2, identification = 0x1234,
                     dont_fragment = false}},
            {ipv6 = {source = '2001:2::a', destination = '2001:2::b', hop_limit = 11, traffic_class = 0xb9,
                     flow_label = 0xfedcb}},
            {tcp = {source = 1111, destination = 2222, sequence = 0x01020304, acknowledgment = 0x05060708, flags = 'FPUC',
                    window = 4444}},
         ]",
    );
    let frame = source.next_frame(0);
    judge(frame);
    let ethernet = Ethernet2Slice::from_slice_without_fcs(frame).unwrap();
    assert_eq!((ethernet.source(), ethernet.destination()), ([2, 0, 0, 0, 0, 10], [2, 0, 0, 0, 0, 11]));
    assert_eq!(ethernet.ether_type().0, 0x88a8);
    let outer = SingleVlanSlice::from_slice(ethernet.payload_slice()).unwrap();
    assert_eq!((outer.vlan_identifier().value(), outer.priority_code_point().value()), (0xabc, 5));
    assert!(outer.drop_eligible_indicator());
    assert_eq!(outer.ether_type().0, 0x8100);
    let inner = SingleVlanSlice::from_slice(outer.payload_slice()).unwrap();
    assert_eq!((inner.vlan_identifier().value(), inner.drop_eligible_indicator()), (7, false));
    let ip = Ipv4HeaderSlice::from_slice(inner.payload_slice()).unwrap();
    assert_eq!((ip.source(), ip.destination(), ip.ttl()), ([10, 1, 2, 3], [10, 4, 5, 6], 9));
    assert_eq!((ip.dcp().value(), ip.ecn().value(), ip.identification()), (46, 2, 0x1234));
    assert!(!ip.dont_fragment() && !ip.more_fragments());
    let ip = Ipv6HeaderSlice::from_slice(&inner.payload_slice()[20..]).unwrap();
    assert_eq!((ip.hop_limit(), ip.traffic_class(), ip.flow_label().value()), (11, 0xb9, 0xfedcb));
    assert_eq!(ip.source_addr(), "2001:2::a".parse::<std::net::Ipv6Addr>().unwrap());
    assert_eq!(ip.destination_addr(), "2001:2::b".parse::<std::net::Ipv6Addr>().unwrap());
    let tcp = TcpSlice::from_slice(&inner.payload_slice()[60..]).unwrap();
    assert_eq!((tcp.source_port(), tcp.destination_port(), tcp.window_size()), (1111, 2222, 4444));
    assert_eq!((tcp.sequence_number(), tcp.acknowledgment_number()), (0x0102_0304, 0x0506_0708));
    assert!(tcp.fin() && tcp.psh() && tcp.urg() && tcp.cwr());
    assert!(!(tcp.syn() || tcp.rst() || tcp.ack() || tcp.ece()));
}

#[test]
fn other_headers_follow_their_standards() {
    let mut arp = source(
        "packet = [{ethernet = {}}, {arp = {operation = 2, sender_mac = '02:00:00:00:00:0a', sender_ip = '10.0.0.1',
                   target_mac = '02:00:00:00:00:0b', target_ip = '10.0.0.2'}}]",
    );
    let packet = etherparse::ArpPacketSlice::from_slice(&arp.next_frame(0)[14..]).unwrap().to_packet();
    let packet = packet.try_eth_ipv4().unwrap();
    assert_eq!((packet.operation.0, packet.sender_mac[5], packet.target_mac[5]), (2, 10, 11));
    assert_eq!((packet.sender_ipv4, packet.target_ipv4), ([10, 0, 0, 1], [10, 0, 0, 2]));

    let mut icmp =
        source("packet = [{ethernet = {}}, {ipv4 = {}}, {icmp = {identifier = 0x0102, sequence = 0x0304}}]");
    let slice = Icmpv4Slice::from_slice(&icmp.next_frame(0)[34..]).unwrap();
    assert_eq!((slice.type_u8(), slice.code_u8(), slice.bytes5to8()), (8, 0, [1, 2, 3, 4]));

    let mut labels = source(
        "packet = [{ethernet = {}}, {mpls = {label = 0xabcde, traffic_class = 5, ttl = 7}}, {mpls = {}}, {ipv4 = {}}]",
    );
    let frame = labels.next_frame(0);
    // RFC 3032, section 2.1: label 20 bits, traffic class 3, bottom of stack 1, time to live 8.
    assert_eq!(frame[12..22], [0x88, 0x47, 0xab, 0xcd, 0xea, 7, 0, 1, 1, 64]);

    let mut tunnel = source(
        "size = 128\npacket = [{ethernet = {}}, {ipv4 = {}}, {udp = {}}, {vxlan = {vni = 0xabcdef}}, {ethernet = {}}]",
    );
    let frame = tunnel.next_frame(0);
    // RFC 7348, section 5: flags with the I bit, 24 bits reserved, VNI, 8 bits reserved.
    assert_eq!(frame[42..50], [8, 0, 0, 0, 0xab, 0xcd, 0xef, 0]);
}

#[test]
fn checksums_follow_the_definition() {
    let checksum = |udp: &str| {
        let packet =
            format!("packet = [{{ethernet = {{}}}}, {{ipv4 = {{checksum = 7}}}}, {{udp = {{{udp}}}}}]");
        let mut source = source(&format!("{packet}\nmodify = [{{field = 'ipv4.ttl', list = [1, 2]}}]"));
        source.next_frame(0);
        let frame = source.next_frame(0).to_vec();
        assert_eq!(frame[24..26], [0, 7]);
        UdpSlice::from_slice(&frame[34..]).unwrap().checksum()
    };
    assert_eq!(checksum("checksum = 'zero'"), 0);
    assert_eq!(checksum("checksum = 0x1234"), 0x1234);
    assert!(![0, 0x1234].contains(&checksum("checksum = 'right'")));
}

#[test]
fn a_udp_checksum_that_would_be_zero_is_sent_as_all_ones() {
    let mut source = source(
        "signature = false\nmodify = [{field = 'udp.source', increment = {count = 65536, start = 0}}]",
    );
    let all_ones = (0..65536).filter(|_| {
        let frame = source.next_frame(0);
        judge(frame);
        frame[40..42] == [0xff, 0xff]
    });
    // The source port takes every value, so the sum takes every value. Two sums give a checksum of all ones: the zero
    // that is sent as ones, and the checksum that is all ones itself (RFC 768).
    assert!((1..=2).contains(&all_ones.count()));
}
