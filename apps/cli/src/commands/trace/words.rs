//! Text of a traced frame.

use etherparse::{LaxLinkExtSlice, LaxNetSlice, LaxSlicedPacket, LinkSlice, TransportSlice};
use ringroad_control::report::{TracedDeliveryReport, TracedFrameReport, TracedSource};
use ringroad_traffic::header::HexBytes;
use ringroad_wire::mac::Mac;

use crate::commands::explain::words::reason_words;
use crate::output::rates::grouped;

/// Formats a frame in several lines for users.
pub(super) fn text(frame: &TracedFrameReport) -> String {
    let TracedFrameReport { time_ns, from, len, fragments, unfinished, .. } = frame;
    let (second, nanosecond) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
    let (hours, minutes, seconds) = (second / 3600 % 24, second / 60 % 60, second % 60);
    let slots = if *fragments == 1 { String::new() } else { format!(" in {fragments} slots") };
    let open = if *unfinished { ", checksums or segments open" } else { "" };
    let mut lines = vec![
        format!(
            "{hours:02}:{minutes:02}:{seconds:02}.{:06} UTC  {from}: {} bytes{slots}{open}",
            nanosecond / 1000,
            grouped(*len)
        ),
        format!("  frame   {}", headers(&frame.start.parse().unwrap_or(HexBytes(Vec::new())).0)),
        format!("  source  {}", source(frame)),
    ];
    lines.push(format!("  switch  {}", decision(frame)));
    lines.extend(frame.deliveries.iter().map(|delivery| format!("  port    {}", outcome(delivery))));
    lines.join("\n")
}

fn source(frame: &TracedFrameReport) -> String {
    let other = frame.source_port.as_deref().unwrap_or_default();
    match frame.source {
        TracedSource::Known => "known at this port".to_owned(),
        TracedSource::Learned => "new, learned at this port".to_owned(),
        TracedSource::Moved => format!("was at {other}, is at this port now"),
        TracedSource::Refused => format!("static at {other}, and stays there"),
        TracedSource::NotLearned => "not learned".to_owned(),
    }
}

fn decision(frame: &TracedFrameReport) -> String {
    if let Some(cause) = &frame.dropped {
        return format!("dropped: {cause}");
    }
    let why = reason_words(frame.reason);
    match frame.to.as_slice() {
        [] => format!("{why}: there is no other port"),
        ports => format!("{why}: to {}", ports.join(", ")),
    }
}

fn outcome(delivery: &TracedDeliveryReport) -> String {
    let port = delivery.port.as_deref().unwrap_or("a port that left");
    let queue = if delivery.queue == 0 { String::new() } else { format!(" queue {}", delivery.queue) };
    let what = match (delivery.frames, &delivery.dropped) {
        (0, Some(cause)) => format!("dropped: {cause}"),
        (frames, Some(cause)) => format!("{frames} segments delivered, others dropped: {cause}"),
        (_, None) if delivery.held => "held back".to_owned(),
        (1, None) => "delivered".to_owned(),
        (frames, None) => format!("delivered in {frames} segments"),
    };
    format!("{port}{queue}: {what}")
}

/// Formats the known headers, the outermost first.
fn headers(start: &[u8]) -> String {
    let Ok(packet) = LaxSlicedPacket::from_ethernet(start) else {
        return "no whole Ethernet header".to_owned();
    };
    let mut words = Vec::new();
    let mut ethertype = 0;
    if let Some(LinkSlice::Ethernet2(ethernet)) = &packet.link {
        words.push(format!("{} > {}", Mac::from(ethernet.source()), Mac::from(ethernet.destination())));
        ethertype = ethernet.ether_type().0;
    }
    for tag in &packet.link_exts {
        if let LaxLinkExtSlice::Vlan(vlan) = tag {
            words.push(format!("VLAN {}", vlan.vlan_identifier().value()));
            ethertype = vlan.ether_type().0;
        }
    }
    match &packet.net {
        Some(LaxNetSlice::Ipv4(ip)) => {
            words.push(format!("{} > {}", ip.header().source_addr(), ip.header().destination_addr()));
        }
        Some(LaxNetSlice::Ipv6(ip)) => {
            words.push(format!("{} > {}", ip.header().source_addr(), ip.header().destination_addr()));
        }
        Some(LaxNetSlice::Arp(arp)) => {
            let request = arp.operation() == etherparse::ArpOperation::REQUEST;
            words.push(format!("ARP {}", if request { "request" } else { "reply" }));
        }
        None => words.push(format!("type 0x{ethertype:04x}")),
    }
    match &packet.transport {
        Some(TransportSlice::Udp(udp)) => {
            words.push(format!("UDP {} > {}", udp.source_port(), udp.destination_port()));
        }
        Some(TransportSlice::Tcp(tcp)) => {
            let flags = [
                (tcp.syn(), "SYN"),
                (tcp.ack(), "ACK"),
                (tcp.psh(), "PSH"),
                (tcp.fin(), "FIN"),
                (tcp.rst(), "RST"),
            ];
            let flags: Vec<_> = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| *name).collect();
            words.push(format!("TCP {} > {} {}", tcp.source_port(), tcp.destination_port(), flags.join(",")));
        }
        Some(TransportSlice::Icmpv4(icmp)) => words.push(format!("ICMP type {}", icmp.type_u8())),
        Some(TransportSlice::Icmpv6(icmp)) => words.push(format!("ICMPv6 type {}", icmp.type_u8())),
        Some(TransportSlice::Igmp(_)) => words.push("IGMP".to_owned()),
        None => {}
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use ringroad_control::report::TracedReason;

    use super::*;

    #[test]
    fn a_frame_is_listed_with_its_headers_and_every_step() {
        let mut packet = Vec::new();
        etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
            .single_vlan(42.try_into().unwrap())
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(80, 4000, 1, 1)
            .syn()
            .write(&mut packet, &[])
            .unwrap();
        let delivery = |port: &str, frames, dropped: Option<&str>| TracedDeliveryReport {
            port: Some(port.to_owned()),
            queue: 0,
            frames,
            dropped: dropped.map(str::to_owned),
            held: false,
        };
        let frame = TracedFrameReport {
            time_ns: 3_661_000_002_000,
            from: "vale0:a".to_owned(),
            len: 9000,
            fragments: 5,
            unfinished: true,
            start: packet.iter().map(|byte| format!("{byte:02x}")).collect(),
            source: TracedSource::Moved,
            source_port: Some("vale0:z".to_owned()),
            reason: TracedReason::Unknown,
            to: vec!["vale0:b".to_owned(), "vale0:c".to_owned()],
            dropped: None,
            deliveries: vec![delivery("vale0:b", 7, None), delivery("vale0:c", 0, Some("no_space"))],
        };
        assert_eq!(
            text(&frame),
            "\
01:01:01.000002 UTC  vale0:a: 9 000 bytes in 5 slots, checksums or segments open
  frame   02:00:00:00:00:01 > 02:00:00:00:00:02, VLAN 42, 10.0.0.1 > 10.0.0.2, TCP 80 > 4000 SYN
  source  was at vale0:z, is at this port now
  switch  unknown destination: to vale0:b, vale0:c
  port    vale0:b: delivered in 7 segments
  port    vale0:c: dropped: no_space"
        );
        let dropped = TracedFrameReport {
            start: "0200".to_owned(),
            dropped: Some("too_short".to_owned()),
            deliveries: Vec::new(),
            ..frame
        };
        let told = text(&dropped);
        assert!(told.contains("no whole Ethernet header") && told.ends_with("dropped: too_short"), "{told}");
    }
}
