//! Requests and replies that may be longer than one message.

use super::connection::Experimenter;
use super::flow::{AggregateStats, FlowStats, FlowStatsRequest};
use super::group::{GroupDesc, GroupFeatures, GroupRequest, GroupStats};
use super::meter::{MeterConfig, MeterFeatures, MeterRequest, MeterStats};
use super::port::{PortDesc, PortStats, PortStatsRequest};
use super::queue::{QueueStats, QueueStatsRequest};
use super::table::{TableFeatures, TableStats};
use super::{HEADER_BYTES, MAX_BYTES, MessageHeader, VERSION};
use crate::error::{ErrorCode, TooLong};
use crate::text_field::Text;
use crate::wire::{Reader, Wire, pad, put, wire_kinds, wire_struct};

wire_struct! {
    /// Description of the switch in words.
    pub struct SwitchDesc {
        pub manufacturer: Text<256>,
        pub hardware: Text<256>,
        pub software: Text<256>,
        pub serial: Text<32>,
        /// Description of this datapath.
        pub datapath: Text<256>,
    }
}

wire_kinds! {
    /// A multipart request.
    pub enum MultipartRequest: u16 {
        /// Requests the description of the switch.
        Description = 0,
        /// Requests flow entries.
        Flows(body: FlowStatsRequest) = 1,
        /// Requests sums over flow entries.
        Aggregate(body: FlowStatsRequest) = 2,
        /// Requests the counters of tables.
        Tables = 3,
        /// Requests the counters of ports.
        Ports(body: PortStatsRequest) = 4,
        /// Requests the counters of queues.
        Queues(body: QueueStatsRequest) = 5,
        /// Requests the counters of groups.
        Groups(body: GroupRequest) = 6,
        /// Requests the groups.
        GroupDescriptions = 7,
        /// Requests the features of groups.
        GroupFeatures = 8,
        /// Requests the counters of meters.
        Meters(body: MeterRequest) = 9,
        /// Requests the meters.
        MeterConfigs(body: MeterRequest) = 10,
        /// Requests the features of meters.
        MeterFeatures = 11,
        /// Requests or sets the features of tables.
        TableFeatures(body: Vec<TableFeatures>) = 12,
        /// Requests the ports.
        PortDescriptions = 13,
        /// An extension.
        Experimenter(body: Experimenter) = 0xffff,
    } else REQUEST_BAD_MULTIPART;
}

wire_kinds! {
    /// An answer to a multipart request.
    pub enum MultipartReply: u16 {
        /// Description of the switch in words.
        Description(body: Box<SwitchDesc>) = 0,
        /// Flow entries.
        Flows(body: Vec<FlowStats>) = 1,
        /// Sums over flow entries.
        Aggregate(body: AggregateStats) = 2,
        /// Counters of tables.
        Tables(body: Vec<TableStats>) = 3,
        /// Counters of ports.
        Ports(body: Vec<PortStats>) = 4,
        /// Counters of queues.
        Queues(body: Vec<QueueStats>) = 5,
        /// Counters of groups.
        Groups(body: Vec<GroupStats>) = 6,
        /// Groups as they were requested.
        GroupDescriptions(body: Vec<GroupDesc>) = 7,
        /// Features of groups.
        GroupFeatures(body: GroupFeatures) = 8,
        /// Counters of meters.
        Meters(body: Vec<MeterStats>) = 9,
        /// Meters as they were requested.
        MeterConfigs(body: Vec<MeterConfig>) = 10,
        /// Features of meters.
        MeterFeatures(body: MeterFeatures) = 11,
        /// Features of tables.
        TableFeatures(body: Vec<TableFeatures>) = 12,
        /// Ports of the switch.
        PortDescriptions(body: Vec<PortDesc>) = 13,
        /// An extension.
        Experimenter(body: Experimenter) = 0xffff,
    } else REQUEST_BAD_MULTIPART;
}

/// Flag of a multipart message: more messages follow.
const MORE: u16 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultipartRequestMessage {
    /// Whether the request continues in another message. The reader joins the parts.
    pub more: bool,
    /// The request, or a part of it.
    pub request: MultipartRequest,
}

impl Wire for MultipartRequestMessage {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        let (kind, flags): (u16, u16) = (reader.get()?, reader.get()?);
        reader.skip(4)?;
        Ok(Self { more: flags & MORE != 0, request: MultipartRequest::read_kind(kind, reader)? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.request.kind().write(out);
        (if self.more { MORE } else { 0 }).write(out);
        pad(out, 4);
        self.request.write_body(out, &mut |_, _| {});
    }
}

/// A message of a reply to a multipart request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultipartReplyMessage {
    /// Whether the reply continues in another message.
    pub more: bool,
    /// The reply, or a part of it.
    pub reply: MultipartReply,
}

impl Wire for MultipartReplyMessage {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        let (kind, flags): (u16, u16) = (reader.get()?, reader.get()?);
        reader.skip(4)?;
        Ok(Self { more: flags & MORE != 0, reply: MultipartReply::read_kind(kind, reader)? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.head(self.more, out);
        self.reply.write_body(out, &mut |_, _| {});
    }
}

impl MultipartReplyMessage {
    /// Offset of the flags in a message, bytes.
    const FLAGS_AT: usize = HEADER_BYTES + 2;

    fn head(&self, more: bool, out: &mut Vec<u8>) {
        self.reply.kind().write(out);
        (if more { MORE } else { 0 }).write(out);
        pad(out, 4);
    }

    /// Appends as many messages as the reply needs, or nothing if one entry is too long for any.
    pub(super) fn encode(&self, kind: u8, xid: u32, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let before = out.len();
        let begin = |out: &mut Vec<u8>| {
            let start = out.len();
            MessageHeader { version: VERSION, kind, length: 0, xid }.write(out);
            self.head(self.more, out);
            start
        };
        let mut start = begin(out);
        let empty_bytes = out.len() - start;
        let mut fits = true;
        self.reply.write_body(out, &mut |out, entry| {
            if out.len() - start <= MAX_BYTES {
                return;
            }
            // The entry that did not fit goes into a new message.
            let moved = out.split_off(entry);
            finish(out, start, Some(MORE));
            start = begin(out);
            fits &= empty_bytes + moved.len() <= MAX_BYTES;
            out.extend(moved);
        });
        finish(out, start, None);
        if !fits {
            out.truncate(before);
            return Err(TooLong);
        }
        Ok(())
    }
}

/// Stores the length of the message from `start` on, and the flags if there are new ones.
fn finish(out: &mut [u8], start: usize, flags: Option<u16>) {
    let length = (out.len() - start) as u16;
    let flags = flags.map(|flags| (MultipartReplyMessage::FLAGS_AT, flags));
    for (at, value) in [(2, length)].into_iter().chain(flags) {
        put(out, start + at, value);
    }
}

#[cfg(test)]
crate::tests::sample::sample_struct!(MultipartRequestMessage { more: bool, request: MultipartRequest });
#[cfg(test)]
crate::tests::sample::sample_struct!(MultipartReplyMessage { more: bool, reply: MultipartReply });
