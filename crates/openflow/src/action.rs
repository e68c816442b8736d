//! Actions on packets.

use std::fmt;

use ringroad_wire::ether_type;

use crate::error::ErrorCode;
use crate::oxm::{FieldValue, Match, OxmField};
use crate::text::{FromPair, Pair, TextError};
use crate::wire::{Reader, Wire, kind_and_part, pad, to_eight};

/// Number of a port. Numbers above [`PortNo::MAX`] are reserved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortNo(pub u32);

impl PortNo {
    /// Highest number that a port of the switch can have; the lowest is 1.
    pub const MAX: Self = Self(0xffff_ff00);
    /// Sends the packet back by the port that it came in by.
    pub const IN_PORT: Self = Self(0xffff_fff8);
    /// Sends the packet through the flow tables, from a packet-out.
    pub const TABLE: Self = Self(0xffff_fff9);
    /// Forwards the packet as a switch without OpenFlow would.
    pub const NORMAL: Self = Self(0xffff_fffa);
    /// Floods the packet as a switch without OpenFlow would.
    pub const FLOOD: Self = Self(0xffff_fffb);
    /// All ports but the one that the packet came in by.
    pub const ALL: Self = Self(0xffff_fffc);
    /// The controllers.
    pub const CONTROLLER: Self = Self(0xffff_fffd);
    /// The switch's own network interface.
    pub const LOCAL: Self = Self(0xffff_fffe);
    /// Wildcard in requests that choose flows: every port, or none.
    pub const ANY: Self = Self(0xffff_ffff);

    /// Reserved numbers and their names.
    pub const RESERVED: [(Self, &'static str); 8] = [
        (Self::IN_PORT, "IN_PORT"),
        (Self::TABLE, "TABLE"),
        (Self::NORMAL, "NORMAL"),
        (Self::FLOOD, "FLOOD"),
        (Self::ALL, "ALL"),
        (Self::CONTROLLER, "CONTROLLER"),
        (Self::LOCAL, "LOCAL"),
        (Self::ANY, "ANY"),
    ];

    /// Name of a reserved number.
    pub fn reserved_name(self) -> Option<&'static str> {
        Self::RESERVED.iter().find(|(port, _)| *port == self).map(|(_, name)| *name)
    }

    /// Whether a port of the switch can have this number.
    pub fn is_physical(self) -> bool {
        (1..=Self::MAX.0).contains(&self.0)
    }
}

impl fmt::Display for PortNo {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.reserved_name() {
            Some(name) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}

impl fmt::Debug for PortNo {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Wire for PortNo {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        reader.get().map(Self)
    }
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

/// Number of bytes that stands for a whole packet, in [`Action::Output`]'s `max_len` and in the switch's configuration.
pub const WHOLE_PACKET: u16 = 0xffff;

/// Effect of an action on a packet. Code that treats actions differently matches on this, without a wildcard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Sends the packet to a port.
    Output(PortNo),
    /// Processes the packet by a group.
    Group(u32),
    /// Chooses a queue of the port.
    Queue(u32),
    /// Sets a field.
    Field(OxmField),
    /// Changes a TTL.
    Ttl,
    /// Pushes a VLAN tag, or pops one.
    VlanTag { is_pushed: bool },
    /// Pushes or pops another header.
    Header,
}

impl Effect {
    /// Whether headers change.
    #[inline]
    pub fn is_on_headers(self) -> bool {
        match self {
            Self::Output(_) | Self::Group(_) | Self::Queue(_) => false,
            Self::Field(_) | Self::Ttl | Self::VlanTag { .. } | Self::Header => true,
        }
    }
}

/// Makes [`Action`] from one row for each kind of action: the variant with its argument, the number in messages, the
/// text with further names, and the [`Effect`]. A check follows if some values of the argument's type are invalid. `in`
/// lists the valid arguments. The `=` after a second argument gives its value for text, which does not have it.
///
/// The rows are in the order in which an action set does its actions (OpenFlow 1.3.5, 5.10).
macro_rules! actions {
    ($(
        $(#[$meaning:meta])*
        $kind:ident
            $(($argument:ident: $type:ident $(in [$($valid:path),*])?))?
            $({ $first:ident: $first_type:ident, $second:ident: $second_type:ident = $untold:expr })?
            = $number:literal, $text:literal $(or $other:literal)*, $effect:expr $(, $check:expr)?;
    )*) => {
        /// An action on a packet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Action {
            $( $(#[$meaning])* $kind $(($type))? $({ $first: $first_type, $second: $second_type })?, )*
        }

        /// Kinds in the order of the rows.
        enum Row { $( $kind, )* }

        // Some rows have arguments that a function does not use.
        #[allow(unused_variables)]
        impl Action {
            /// Numbers of all kinds of actions, in the order in which an action set does them.
            pub const KINDS: [u16; [$( $number ),*].len()] = [$( $number ),*];

            /// Number of this kind of action in messages and in table features.
            pub const fn kind(&self) -> u16 {
                match self { $( Self::$kind { .. } => $number, )* }
            }

            /// Index of this kind in [`Self::KINDS`].
            #[inline]
            pub const fn set_order(&self) -> usize {
                match self { $( Self::$kind { .. } => Row::$kind as usize, )* }
            }

            /// Effect of the action on a packet.
            #[inline]
            pub const fn effect(&self) -> Effect {
                match *self { $( Self::$kind $(($argument))? $({ $first, $second })? => $effect, )* }
            }

            /// Checks the argument. Fails if no switch could carry out the action.
            pub fn check(&self) -> Result<(), ErrorCode> {
                match *self {$(
                    Self::$kind $(($argument))? $({ $first, $second })? => {
                        $($( if ![$( $valid ),*].contains(&$argument) {
                            return Err(ErrorCode::ACTION_BAD_ARGUMENT);
                        } )?)?
                        $( $check?; )?
                    }
                )*}
                Ok(())
            }

            fn read_kind(kind: u16, body: &mut Reader) -> Result<Self, ErrorCode> {
                Ok(match kind {
                    $( $number => Self::$kind
                        $((body.get::<$type>()?))? $({ $first: body.get()?, $second: body.get()? })?, )*
                    EXPERIMENTER => return Err(ErrorCode::ACTION_BAD_EXPERIMENTER),
                    _ => return Err(ErrorCode::ACTION_BAD_TYPE),
                })
            }

            fn write_body(&self, out: &mut Vec<u8>) {
                match self {$(
                    Self::$kind $(($argument))? $({ $first, $second })? => {
                        $( $argument.write(out); )?
                        $( $first.write(out); $second.write(out); )?
                    }
                )*}
            }

            /// Reads an action by one of its names; `None` if no action has this name. `matching` is the match of the
            /// entry.
            pub(crate) fn from_pair(pair: &Pair, matching: &Match) -> Result<Option<Self>, TextError> {
                let name = pair.key.text;
                $( if name == name_in($text) $(|| name == $other)* {
                    let () = no_argument!(pair $(, $type)? $(, $first)?);
                    $( let $argument = $type::from_pair(pair, matching)?; )?
                    $( let $first = $first_type::from_pair(pair, matching)?; let $second = $untold; )?
                    return Ok(Some(Self::$kind $(($argument))? $({ $first, $second })?));
                } )*
                Ok(None)
            }

            /// Writes the action as text.
            pub(crate) fn text(&self, f: &mut fmt::Formatter) -> fmt::Result {
                match self { $( Self::$kind $(($argument))? $({ $first, $second })? => write!(f, $text), )* }
            }
        }

        #[cfg(test)]
        impl crate::tests::sample::Sample for Action {
            fn sample() -> proptest::strategy::BoxedStrategy<Self> {
                use crate::tests::sample::one_of;
                use proptest::strategy::{Just, Strategy, Union};
                let rows = [$(
                    (
                        Just(()),
                        $( one_of::<$type>(&[$($( $valid ),*)?]), )?
                        $( one_of::<$first_type>(&[]), one_of::<$second_type>(&[]), )?
                    )
                        .prop_map(|((), $( $argument, )? $( $first, $second, )?)| {
                            Self::$kind $(($argument))? $({ $first, $second })?
                        })
                        .prop_filter("valid arguments", |action| action.check().is_ok())
                        .boxed(),
                )*];
                Union::new(rows).boxed()
            }
        }
    };
}

/// Checks that no value follows the name of an action without an argument.
macro_rules! no_argument {
    ($pair:ident) => {
        $pair.no_value()?
    };
    ($pair:ident, $argument:ident) => {
        ()
    };
}

actions! {
    /// Copy the TTL of the outermost header inwards.
    CopyTtlIn = 12, "copy_ttl_in", Effect::Ttl;
    /// Pop the outermost VLAN tag.
    PopVlan = 18, "pop_vlan" or "strip_vlan", Effect::VlanTag { is_pushed: false };
    /// Pop the outermost MPLS header, and set the Ethernet type of the header below.
    PopMpls(ethertype: u16) = 20, "pop_mpls:{ethertype:#06x}", Effect::Header;
    /// Pop the outermost PBB service tag.
    PopPbb = 27, "pop_pbb", Effect::Header;
    /// Push an MPLS header with this Ethernet type.
    PushMpls(ethertype: u16 in [ether_type::MPLS, ether_type::MPLS_MULTICAST]) = 19, "push_mpls:{ethertype:#06x}", Effect::Header;
    /// Push a PBB service tag with this Ethernet type.
    PushPbb(ethertype: u16 in [ether_type::PBB]) = 26, "push_pbb:{ethertype:#06x}", Effect::Header;
    /// Push a VLAN tag with this Ethernet type.
    PushVlan(ethertype: u16 in [ether_type::VLAN, ether_type::SERVICE_VLAN]) = 17, "push_vlan:{ethertype:#06x}",
        Effect::VlanTag { is_pushed: true };
    /// Copy the TTL of the second outermost header outwards.
    CopyTtlOut = 11, "copy_ttl_out", Effect::Ttl;
    /// Decrement the IP TTL.
    DecNwTtl = 24, "dec_ttl" or "dec_nw_ttl", Effect::Ttl;
    /// Decrement the MPLS TTL.
    DecMplsTtl = 16, "dec_mpls_ttl", Effect::Ttl;
    /// Set the IP TTL.
    SetNwTtl(ttl: u8) = 23, "mod_nw_ttl:{ttl}" or "set_nw_ttl", Effect::Ttl;
    /// Set the MPLS TTL.
    SetMplsTtl(ttl: u8) = 15, "set_mpls_ttl({ttl})", Effect::Ttl;
    /// Set a field.
    SetField(set: FieldValue) = 25, "set_field:{set}", Effect::Field(set.field), set.check();
    /// Choose the queue of the port.
    SetQueue(queue: u32) = 21, "set_queue:{queue}", Effect::Queue(queue);
    /// Process the packet by a group.
    Group(group: u32) = 22, "group:{group}", Effect::Group(group), check_group(group);
    /// Send the packet to a port; `max_len` is the number of bytes that a controller gets of a packet that the switch
    /// keeps in a buffer.
    Output { port: PortNo, max_len: u16 = untold_max_len(port) } = 0, "output:{port}",
        Effect::Output(port), check_port(port);
}

const EXPERIMENTER: u16 = 0xffff;

fn check_group(group: u32) -> Result<(), ErrorCode> {
    if group > crate::group_id::MAX { Err(ErrorCode::ACTION_BAD_OUT_GROUP) } else { Ok(()) }
}

fn check_port(port: PortNo) -> Result<(), ErrorCode> {
    let is_target = port.is_physical() || port != PortNo::ANY && port.reserved_name().is_some();
    if is_target { Ok(()) } else { Err(ErrorCode::ACTION_BAD_OUT_PORT) }
}

/// Default of `max_len`: a controller gets the whole packet, and for other ports the number has no meaning.
pub(crate) fn untold_max_len(port: PortNo) -> u16 {
    if port == PortNo::CONTROLLER { WHOLE_PACKET } else { 0 }
}

/// Name at the beginning of an action's text.
fn name_in(text: &'static str) -> &'static str {
    text.split([':', '(']).next().unwrap_or(text)
}

impl Wire for Action {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        let (kind, mut body) = reader.reporting(ErrorCode::ACTION_BAD_LEN, Reader::kind_and_part)?;
        if body.len() < 4 || body.len() % 8 != 4 {
            return Err(ErrorCode::ACTION_BAD_LEN);
        }
        // Padding follows the argument, up to a multiple of eight bytes and no further.
        let with_padding = body.len();
        let action = Self::read_kind(kind, &mut body)?;
        let argument = with_padding - body.len();
        body.skip((4 + argument.max(1)).next_multiple_of(8) - 4 - argument)?;
        body.finish()?;
        action.check().map(|()| action)
    }

    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        kind_and_part(out, self.kind(), |out| {
            self.write_body(out);
            pad(out, to_eight(out.len() - start));
        });
    }
}
