//! Rules of the filter, which select the channels that may get a frame.
//!
//! A line has one rule. The first rule that fits a frame applies, or `default` if none fits. `#` begins a comment.
//!
//! ```text
//! default allow 0-7
//! allow 3 if tcp dst 192.0.2.0/24 dport 80-443
//! allow 0,1 if vlan 5
//! deny if ethertype 0x88cc
//! ```
//!
//! A rule fits if all of its conditions fit: `src`, `dst` (an address or a prefix), `sport`, `dport` (a port or a
//! range), `tcp`, `udp`, `icmp`, `icmp6`, `sctp` or `proto N`, `ipv4`, `ipv6`, `vlan N`, `tags N` (number of VLAN tags or
//! a range), `ethertype N`, `smac`, `dmac`.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use ringroad_wire::headers::MAX_TAGS;
use ringroad_wire::mac::Mac;

use super::flow_key::HashKey;
use super::settings::MAX_CHANNELS;

/// Greatest number of rules of a filter, and of those of all programs together.
pub const MAX_RULES: usize = 1024;

/// Greatest number of bytes of a filter's text. A card's status has the text, and is one message
/// ([`crate::message::MAX_MESSAGE_BYTES`]), in which each byte of the text can take two.
pub const MAX_TEXT_BYTES: usize = 48 << 10;

/// The rules, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardFilter {
    rules: Vec<FilterRule>,
    default: u32,
    /// The rules as they were given.
    text: String,
}

/// A rule: the channels for the frames that it fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FilterRule {
    conditions: Vec<Condition>,
    /// Mask of channels that may get a fitting frame. An empty mask drops the frame.
    channels: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Condition {
    Source(Prefix),
    Destination(Prefix),
    SourcePort(RangeInclusive<u16>),
    DestinationPort(RangeInclusive<u16>),
    Protocol(u8),
    Version4,
    Version6,
    Vlan(u16),
    Tags(RangeInclusive<u16>),
    Ethertype(u16),
    SourceStation([u8; 6]),
    DestinationStation([u8; 6]),
}

/// Prefix of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Prefix {
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    fn has(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.checked_shr(32 - u32::from(self.bits)).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.checked_shr(128 - u32::from(self.bits)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl Condition {
    fn fits(&self, key: &HashKey) -> bool {
        let ip = key.ip.as_ref();
        let ports = ip.and_then(|ip| ip.ports);
        match self {
            Self::Source(prefix) => ip.is_some_and(|ip| prefix.has(ip.source)),
            Self::Destination(prefix) => ip.is_some_and(|ip| prefix.has(ip.destination)),
            Self::SourcePort(range) => ports.is_some_and(|(source, _)| range.contains(&source)),
            Self::DestinationPort(range) => {
                ports.is_some_and(|(_, destination)| range.contains(&destination))
            }
            Self::Protocol(protocol) => ip.is_some_and(|ip| ip.protocol == *protocol),
            Self::Version4 => ip.is_some_and(|ip| ip.source.is_ipv4()),
            Self::Version6 => ip.is_some_and(|ip| ip.source.is_ipv6()),
            Self::Vlan(vlan) => key.vlan == Some(*vlan),
            Self::Tags(range) => range.contains(&key.tags),
            Self::Ethertype(ethertype) => key.ethertype == *ethertype,
            Self::SourceStation(station) => key.source == *station,
            Self::DestinationStation(station) => key.destination == *station,
        }
    }

    fn parse(word: &str, value: &mut dyn FnMut() -> Result<String, String>) -> Result<Self, String> {
        Ok(match word {
            "src" => Self::Source(value()?.parse()?),
            "dst" => Self::Destination(value()?.parse()?),
            "sport" => Self::SourcePort(range(&value()?, u16::MAX)?),
            "dport" => Self::DestinationPort(range(&value()?, u16::MAX)?),
            "tcp" => Self::Protocol(6),
            "udp" => Self::Protocol(17),
            "icmp" => Self::Protocol(1),
            "icmp6" => Self::Protocol(58),
            "sctp" => Self::Protocol(132),
            "proto" => Self::Protocol(number(&value()?, u8::MAX.into())? as u8),
            "ipv4" => Self::Version4,
            "ipv6" => Self::Version6,
            "vlan" => Self::Vlan(number(&value()?, 4095)?),
            "tags" => Self::Tags(range(&value()?, MAX_TAGS as u16)?),
            "ethertype" => Self::Ethertype(number(&value()?, u16::MAX)?),
            "smac" => Self::SourceStation(station(&value()?)?),
            "dmac" => Self::DestinationStation(station(&value()?)?),
            other => return Err(format!("{other:?} is not a condition")),
        })
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not an IP address or prefix");
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| number(bits, most)).map_err(|_| wrong())?;
        Ok(Self { address, bits: bits as u8 })
    }
}

/// Reads a number up to `most`, which is hexadecimal after `0x`.
fn number(text: &str, most: u16) -> Result<u16, String> {
    let is_plain = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let parsed = match text.strip_prefix("0x") {
        Some(digits) if is_plain(digits) => u16::from_str_radix(digits, 16).ok(),
        None if is_plain(text) => text.parse().ok(),
        _ => None,
    };
    parsed
        .filter(|&number| number <= most)
        .ok_or_else(|| format!("{text:?} is not a number from 0 to {most}"))
}

fn range(text: &str, most: u16) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (number(first, most)?, number(last, most)?);
    if first <= last { Ok(first..=last) } else { Err(format!("{text:?} ends before it begins")) }
}

fn station(text: &str) -> Result<[u8; 6], String> {
    text.parse().map(Mac::octets).map_err(|_| format!("{text:?} is not a hardware address"))
}

/// Reads a mask of channels from their numbers, as in `0,2-5`.
///
/// # Errors
/// The fault of the rules, in words for the user.
pub fn parse_channels(text: &str) -> Result<u32, String> {
    let mut channels = 0;
    for part in text.split(',') {
        let range =
            range(part, MAX_CHANNELS - 1).map_err(|_| format!("{text:?} names no channels: write 0,2-5"))?;
        channels = range.fold(channels, |channels, channel| channels | 1 << channel);
    }
    Ok(channels)
}

/// Reads the beginning of a rule: the channels that it allows.
fn read_channels<'a>(words: &mut impl Iterator<Item = &'a str>) -> Result<u32, String> {
    match words.next() {
        Some("deny") => Ok(0),
        Some("allow") => match words.next() {
            Some(channels) => parse_channels(channels),
            None => Err("allow which channels?".to_owned()),
        },
        other => {
            let other = other.unwrap_or_default();
            Err(format!("{other:?}: a rule begins with `allow CHANNELS` or `deny`"))
        }
    }
}

/// Checks that `channels`, which a filter or a rule names, are among the first `count`.
fn check_channels(channels: u32, count: u16, what: &str) -> Result<(), String> {
    match channels.checked_shr(count.into()).unwrap_or(0) {
        0 => Ok(()),
        beyond => Err(format!(
            "the {what} names channel {}, and the card has 0 to {}",
            u32::from(count) + beyond.trailing_zeros(),
            count.saturating_sub(1)
        )),
    }
}

impl FilterRule {
    fn read<'a>(words: &mut impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let channels = read_channels(words)?;
        let mut words = words.peekable();
        if words.next() != Some("if") || words.peek().is_none() {
            return Err("a rule ends with `if` and a condition".to_owned());
        }
        let mut conditions = Vec::new();
        while let Some(word) = words.next() {
            let mut value =
                || words.next().map(str::to_owned).ok_or_else(|| format!("{word:?} needs a value"));
            conditions.push(Condition::parse(word, &mut value)?);
        }
        Ok(Self { conditions, channels })
    }

    /// Whether the rule fits a frame. A frame without a whole header fits none.
    #[inline]
    pub(super) fn fits(&self, key: Option<&HashKey>) -> bool {
        key.is_some_and(|key| self.conditions.iter().all(|condition| condition.fits(key)))
    }

    /// Mask of channels that may get a fitting frame.
    #[inline]
    pub(super) fn channels(&self) -> u32 {
        self.channels
    }

    /// Checks that a card with `count` channels has those of the rule.
    pub(super) fn check(&self, count: u16) -> Result<(), String> {
        check_channels(self.channels, count, "rule")
    }
}

impl FromStr for FilterRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::read(&mut text.split_whitespace())
    }
}

impl CardFilter {
    /// The filter that lets all `channels` get all frames.
    #[must_use]
    pub fn all(channels: u16) -> Self {
        let last = channels.clamp(1, MAX_CHANNELS) - 1;
        Self {
            rules: Vec::new(),
            default: u32::MAX >> (31 - last),
            text: format!("default allow 0-{last}\n"),
        }
    }

    /// Mask of the channels that may get a frame. An empty mask drops the frame.
    #[inline]
    #[must_use]
    pub fn channels(&self, key: Option<&HashKey>) -> u32 {
        let fitting = self.rules.iter().find(|rule| rule.fits(key));
        fitting.map_or(self.default, |rule| rule.channels)
    }

    /// Whether all frames are treated alike, so that their headers need not be parsed.
    #[inline]
    #[must_use]
    pub fn is_uniform(&self) -> bool {
        self.rules.is_empty()
    }

    /// Checks that the rules name only channels that a card with `channels` channels has.
    ///
    /// # Errors
    /// The missing channels, in words for the user.
    pub fn check(&self, channels: u16) -> Result<(), String> {
        let named = self.rules.iter().fold(self.default, |named, rule| named | rule.channels);
        check_channels(named, channels, "filter")
    }
}

impl fmt::Display for CardFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for CardFilter {
    /// The first line that is not a rule, and the reason, in words for the user.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(format!("the filter has {} bytes: {MAX_TEXT_BYTES} is the most", text.len()));
        }
        let (mut rules, mut default) = (Vec::new(), None);
        for (line, content) in (1..).zip(text.lines()) {
            let failed = |reason| wrong_line(line, reason);
            if let Some(control) =
                content.chars().find(|&character| character != '\t' && character.is_control())
            {
                return Err(failed(format!("it has the control character {control:?}")));
            }
            let words = content.split('#').next().unwrap_or_default();
            let mut words = words.split_whitespace().peekable();
            if words.next_if_eq(&"default").is_some() {
                let channels = read_channels(&mut words).map_err(failed)?;
                if let Some(word) = words.next() {
                    return Err(failed(format!("{word:?}: `default` has no condition")));
                }
                if default.replace(channels).is_some() {
                    return Err(failed("there is a default already".to_owned()));
                }
            } else if words.peek().is_some() {
                let rule = FilterRule::read(&mut words).map_err(failed)?;
                if rules.len() == MAX_RULES {
                    return Err(failed(format!(
                        "there are {MAX_RULES} rules already, which is all there can be"
                    )));
                }
                rules.push(rule);
            }
        }
        let Some(default) = default else {
            let line = text.lines().count() + 1;
            return Err(wrong_line(line, "no `default allow CHANNELS` or `default deny`".to_owned()));
        };
        Ok(Self { rules, default, text: text.to_owned() })
    }
}

fn wrong_line(line: usize, reason: String) -> String {
    format!("line {line} of the filter: {reason}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::card::flow_key::IpKey;

    fn key(destination: &str, port: u16) -> HashKey {
        let ip = IpKey {
            source: "198.51.100.1".parse().unwrap(),
            destination: destination.parse().unwrap(),
            protocol: 6,
            ports: Some((40000, port)),
        };
        HashKey {
            destination: [2, 0, 0, 0, 0, 1],
            source: [2; 6],
            vlan: Some(5),
            tags: 1,
            ethertype: 0x0800,
            ip: Some(ip),
        }
    }

    #[test]
    fn the_first_fitting_rule_decides() {
        let filter: CardFilter =
            "default allow 0-7 # all\n\n# web\nallow 3 if tcp dst 192.0.2.0/24 dport 80-443\n\
                              deny if ipv4 sport 40000\nallow 0,2 if vlan 5"
                .parse()
                .unwrap();
        assert_eq!(filter.channels(Some(&key("192.0.2.77", 443))), 1 << 3);
        assert_eq!(filter.channels(Some(&key("192.0.3.77", 443))), 0);
        assert_eq!(filter.channels(Some(&HashKey { ip: None, ..key("192.0.2.77", 0) })), 0b101);
        let untagged = HashKey { ip: None, vlan: None, ..key("192.0.2.77", 0) };
        assert_eq!(filter.channels(Some(&untagged)), 0xff);
        assert_eq!(filter.channels(None), 0xff);
        assert_eq!(filter.check(8), Ok(()));
        assert!(filter.check(7).unwrap_err().contains("channel 7"));
        assert_eq!(CardFilter::all(32).channels(None), u32::MAX);
        assert_eq!(CardFilter::all(3).to_string(), "default allow 0-2\n");
        assert_eq!(
            "default allow 0-2".parse::<CardFilter>().unwrap().channels(None),
            CardFilter::all(3).channels(None)
        );
    }

    #[test]
    fn every_condition_is_checked() {
        let key = key("192.0.2.7", 443);
        for (condition, other) in [
            ("src 198.51.100.0/31", "src 198.51.100.2/31"),
            ("dst 192.0.2.7", "dst 192.0.2.6"),
            ("dst 0.0.0.0/0", "dst ::/0"),
            ("sport 40000", "sport 40001-65535"),
            ("dport 1-443", "dport 444"),
            ("tcp", "udp"),
            ("proto 6", "proto 0x11"),
            ("ipv4", "ipv6"),
            ("vlan 5", "vlan 6"),
            ("tags 1", "tags 0"),
            ("tags 1-8", "tags 2-8"),
            ("ethertype 0x0800", "ethertype 2054"),
            ("smac 02:02:02:02:02:02", "smac 02:02:02:02:02:03"),
            ("dmac 02:00:00:00:00:01", "dmac 02:00:00:00:00:11"),
        ] {
            let fits = |condition: &str| {
                let filter: CardFilter = format!("allow 1 if {condition}\ndefault deny").parse().unwrap();
                filter.channels(Some(&key)) != 0
            };
            assert!(fits(condition), "{condition}");
            assert!(!fits(other), "{other}");
        }
    }

    #[test]
    fn an_invalid_rule_is_reported_with_its_line() {
        for (text, line, part) in [
            ("", 1, "no `default"),
            ("default allow 0\ndefault deny", 2, "already"),
            ("default allow 0-32", 1, "names no channels"),
            ("default allow 3-1", 1, "names no channels"),
            ("default allow", 1, "which channels"),
            ("default deny if tcp", 1, "no condition"),
            ("\npass", 2, "allow CHANNELS"),
            ("deny", 1, "ends with `if`"),
            ("deny if", 1, "ends with `if`"),
            ("deny if sport", 1, "needs a value"),
            ("deny if sport +5", 1, "not a number"),
            ("deny if src 10.0.0.0/33", 1, "not an IP address"),
            ("deny if dmac 2:0:0:0:0:1", 1, "not a hardware address"),
            ("deny if tags 9", 1, "number from 0 to 8"),
            ("deny if color red", 1, "not a condition"),
        ] {
            let error = text.parse::<CardFilter>().unwrap_err();
            let start = format!("line {line} of the filter: ");
            assert!(error.starts_with(&start) && error.contains(part), "{text:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_filter_text_is_read_without_panic(words in proptest::collection::vec("(default|allow|deny|if|src|dport|vlan|0-3|[0-9./:x#-]{0,9}|\n)", 0..30)) {
            let _ = words.join(" ").parse::<CardFilter>();
        }
    }
}
