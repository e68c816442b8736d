//! Definitions of streams, in TOML, JSON or code.
//!
//! ```toml
//! [[stream]]
//! name = "web"
//! weight = 7
//! size = "imix"
//! packet = [
//!     {ethernet = {destination = "02:00:00:00:00:02"}},
//!     {vlan = {id = 100, priority = 3}},
//!     {ipv4 = {source = "198.18.0.1", dscp = 10}},
//!     {udp = {destination = 53}},
//! ]
//! modify = [
//!     {field = "ipv4.source", increment = {count = 1000}},
//!     {field = "udp.source", random = {seed = 7, low = 1024, high = 65535}},
//! ]
//! ```
//!
//! Reading a definition does not check it as a whole; [`StreamDefinition::compile`] does. Errors name the stream, the
//! field, the given value, and the allowed values.

mod error;
mod reversed;

use std::path::PathBuf;

use ringroad_wire::mac::Mac;
use serde::{Deserialize, Deserializer, Serialize};

pub use self::error::{Problem, StreamError};
use crate::frame_size_mix::FrameSizeMix;
use crate::frame_source::FrameSource;
use crate::header::{Ethernet, Header, HexBytes, Ipv4, Udp};
use crate::modifier::ModifierDefinition;
use crate::payload::Payload;

/// Highest weight of a stream.
pub const MAX_WEIGHT: u32 = 10_000;

/// One stream: frames of one kind, with sizes and fields that vary.
///
/// The frames are made from `packet`, `size` and `payload`, or from a template: `frame` or `pcap`. `signature`, `flows`
/// and `modify` apply to both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamDefinition {
    /// Name for users; by default "stream 0" for the first stream, and so on.
    pub name: String,
    /// Share of the load's frames relative to the other streams, 1 to [`MAX_WEIGHT`].
    pub weight: u32,
    /// Sizes of the frames; 64 bytes if not given. Not allowed with a template, which has a size of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<FrameSizeMix>,
    /// Whether frames carry a signature ([`crate::signature`]) in their last bytes; true if not given.
    pub signature: bool,
    /// The bytes after the headers; zeros if not given. Not allowed with a template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Payload>,
    /// Headers, the outermost first; Ethernet, IPv4 and UDP if not given. Not allowed with a template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet: Option<Vec<Header>>,
    /// A template, without FCS; padded with zeros to 60 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<HexBytes>,
    /// A template from a capture file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcap: Option<PcapTemplate>,
    /// Whether the lengths and checksums of a template's headers are computed; true if not given. Lengths then reach to
    /// the end of the frame, and each frame has right checksums, except for UDP checksums that are 0. If false, lengths
    /// and checksums stay unchanged, whatever is modified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix_checksums: Option<bool>,
    /// Number of flows, 1 to [`crate::modifier::MAX_FLOWS`]; each frame belongs to the next flow. The source port of
    /// the outermost UDP or TCP header varies. If there are too few ports from the header's own port on, the source
    /// address of the IP header before it varies as well. Without such a header, the outermost IP source address
    /// varies, or the Ethernet source address if there is no IP header.
    pub flows: u64,
    /// Whether each flow has an Ethernet source address of its own as well.
    pub flow_macs: bool,
    /// Fields that vary.
    pub modify: Vec<ModifierDefinition>,
}

/// A frame of a capture file. The caller reads the file: see [`StreamDefinition::with_template`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PcapTemplate {
    pub file: PathBuf,
    /// Index of the frame, from 0; the first frame if not given.
    #[serde(default)]
    pub index: u64,
}

impl Default for StreamDefinition {
    fn default() -> Self {
        Self {
            name: String::new(),
            weight: 1,
            size: None,
            signature: true,
            payload: None,
            packet: None,
            frame: None,
            pcap: None,
            fix_checksums: None,
            flows: 1,
            flow_macs: false,
            modify: Vec::new(),
        }
    }
}

impl StreamDefinition {
    /// The same stream, with a frame (without FCS) as its template instead of a capture file.
    #[must_use]
    pub fn with_template(mut self, frame: Vec<u8>) -> Self {
        self.pcap = None;
        self.frame = Some(HexBytes(frame));
        self
    }

    /// Makes the source of the frames. `wire_stream` is the stream's number in signatures; each sender of a stream
    /// needs its own number.
    ///
    /// # Errors
    /// [`StreamError`], which names the field that is wrong.
    pub fn compile(&self, wire_stream: u16) -> Result<FrameSource, StreamError> {
        let made = if (1..=MAX_WEIGHT).contains(&self.weight) {
            FrameSource::compile(self, wire_stream)
        } else {
            Err(StreamError::out_of_range("weight", self.weight, format!("1 to {MAX_WEIGHT}")))
        };
        made.map_err(|error| error.of(&self.name))
    }

    /// Ethernet destination address of the first frame; `None` if the frame does not begin with an Ethernet header.
    #[must_use]
    pub fn destination(&self) -> Option<Mac> {
        match (&self.frame, self.packet.as_deref()) {
            (Some(frame), _) => Some(Mac::from_octets(*frame.0.first_chunk()?)),
            (None, Some([Header::Ethernet(ethernet), ..])) => Some(ethernet.destination),
            (None, Some(_)) => None,
            (None, None) => Some(Ethernet::default().destination),
        }
    }

    /// The headers of the definition, or the default headers.
    pub(crate) fn headers(&self) -> Vec<Header> {
        self.packet.clone().unwrap_or_else(|| {
            vec![
                Header::Ethernet(Ethernet::default()),
                Header::Ipv4(Ipv4::default()),
                Header::Udp(Udp::default()),
            ]
        })
    }
}

/// Streams, as a file lists them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamList {
    #[serde(rename = "stream", default)]
    pub streams: Vec<StreamDefinition>,
}

impl StreamList {
    /// Reads streams, and names streams without a name after their index, "stream 0" for the first. Refuses a name that
    /// occurs twice.
    ///
    /// # Errors
    /// [`ReadError`] with the path of the field in the file.
    pub fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, ReadError> {
        let mut list: Self = serde_path_to_error::deserialize(deserializer).map_err(|error| ReadError {
            field: error.path().to_string(),
            reason: error.into_inner().to_string().trim_end().to_owned(),
        })?;
        list.name_streams()?;
        Ok(list)
    }

    /// Checks and sets names as [`Self::read`] does, for streams from other sources.
    ///
    /// # Errors
    /// [`ReadError`] if two streams have the same name.
    pub fn name_streams(&mut self) -> Result<(), ReadError> {
        for index in 0..self.streams.len() {
            let (before, rest) = self.streams.split_at_mut(index);
            let Some(stream) = rest.first_mut() else { continue };
            if stream.name.is_empty() {
                stream.name = format!("stream {index}");
            }
            if let Some(other) = before.iter().position(|other| other.name == stream.name) {
                return Err(ReadError {
                    field: format!("stream[{index}].name"),
                    reason: format!("stream[{other}] has the name \"{}\" already", stream.name),
                });
            }
        }
        Ok(())
    }
}

/// A definition that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
#[non_exhaustive]
pub struct ReadError {
    /// Path of the field, like `stream[1].packet[0].ipv4.ttl`.
    pub field: String,
    pub reason: String,
}

#[cfg(test)]
mod tests;
