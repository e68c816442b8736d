//! Matches.

use std::fmt;

use ringroad_wire::{ether_type, ip_protocol};

use super::value::{self, Matched};
use super::{Pair, TextError, Word};
use crate::oxm::VLAN_PRESENT;
use crate::{FieldMatch, Match, OxmField};

/// Words for an Ethernet type, or for one with an IP protocol. Printing uses the first that fits.
const PROTOCOLS: [(&str, u16, Option<u8>); 15] = [
    ("icmp", ether_type::IPV4, Some(ip_protocol::ICMP)),
    ("tcp", ether_type::IPV4, Some(ip_protocol::TCP)),
    ("udp", ether_type::IPV4, Some(ip_protocol::UDP)),
    ("sctp", ether_type::IPV4, Some(ip_protocol::SCTP)),
    ("icmp6", ether_type::IPV6, Some(ip_protocol::ICMPV6)),
    ("tcp6", ether_type::IPV6, Some(ip_protocol::TCP)),
    ("udp6", ether_type::IPV6, Some(ip_protocol::UDP)),
    ("sctp6", ether_type::IPV6, Some(ip_protocol::SCTP)),
    ("ip", ether_type::IPV4, None),
    ("ipv6", ether_type::IPV6, None),
    ("arp", ether_type::ARP, None),
    ("rarp", 0x8035, None),
    ("mpls", ether_type::MPLS, None),
    ("mplsm", ether_type::MPLS_MULTICAST, None),
    ("icmpv6", ether_type::IPV6, Some(ip_protocol::ICMPV6)),
];

/// Further names of fields. If several fields have a name, the other fields of the match decide.
const NAMES: [(&str, &[OxmField]); 19] = [
    ("dl_src", &[OxmField::EthSrc]),
    ("dl_dst", &[OxmField::EthDst]),
    ("dl_type", &[OxmField::EthType]),
    ("dl_vlan_pcp", &[OxmField::VlanPcp]),
    ("nw_src", &[OxmField::Ipv4Src, OxmField::ArpSpa]),
    ("nw_dst", &[OxmField::Ipv4Dst, OxmField::ArpTpa]),
    ("ip_src", &[OxmField::Ipv4Src, OxmField::ArpSpa]),
    ("ip_dst", &[OxmField::Ipv4Dst, OxmField::ArpTpa]),
    ("nw_proto", &[OxmField::IpProto, OxmField::ArpOp]),
    ("nw_ecn", &[OxmField::IpEcn]),
    ("icmp_type", &[OxmField::Icmpv4Type, OxmField::Icmpv6Type]),
    ("icmp_code", &[OxmField::Icmpv4Code, OxmField::Icmpv6Code]),
    ("tp_src", &PORT_SOURCES),
    ("tp_dst", &PORT_DESTINATIONS),
    ("ipv6_label", &[OxmField::Ipv6Flabel]),
    ("nd_target", &[OxmField::Ipv6NdTarget]),
    ("nd_sll", &[OxmField::Ipv6NdSll]),
    ("nd_tll", &[OxmField::Ipv6NdTll]),
    ("tun_id", &[OxmField::TunnelId]),
];

const PORT_SOURCES: [OxmField; 5] =
    [OxmField::TcpSrc, OxmField::UdpSrc, OxmField::SctpSrc, OxmField::Icmpv4Type, OxmField::Icmpv6Type];
const PORT_DESTINATIONS: [OxmField; 5] =
    [OxmField::TcpDst, OxmField::UdpDst, OxmField::SctpDst, OxmField::Icmpv4Code, OxmField::Icmpv6Code];

/// Finds a field by name, in a match with `known` fields. `None` if no field has this name.
pub(super) fn field(name: Word, known: &Match) -> Option<OxmField> {
    if let Some(field) = OxmField::ALL.into_iter().find(|field| field.name() == name.text) {
        return Some(field);
    }
    let (_, candidates) = NAMES.iter().find(|(other, _)| *other == name.text)?;
    let fits = |field: &&OxmField| field.prerequisites().iter().all(|needed| known.has(*needed));
    candidates.iter().find(fits).or(candidates.first()).copied()
}

/// Collects the words of a match, which may come in any order.
#[derive(Default)]
pub(super) struct MatchReader<'a> {
    pairs: Vec<Pair<'a>>,
}

impl<'a> MatchReader<'a> {
    pub(super) fn push(&mut self, pair: Pair<'a>) {
        self.pairs.push(pair);
    }

    pub(super) fn finish(self) -> Result<Match, TextError> {
        let mut found = Found::default();
        // The type and then the protocol come first: names of other fields depend on them.
        for pair in &self.pairs {
            match pair.key.text {
                "dl_type" | "eth_type" => {
                    found.push(value::matched(OxmField::EthType, pair.value()?)?, pair)?
                }
                key => {
                    if let Some((_, ethernet_type, protocol)) =
                        PROTOCOLS.iter().find(|(word, _, _)| *word == key)
                    {
                        pair.no_value()?;
                        found.push(FieldMatch::exact(OxmField::EthType, (*ethernet_type).into()), pair)?;
                        if let Some(protocol) = protocol {
                            found.push(FieldMatch::exact(OxmField::IpProto, (*protocol).into()), pair)?;
                        }
                    }
                }
            }
        }
        let known = found.so_far()?;
        for pair in &self.pairs {
            let field = match pair.key.text {
                "nw_proto" | "ip_proto" | "arp_op" => field(pair.key, &known),
                _ => continue,
            };
            if let Some(field) = field {
                found.push(value::matched(field, pair.value()?)?, pair)?;
            }
        }
        let known = found.so_far()?;
        for pair in &self.pairs {
            found.read(pair, &known)?;
        }
        found.finish()
    }
}

#[derive(Default)]
struct Found<'a> {
    fields: Vec<(FieldMatch, Word<'a>)>,
}

impl<'a> Found<'a> {
    fn push(&mut self, matched: FieldMatch, pair: &Pair<'a>) -> Result<(), TextError> {
        match self.fields.iter().find(|(other, _)| other.field == matched.field) {
            Some((other, _)) if *other == matched => Ok(()),
            Some((_, word)) => Err(pair.whole.wrong(format!("this contradicts {:?}", word.text))),
            None => {
                self.fields.push((matched, pair.whole));
                Ok(())
            }
        }
    }

    /// Makes a match of the fields so far. Fails if prerequisites are missing.
    fn so_far(&self) -> Result<Match, TextError> {
        Match::new(self.fields.iter().map(|(field, _)| *field)).or_else(|_| self.finish())
    }

    fn read(&mut self, pair: &Pair<'a>, known: &Match) -> Result<(), TextError> {
        let key = pair.key.text;
        match key {
            "dl_type" | "eth_type" | "nw_proto" | "ip_proto" | "arp_op" => Ok(()),
            _ if PROTOCOLS.iter().any(|(word, _, _)| *word == key) => Ok(()),
            "dl_vlan" => {
                let vid = match pair.value()?.number::<u16>()? {
                    // Value of OpenFlow 1.0 for "no tag".
                    0xffff => 0,
                    vid @ ..0x1000 => u128::from(vid) | VLAN_PRESENT,
                    _ => return Err(pair.whole.wrong("a VLAN is 0 to 4095, or 0xffff for none")),
                };
                self.push(FieldMatch::exact(OxmField::VlanVid, vid), pair)
            }
            "vlan_tci" => self.read_tci(pair),
            "nw_tos" => {
                let tos = pair.value()?.number::<u8>()?;
                if tos & 3 != 0 {
                    return Err(pair.whole.wrong("the two lowest bits are the ECN: use nw_ecn"));
                }
                self.push(FieldMatch::exact(OxmField::IpDscp, u128::from(tos >> 2)), pair)
            }
            _ => {
                let field = field(pair.key, known).ok_or_else(|| {
                    pair.whole.wrong("no field, shorthand or setting of a flow has this name")
                })?;
                self.push(value::matched(field, pair.value()?)?, pair)
            }
        }
    }

    /// Reads a tag's control information as in a frame: priority, the bit for "tag present", and VID.
    fn read_tci(&mut self, pair: &Pair<'a>) -> Result<(), TextError> {
        let word = pair.value()?;
        let (tci, mask) = match word.split_once("/") {
            Some((tci, mask)) => (tci.number::<u16>()?, mask.number::<u16>()?),
            None => (word.number::<u16>()?, 0xffff),
        };
        let (tci, mask) = (u128::from(tci & mask), u128::from(mask));
        let (vid, vid_mask) = (tci & 0x1fff, mask & 0x1fff);
        if vid_mask != 0 {
            self.push(FieldMatch { field: OxmField::VlanVid, value: vid, mask: vid_mask }, pair)?;
        }
        match mask >> 13 {
            0 => Ok(()),
            // A frame without a tag has no priority to match.
            7 if tci == 0 && vid_mask == 0x1fff => Ok(()),
            7 => self.push(FieldMatch::exact(OxmField::VlanPcp, tci >> 13), pair),
            _ => Err(pair.whole.wrong("the three bits of the priority are matched all or not at all")),
        }
    }

    fn finish(&self) -> Result<Match, TextError> {
        let mut fields: Vec<_> = self.fields.iter().map(|(field, _)| *field).collect();
        let has = |field| fields.iter().any(|known: &FieldMatch| known.field == field);
        if has(OxmField::VlanPcp) && !has(OxmField::VlanVid) {
            fields.push(FieldMatch { field: OxmField::VlanVid, value: VLAN_PRESENT, mask: VLAN_PRESENT });
        }
        let unmet = |field: OxmField| {
            let word = self.fields.iter().find(|(known, _)| known.field == field).map(|(_, word)| *word);
            word.unwrap_or(Word::new(field.name())).wrong(format!("this needs {} beside it", field.needs()))
        };
        let built = Match::sorted(fields).map_err(|error| Word::new("").wrong(error.to_string()))?;
        match built.unmet() {
            None => Ok(built),
            Some(field) => Err(unmet(field)),
        }
    }
}

/// Name of a field in a match, as Open vSwitch prints it.
fn printed_name(field: OxmField) -> &'static str {
    match field {
        OxmField::Ipv4Src => "nw_src",
        OxmField::Ipv4Dst => "nw_dst",
        _ if PORT_SOURCES[..3].contains(&field) => "tp_src",
        _ if PORT_DESTINATIONS[..3].contains(&field) => "tp_dst",
        OxmField::IpEcn => "nw_ecn",
        OxmField::ArpSpa | OxmField::ArpTpa | OxmField::ArpOp => field.name(),
        _ => NAMES.iter().find(|(_, fields)| fields.contains(&field)).map_or(field.name(), |(name, _)| name),
    }
}

/// Text of a match: words, each followed by a comma. It is empty for a match of all packets.
pub(super) struct MatchText<'a>(pub &'a Match);

impl fmt::Display for MatchText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let matching = self.0;
        let ethernet_type = matching.exact(OxmField::EthType);
        let shorthand = PROTOCOLS.iter().find(|(_, of_type, protocol)| {
            Some(u128::from(*of_type)) == ethernet_type
                && (protocol.is_none() || protocol.map(u128::from) == matching.exact(OxmField::IpProto))
        });
        if let Some((word, _, _)) = shorthand {
            write!(f, "{word},")?;
        }
        let is_said = |field| match field {
            OxmField::EthType => shorthand.is_some(),
            OxmField::IpProto => shorthand.is_some_and(|(_, _, protocol)| protocol.is_some()),
            _ => false,
        };
        let mut fields: Vec<_> = matching.fields().iter().filter(|one| !is_said(one.field)).collect();
        fields.sort_by_key(|one| one.field.printed_position());
        for one in fields {
            match one.field {
                OxmField::VlanPcp => {}
                OxmField::VlanVid => vlan(one, matching.exact(OxmField::VlanPcp), f)?,
                OxmField::IpDscp => write!(f, "nw_tos={},", one.value << 2)?,
                field => write!(f, "{}={},", printed_name(field), Matched(one))?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(MatchText(self).to_string().trim_end_matches(','))
    }
}

fn vlan(vid: &FieldMatch, pcp: Option<u128>, f: &mut fmt::Formatter) -> fmt::Result {
    let is_present = vid.value & VLAN_PRESENT != 0;
    match (vid.is_exact() && is_present, vid.mask == VLAN_PRESENT && is_present, pcp) {
        (true, _, None) => write!(f, "dl_vlan={},", vid.value & !VLAN_PRESENT),
        (true, _, Some(pcp)) => write!(f, "dl_vlan={},dl_vlan_pcp={pcp},", vid.value & !VLAN_PRESENT),
        (_, true, Some(pcp)) => write!(f, "dl_vlan_pcp={pcp},"),
        (_, _, Some(pcp)) => {
            write!(f, "vlan_tci={:#06x}/{:#06x},", vid.value | pcp << 13, vid.mask | 7 << 13)
        }
        (_, _, None) => write!(f, "vlan_tci={:#06x}/{:#06x},", vid.value, vid.mask),
    }
}
