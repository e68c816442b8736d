//! A stream's definition in the other direction.

use std::mem;

use super::StreamDefinition;
use crate::header::{DISCARD_PORT, Header};

impl StreamDefinition {
    /// The stream with source and destination exchanged in every header that has both, and in the fields that vary. A
    /// template has only its Ethernet addresses exchanged. The destination port that indicates VXLAN stays.
    #[must_use]
    pub fn reversed(&self) -> Self {
        let mut reversed = self.clone();
        let mut packet = self.headers();
        for index in 0..packet.len() {
            let tunnels = matches!(packet.get(index + 1), Some(Header::Vxlan(_)));
            if let Some(header) = packet.get_mut(index) {
                reverse(header, tunnels);
            }
        }
        match &mut reversed.frame {
            Some(frame) => {
                if let Some((destination, source)) = frame.0.get_mut(..12).map(|bytes| bytes.split_at_mut(6))
                {
                    destination.swap_with_slice(source);
                }
            }
            None => reversed.packet = Some(packet),
        }
        for modifier in &mut reversed.modify {
            modifier.field = other_field(&modifier.field);
        }
        reversed
    }
}

fn reverse(header: &mut Header, tunnels: bool) {
    match header {
        Header::Ethernet(ethernet) => mem::swap(&mut ethernet.source, &mut ethernet.destination),
        Header::Ipv4(ip) => mem::swap(&mut ip.source, &mut ip.destination),
        Header::Ipv6(ip) => mem::swap(&mut ip.source, &mut ip.destination),
        Header::Udp(_) if tunnels => {}
        Header::Udp(udp) => {
            let source = udp.source;
            udp.source = udp.destination.unwrap_or(DISCARD_PORT);
            udp.destination = Some(source);
        }
        Header::Tcp(tcp) => mem::swap(&mut tcp.source, &mut tcp.destination),
        Header::Arp(arp) => {
            mem::swap(&mut arp.sender_mac, &mut arp.target_mac);
            mem::swap(&mut arp.sender_ip, &mut arp.target_ip);
        }
        Header::Vlan(_)
        | Header::Mpls(_)
        | Header::Icmp(_)
        | Header::Icmpv6(_)
        | Header::Vxlan(_)
        | Header::Raw(_) => {}
    }
}

fn other_field(field: &str) -> String {
    for (suffix, other) in [(".source", ".destination"), (".destination", ".source")] {
        if let Some(header) = field.strip_suffix(suffix) {
            return format!("{header}{other}");
        }
    }
    field.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reversing_twice_restores_a_definition() {
        let stream: StreamDefinition = toml::from_str(
            "packet = [{ethernet = {}}, {ipv4 = {}}, {udp = {}}, {vxlan = {vni = 7}}, {ethernet = {}}, {ipv6 = {}}, {tcp = {}}]
             size = 256
             modify = [{field = \"ipv4.source\", increment = {count = 9}}]",
        )
        .unwrap();
        let reversed = stream.reversed();
        assert_eq!(reversed.modify[0].field, "ipv4.destination");
        let (mut there, mut back) = (stream.compile(0).unwrap(), reversed.compile(0).unwrap());
        let (there, back) = (there.next_frame(0).to_vec(), back.next_frame(0).to_vec());
        assert_eq!((&there[..6], &there[6..12]), (&back[6..12], &back[..6]));
        assert_eq!((&there[26..30], &there[30..34]), (&back[30..34], &back[26..30]));
        // The ports of the tunnel stay, the ports of the inner packet are exchanged.
        assert_eq!(there[34..38], back[34..38]);
        assert_eq!((&there[104..106], &there[106..108]), (&back[106..108], &back[104..106]));
        assert_eq!(reversed.reversed().compile(0).unwrap().next_frame(0), there);
    }

    #[test]
    fn reversing_a_template_swaps_its_ethernet_addresses() {
        let frame: Vec<u8> = (0..60).collect();
        let reversed = StreamDefinition::default().with_template(frame.clone()).reversed();
        let bytes = reversed.frame.unwrap().0;
        assert_eq!((&bytes[..6], &bytes[6..12], &bytes[12..]), (&frame[6..12], &frame[..6], &frame[12..]));
    }
}
