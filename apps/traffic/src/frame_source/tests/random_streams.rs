//! Random headers, sizes and modifiers, checked by the independent parser.

use proptest::prelude::*;
use ringroad_wire::mac::Mac;

use super::judge::judge;
use crate::definition::{Problem, StreamDefinition};
use crate::frame_size_mix::FrameSizeMix;
use crate::frame_source::{OneSize, Variation, WriteFrames};
use crate::header::{
    Arp, Ethernet, Header, HeaderKind, HexBytes, Icmp, Ipv4, Ipv6, Mpls, Tcp, TcpFlags, Udp, Vlan, Vxlan,
    get_bits,
};
use crate::line_rate::FrameSize;
use crate::modifier::{Draws, ModifierDefinition, ModifierValue, Progression, SteppedValues};
use crate::payload::Payload;
use crate::random::{SplitMix64, below};
use crate::signature::{FormSet, SignatureForm, SignatureReading, read_signature};

fn ethernet() -> impl Strategy<Value = Header> {
    (any::<[u8; 6]>(), any::<[u8; 6]>()).prop_map(|(source, destination)| {
        let (source, destination) = (Mac::from_octets(source), Mac::from_octets(destination));
        Header::Ethernet(Ethernet { source, destination, ether_type: None })
    })
}

fn ip(four: bool) -> impl Strategy<Value = Header> {
    any::<(u128, u128, u8, u8, u16)>().prop_map(move |(from, to, ttl, class, identification)| {
        if four {
            let (source, destination) = ((from as u32).into(), (to as u32).into());
            let (dscp, ecn, dont_fragment) = (class / 4, class % 4, class % 2 == 0);
            Header::Ipv4(Ipv4 {
                source,
                destination,
                ttl,
                dscp,
                ecn,
                identification,
                dont_fragment,
                ..Ipv4::default()
            })
        } else {
            let (flow_label, traffic_class) = (from as u32 >> 12, class);
            let (source, destination) = (from.into(), to.into());
            Header::Ipv6(Ipv6 {
                source,
                destination,
                hop_limit: ttl,
                traffic_class,
                flow_label,
                next_header: None,
            })
        }
    })
}

/// A transport header, perhaps followed by an odd number of bytes.
fn transport(four: bool) -> impl Strategy<Value = Vec<Header>> {
    let header = prop_oneof![
        // Ports below 4789, the port of VXLAN.
        (any::<u16>(), 0..4789u16).prop_map(|(source, to)| Header::Udp(Udp {
            source,
            destination: Some(to),
            ..Udp::default()
        })),
        any::<(u16, u16, u32, u32, u8, u16)>().prop_map(
            |(source, destination, sequence, acknowledgment, flags, window)| {
                let flags = TcpFlags(flags);
                Header::Tcp(Tcp {
                    source,
                    destination,
                    sequence,
                    acknowledgment,
                    flags,
                    window,
                    ..Tcp::default()
                })
            }
        ),
        any::<(u16, u16)>().prop_map(move |(identifier, sequence)| {
            // Echo requests only: etherparse parses other types in its own ways.
            let icmp = Icmp { identifier, sequence, ..Icmp::default() };
            if four { Header::Icmp(icmp) } else { Header::Icmpv6(icmp) }
        }),
    ];
    let raw = prop::collection::vec(any::<u8>(), 1..6).prop_map(|bytes| Header::Raw(HexBytes(bytes)));
    (header, prop::option::of(raw)).prop_map(|(header, raw)| std::iter::once(header).chain(raw).collect())
}

/// Content of an Ethernet header.
fn network() -> impl Strategy<Value = Vec<Header>> {
    let simple = any::<bool>().prop_flat_map(|four| {
        (ip(four), transport(four)).prop_map(|(ip, transport)| [vec![ip], transport].concat())
    });
    let arp = (any::<[u8; 6]>(), any::<[u8; 4]>()).prop_map(|(mac, ip)| {
        vec![Header::Arp(Arp { sender_mac: Mac::from_octets(mac), sender_ip: ip.into(), ..Arp::default() })]
    });
    let alone = any::<bool>().prop_flat_map(ip).prop_map(|ip| vec![ip]);
    prop_oneof![6 => simple, 1 => arp, 1 => alone].prop_recursive(2, 8, 1, |inner| {
        let in_ip = (any::<bool>().prop_flat_map(ip), inner.clone())
            .prop_filter("ARP is not in IP", |(_, inner)| !matches!(inner[0], Header::Arp(_)))
            .prop_map(|(ip, inner)| [vec![ip], inner].concat());
        let in_vxlan = (any::<bool>().prop_flat_map(ip), 0..1u32 << 24, tags(), inner).prop_map(
            |(ip, vni, tags, inner)| {
                let overlay = [ip, Header::Udp(Udp::default()), Header::Vxlan(Vxlan { vni })];
                [overlay.to_vec(), vec![Header::Ethernet(Ethernet::default())], tags, inner].concat()
            },
        );
        prop_oneof![in_ip, in_vxlan]
    })
}

fn tags() -> impl Strategy<Value = Vec<Header>> {
    let tag = (0..4096u16, 0..8u8, any::<bool>())
        .prop_map(|(id, priority, dei)| Header::Vlan(Vlan { id, priority, dei, ..Vlan::default() }));
    prop::collection::vec(tag, 0..3)
}

fn packet() -> impl Strategy<Value = Vec<Header>> {
    let label = (0..1u32 << 20, 0..8u8)
        .prop_map(|(label, traffic_class)| Header::Mpls(Mpls { label, traffic_class, ..Mpls::default() }));
    (ethernet(), tags(), prop::collection::vec(label, 0..3), network()).prop_map(
        |(ethernet, tags, labels, network)| {
            let labels = if matches!(network[0], Header::Arp(_)) { vec![] } else { labels };
            [vec![ethernet], tags, labels, network].concat()
        },
    )
}

/// A field and its expected values: first bit, length, value by frame number.
struct Expected {
    bit: usize,
    bits: usize,
    value: Box<dyn Fn(u64) -> u64>,
}

/// A modifier of the field, chosen by `choice`, and its values.
fn modifier(field: String, bit: usize, bits: usize, choice: u64) -> (ModifierDefinition, Expected) {
    let (bit, bits) = if bits > 64 { (bit + bits - 64, 64) } else { (bit, bits) };
    let highest = u64::MAX >> (64 - bits);
    let every = 1 + choice % 3;
    let list: Vec<u64> = (0..1 + choice % 7).map(|index| SplitMix64::at(choice, index) & highest).collect();
    let count = (choice % 50).min(highest) + 1;
    let wrap = choice.is_multiple_of(2);
    let (progression, value): (_, Box<dyn Fn(u64) -> u64>) = match choice / 8 % 4 {
        0 => {
            // Either the values end at the highest one, or they wrap after the first.
            let first = if wrap { highest } else { highest - (count - 1) };
            let start = Some(ModifierValue::Number(first));
            let value = move |step| first.wrapping_add(step % count) & highest;
            (Progression::Increment(SteppedValues { count, step: 1, start, wrap }), Box::new(value))
        }
        1 => {
            let first = if wrap { 0 } else { highest };
            let start = Some(ModifierValue::Text(format!("{first:#x}")));
            let value = move |step| first.wrapping_sub(step % count) & highest;
            (Progression::Decrement(SteppedValues { count, step: 1, start, wrap }), Box::new(value))
        }
        2 => {
            let draws = Draws { seed: choice, low: None, high: None };
            let value = move |step| match highest {
                u64::MAX => SplitMix64::at(choice, step),
                highest => below(SplitMix64::at(choice, step), highest + 1),
            };
            (Progression::Random(draws), Box::new(value))
        }
        _ => {
            let values = list.iter().map(|value| ModifierValue::Number(*value)).collect();
            let value = move |step| list[(step % list.len() as u64) as usize];
            (Progression::List(values), Box::new(value))
        }
    };
    let expected = Expected { bit, bits, value: Box::new(move |frame| value(frame / every)) };
    (ModifierDefinition { field, progression, every }, expected)
}

/// Every field that can vary without changing the kind of packet: name, first bit, length.
fn fields(packet: &[Header]) -> Vec<(String, usize, usize)> {
    let mut fields = Vec::new();
    let mut start = 0;
    for (index, header) in packet.iter().enumerate() {
        let kind = header.kind();
        let occurrence = packet[..index].iter().filter(|other| other.kind() == kind).count();
        for field in kind.spec().fields.iter().filter(|field| field.modifiable) {
            // Fields that name the next header, are computed, or change how etherparse parses the rest.
            let fixed = ["ether_type", "bottom", "checksum", "type", "code", "operation", "urgent"];
            let port = kind == HeaderKind::Udp && field.name == "destination";
            if !fixed.contains(&field.name) && !port {
                let name = format!("{}[{occurrence}].{}", kind.name(), field.name);
                fields.push((name, start * 8 + field.bit, field.bits));
            }
        }
        start += match header {
            Header::Raw(raw) => raw.0.len(),
            _ => kind.spec().bytes,
        };
    }
    // Fields at odd positions and of odd lengths.
    fields.push(("payload[0..3]".to_owned(), start * 8, 24));
    fields.push(("payload[3..4]".to_owned(), start * 8 + 24, 8));
    fields
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn random_streams_make_valid_frames(
        packet in packet(),
        sizes in prop::collection::vec(prop_oneof![64..200u32, 64..2000u32, 65000..=65539u32], 1..4),
        choices in prop::collection::vec(any::<(prop::sample::Index, u64)>(), 0..6),
        signature: bool,
        seed: u64,
        (sender, senders) in (0..5u32, 5..9u32),
    ) {
        let mut all = fields(&packet);
        let (modify, expected): (Vec<_>, Vec<_>) = choices
            .into_iter()
            .map(|(index, choice)| {
                let (name, bit, bits) = all.swap_remove(index.index(all.len()));
                modifier(name, bit, bits, choice)
            })
            .unzip();
        let sizes = sizes.into_iter().map(|size| FrameSize::new(size).unwrap()).collect();
        let mut definition = StreamDefinition {
            name: "random".to_owned(),
            size: Some(FrameSizeMix::InTurn(sizes)),
            signature,
            payload: Some(Payload::Random { seed }),
            packet: Some(packet.clone()),
            modify,
            ..StreamDefinition::default()
        };
        let mut compiled = definition.compile(7);
        // An error for sizes that are too short contains the least possible size, and that size works.
        while let Err(error) = &compiled {
            let Some(FrameSizeMix::InTurn(sizes)) = &mut definition.size else { unreachable!() };
            let least = match &error.problem {
                Problem::TooShort { least, .. } => *least as u32,
                // A modified byte of the payload does not exist in the shortest frame.
                Problem::OutOfRange { .. } => sizes.iter().map(|size| size.bytes()).min().unwrap() + 1,
                other => panic!("{other}"),
            };
            for size in sizes {
                *size = FrameSize::new(size.bytes().max(least)).unwrap();
            }
            compiled = definition.compile(7);
        }
        let source = compiled.unwrap();
        let mut in_place = source.clone().share(sender, senders).unwrap();
        let mut in_slot = in_place.clone();
        let mut slot = vec![0xee; in_place.longest_slot_bytes()];
        let names: Vec<&str> = packet.iter().map(Header::name).filter(|name| *name != "raw").collect();
        for sequence in 0..12 {
            let expected_bytes = in_place.next_size();
            let frame = in_place.next_frame(1000 + sequence).to_vec();
            prop_assert_eq!(frame.len(), expected_bytes);
            if let Some(mut frames) = in_slot.of_one_size().map(OneSize::variation) {
                prop_assert!(!matches!(frames, Variation::Constant(_)) || sequence == 0 || slot[..frame.len()] == frame);
                let written = frames.write_next(1000 + sequence, &mut slot, sequence > 0);
                prop_assert_eq!(written, Some(frame.len()));
                prop_assert_eq!(&slot[..frame.len()], &frame);
            }

            prop_assert_eq!(&judge(&frame).headers, &names);
            let number = u64::from(sender) + sequence * u64::from(senders);
            for Expected { bit, bits, value } in &expected {
                prop_assert_eq!(get_bits(&frame, *bit, *bits) as u64, value(number));
            }
            // Each form is read alone. Short and tiny signatures have no magic, so they match one in 2^16 frames with
            // another form.
            let found = SignatureForm::ALL.into_iter().filter(|form| source.forms().contains(*form)).any(|form| {
                let reading = read_signature(&frame, FormSet::NONE.with(form));
                matches!(reading, SignatureReading::Intact(found) if (found.stream, found.sequence_low) == (7, sequence)
                    && found.timestamp_ns(2000).is_none_or(|timestamp_ns| timestamp_ns == 1000 + sequence))
            });
            prop_assert_eq!(found, signature);
        }
    }
}
