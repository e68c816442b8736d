//! Packet headers of a flow: translates the model's names and patterns to headers and modifiers of a stream definition.

mod fields;

use serde_json::{Map, Value, json};

use self::fields::{BYTE, CHOICES, Field, HEADERS, Rule, TCP_FLAGS, varies};
use super::pattern::{Counter, Kind, Pattern, pattern};
use crate::document::Node;

/// Headers and modifiers, in the form of a stream definition.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct PacketTemplate {
    pub(crate) headers: Vec<Value>,
    pub(crate) modifiers: Vec<Value>,
    /// Path in the document of each header, and of the field that each modifier varies.
    header_paths: Vec<String>,
    modifier_paths: Vec<String>,
}

const PATTERNS: &[&str] = &["value", "values", "increment", "decrement", "random"];
const PATTERNS_OR_AUTO: &[&str] = &["value", "values", "auto", "increment", "decrement", "random"];
const VALUE_OR_AUTO: &[&str] = &["value", "auto"];

/// Reads a list of headers; an empty or missing list means an Ethernet header.
pub(crate) fn packet(node: &Node<'_>) -> PacketTemplate {
    let mut packet = PacketTemplate::default();
    let mut items = node.items();
    if items.is_empty() {
        items.push(node.get("ethernet"));
    }
    for item in &items {
        if let Some((choice, chosen)) = item.chosen(CHOICES, "ethernet") {
            packet.push(choice, &chosen);
        }
    }
    packet
}

impl PacketTemplate {
    /// The path in the document of `field`, a field of the stream definition: `modify[0].field`, `packet[1].udp`. `None`
    /// for a field of no header and no modifier.
    pub(crate) fn path_of(&self, field: &str) -> Option<&str> {
        let (paths, rest) = match field.strip_prefix("modify[") {
            Some(rest) => (&self.modifier_paths, rest),
            None => (&self.header_paths, field.strip_prefix("packet[")?),
        };
        let (index, _) = rest.split_once(']')?;
        paths.get(index.parse::<usize>().ok()?).map(String::as_str)
    }

    fn push(&mut self, choice: &'static str, node: &Node<'_>) {
        self.header_paths.push(node.path().to_owned());
        if choice == "custom" {
            self.headers.push(json!({"raw": custom(node)}));
            return;
        }
        let earlier = self.headers.iter().filter(|header| header.get(choice).is_some()).count();
        let path = if earlier == 0 { choice.to_owned() } else { format!("{choice}[{earlier}]") };
        let (modifiers, modifier_paths) = (&mut self.modifiers, &mut self.modifier_paths);
        let mut header = Reading { path, values: Map::new(), modifiers, modifier_paths };
        let fields = HEADERS.iter().find(|(name, _)| *name == choice).map_or(&[][..], |(_, fields)| fields);
        let mut names: Vec<&str> = fields.iter().map(|field| field.name).collect();
        match choice {
            "icmp" | "icmpv6" => {
                if let Some((_, echo)) = node.chosen(&["echo"], "echo") {
                    echo.only(&names);
                    fields.iter().for_each(|field| header.read(&echo, field));
                }
            }
            _ => {
                names.extend(TCP_FLAGS.iter().filter(|_| choice == "tcp").map(|(name, _)| name));
                names.extend((choice == "ipv4").then_some("priority"));
                node.only(&names);
                fields.iter().for_each(|field| header.read(node, field));
            }
        }
        match choice {
            "tcp" => header.values.insert("flags".to_owned(), json!(tcp_flags(node))),
            "ipv4" => {
                header.priority(&node.get("priority"));
                None
            }
            _ => None,
        };
        let values = Value::Object(header.values);
        self.headers.push(Value::Object(Map::from_iter([(choice.to_owned(), values)])));
    }
}

/// Header that is being read.
struct Reading<'a> {
    /// Name of the header in modifiers: `ipv4`, `ipv4[1]`.
    path: String,
    values: Map<String, Value>,
    modifiers: &'a mut Vec<Value>,
    modifier_paths: &'a mut Vec<String>,
}

impl Reading<'_> {
    fn read(&mut self, header: &Node<'_>, field: &Field) {
        let node = header.get(field.name);
        match field.rule {
            Rule::Varies { default } => {
                self.set(field, &node, PATTERNS, Some(default.into()));
            }
            Rule::VariesOrAuto { default } => {
                self.set(field, &node, PATTERNS_OR_AUTO, Some(default.into()));
            }
            Rule::Follows => self.set(field, &node, PATTERNS_OR_AUTO, None),
            Rule::Only(right) => match pattern(&node, field.kind, VALUE_OR_AUTO) {
                Pattern::Value(value) if !right.iter().any(|right| u128::from(*right) == value) => {
                    node.report(only_right(value, right));
                }
                _ => {}
            },
            Rule::Checksum => {
                if let Some(value) = given_checksum(&node) {
                    self.values.insert(field.to.to_owned(), value);
                }
            }
        }
    }

    fn set(&mut self, field: &Field, node: &Node<'_>, choices: &[&'static str], default: Option<u128>) {
        let pattern = pattern(node, field.kind, choices);
        let first = match &pattern {
            Pattern::Auto => default,
            Pattern::Value(value) => Some(*value),
            Pattern::Values(values) => values.first().copied(),
            Pattern::Increment(counter) | Pattern::Decrement(counter) => Some(counter.start),
            Pattern::Random { low, .. } => Some(*low),
        };
        if let Some(first) = first {
            self.values.insert(field.to.to_owned(), field.kind.written(first));
        }
        // Modifiers treat a bit as an ordinary number.
        let kind = if field.kind == Kind::Bit { Kind::Number(1) } else { field.kind };
        let field = format!("{}.{}", self.path, field.to);
        let count =
            |Counter { step, count, .. }: Counter| json!({"step": step as u64, "count": count, "wrap": true});
        let modifier = match pattern {
            Pattern::Auto | Pattern::Value(_) => None,
            Pattern::Values(values) => {
                let list: Vec<Value> = values.into_iter().map(|value| kind.written(value)).collect();
                (list.len() > 1).then(|| json!({"field": field, "list": list}))
            }
            Pattern::Increment(counter) => Some(json!({"field": field, "increment": count(counter)})),
            Pattern::Decrement(counter) => Some(json!({"field": field, "decrement": count(counter)})),
            Pattern::Random { low, high, seed } => {
                let random = json!({"seed": seed, "low": kind.written(low), "high": kind.written(high)});
                Some(json!({"field": field, "random": random}))
            }
        };
        self.modifier_paths.extend(modifier.as_ref().map(|_| node.path().to_owned()));
        self.modifiers.extend(modifier);
    }

    /// Reads the priority byte of IPv4: raw, "type of service", or DSCP and ECN.
    fn priority(&mut self, node: &Node<'_>) {
        const DSCP: Field = varies("phb", Kind::Number(63), 0, "dscp");
        const ECN: Field = varies("ecn", Kind::Number(3), 0, "ecn");
        /// Fields of the byte before DSCP (RFC 791, section 3.1), the largest value of each, and its first bit.
        const TOS: [(&str, u64, u32); 6] = [
            ("precedence", 7, 5),
            ("delay", 1, 4),
            ("throughput", 1, 3),
            ("reliability", 1, 2),
            ("monetary", 1, 1),
            ("unused", 1, 0),
        ];
        let byte = match node.given(&["raw", "tos", "dscp"], "dscp") {
            Some(("dscp", dscp)) => {
                dscp.only(&["phb", "ecn"]);
                self.read(&dscp, &DSCP);
                self.read(&dscp, &ECN);
                return;
            }
            Some(("raw", raw)) => constant(&raw, BYTE),
            Some((_, tos)) => {
                tos.only(&TOS.map(|(name, ..)| name));
                TOS.iter()
                    .map(|(name, most, shift)| constant(&tos.get(name), Kind::Number(*most)) << shift)
                    .sum()
            }
            None => return,
        };
        self.values.insert("dscp".to_owned(), json!((byte >> 2) as u64));
        self.values.insert("ecn".to_owned(), json!((byte & 3) as u64));
    }
}

fn only_right(given: u128, right: &[u64]) -> String {
    match right {
        [] => format!("{given} given, but it is always computed; leave it out"),
        [right, ..] => format!("{given} given; only {right} is supported"),
    }
}

/// Reads a field that has the same value in all frames of a flow; 0 by default.
fn constant(node: &Node<'_>, kind: Kind) -> u128 {
    match pattern(node, kind, &["value"]) {
        Pattern::Value(value) => value,
        _ => 0,
    }
}

fn given_checksum(node: &Node<'_>) -> Option<Value> {
    let (choice, chosen) = node.given(&["generated", "custom"], "generated")?;
    if choice == "custom" {
        return Some(json!(chosen.whole(0, 0xffff, 0)));
    }
    if chosen.one_of(&["good", "bad"], "good") == "bad" {
        chosen.report("\"bad\" is not supported; give a custom checksum");
    }
    None
}

fn tcp_flags(node: &Node<'_>) -> String {
    TCP_FLAGS
        .iter()
        .filter(|(name, _)| constant(&node.get(name), Kind::Bit) == 1)
        .map(|(_, letter)| letter)
        .collect()
}

fn custom(node: &Node<'_>) -> String {
    node.only(&["bytes"]);
    let node = node.get("bytes");
    let text = node.required_text();
    let digits = text.strip_prefix("0x").or(text.strip_prefix("0X")).unwrap_or(text);
    let digits: String = digits.chars().filter(|digit| !matches!(digit, ' ' | ':')).collect();
    if !text.is_empty() && (digits.len() % 2 == 1 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit())) {
        node.report_value("pairs of hexadecimal digits");
    }
    digits
}

#[cfg(test)]
mod tests;
