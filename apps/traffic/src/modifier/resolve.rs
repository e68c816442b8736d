//! Resolves the names and values of a definition to bits of the frame.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::progress::MAX_COUNT;
use super::{
    BitField, Draws, MAX_FLOWS, MAX_LIST, ModifierDefinition, ModifierValue, Progress, Progression,
    SteppedValues, Values,
};
use crate::definition::{Problem, StreamError};
use crate::header::{FieldKind, HeaderKind, Layout, Span, TcpFlags, get_bits};
use ringroad_wire::mac::Mac;

/// Greatest number of bits that one modifier varies.
const MAX_BITS: usize = 64;

/// Frame in which modifiers name fields.
pub(crate) struct FrameMap<'a> {
    pub(crate) layout: &'a Layout,
    /// The longest frame, before fields vary.
    pub(crate) frame: &'a [u8],
    /// Bytes (without FCS) of the shortest frame.
    pub(crate) shortest: usize,
}

/// A field that varies.
#[derive(Debug, Clone)]
pub(crate) struct Varied {
    /// Path of the modifier in the definition.
    pub(crate) by: String,
    /// First bit in the frame.
    pub(crate) bit: usize,
    /// Length in bits.
    pub(crate) bits: usize,
    pub(crate) field: BitField,
    pub(crate) progress: Progress,
}

impl Varied {
    /// Range of the bytes with bits of the field.
    pub(crate) fn bytes(&self) -> std::ops::Range<usize> {
        self.bit / 8..(self.bit + self.bits).div_ceil(8)
    }
}

/// A part of the frame that has a name.
#[derive(Debug, Clone, Copy)]
struct Field {
    bit: usize,
    bits: usize,
    kind: FieldKind,
}

/// Resolves modifier number `index` of the definition.
pub(crate) fn resolve(
    map: &FrameMap<'_>,
    definition: &ModifierDefinition,
    index: usize,
) -> Result<Varied, StreamError> {
    let by = format!("modify[{index}]");
    let within = |error: StreamError| error.within(&by);
    if definition.every == 0 {
        return Err(within(StreamError::out_of_range("every", 0, "1 or more frames")));
    }
    let field =
        map.find(&definition.field).map_err(|problem| within(StreamError::at("field", problem)))?.low_part();
    let (values, count) = map.values(&definition.progression, field).map_err(within)?;
    let progress = Progress::new(values, count, definition.every);
    map.varied(by.clone(), field, progress).map_err(|problem| within(StreamError::at("field", problem)))
}

/// Modifiers for `flows` flows. They vary the source port of the outermost UDP or TCP header. If there are more flows
/// than ports from the header's own port on, they also vary the source address of the preceding IP header. Without such
/// a header, they vary the source address of the outermost IP header, or of the Ethernet header if there is none. With
/// `macs`, every flow also has its own Ethernet source address.
pub(crate) fn flows(map: &FrameMap<'_>, flows: u64, macs: bool) -> Result<Vec<Varied>, StreamError> {
    if !(1..=MAX_FLOWS).contains(&flows) {
        return Err(StreamError::out_of_range("flows", flows, format!("1 to {MAX_FLOWS}")));
    }
    if flows == 1 {
        return Ok(Vec::new());
    }
    let spans = &map.layout.spans;
    let transport = spans.iter().position(|span| matches!(span.kind, HeaderKind::Udp | HeaderKind::Tcp));
    let ip = match transport {
        Some(index) => map.layout.ip_before(index),
        None => spans.iter().find(|span| matches!(span.kind, HeaderKind::Ipv4 | HeaderKind::Ipv6)),
    };
    let ethernet = spans.iter().find(|span| span.kind == HeaderKind::Ethernet);

    let port = transport.and_then(|index| map.source_of(&spans[index]));
    let address = ip.and_then(|ip| map.source_of(ip));
    let ports = port.map_or(1, |port| 0x1_0000 - map.value_of(port));
    // If there are too few ports, the low bits of the flow's number select the port, so that no division is needed. The
    // other bits select the address.
    let port_bits = if flows <= ports { u64::BITS } else { ports.ilog2() };
    let port_mask = 1u64.checked_shl(port_bits).map_or(u64::MAX, |ports| ports - 1);
    let mut varied = Vec::new();
    if let Some(port) = port {
        varied.push(map.flow_field(port, flows, 0, port_mask)?);
    }
    match address {
        Some(address) if flows > ports => varied.push(map.flow_field(address, flows, port_bits, u64::MAX)?),
        None if flows > ports && port.is_some() => {
            let advice = format!("{flows} flows are more than source ports: add ipv4 or ipv6 before");
            return Err(StreamError::combination("flows", advice));
        }
        _ => {}
    }
    if macs || varied.is_empty() {
        match ethernet.and_then(|ethernet| map.source_of(ethernet)) {
            Some(address) => varied.push(map.flow_field(address, flows, 0, u64::MAX)?),
            None => {
                return Err(StreamError::combination(
                    "flow_macs",
                    "the frame has no ethernet header: leave it out",
                ));
            }
        }
    }
    Ok(varied)
}

impl Field {
    fn named(span: &Span, name: &str) -> Option<Self> {
        let spec = span.kind.field(name)?;
        Some(Self { bit: span.start * 8 + spec.bit, bits: spec.bits, kind: spec.kind })
    }

    fn of_bytes(start: usize, bytes: usize) -> Self {
        Self { bit: start * 8, bits: bytes * 8, kind: FieldKind::Number }
    }

    /// The part of the field that modifiers vary.
    fn low_part(self) -> Self {
        let above = self.bits.saturating_sub(MAX_BITS);
        Self { bit: self.bit + above, bits: self.bits - above, kind: self.kind }
    }

    fn highest(self) -> u64 {
        u64::MAX >> (MAX_BITS - self.bits)
    }
}

impl FrameMap<'_> {
    fn source_of(&self, span: &Span) -> Option<Field> {
        Field::named(span, "source").map(Field::low_part)
    }

    fn value_of(&self, field: Field) -> u64 {
        get_bits(self.frame, field.bit, field.bits) as u64
    }

    fn flow_field(&self, field: Field, flows: u64, shift: u32, mask: u64) -> Result<Varied, StreamError> {
        let start = self.value_of(field);
        let last = (flows - 1) >> shift & mask;
        if start.checked_add(last).is_none_or(|last| last > field.highest()) {
            let room = (field.highest() - start).saturating_add(1).saturating_mul(1 << shift);
            return Err(StreamError::out_of_range(
                "flows",
                flows,
                format!("1 to {room}, or a lower source address"),
            ));
        }
        let progress = Progress::new(Values::Linear { start, step: 1, shift, mask }, flows, 1);
        self.varied("flows".to_owned(), field, progress).map_err(|problem| StreamError::at("flows", problem))
    }

    fn varied(&self, by: String, field: Field, progress: Progress) -> Result<Varied, Problem> {
        let Field { bit, bits, .. } = field;
        let bit_field = BitField::new(bit, bits, self.shortest).ok_or_else(|| Problem::OutOfRange {
            given: format!("byte {}", (bit + bits).div_ceil(8)),
            allowed: format!("bytes within the shortest frame, which has {} without FCS", self.shortest),
        })?;
        Ok(Varied { by, bit, bits, field: bit_field, progress })
    }

    /// The part of the frame that `name` names.
    fn find(&self, name: &str) -> Result<Field, Problem> {
        let unreadable = || Problem::Unreadable {
            given: name.to_owned(),
            expected: "a field: write it like ipv4.source, vlan[1].id or payload[4..8]".to_owned(),
        };
        let word = name.find(['.', '[']).unwrap_or(name.len());
        let (word, mut rest) = name.split_at(word);
        let mut occurrence = 0;
        if let Some((inside, behind)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'))
            && let Ok(number) = inside.parse::<usize>()
        {
            (occurrence, rest) = (number, behind);
        }
        let (start, end) = match word {
            "frame" => (0, self.shortest),
            "payload" => (self.layout.payload_start(), self.shortest),
            _ => {
                let span = self.header(word, occurrence).ok_or_else(|| self.no_such(name))?;
                if let Some(field) = rest.strip_prefix('.') {
                    return self.field(span, field, name);
                }
                (span.start, span.end())
            }
        };
        let range = rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let range = range.and_then(|range| range.split_once(".."));
        let (from, to) = match range.map(|(from, to)| (from.parse::<usize>(), to.parse::<usize>())) {
            Some((Ok(from), Ok(to))) => (from, to),
            _ => return Err(unreadable()),
        };
        let there = end.saturating_sub(start);
        if from >= to || to > there || to - from > MAX_BITS / 8 {
            return Err(Problem::OutOfRange {
                given: name.to_owned(),
                allowed: format!("1 to {} bytes of {word}[0..{there}]", MAX_BITS / 8),
            });
        }
        let field = Field::of_bytes(start + from, to - from);
        self.check_not_computed(field, name)?;
        Ok(field)
    }

    fn header(&self, name: &str, occurrence: usize) -> Option<&Span> {
        self.layout.spans.iter().filter(|span| span.kind.name() == name).nth(occurrence)
    }

    fn no_such(&self, given: &str) -> Problem {
        let mut known: Vec<&str> = self.layout.spans.iter().map(|span| span.kind.name()).collect();
        known.extend(["payload", "frame"]);
        Problem::NoSuchField { given: given.to_owned(), known: known.join(", ") }
    }

    fn field(&self, span: &Span, name: &str, given: &str) -> Result<Field, Problem> {
        let spec = span.kind.field(name);
        let (Some(spec), Some(field)) = (spec, Field::named(span, name)) else {
            let names: Vec<&str> = span
                .kind
                .spec()
                .fields
                .iter()
                .filter(|field| field.modifiable)
                .map(|field| field.name)
                .collect();
            let known = if names.is_empty() {
                format!("bytes like {}[0..2]", span.kind.name())
            } else {
                names.join(", ")
            };
            return Err(Problem::NoSuchField { given: given.to_owned(), known });
        };
        if !spec.modifiable {
            return Err(Problem::NotModifiable {
                given: given.to_owned(),
                reason: "the rest of the frame depends on it",
            });
        }
        self.check_not_computed(field, given)?;
        Ok(field)
    }

    fn check_not_computed(&self, field: Field, given: &str) -> Result<(), Problem> {
        let computed = self.layout.spans.iter().flat_map(Span::computed).any(|at| {
            // Computed fields have two bytes each.
            field.bit < (at + 2) * 8 && at * 8 < field.bit + field.bits
        });
        if computed {
            return Err(Problem::NotModifiable {
                given: given.to_owned(),
                reason: "lengths and checksums are computed for each frame",
            });
        }
        Ok(())
    }

    /// Values of a progression, and their number until they repeat.
    fn values(&self, progression: &Progression, field: Field) -> Result<(Values, u64), StreamError> {
        let parsed = |value: &ModifierValue, path: String| self.parse(value, field, path);
        match progression {
            Progression::Increment(steps) => {
                self.steps(steps, field, true).map_err(|error| error.within("increment"))
            }
            Progression::Decrement(steps) => {
                self.steps(steps, field, false).map_err(|error| error.within("decrement"))
            }
            Progression::Random(Draws { seed, low, high }) => {
                let bound = |value: &Option<ModifierValue>, name, otherwise| {
                    value.as_ref().map_or(Ok(otherwise), |value| parsed(value, format!("random.{name}")))
                };
                let low = bound(low, "low", 0)?;
                let highest = bound(high, "high", field.highest())?;
                if low > highest {
                    let given = high.as_ref().map_or_else(|| highest.to_string(), ModifierValue::to_string);
                    return Err(StreamError::out_of_range("random.high", given, "no less than random.low"));
                }
                let span = (highest - low).wrapping_add(1);
                Ok((Values::Random { seed: *seed, low, span }, MAX_COUNT))
            }
            Progression::List(values) => {
                if !(1..=MAX_LIST).contains(&values.len()) {
                    let given = format!("a list of {}", values.len());
                    return Err(StreamError::out_of_range("list", given, format!("1 to {MAX_LIST} values")));
                }
                let numbers: Result<Box<[u64]>, _> = values
                    .iter()
                    .enumerate()
                    .map(|(index, value)| parsed(value, format!("list[{index}]")))
                    .collect();
                Ok((Values::List(numbers?), values.len() as u64))
            }
        }
    }

    fn steps(
        &self,
        steps: &SteppedValues,
        field: Field,
        upwards: bool,
    ) -> Result<(Values, u64), StreamError> {
        let SteppedValues { count, step, start, wrap } = steps;
        let start = match start {
            Some(start) => self.parse(start, field, "start".to_owned())?,
            None => self.value_of(field),
        };
        let room = if upwards { field.highest() - start } else { start };
        // Number of values up to the limit of the field.
        let most = match room.checked_div(*step) {
            Some(steps) if !wrap => steps.saturating_add(1).min(MAX_COUNT),
            _ => MAX_COUNT,
        };
        if !(1..=most).contains(count) {
            let or_wrap =
                if *wrap { "" } else { "; with wrap = true they continue at the field's other end" };
            let allowed = format!("1 to {most} values with step {step} from {start} on{or_wrap}");
            return Err(StreamError::out_of_range("count", count, allowed));
        }
        let step = if upwards { *step } else { step.wrapping_neg() };
        let values = match *wrap {
            true => Values::Wrapped { start, step, highest: field.highest() },
            false => Values::Linear { start, step, shift: 0, mask: u64::MAX },
        };
        Ok((values, *count))
    }

    fn parse(&self, value: &ModifierValue, field: Field, path: String) -> Result<u64, StreamError> {
        let (number, expected) = match value {
            ModifierValue::Number(number) => (Some(*number), ""),
            ModifierValue::Text(text) => match field.kind {
                FieldKind::Mac => {
                    let number = text.parse::<Mac>().ok().map(Mac::number);
                    (number, "an Ethernet address like 02:00:00:00:00:01")
                }
                FieldKind::Ipv4 => {
                    let number = text.parse::<Ipv4Addr>().ok().map(|address| address.to_bits().into());
                    (number, "an IPv4 address like 198.18.0.1")
                }
                FieldKind::Ipv6 => {
                    let above = get_bits(self.frame, field.bit - MAX_BITS, MAX_BITS);
                    let bits = text.parse::<Ipv6Addr>().ok().map(Ipv6Addr::to_bits);
                    let number = bits.filter(|bits| bits >> MAX_BITS == above).map(|bits| bits as u64);
                    (
                        number,
                        "an IPv6 address with the same first 64 bits as the header's: only the low 64 bits vary",
                    )
                }
                FieldKind::TcpFlags => {
                    let flags = text.parse::<TcpFlags>().ok();
                    (flags.map(|flags| flags.0.into()), "a set of TCP flags like SA")
                }
                FieldKind::Number => (None, "a number like 16 or 0x10"),
            },
        };
        let number = match value {
            ModifierValue::Text(text) => number.or_else(|| match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).ok(),
                // Decimal text is for plain numbers only: a part of an address is not written in decimal.
                None if field.kind == FieldKind::Number => text.parse().ok(),
                None => None,
            }),
            ModifierValue::Number(_) => number,
        };
        match number {
            Some(number) if number <= field.highest() => Ok(number),
            Some(number) => Err(StreamError::out_of_range(path, number, format!("0 to {}", field.highest()))),
            None => {
                let given = value.to_string().trim_matches('"').to_owned();
                Err(StreamError::at(path, Problem::Unreadable { given, expected: expected.to_owned() }))
            }
        }
    }
}
