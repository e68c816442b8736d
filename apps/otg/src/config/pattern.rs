//! Patterns of the model: how the value of a header field changes from frame to frame.

use std::net::{Ipv4Addr, Ipv6Addr};

use ringroad_traffic::random::SplitMix64;
use ringroad_wire::mac::Mac;
use serde_json::{Value, json};

use crate::document::{Node, whole};

/// Maximum number of values in a list, and of random values that are repeated.
pub(crate) const MAX_LIST: usize = 65536;

/// Types of a field's values. All values are numbers here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A whole number from 0 to this maximum.
    Number(u64),
    /// A bit, `true` or `false` in a stream definition.
    Bit,
    Mac,
    Ipv4,
    Ipv6,
}

/// The values of one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// The computed value, or the field's default.
    Auto,
    Value(u128),
    Values(Vec<u128>),
    /// `count` values upwards from `start`, modulo the field's size, repeated.
    Increment(Counter),
    /// `count` values downwards from `start`, modulo the field's size, repeated.
    Decrement(Counter),
    /// Random values from `low` to `high`, not repeated.
    Random {
        low: u128,
        high: u128,
        seed: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counter {
    pub(crate) start: u128,
    pub(crate) step: u128,
    pub(crate) count: u64,
}

impl Kind {
    const fn most(self) -> u128 {
        match self {
            Self::Number(most) => most as u128,
            Self::Bit => 1,
            Self::Mac => (1 << 48) - 1,
            Self::Ipv4 => u32::MAX as u128,
            Self::Ipv6 => u128::MAX,
        }
    }

    fn expected(self) -> String {
        match self {
            Self::Number(most) => format!("a whole number from 0 to {most}"),
            Self::Bit => "0 or 1".to_owned(),
            Self::Mac => "an Ethernet address like 02:00:00:00:00:01".to_owned(),
            Self::Ipv4 => "an IPv4 address like 198.18.0.1".to_owned(),
            Self::Ipv6 => "an IPv6 address like 2001:2::1".to_owned(),
        }
    }

    fn parse(self, value: &Value) -> Option<u128> {
        let number = match self {
            Self::Number(_) | Self::Bit => u128::from(whole(value)?),
            Self::Mac => {
                let mac: Mac = value.as_str()?.parse().ok()?;
                mac.number().into()
            }
            Self::Ipv4 => u128::from(u32::from(value.as_str()?.parse::<Ipv4Addr>().ok()?)),
            Self::Ipv6 => value.as_str()?.parse::<Ipv6Addr>().ok()?.into(),
        };
        (number <= self.most()).then_some(number)
    }

    /// Returns the number in the form of a stream definition.
    pub(crate) fn written(self, number: u128) -> Value {
        match self {
            Self::Number(_) => json!(number as u64),
            Self::Bit => json!(number != 0),
            Self::Mac => json!(Mac::from_number(number as u64)),
            Self::Ipv4 => json!(Ipv4Addr::from(number as u32)),
            Self::Ipv6 => json!(Ipv6Addr::from(number)),
        }
    }

    fn read(self, node: &Node<'_>, default: u128) -> u128 {
        node.read(|value| self.parse(value), self.expected(), default)
    }
}

/// Reads the pattern of a field; `choices` are its allowed patterns.
pub(crate) fn pattern(node: &Node<'_>, kind: Kind, choices: &[&'static str]) -> Pattern {
    let default = if choices.contains(&"value") { "value" } else { "auto" };
    let Some((choice, chosen)) = node.given(choices, default) else { return Pattern::Auto };
    match choice {
        "value" => Pattern::Value(kind.read(&chosen, 0)),
        "values" => values(&chosen, kind),
        "increment" => counter(&chosen, kind, true),
        "decrement" => counter(&chosen, kind, false),
        "random" => random(&chosen, kind),
        _ => Pattern::Auto,
    }
}

fn values(node: &Node<'_>, kind: Kind) -> Pattern {
    let items = node.items();
    if items.is_empty() || items.len() > MAX_LIST {
        node.report(format_args!("{} values given; give 1 to {MAX_LIST}", items.len()));
    }
    let values: Vec<u128> = items.iter().map(|item| kind.read(item, 0)).collect();
    if let Some((first, rest)) = values.split_first()
        && let Some(other) = rest.iter().position(|value| value >> 64 != first >> 64)
        && let Some(item) = items.get(other + 1)
    {
        item.report_value(format_args!("an address of the same /64 as {}", kind.written(*first)));
    }
    Pattern::Values(values)
}

/// Reads a counter. The model gives no limit to its values: after the field's highest value follows 0, and after 0 the
/// highest.
fn counter(node: &Node<'_>, kind: Kind, upwards: bool) -> Pattern {
    node.only(&["start", "step", "count"]);
    let start = kind.read(&node.get("start"), 0);
    let step = kind.read(&node.get("step"), 1);
    let count = node.get("count").whole(1, u64::from(u32::MAX), 1);
    if count == 1 || step == 0 {
        return Pattern::Value(start);
    }
    if step >> 64 != 0 {
        node.get("step")
            .report_value("at most ::ffff:ffff:ffff:ffff: only the low 64 bits of an address vary");
        return Pattern::Auto;
    }
    let (low, way) = (start & u128::from(u64::MAX), step * u128::from(count - 1));
    if kind == Kind::Ipv6 && if upwards { low + way > u128::from(u64::MAX) } else { way > low } {
        node.report("the addresses are not of one /64: only the low 64 bits of an address vary");
    }
    let counter = Counter { start, step, count };
    if upwards { Pattern::Increment(counter) } else { Pattern::Decrement(counter) }
}

/// Reads a random pattern. The model repeats `count` random values: they are drawn here, unless they need too much
/// memory.
fn random(node: &Node<'_>, kind: Kind) -> Pattern {
    node.only(&["min", "max", "seed", "count"]);
    let low = kind.read(&node.get("min"), 0);
    let high = kind.read(&node.get("max"), kind.most());
    if low > high {
        node.get("min").report_value(format_args!("at most max, {}", kind.written(high)));
    }
    if low >> 64 != high >> 64 {
        node.report("min and max are not of one /64: only the low 64 bits of an address vary");
        return Pattern::Auto;
    }
    let count = node.get("count").whole(1, u64::from(u32::MAX), 1);
    let seed = match node.get("seed").whole(0, u64::from(u32::MAX), 1) {
        // Seed 0 requests different numbers each time.
        0 => fresh_seed(),
        seed => seed,
    };
    if count > MAX_LIST as u64 {
        return Pattern::Random { low, high, seed };
    }
    if !node.may_make(count) {
        return Pattern::Auto;
    }
    // A span of at most 2^64 values, distributed evenly over the 64-bit numbers.
    let span = high.saturating_sub(low) + 1;
    let draw = |index| low + ((u128::from(SplitMix64::at(seed, index)) * span) >> 64);
    Pattern::Values((0..count).map(draw).collect())
}

fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Problems;

    const ALL: &[&str] = &["value", "values", "increment", "decrement", "random"];

    fn read(document: Value, kind: Kind) -> Result<Pattern, Vec<String>> {
        Problems::collect(&document, |root| pattern(&root.get("f"), kind, ALL))
            .map_err(|refusal| refusal.errors)
    }

    #[test]
    fn patterns_are_read_with_the_models_defaults() {
        let port = Kind::Number(65535);
        let counter = |start, step, count| Counter { start, step, count };
        for (document, kind, expected) in [
            (json!({}), port, Pattern::Auto),
            (json!({"f": {"choice": "value", "value": 5}}), port, Pattern::Value(5)),
            (json!({"f": {"value": 5}}), port, Pattern::Value(5)),
            (json!({"f": {"choice": "values", "values": [1, 2]}}), port, Pattern::Values(vec![1, 2])),
            (
                json!({"f": {"choice": "increment", "increment": {"start": "1.1.1.1", "step": "0.0.1.0", "count": 9}}}),
                Kind::Ipv4,
                Pattern::Increment(counter(0x0101_0101, 256, 9)),
            ),
            (
                json!({"f": {"choice": "decrement", "decrement": {"start": "00:00:00:00:01:00", "count": 9}}}),
                Kind::Mac,
                Pattern::Decrement(counter(256, 1, 9)),
            ),
            // A single value or a step of 0 makes a constant field.
            (json!({"f": {"choice": "increment", "increment": {"start": 7}}}), port, Pattern::Value(7)),
            (
                json!({"f": {"choice": "increment", "increment": {"start": 7, "step": 0, "count": 5}}}),
                port,
                Pattern::Value(7),
            ),
            (
                json!({"f": {"choice": "random", "random": {"min": 5, "max": 9, "seed": 3, "count": 100_000}}}),
                port,
                Pattern::Random { low: 5, high: 9, seed: 3 },
            ),
        ] {
            assert_eq!(read(document.clone(), kind), Ok(expected), "{document}");
        }
    }

    #[test]
    fn few_random_values_are_drawn_once_within_limits() {
        let document =
            json!({"f": {"choice": "random", "random": {"min": "2001::5", "max": "2001::9", "count": 200}}});
        let Ok(Pattern::Values(drawn)) = read(document.clone(), Kind::Ipv6) else { panic!("{document}") };
        let low = u128::from("2001::5".parse::<Ipv6Addr>().unwrap());
        assert_eq!(drawn.len(), 200);
        for value in 0..5 {
            assert!(drawn.contains(&(low + value)), "{value}");
        }
        assert!(drawn.iter().all(|value| (low..low + 5).contains(value)));
        assert_eq!(read(document, Kind::Ipv6), Ok(Pattern::Values(drawn)));
    }

    #[test]
    fn seed_0_draws_other_values_each_time() {
        let document = json!({"f": {"choice": "random", "random": {"count": 10, "seed": 0}}});
        let first = read(document.clone(), Kind::Number(u64::MAX)).unwrap();
        assert_ne!(read(document, Kind::Number(u64::MAX)).unwrap(), first);
    }

    #[test]
    fn addresses_vary_only_in_their_low_64_bits() {
        for (document, expected) in [
            (
                json!({"f": {"choice": "values", "values": ["2001::1", "2001::2", "2002::1"]}}),
                "f.values[2]: \"2002::1\" given; give an address of the same /64 as \"2001::1\"",
            ),
            (
                json!({"f": {"choice": "increment", "increment": {"step": "0:0:0:1::", "count": 2}}}),
                "f.increment.step: \"0:0:0:1::\" given; give at most ::ffff:ffff:ffff:ffff: only the low 64 bits of an address vary",
            ),
            (
                json!({"f": {"choice": "increment", "increment": {"start": "::ffff:ffff:ffff:fffe", "count": 3}}}),
                "f.increment: the addresses are not of one /64: only the low 64 bits of an address vary",
            ),
            (
                json!({"f": {"choice": "decrement", "decrement": {"start": "2001::1", "count": 3}}}),
                "f.decrement: the addresses are not of one /64: only the low 64 bits of an address vary",
            ),
            (
                json!({"f": {"choice": "random", "random": {}}}),
                "f.random: min and max are not of one /64: only the low 64 bits of an address vary",
            ),
        ] {
            assert_eq!(read(document, Kind::Ipv6), Err(vec![expected.to_owned()]));
        }
    }

    #[test]
    fn wrong_values_are_reported_with_the_allowed_values() {
        for (document, kind, expected) in [
            (
                json!({"f": {"value": 65536}}),
                Kind::Number(65535),
                "f.value: 65536 given; give a whole number from 0 to 65535",
            ),
            (json!({"f": {"value": 2}}), Kind::Bit, "f.value: 2 given; give 0 or 1"),
            (
                json!({"f": {"value": "1.2.3"}}),
                Kind::Ipv4,
                "f.value: \"1.2.3\" given; give an IPv4 address like 198.18.0.1",
            ),
            (
                json!({"f": {"choice": "values", "values": []}}),
                Kind::Bit,
                "f.values: 0 values given; give 1 to 65536",
            ),
            (
                json!({"f": {"choice": "values", "values": ["02:00:00:00:00:01", 5]}}),
                Kind::Mac,
                "f.values[1]: 5 given; give an Ethernet address like 02:00:00:00:00:01",
            ),
            (
                json!({"f": {"choice": "random", "random": {"min": 9, "max": 5}}}),
                Kind::Number(9),
                "f.random.min: 9 given; give at most max, 5",
            ),
            (
                json!({"f": {"choice": "value", "value": 1, "metric_tags": [{"name": "x"}]}}),
                Kind::Bit,
                "f.metric_tags: not supported; supported are value, values, increment, decrement, random",
            ),
            (
                json!({"f": {"choice": "auto"}}),
                Kind::Bit,
                "f.auto: not supported; supported are value, values, increment, decrement, random",
            ),
            (
                json!({"f": {"choice": "increment", "increment": {"count": 0}}}),
                Kind::Bit,
                "f.increment.count: 0 given; give a whole number from 1 to 4294967295",
            ),
        ] {
            assert_eq!(read(document, kind), Err(vec![expected.to_owned()]));
        }
    }

    #[test]
    fn values_are_written_in_stream_definition_form() {
        for (kind, number, expected) in [
            (Kind::Number(9), 9, json!(9)),
            (Kind::Bit, 1, json!(true)),
            (Kind::Mac, 0x0200_0000_0001, json!("02:00:00:00:00:01")),
            (Kind::Ipv4, 0x0102_0304, json!("1.2.3.4")),
            (Kind::Ipv6, 1, json!("::1")),
        ] {
            assert_eq!(kind.written(number), expected);
        }
    }
}
