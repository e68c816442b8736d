//! Actions and instructions.

use std::fmt;

use ringroad_wire::ether_type;

use super::matching;
use super::value::{self, Hexadecimal, Value};
use super::{Pair, Pairs, TextError, Word};
use crate::action::{Effect, WHOLE_PACKET, untold_max_len};
use crate::oxm::{Prerequisite, VLAN_PRESENT};
use crate::{Action, ErrorCode, FieldValue, Instructions, Match, OxmField, PortNo};

/// Reads actions. The meaning of some depends on the packets.
struct ActionReader<'a> {
    matching: &'a Match,
    /// Whether the packet has a VLAN tag after the actions so far.
    is_tagged: bool,
    actions: Vec<Action>,
}

impl<'a> ActionReader<'a> {
    fn new(matching: &'a Match) -> Self {
        Self { matching, is_tagged: matching.has(Prerequisite::Tagged), actions: Vec::new() }
    }

    fn set(&mut self, field: OxmField, value: u128, word: Word) -> Result<(), TextError> {
        self.push(Action::SetField(FieldValue { field, value }), word)
    }

    fn push(&mut self, action: Action, word: Word) -> Result<(), TextError> {
        action.check().map_err(|error| {
            word.wrong(match error {
                ErrorCode::ACTION_BAD_OUT_PORT => "nothing can be sent to this port".to_owned(),
                ErrorCode::ACTION_BAD_SET_TYPE => "this field cannot be set".to_owned(),
                ErrorCode::ACTION_BAD_SET_ARGUMENT => "the field cannot have this value".to_owned(),
                ErrorCode::ACTION_BAD_ARGUMENT => "this is not an Ethernet type for such a tag".to_owned(),
                other => other.to_string(),
            })
        })?;
        match action.effect() {
            Effect::VlanTag { is_pushed } => self.is_tagged = is_pushed,
            Effect::Output(_)
            | Effect::Group(_)
            | Effect::Queue(_)
            | Effect::Field(_)
            | Effect::Ttl
            | Effect::Header => {}
        }
        self.actions.push(action);
        Ok(())
    }

    /// Adds a tag, if there is none, before a field of the tag is set. Open vSwitch does the same.
    fn tag(&mut self, word: Word) -> Result<(), TextError> {
        if self.is_tagged { Ok(()) } else { self.push(Action::PushVlan(ether_type::VLAN), word) }
    }

    fn read(&mut self, pair: &Pair) -> Result<(), TextError> {
        let whole = pair.whole;
        if let Some(action) = Action::from_pair(pair, self.matching)? {
            return self.push(action, whole);
        }
        let action = match pair.key.text {
            key if key.eq_ignore_ascii_case("controller") => {
                Action::Output { port: PortNo::CONTROLLER, max_len: controller_bytes(pair)? }
            }
            "mod_vlan_vid" | "set_vlan_vid" => {
                let vid = pair.value()?.number::<u16>()?;
                if vid > 0xfff {
                    return Err(whole.wrong("a VLAN is 0 to 4095"));
                }
                self.tag(whole)?;
                return self.set(OxmField::VlanVid, u128::from(vid) | VLAN_PRESENT, whole);
            }
            "mod_vlan_pcp" | "set_vlan_pcp" => {
                let pcp = value::value(OxmField::VlanPcp, pair.value()?)?;
                self.tag(whole)?;
                return self.set(OxmField::VlanPcp, pcp, whole);
            }
            "mod_nw_tos" => {
                let tos = pair.value()?.number::<u8>()?;
                if tos & 3 != 0 {
                    return Err(whole.wrong("the two lowest bits are the ECN: use mod_nw_ecn"));
                }
                return self.set(OxmField::IpDscp, u128::from(tos >> 2), whole);
            }
            key if shorthand(key).is_some() => {
                let field = named(Word::new(shorthand(key).unwrap_or_default()), self.matching)?;
                return self.set(field, value::value(field, pair.value()?)?, whole);
            }
            _ if pair.value.is_none() && value::port(pair.key).is_ok() => output(value::port(pair.key)?),
            _ => return Err(whole.wrong("no action or port has this name")),
        };
        self.push(action, whole)
    }
}

/// An argument that follows the name of an action.
pub(crate) trait FromPair: Sized {
    /// Reads the argument. `matching` is the match of the entry that the action belongs to.
    fn from_pair(pair: &Pair, matching: &Match) -> Result<Self, TextError>;
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl FromPair for $number {
            fn from_pair(pair: &Pair, _: &Match) -> Result<Self, TextError> {
                pair.value()?.number()
            }
        }
    )*};
}
numbers!(u8 u16 u32);

impl FromPair for PortNo {
    fn from_pair(pair: &Pair, _: &Match) -> Result<Self, TextError> {
        value::port(pair.value()?)
    }
}

impl FromPair for FieldValue {
    fn from_pair(pair: &Pair, matching: &Match) -> Result<Self, TextError> {
        let (of_value, name) =
            pair.value()?.split_once("->").ok_or_else(|| pair.whole.wrong("write set_field:VALUE->FIELD"))?;
        let field = named(name, matching)?;
        Ok(Self { field, value: value::value(field, of_value)? })
    }
}

/// Text as in `set_field`: `VALUE->FIELD`.
impl fmt::Display for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}->{}", Value(self.field, self.value), set_name(self.field))
    }
}

/// Finds a field by name. Only ports have one name for several protocols; the match selects the protocol.
fn named(name: Word, matching: &Match) -> Result<OxmField, TextError> {
    let anything = Match::default();
    let known = if name.text.starts_with("tp_") { matching } else { &anything };
    matching::field(name, known).ok_or_else(|| name.wrong("no field has this name"))
}

/// Field that an action with a name of its own sets.
fn shorthand(key: &str) -> Option<&'static str> {
    Some(match key {
        "mod_dl_src" => "eth_src",
        "mod_dl_dst" => "eth_dst",
        "mod_nw_src" => "nw_src",
        "mod_nw_dst" => "nw_dst",
        "mod_nw_ecn" => "ip_ecn",
        "mod_tp_src" => "tp_src",
        "mod_tp_dst" => "tp_dst",
        "set_mpls_label" => "mpls_label",
        "set_mpls_tc" => "mpls_tc",
        "set_tunnel" | "set_tunnel64" => "tunnel_id",
        _ => return None,
    })
}

fn output(port: PortNo) -> Action {
    Action::Output { port, max_len: untold_max_len(port) }
}

/// Reads `controller`, `controller:BYTES` or `controller(max_len=BYTES)`.
fn controller_bytes(pair: &Pair) -> Result<u16, TextError> {
    let Some(value) = pair.value else { return Ok(WHOLE_PACKET) };
    if !pair.whole.text.ends_with(')') {
        return value.number();
    }
    let mut bytes = WHOLE_PACKET;
    for option in Pairs::new(value) {
        let option = option?;
        match option.key.text {
            "max_len" => bytes = option.value()?.number()?,
            _ => return Err(option.whole.wrong("OpenFlow 1.3 knows only max_len here")),
        }
    }
    Ok(bytes)
}

/// Reads the actions of a bucket or of an action set.
pub(super) fn actions(text: Word, matching: &Match) -> Result<Vec<Action>, TextError> {
    let mut reader = ActionReader::new(matching);
    if text.trimmed().text == "drop" {
        return Ok(reader.actions);
    }
    for pair in Pairs::new(text) {
        reader.read(&pair?)?;
    }
    Ok(reader.actions)
}

/// Reads the actions of a flow, which include instructions.
pub(super) fn instructions(text: Word, matching: &Match) -> Result<Instructions, TextError> {
    let mut found = Instructions::default();
    if text.trimmed().text == "drop" {
        return Ok(found);
    }
    fn once<T>(slot: &mut Option<T>, value: T, word: Word) -> Result<(), TextError> {
        match slot.replace(value) {
            Some(_) => Err(word.wrong("this is there twice")),
            None => Ok(()),
        }
    }
    let mut reader = ActionReader::new(matching);
    for pair in Pairs::new(text) {
        let pair = pair?;
        match pair.key.text {
            "drop" => return Err(pair.whole.wrong("nothing can stand beside drop")),
            "meter" => once(&mut found.meter, pair.value()?.number()?, pair.whole)?,
            "clear_actions" => {
                pair.no_value()?;
                if std::mem::replace(&mut found.clear, true) {
                    return Err(pair.whole.wrong("this is there twice"));
                }
            }
            "write_actions" => {
                once(&mut found.write, actions(pair.value()?, matching)?, pair.whole)?;
            }
            "write_metadata" => {
                let value = pair.value()?;
                let metadata = match value.split_once("/") {
                    Some((value, mask)) => (value.number()?, mask.number()?),
                    None => (value.number()?, u64::MAX),
                };
                once(&mut found.metadata, metadata, pair.whole)?;
            }
            "goto_table" => once(&mut found.goto, pair.value()?.number()?, pair.whole)?,
            _ => reader.read(&pair)?,
        }
    }
    found.apply = (!reader.actions.is_empty()).then_some(reader.actions);
    Ok(found)
}

/// Name of a field in set_field, as in Open vSwitch.
fn set_name(field: OxmField) -> &'static str {
    match field {
        OxmField::Ipv4Src => "ip_src",
        OxmField::Ipv4Dst => "ip_dst",
        OxmField::IpEcn => "nw_ecn",
        OxmField::Ipv6Flabel => "ipv6_label",
        OxmField::TunnelId => "tun_id",
        OxmField::Icmpv4Type => "icmp_type",
        OxmField::Icmpv4Code => "icmp_code",
        OxmField::Ipv6NdTarget => "nd_target",
        OxmField::Ipv6NdSll => "nd_sll",
        OxmField::Ipv6NdTll => "nd_tll",
        _ => field.name(),
    }
}

/// A list of actions; `drop` if there is none.
pub(super) struct ActionsText<'a>(pub &'a [Action]);

impl fmt::Display for ActionsText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("drop");
        }
        for (at, action) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            write!(f, "{action}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match *self {
            Self::Output { port: PortNo::CONTROLLER, max_len } => write!(f, "CONTROLLER:{max_len}"),
            Self::Output { port, .. } if port.reserved_name().is_some() => write!(f, "{port}"),
            ref action => action.text(f),
        }
    }
}

/// Instructions as a list of actions; `drop` if there is none.
impl fmt::Display for Instructions {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Instructions { meter, apply, clear, write, metadata, goto } = self;
        let mut words = Vec::new();
        words.extend(meter.map(|meter| format!("meter:{meter}")));
        words.extend(
            apply.as_ref().filter(|apply| !apply.is_empty()).map(|apply| ActionsText(apply).to_string()),
        );
        words.extend(clear.then(|| "clear_actions".to_owned()));
        words.extend(write.as_ref().map(|write| format!("write_actions({})", ActionsText(write))));
        words.extend(metadata.map(|(value, mask)| {
            let [value, mask_text] = [value, mask].map(|number| Hexadecimal(number.into()));
            match mask {
                u64::MAX => format!("write_metadata:{value}"),
                _ => format!("write_metadata:{value}/{mask_text}"),
            }
        }));
        words.extend(goto.map(|table| format!("goto_table:{table}")));
        f.write_str(if words.is_empty() { "drop" } else { "" })?;
        f.write_str(&words.join(","))
    }
}
