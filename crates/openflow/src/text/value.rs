//! Values of fields.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use ringroad_wire::mac::Mac;

use super::{TextError, Word};
use crate::error::ErrorCode;
use crate::oxm::Notation;
use crate::{FieldMatch, OxmField, PortNo};

/// Reads a port: its number or a reserved name.
pub(super) fn port(word: Word) -> Result<PortNo, TextError> {
    if let Some((port, _)) = PortNo::RESERVED.iter().find(|(_, name)| name.eq_ignore_ascii_case(word.text)) {
        return Ok(*port);
    }
    if !word.text.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(
            word.wrong("this is not a port: a number, or LOCAL, IN_PORT, NORMAL, FLOOD, ALL, CONTROLLER")
        );
    }
    // Reserved numbers of OpenFlow 1.0, which are still in use.
    match word.number::<u32>()? {
        old @ 0xfff8..=0xffff => Ok(PortNo(old | 0xffff_0000)),
        number => Ok(PortNo(number)),
    }
}

fn mac(word: Word) -> Result<u128, TextError> {
    let wrong = || word.wrong("this is not a MAC address, as 00:11:22:33:44:55");
    Mac::from_short_text(word.text).map(|mac| mac.number().into()).ok_or_else(wrong)
}

fn one(notation: Notation, word: Word) -> Result<u128, TextError> {
    match notation {
        Notation::Decimal | Notation::Hexadecimal => word.number(),
        Notation::Port => port(word).map(|port| port.0.into()),
        Notation::Mac => mac(word),
        Notation::Ipv4 => {
            let parsed: Result<Ipv4Addr, _> = word.text.parse();
            parsed
                .map(|address| u32::from(address).into())
                .map_err(|_| word.wrong("this is not an IPv4 address"))
        }
        Notation::Ipv6 => {
            let parsed: Result<Ipv6Addr, _> = word.text.parse();
            parsed.map(u128::from).map_err(|_| word.wrong("this is not an IPv6 address"))
        }
    }
}

/// Reads the value of a field, and checks its width.
pub(super) fn value(field: OxmField, word: Word) -> Result<u128, TextError> {
    let value = one(field.notation(), word)?;
    if value & !field.all_ones() != 0 {
        return Err(word.wrong(format!("{field} has {} bits", field.bits())));
    }
    Ok(value)
}

/// Reads `value` or `value/mask`. The mask of an address may be the length of a prefix.
pub(super) fn matched(field: OxmField, word: Word) -> Result<FieldMatch, TextError> {
    let Some((of_value, of_mask)) = word.split_once("/") else {
        return Ok(FieldMatch::exact(field, value(field, word)?));
    };
    let is_prefix = matches!(field.notation(), Notation::Ipv4 | Notation::Ipv6)
        && of_mask.text.bytes().all(|digit| digit.is_ascii_digit());
    let mask = if is_prefix {
        let length = of_mask.number::<u32>()?;
        let host =
            field.bits().checked_sub(length).ok_or_else(|| of_mask.wrong("this prefix is too long"))?;
        field.all_ones().checked_shl(host).unwrap_or(0) & field.all_ones()
    } else {
        value(field, of_mask)?
    };
    // A field without relevant bits is left out, if it may have a mask at all.
    let matched = FieldMatch { field, value: value(field, of_value)? & mask, mask };
    match matched.check() {
        Err(ErrorCode::MATCH_BAD_MASK) => Err(word.wrong(format!("{field} takes no mask"))),
        Err(error) => Err(word.wrong(error.to_string())),
        Ok(()) => Ok(matched),
    }
}

/// Text of a value, or of a mask in the same notation.
pub(super) struct Value(pub OxmField, pub u128);

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self(field, value) = *self;
        match field.notation() {
            Notation::Decimal => write!(f, "{value}"),
            Notation::Port => write!(f, "{}", PortNo(value as u32)),
            Notation::Mac => write!(f, "{}", Mac::from_number(value as u64)),
            Notation::Ipv4 => write!(f, "{}", Ipv4Addr::from(value as u32)),
            Notation::Ipv6 => write!(f, "{}", Ipv6Addr::from(value)),
            Notation::Hexadecimal if field == OxmField::EthType => write!(f, "{value:#06x}"),
            Notation::Hexadecimal if field == OxmField::Ipv6Flabel => write!(f, "{value:#07x}"),
            Notation::Hexadecimal => write!(f, "{}", Hexadecimal(value)),
        }
    }
}

/// Text of a number as Open vSwitch prints those of 64 bits: zero without `0x`.
pub(super) struct Hexadecimal(pub u128);

impl fmt::Display for Hexadecimal {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.0 == 0 { f.write_str("0") } else { write!(f, "{:#x}", self.0) }
    }
}

/// Text of a field's match, as [`matched`] reads it.
pub(super) struct Matched<'a>(pub &'a FieldMatch);

impl fmt::Display for Matched<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let FieldMatch { field, value, mask } = *self.0;
        let prefix = mask.count_ones();
        let is_prefix =
            mask.checked_shr(field.bits() - prefix).is_some_and(|mask| mask.trailing_ones() == prefix);
        match field.notation() {
            _ if self.0.is_exact() => write!(f, "{}", Value(field, value)),
            Notation::Decimal => write!(f, "{value:#x}/{mask:#x}"),
            Notation::Ipv4 | Notation::Ipv6 if is_prefix => write!(f, "{}/{prefix}", Value(field, value)),
            _ => write!(f, "{}/{}", Value(field, value), Value(field, mask)),
        }
    }
}
