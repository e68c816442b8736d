//! Actions on packets.

use std::fmt;

use ringroad_wire::ether_type;

use crate::error::ErrorCode;
use crate::oxm::FieldValue;
use crate::wire::{Reader, Wire, pad, sized, to_eight};

/// The number of a port. Those above [`PortNo::MAX`] are reserved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortNo(pub u32);

impl PortNo {
    /// The highest number that a port of the switch can have; the lowest is 1.
    pub const MAX: Self = Self(0xffff_ff00);
    /// Back to where the packet came from.
    pub const IN_PORT: Self = Self(0xffff_fff8);
    /// Through the flow tables, from a packet-out.
    pub const TABLE: Self = Self(0xffff_fff9);
    /// As a switch without OpenFlow would.
    pub const NORMAL: Self = Self(0xffff_fffa);
    /// Flooding as a switch without OpenFlow would.
    pub const FLOOD: Self = Self(0xffff_fffb);
    /// All ports but where the packet came from.
    pub const ALL: Self = Self(0xffff_fffc);
    /// The controllers.
    pub const CONTROLLER: Self = Self(0xffff_fffd);
    /// The switch's own network interface.
    pub const LOCAL: Self = Self(0xffff_fffe);
    /// No port, or every port: in requests that choose flows.
    pub const ANY: Self = Self(0xffff_ffff);

    /// The reserved numbers and their names.
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

    /// The name of a reserved number.
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

/// A packet goes to the controller whole: in [`Action::Output`]'s `max_len` and in the switch's configuration.
pub const WHOLE_PACKET: u16 = 0xffff;

/// What is done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send it to a port; `max_len` is how many of its bytes go to a controller.
    Output { port: PortNo, max_len: u16 },
    /// Copy the TTL of the second outermost header outwards.
    CopyTtlOut,
    /// Copy the TTL of the outermost header inwards.
    CopyTtlIn,
    /// Set the MPLS TTL.
    SetMplsTtl(u8),
    /// Decrement the MPLS TTL.
    DecMplsTtl,
    /// Push a VLAN tag with this Ethernet type.
    PushVlan(u16),
    /// Pop the outermost VLAN tag.
    PopVlan,
    /// Push an MPLS header with this Ethernet type.
    PushMpls(u16),
    /// Pop the outermost MPLS header; the Ethernet type of what is below.
    PopMpls(u16),
    /// Choose the queue of the port.
    SetQueue(u32),
    /// Process it by a group.
    Group(u32),
    /// Set the IP TTL.
    SetNwTtl(u8),
    /// Decrement the IP TTL.
    DecNwTtl,
    /// Set a field.
    SetField(FieldValue),
    /// Push a PBB service tag with this Ethernet type.
    PushPbb(u16),
    /// Pop the outermost PBB service tag.
    PopPbb,
}

const EXPERIMENTER: u16 = 0xffff;

impl Action {
    /// The number of this kind of action in messages and in table features.
    pub fn kind(&self) -> u16 {
        match self {
            Self::Output { .. } => 0,
            Self::CopyTtlOut => 11,
            Self::CopyTtlIn => 12,
            Self::SetMplsTtl(_) => 15,
            Self::DecMplsTtl => 16,
            Self::PushVlan(_) => 17,
            Self::PopVlan => 18,
            Self::PushMpls(_) => 19,
            Self::PopMpls(_) => 20,
            Self::SetQueue(_) => 21,
            Self::Group(_) => 22,
            Self::SetNwTtl(_) => 23,
            Self::DecNwTtl => 24,
            Self::SetField(_) => 25,
            Self::PushPbb(_) => 26,
            Self::PopPbb => 27,
        }
    }

    /// Errors: an argument that no switch could carry out.
    pub fn check(&self) -> Result<(), ErrorCode> {
        match self {
            Self::Output { port, .. } if port.is_physical() => Ok(()),
            Self::Output { port, .. } if *port == PortNo::ANY || port.reserved_name().is_none() => {
                Err(ErrorCode::ACTION_BAD_OUT_PORT)
            }
            Self::PushVlan(ethertype)
                if !matches!(*ethertype, ether_type::VLAN | ether_type::SERVICE_VLAN) =>
            {
                Err(ErrorCode::ACTION_BAD_ARGUMENT)
            }
            Self::PushMpls(ethertype)
                if !matches!(*ethertype, ether_type::MPLS | ether_type::MPLS_MULTICAST) =>
            {
                Err(ErrorCode::ACTION_BAD_ARGUMENT)
            }
            Self::PushPbb(ethertype) if *ethertype != ether_type::PBB => Err(ErrorCode::ACTION_BAD_ARGUMENT),
            Self::Group(group) if *group > crate::group_id::MAX => Err(ErrorCode::ACTION_BAD_OUT_GROUP),
            Self::SetField(set) => set.check(),
            _ => Ok(()),
        }
    }
}

impl Wire for Action {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        let mut within = reader.within(ErrorCode::ACTION_BAD_LEN);
        let kind: u16 = within.get()?;
        let mut body = within.sized(2)?;
        *reader = within.within(reader.bad_length());
        if body.len() < 4 || body.len() % 8 != 4 {
            return Err(ErrorCode::ACTION_BAD_LEN);
        }
        // What follows the argument is padding, and only to the multiple of eight.
        let with_padding = body.len();
        let action = match kind {
            0 => {
                let output = Self::Output { port: body.get()?, max_len: body.get()? };
                body.skip(6)?;
                output
            }
            11 => Self::CopyTtlOut,
            12 => Self::CopyTtlIn,
            15 => Self::SetMplsTtl(body.get()?),
            16 => Self::DecMplsTtl,
            17 => Self::PushVlan(body.get()?),
            18 => Self::PopVlan,
            19 => Self::PushMpls(body.get()?),
            20 => Self::PopMpls(body.get()?),
            21 => Self::SetQueue(body.get()?),
            22 => Self::Group(body.get()?),
            23 => Self::SetNwTtl(body.get()?),
            24 => Self::DecNwTtl,
            25 => Self::SetField(body.get()?),
            26 => Self::PushPbb(body.get()?),
            27 => Self::PopPbb,
            EXPERIMENTER => return Err(ErrorCode::ACTION_BAD_EXPERIMENTER),
            _ => return Err(ErrorCode::ACTION_BAD_TYPE),
        };
        let argument = with_padding - body.len();
        body.skip((4 + argument.max(1)).next_multiple_of(8) - 4 - argument)?;
        body.finish()?;
        action.check().map(|()| action)
    }

    fn write(&self, out: &mut Vec<u8>) {
        sized(out, 2, |out| {
            let start = out.len();
            self.kind().write(out);
            0u16.write(out);
            match self {
                Self::Output { port, max_len } => {
                    port.write(out);
                    max_len.write(out);
                }
                Self::SetMplsTtl(ttl) | Self::SetNwTtl(ttl) => ttl.write(out),
                Self::PushVlan(ethertype)
                | Self::PushMpls(ethertype)
                | Self::PopMpls(ethertype)
                | Self::PushPbb(ethertype) => ethertype.write(out),
                Self::SetQueue(number) | Self::Group(number) => number.write(out),
                Self::SetField(set) => set.write(out),
                Self::CopyTtlOut
                | Self::CopyTtlIn
                | Self::DecMplsTtl
                | Self::PopVlan
                | Self::DecNwTtl
                | Self::PopPbb => {}
            }
            pad(out, to_eight(out.len() - start));
        });
    }
}
