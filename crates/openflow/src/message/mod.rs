//! Messages between a controller, or a tool, and a switch.

mod connection;
mod flow;
mod group;
mod meter;
mod multipart;
mod packet;
mod port;
mod queue;
mod table;

pub use connection::{
    AsyncMasks, ControllerRole, ErrorMessage, Experimenter, FragmentFlags, Hello, RoleMessage,
    SwitchCapabilities, SwitchConfig, SwitchFeatures,
};
pub use flow::{
    AggregateStats, FlowCommand, FlowFlags, FlowMod, FlowRemoved, FlowRemovedReason, FlowStats,
    FlowStatsRequest,
};
pub use group::{
    Bucket, BucketStats, GroupCapabilities, GroupCommand, GroupDesc, GroupFeatures, GroupKind, GroupMod,
    GroupRequest, GroupStats,
};
pub use meter::{
    BandStats, MeterBand, MeterCommand, MeterConfig, MeterFeatures, MeterFlags, MeterMod, MeterRequest,
    MeterStats,
};
pub use multipart::{
    MultipartReply, MultipartReplyMessage, MultipartRequest, MultipartRequestMessage, SwitchDesc,
};
pub use packet::{PacketIn, PacketInReason, PacketOut};
pub use port::{
    PortConfig, PortDesc, PortFeatures, PortMod, PortState, PortStats, PortStatsRequest, PortStatus,
    PortStatusReason,
};
pub use queue::{QueueConfig, QueueConfigRequest, QueueDesc, QueueProperty, QueueStats, QueueStatsRequest};
pub use table::{PropertyEntries, TableFeatures, TableMod, TableProperty, TableStats};

use crate::error::{ErrorCode, TooLong};
use crate::wire::{Reader, Wire, sized, wire_kinds, wire_struct};

/// Version number of OpenFlow 1.3.
pub const VERSION: u8 = 4;
/// Bytes of a [`MessageHeader`].
pub const HEADER_BYTES: usize = 8;
/// Maximum number of bytes of a message.
pub const MAX_BYTES: usize = u16::MAX as usize;

wire_struct! {
    /// Header at the beginning of every message.
    #[derive(Copy)]
    pub struct MessageHeader {
        /// Version of the protocol.
        pub version: u8,
        /// Kind of the message.
        pub kind: u8,
        /// Length of the message with this header, bytes.
        pub length: u16,
        /// Transaction number, which a reply has from its request.
        pub xid: u32,
    }
}

impl MessageHeader {
    /// Reads the header at the beginning of these bytes; `None` if they are fewer than a header.
    pub fn peek(bytes: &[u8]) -> Option<Self> {
        Reader::new(bytes, ErrorCode::REQUEST_BAD_LEN).get().ok()
    }
}

/// Returns the first message of a stream of bytes; `None` if the message is not complete yet.
///
/// Fails for a length that is shorter than a header: the stream cannot be read on.
pub fn first_message(stream: &[u8]) -> Result<Option<&[u8]>, ErrorCode> {
    match MessageHeader::peek(stream) {
        Some(header) if usize::from(header.length) < HEADER_BYTES => Err(ErrorCode::REQUEST_BAD_LEN),
        Some(header) => Ok(stream.get(..usize::from(header.length))),
        None => Ok(None),
    }
}

wire_kinds! {
    /// A message from a controller or a tool.
    pub enum ControllerMessage: u8 {
        /// The first message of a connection.
        Hello(body: Hello) = 0,
        /// An error: a request or an answer could not be carried out.
        Error(body: ErrorMessage) = 1,
        /// A probe with data, which the switch sends back.
        EchoRequest(body: Vec<u8>) = 2,
        /// The answer to the switch's echo request, with the same data.
        EchoReply(body: Vec<u8>) = 3,
        /// An extension.
        Experimenter(body: Experimenter) = 4,
        /// Requests [`SwitchMessage::Features`].
        Features = 5,
        /// Requests [`SwitchMessage::Config`].
        GetConfig = 7,
        /// Sets the configuration.
        SetConfig(body: SwitchConfig) = 9,
        /// A packet for the switch to send.
        PacketOut(body: PacketOut) = 13,
        /// A change of flow entries.
        FlowMod(body: FlowMod) = 14,
        /// A change of groups.
        GroupMod(body: GroupMod) = 15,
        /// A change of a port.
        PortMod(body: PortMod) = 16,
        /// A change of a table.
        TableMod(body: TableMod) = 17,
        /// Requests data that can need more than one message.
        Multipart(body: MultipartRequestMessage) = 18,
        /// Requests an answer once all earlier requests are done.
        Barrier = 20,
        /// Requests the queues of a port.
        QueueConfig(body: QueueConfigRequest) = 22,
        /// Requests or sets the role of this controller.
        Role(body: RoleMessage) = 24,
        /// Requests [`SwitchMessage::Async`].
        GetAsync = 26,
        /// Chooses the unsolicited messages that the switch sends.
        SetAsync(body: AsyncMasks) = 28,
        /// A change of meters.
        MeterMod(body: MeterMod) = 29,
    } else REQUEST_BAD_TYPE;
}

wire_kinds! {
    /// A message from a switch.
    pub enum SwitchMessage: u8 {
        /// The first message of a connection.
        Hello(body: Hello) = 0,
        /// An error: a request could not be carried out.
        Error(body: ErrorMessage) = 1,
        /// A probe with data, which the peer sends back.
        EchoRequest(body: Vec<u8>) = 2,
        /// The answer to an echo request, with the same data.
        EchoReply(body: Vec<u8>) = 3,
        /// An extension.
        Experimenter(body: Experimenter) = 4,
        /// Features of the switch.
        Features(body: SwitchFeatures) = 6,
        /// Configuration of the switch.
        Config(body: SwitchConfig) = 8,
        /// A packet for the controller.
        PacketIn(body: PacketIn) = 10,
        /// A notification that a flow entry is gone.
        FlowRemoved(body: FlowRemoved) = 11,
        /// A notification that a port was added, removed or changed.
        PortStatus(body: PortStatus) = 12,
        /// Answer to a multipart request, or a part of it.
        Multipart(body: MultipartReplyMessage) = 19,
        /// Answer to a barrier: all earlier requests are done.
        Barrier = 21,
        /// Queues of a port.
        QueueConfig(body: QueueConfig) = 23,
        /// Role of this controller.
        Role(body: RoleMessage) = 25,
        /// Unsolicited messages that the switch sends.
        Async(body: AsyncMasks) = 27,
    } else REQUEST_BAD_TYPE;
}

/// Splits one whole message into header and body.
fn split(message: &[u8]) -> Result<(MessageHeader, Reader<'_>), ErrorCode> {
    let mut reader = Reader::new(message, ErrorCode::REQUEST_BAD_LEN);
    let header: MessageHeader = reader.get()?;
    // The version is not checked in hellos and errors: a hello negotiates it, and an error may report that there is
    // none in common.
    if header.version != VERSION && header.kind > 1 {
        return Err(ErrorCode::REQUEST_BAD_VERSION);
    }
    if usize::from(header.length) != message.len() {
        return Err(ErrorCode::REQUEST_BAD_LEN);
    }
    Ok((header, reader))
}

/// Appends a message to `out`, or nothing if it is too long.
fn append(
    out: &mut Vec<u8>,
    version: u8,
    kind: u8,
    xid: u32,
    body: impl FnOnce(&mut Vec<u8>),
) -> Result<(), TooLong> {
    let start = out.len();
    sized(out, 2, |out| {
        MessageHeader { version, kind, length: 0, xid }.write(out);
        body(out);
    });
    if out.len() - start > MAX_BYTES {
        out.truncate(start);
        return Err(TooLong);
    }
    Ok(())
}

impl ControllerMessage {
    /// Reads one whole message, with its header. Returns the transaction number and the request.
    ///
    /// Fails with the error to send back; see [`ErrorMessage::about`].
    pub fn decode(message: &[u8]) -> Result<(u32, Self), ErrorCode> {
        let (header, mut reader) = split(message)?;
        let mut request = Self::read_kind(header.kind, &mut reader)?;
        reader.finish()?;
        if let Self::Hello(hello) = &mut request {
            hello.version = header.version;
        }
        Ok((header.xid, request))
    }

    /// Appends the message to `out`.
    pub fn encode(&self, xid: u32, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let version = if let Self::Hello(hello) = self { hello.version } else { VERSION };
        append(out, version, self.kind(), xid, |out| self.write_body(out, &mut |_, _| {}))
    }
}

impl SwitchMessage {
    /// Reads one whole message, with its header. Returns the transaction number and the message.
    ///
    /// Fails with the error that a switch would send about such a request.
    pub fn decode(message: &[u8]) -> Result<(u32, Self), ErrorCode> {
        let (header, mut reader) = split(message)?;
        let mut reply = Self::read_kind(header.kind, &mut reader)?;
        reader.finish()?;
        if let Self::Hello(hello) = &mut reply {
            hello.version = header.version;
        }
        Ok((header.xid, reply))
    }

    /// Appends the message to `out`. A list that is too long for one message is split into several.
    ///
    /// Fails, and appends nothing, if one entry alone is too long.
    pub fn encode(&self, xid: u32, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let version = match self {
            Self::Multipart(multipart) => return multipart.encode(self.kind(), xid, out),
            Self::Hello(hello) => hello.version,
            _ => VERSION,
        };
        append(out, version, self.kind(), xid, |out| self.write_body(out, &mut |_, _| {}))
    }
}
