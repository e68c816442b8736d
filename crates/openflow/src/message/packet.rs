//! Packets to and from the controller.

use crate::action::{Action, PortNo};
use crate::error::ErrorCode;
use crate::oxm::Match;
use crate::wire::{Reader, Wire, pad, wire_enum, wire_struct};

/// A packet for the switch to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOut {
    /// Buffer of a packet that the switch has kept, in place of `data`.
    pub buffer_id: Option<u32>,
    /// Input port as actions see it; [`PortNo::CONTROLLER`] for none.
    pub in_port: PortNo,
    /// Actions on the packet.
    pub actions: Vec<Action>,
    /// Bytes of the packet.
    pub data: Vec<u8>,
}

impl Wire for PacketOut {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        let (buffer_id, in_port) = (reader.get()?, reader.get()?);
        let actions: u16 = reader.get()?;
        reader.skip(6)?;
        let actions = reader.part(actions.into())?.get()?;
        Ok(Self { buffer_id, in_port, actions, data: reader.get()? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.buffer_id.write(out);
        self.in_port.write(out);
        let mut actions = Vec::new();
        self.actions.write(&mut actions);
        (actions.len() as u16).write(out);
        pad(out, 6);
        out.extend(actions);
        out.extend(&self.data);
    }
}

wire_struct! {
    /// A packet for the controller.
    pub struct PacketIn {
        /// Buffer in which the switch keeps the packet.
        pub buffer_id: Option<u32>,
        /// Length of the whole packet, bytes. `data` may be only its beginning.
        pub total_bytes: u16,
        /// Reason why the packet is sent.
        pub reason: PacketInReason,
        /// Table of the flow entry that sent the packet.
        pub table: u8,
        /// Cookie of the flow entry that sent the packet, or all ones.
        pub cookie: u64,
        /// Input port and metadata, as a match.
        pub matching: Match => 2,
        /// Bytes of the packet, or its beginning.
        pub data: Vec<u8>,
    }
}

/// Number of a packet buffer; all ones in a message stand for none.
impl Wire for Option<u32> {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        let number = reader.get()?;
        Ok((number != u32::MAX).then_some(number))
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.unwrap_or(u32::MAX).write(out);
    }
}

wire_enum! {
    /// Reason why a packet goes to the controller.
    pub enum PacketInReason: u8 {
        /// The table-miss entry sent the packet: no other entry matched.
        NoMatch = 0,
        /// An action of another flow entry sent the packet.
        Action = 1,
        /// The packet's TTL was used up.
        InvalidTtl = 2,
    } else REQUEST_BAD_LEN;
}
