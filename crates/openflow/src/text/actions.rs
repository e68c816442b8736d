//! Actions and instructions.

use std::fmt;

use super::matching;
use super::value::{self, Hexadecimal, Value};
use super::{Pair, Pairs, TextError, Word};
use crate::action::WHOLE_PACKET;
use crate::oxm::{Prerequisite, VLAN_PRESENT};
use crate::{Action, ErrorCode, Field, FieldValue, Instructions, Match, PortNo};

/// Reads actions, some of which mean different things to different packets.
struct ActionReader<'a> {
    matching: &'a Match,
    /// Whether the packet has a VLAN tag by now.
    is_tagged: bool,
    actions: Vec<Action>,
}

impl<'a> ActionReader<'a> {
    fn new(matching: &'a Match) -> Self {
        Self { matching, is_tagged: matching.has(Prerequisite::Tagged), actions: Vec::new() }
    }

    fn set(&mut self, field: Field, value: u128, word: Word) -> Result<(), TextError> {
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
        match action {
            Action::PushVlan(_) => self.is_tagged = true,
            Action::PopVlan => self.is_tagged = false,
            _ => {}
        }
        self.actions.push(action);
        Ok(())
    }

    /// The field of a name. Only ports have one name for several protocols; the match selects the protocol.
    fn named(&self, name: Word) -> Result<Field, TextError> {
        let anything = Match::default();
        let known = if name.text.starts_with("tp_") { self.matching } else { &anything };
        matching::field(name, known).ok_or_else(|| name.wrong("no field has this name"))
    }

    /// As Open vSwitch does, a tag comes before what is set in it.
    fn tag(&mut self, word: Word) -> Result<(), TextError> {
        if self.is_tagged { Ok(()) } else { self.push(Action::PushVlan(0x8100), word) }
    }

    fn read(&mut self, pair: &Pair) -> Result<(), TextError> {
        let whole = pair.whole;
        let number = || -> Result<u32, TextError> { pair.value()?.number() };
        let byte = || -> Result<u8, TextError> { pair.value()?.number() };
        let ethernet_type = || -> Result<u16, TextError> { pair.value()?.number() };
        let plain = |action| pair.no_value().map(|()| action);
        let action = match pair.key.text {
            "output" => output(value::port(pair.value()?)?),
            key if key.eq_ignore_ascii_case("controller") => {
                Action::Output { port: PortNo::CONTROLLER, max_len: controller_bytes(pair)? }
            }
            "copy_ttl_out" => plain(Action::CopyTtlOut)?,
            "copy_ttl_in" => plain(Action::CopyTtlIn)?,
            "set_mpls_ttl" => Action::SetMplsTtl(byte()?),
            "dec_mpls_ttl" => plain(Action::DecMplsTtl)?,
            "push_vlan" => Action::PushVlan(ethernet_type()?),
            "pop_vlan" | "strip_vlan" => plain(Action::PopVlan)?,
            "push_mpls" => Action::PushMpls(ethernet_type()?),
            "pop_mpls" => Action::PopMpls(ethernet_type()?),
            "set_queue" => Action::SetQueue(number()?),
            "group" => Action::Group(number()?),
            "mod_nw_ttl" | "set_nw_ttl" => Action::SetNwTtl(byte()?),
            "dec_ttl" | "dec_nw_ttl" => plain(Action::DecNwTtl)?,
            "push_pbb" => Action::PushPbb(ethernet_type()?),
            "pop_pbb" => plain(Action::PopPbb)?,
            "set_field" => {
                let (of_value, name) = pair
                    .value()?
                    .split_once("->")
                    .ok_or_else(|| whole.wrong("write set_field:VALUE->FIELD"))?;
                let field = self.named(name)?;
                return self.set(field, value::value(field, of_value)?, whole);
            }
            "mod_vlan_vid" | "set_vlan_vid" => {
                let vid = pair.value()?.number::<u16>()?;
                if vid > 0xfff {
                    return Err(whole.wrong("a VLAN is 0 to 4095"));
                }
                self.tag(whole)?;
                return self.set(Field::VlanVid, u128::from(vid) | VLAN_PRESENT, whole);
            }
            "mod_vlan_pcp" | "set_vlan_pcp" => {
                let pcp = value::value(Field::VlanPcp, pair.value()?)?;
                self.tag(whole)?;
                return self.set(Field::VlanPcp, pcp, whole);
            }
            "mod_nw_tos" => {
                let tos = byte()?;
                if tos & 3 != 0 {
                    return Err(whole.wrong("the two lowest bits are the ECN: use mod_nw_ecn"));
                }
                return self.set(Field::IpDscp, u128::from(tos >> 2), whole);
            }
            key if shorthand(key).is_some() => {
                let field = self.named(Word::new(shorthand(key).unwrap_or_default()))?;
                return self.set(field, value::value(field, pair.value()?)?, whole);
            }
            _ if pair.value.is_none() && value::port(pair.key).is_ok() => output(value::port(pair.key)?),
            _ => return Err(whole.wrong("no action or port has this name")),
        };
        self.push(action, whole)
    }
}

/// The field that an action with a name of its own sets.
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
    Action::Output { port, max_len: if port == PortNo::CONTROLLER { WHOLE_PACKET } else { 0 } }
}

/// `controller`, `controller:BYTES` or `controller(max_len=BYTES)`.
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

/// The actions of a bucket or of an action set.
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

/// The actions, among them instructions, of a flow.
pub(super) fn instructions(text: Word, matching: &Match) -> Result<Instructions, TextError> {
    let mut found = Instructions::default();
    if text.trimmed().text == "drop" {
        return Ok(found);
    }
    fn once<T>(place: &mut Option<T>, value: T, word: Word) -> Result<(), TextError> {
        match place.replace(value) {
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

/// The name of a field in set_field, as in Open vSwitch.
fn set_name(field: Field) -> &'static str {
    match field {
        Field::Ipv4Src => "ip_src",
        Field::Ipv4Dst => "ip_dst",
        Field::IpEcn => "nw_ecn",
        Field::Ipv6Flabel => "ipv6_label",
        Field::TunnelId => "tun_id",
        Field::Icmpv4Type => "icmp_type",
        Field::Icmpv4Code => "icmp_code",
        Field::Ipv6NdTarget => "nd_target",
        Field::Ipv6NdSll => "nd_sll",
        Field::Ipv6NdTll => "nd_tll",
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
            Action::Output { port: PortNo::CONTROLLER, max_len } => write!(f, "CONTROLLER:{max_len}"),
            Action::Output { port, .. } if port.reserved_name().is_some() => write!(f, "{port}"),
            Action::Output { port, .. } => write!(f, "output:{port}"),
            Action::CopyTtlOut => f.write_str("copy_ttl_out"),
            Action::CopyTtlIn => f.write_str("copy_ttl_in"),
            Action::SetMplsTtl(ttl) => write!(f, "set_mpls_ttl({ttl})"),
            Action::DecMplsTtl => f.write_str("dec_mpls_ttl"),
            Action::PushVlan(ethernet_type) => write!(f, "push_vlan:{ethernet_type:#06x}"),
            Action::PopVlan => f.write_str("pop_vlan"),
            Action::PushMpls(ethernet_type) => write!(f, "push_mpls:{ethernet_type:#06x}"),
            Action::PopMpls(ethernet_type) => write!(f, "pop_mpls:{ethernet_type:#06x}"),
            Action::SetQueue(queue) => write!(f, "set_queue:{queue}"),
            Action::Group(group) => write!(f, "group:{group}"),
            Action::SetNwTtl(ttl) => write!(f, "mod_nw_ttl:{ttl}"),
            Action::DecNwTtl => f.write_str("dec_ttl"),
            Action::SetField(FieldValue { field, value }) => {
                write!(f, "set_field:{}->{}", Value(field, value), set_name(field))
            }
            Action::PushPbb(ethernet_type) => write!(f, "push_pbb:{ethernet_type:#06x}"),
            Action::PopPbb => f.write_str("pop_pbb"),
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
