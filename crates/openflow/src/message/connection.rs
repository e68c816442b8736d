//! Messages about the connection and the whole switch.

use std::borrow::Cow;

use super::VERSION;
use crate::error::ErrorCode;
use crate::wire::{Reader, Wire, pad, sized, to_eight, wire_enum, wire_flags, wire_struct};

/// The first message of a connection, which states the versions that its sender supports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The version in the header: the highest.
    pub version: u8,
    /// A bit for each version, version 0 in the lowest of the first element. Absent before OpenFlow 1.3.1.
    pub bitmap: Option<Vec<u32>>,
}

const VERSION_BITMAP: u16 = 1;

impl Hello {
    /// The hello of a program that speaks OpenFlow 1.3 only.
    pub fn ours() -> Self {
        Self { version: VERSION, bitmap: Some(vec![1 << VERSION]) }
    }

    /// Whether the sender speaks OpenFlow 1.3. A sender without a bitmap speaks its version and, by the specification,
    /// all below.
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
            let kind: u16 = reader.get()?;
            let mut element = reader.sized(2)?;
            // The last element's padding may be missing.
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
            sized(out, 2, |out| {
                VERSION_BITMAP.write(out);
                0u16.write(out);
                bitmap.write(out);
            });
            pad(out, to_eight(out.len() - start));
        }
    }
}

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorMessage {
    /// The reason.
    pub code: ErrorCode,
    /// The beginning of the request; a text if no versions are in common; the experimenter's number, and any data, for
    /// [`ErrorCode::EXPERIMENTER`].
    pub data: Vec<u8>,
}

impl ErrorMessage {
    /// The bytes of a request that an error holds. The specification requires at least 64.
    pub const REQUEST_BYTES: usize = 1024;

    /// The error to send about a request, which is given as it came.
    pub fn about(request: &[u8], code: ErrorCode) -> Self {
        Self { code, data: request.iter().copied().take(Self::REQUEST_BYTES).collect() }
    }

    /// The data as text for people.
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

impl Wire for ErrorMessage {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        Ok(Self { code: reader.get()?, data: reader.get()? })
    }
    fn write(&self, out: &mut Vec<u8>) {
        self.code.write(out);
        self.data.write(out);
    }
}

wire_struct! {
    /// A message, or a body of a multipart message, that an experimenter defines.
    pub struct Experimenter {
        /// Who.
        pub experimenter: u32,
        /// What, in that one's numbers.
        pub kind: u32,
        /// The rest.
        pub data: Vec<u8>,
    }

    /// The switch and what it can do.
    pub struct SwitchFeatures {
        /// The number of the switch.
        pub datapath_id: u64,
        /// The most packets that it buffers for the controller.
        pub buffers: u32,
        /// The number of its tables.
        pub tables: u8,
        /// 0 for the main connection.
        pub auxiliary_id: u8 => 2,
        /// What it can do.
        pub capabilities: SwitchCapabilities => 4,
    }

    /// The configuration of the switch.
    pub struct SwitchConfig {
        /// What it does with IP fragments.
        pub fragments: FragmentFlags,
        /// The bytes of a packet that go to the controller if no action gives their number.
        pub miss_send_bytes: u16,
    }

    /// A controller's role.
    pub struct RoleMessage {
        /// The role.
        pub role: ControllerRole => 4,
        /// Grows with each change of the master.
        pub generation: u64,
    }

    /// Which messages a switch sends of itself: a bit for each reason. The first of each is for a master or an equal,
    /// the second for a slave.
    pub struct AsyncMasks {
        /// By [`PacketInReason`](super::PacketInReason).
        pub packet_in: [u32; 2],
        /// By [`PortStatusReason`](super::PortStatusReason).
        pub port_status: [u32; 2],
        /// By [`FlowRemovedReason`](super::FlowRemovedReason).
        pub flow_removed: [u32; 2],
    }
}

wire_flags! {
    /// What a switch can do.
    pub struct SwitchCapabilities: u32 {
        /// It counts by flow.
        FLOW_STATS = 1,
        /// It counts by table.
        TABLE_STATS = 2,
        /// It counts by port.
        PORT_STATS = 4,
        /// It counts by group.
        GROUP_STATS = 8,
        /// It can put IP fragments together.
        IP_REASM = 32,
        /// It counts by queue.
        QUEUE_STATS = 64,
        /// It blocks ports that would make a loop.
        PORT_BLOCKED = 256,
    };
}

wire_enum! {
    /// What a switch does with IP fragments.
    pub enum FragmentFlags: u16 {
        /// Nothing special.
        Normal = 0,
        /// It drops them.
        Drop = 1,
        /// It puts them together.
        Reassemble = 2,
    } else CONFIG_BAD_FLAGS;

    /// The role of a controller.
    pub enum ControllerRole: u32 {
        /// Requests the current role.
        NoChange = 0,
        /// Full access, as others.
        Equal = 1,
        /// Full access; others become slaves.
        Master = 2,
        /// May only read.
        Slave = 3,
    } else ROLE_BAD_ROLE;
}
