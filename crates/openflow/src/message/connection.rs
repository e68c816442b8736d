//! Messages about the connection and the whole switch.

use std::borrow::Cow;

use super::VERSION;
use crate::error::ErrorCode;
use crate::wire::{Reader, Wire, kind_and_part, pad, to_eight, wire_enum, wire_flags, wire_struct};

/// First message of a connection. It states the versions that the sender supports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Version in the message's header: the highest one supported.
    pub version: u8,
    /// Bitmap with a bit for each version, version 0 in the lowest bit of the first element. Absent before OpenFlow
    /// 1.3.1.
    pub bitmap: Option<Vec<u32>>,
}

const VERSION_BITMAP: u16 = 1;

impl Hello {
    /// Makes the hello of a program that speaks OpenFlow 1.3 only.
    pub fn ours() -> Self {
        Self { version: VERSION, bitmap: Some(vec![1 << VERSION]) }
    }

    /// Whether the sender speaks OpenFlow 1.3. A sender without a bitmap speaks the header's version and, by the
    /// specification, all lower ones.
    pub fn speaks_ours(&self) -> bool {
        match &self.bitmap {
            Some(bitmap) => bitmap.first().is_some_and(|versions| versions & 1 << VERSION != 0),
            None => self.version >= VERSION,
        }
    }
}

impl Wire for Hello {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        let mut hello = Self { version: VERSION, bitmap: None };
        while !reader.is_empty() {
            let (kind, mut element) = reader.kind_and_part()?;
            // Padding of the last element may be missing.
            reader.skip(to_eight(4 + element.len()).min(reader.len()))?;
            if kind == VERSION_BITMAP {
                hello.bitmap = Some(element.get()?);
            }
        }
        Ok(hello)
    }

    fn write(&self, out: &mut Vec<u8>) {
        if let Some(bitmap) = &self.bitmap {
            let start = out.len();
            kind_and_part(out, VERSION_BITMAP, |out| bitmap.write(out));
            pad(out, to_eight(out.len() - start));
        }
    }
}

impl ErrorMessage {
    /// Maximum number of bytes of the request in an error. The specification requires at least 64.
    pub const REQUEST_BYTES: usize = 1024;

    /// Makes the error about a request, which is given as received.
    pub fn about(request: &[u8], code: ErrorCode) -> Self {
        Self { code, data: request.iter().copied().take(Self::REQUEST_BYTES).collect() }
    }

    /// Data as text for people.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.data)
    }
}

impl Wire for ErrorCode {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        Ok(Self { kind: reader.get()?, code: reader.get()? })
    }
    fn write(&self, out: &mut Vec<u8>) {
        self.kind.write(out);
        self.code.write(out);
    }
}

wire_struct! {
    /// Reason why a request was not carried out.
    pub struct ErrorMessage {
        /// The reason.
        pub code: ErrorCode,
        /// Beginning of the request; a text if no versions are in common; the experimenter's number and data for
        /// [`ErrorCode::EXPERIMENTER`].
        pub data: Vec<u8>,
    }

    /// A message, or a body of a multipart message, that an experimenter defines.
    pub struct Experimenter {
        pub experimenter: u32,
        /// Kind, in the experimenter's own numbers.
        pub kind: u32,
        /// Data that follows.
        pub data: Vec<u8>,
    }

    /// Features of the switch.
    pub struct SwitchFeatures {
        /// Number that identifies the switch.
        pub datapath_id: u64,
        /// Maximum number of packets that the switch buffers for the controller.
        pub buffers: u32,
        pub tables: u8,
        /// Number of the connection; 0 for the main connection.
        pub auxiliary_id: u8 => 2,
        /// Capabilities of the switch.
        pub capabilities: SwitchCapabilities => 4,
    }

    /// Configuration of the switch.
    pub struct SwitchConfig {
        /// Handling of IP fragments.
        pub fragments: FragmentFlags,
        /// Number of bytes of a packet that go to the controller if no action specifies the number.
        pub miss_send_bytes: u16,
    }

    /// Role of a controller.
    pub struct RoleMessage {
        pub role: ControllerRole => 4,
        /// Generation, which grows with each change of the master.
        pub generation: u64,
    }

    /// Unsolicited messages that a switch sends: a bit for each reason. The first element is for a master or an equal,
    /// the second for a slave.
    pub struct AsyncMasks {
        /// Bits of [`PacketInReason`](super::PacketInReason).
        pub packet_in: [u32; 2],
        /// Bits of [`PortStatusReason`](super::PortStatusReason).
        pub port_status: [u32; 2],
        /// Bits of [`FlowRemovedReason`](super::FlowRemovedReason).
        pub flow_removed: [u32; 2],
    }
}

wire_flags! {
    /// Capabilities of a switch.
    pub struct SwitchCapabilities: u32 {
        /// The switch counts by flow.
        FLOW_STATS = 1,
        /// The switch counts by table.
        TABLE_STATS = 2,
        /// The switch counts by port.
        PORT_STATS = 4,
        /// The switch counts by group.
        GROUP_STATS = 8,
        /// The switch can reassemble IP fragments.
        IP_REASM = 32,
        /// The switch counts by queue.
        QUEUE_STATS = 64,
        /// The switch blocks ports that would make a loop.
        PORT_BLOCKED = 256,
    };
}

wire_enum! {
    /// Handling of IP fragments by a switch.
    pub enum FragmentFlags: u16 {
        /// Fragments are handled like other packets.
        Normal = 0,
        /// Fragments are dropped.
        Drop = 1,
        /// Fragments are reassembled.
        Reassemble = 2,
    } else CONFIG_BAD_FLAGS;

    /// Role of a controller.
    pub enum ControllerRole: u32 {
        /// No change: requests the current role.
        NoChange = 0,
        /// Full access, shared with other controllers.
        Equal = 1,
        /// Full access; the other controllers become slaves.
        Master = 2,
        /// Read access.
        Slave = 3,
    } else ROLE_BAD_ROLE;
}
