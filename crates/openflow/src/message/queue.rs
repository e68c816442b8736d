//! Queues of ports.

use crate::action::PortNo;
use crate::error::ErrorCode;
use crate::wire::{Reader, Wire, kind_and_part, pad, wire_struct};

wire_struct! {
    /// Requests the queues of one port, or of all with [`PortNo::ANY`].
    pub struct QueueConfigRequest {
        pub port: PortNo => 4,
    }

    /// Queues of a port.
    pub struct QueueConfig {
        /// The requested port.
        pub port: PortNo => 4,
        /// Queues of the port.
        pub queues: Vec<QueueDesc>,
    }

    /// Requests counters of queues.
    pub struct QueueStatsRequest {
        /// Number of the port, or [`PortNo::ANY`].
        pub port: PortNo,
        /// Number of the queue; all ones for all queues.
        pub queue: u32,
    }

    /// Counters of a queue.
    pub struct QueueStats {
        /// Port of the queue.
        pub port: PortNo,
        pub queue: u32,
        /// Number of bytes sent.
        pub tx_bytes: u64,
        /// Number of packets sent.
        pub tx_packets: u64,
        /// Number of packets dropped.
        pub tx_errors: u64,
        /// Age of the queue, in whole seconds.
        pub duration_s: u32,
        /// Remainder of the age, in nanoseconds.
        pub duration_ns: u32,
    }

    /// A queue.
    pub struct QueueDesc {
        [
            pub queue: u32,
            /// Port of the queue.
            pub port: PortNo,
            length => 6
        ]
        /// Settings of the queue.
        pub properties: Vec<QueueProperty>,
    }
}

/// A setting of a queue. Rates are in thousandths of the port's rate; above 1000 means no rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueProperty {
    /// Guaranteed rate.
    MinRate(u16),
    /// Maximum rate.
    MaxRate(u16),
    /// An experimenter's setting.
    Experimenter { experimenter: u32, data: Vec<u8> },
}

const MIN_RATE: u16 = 1;
const MAX_RATE: u16 = 2;
const EXPERIMENTER: u16 = 0xffff;

impl Wire for QueueProperty {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        let (kind, mut body) = reader.kind_and_part()?;
        body.skip(4)?;
        let property = match kind {
            MIN_RATE => Self::MinRate(body.get()?),
            MAX_RATE => Self::MaxRate(body.get()?),
            EXPERIMENTER => {
                let experimenter = body.get()?;
                body.skip(4)?;
                return Ok(Self::Experimenter { experimenter, data: body.get()? });
            }
            _ => return Err(ErrorCode::REQUEST_BAD_TYPE),
        };
        body.skip(6)?;
        body.finish().map(|()| property)
    }

    fn write(&self, out: &mut Vec<u8>) {
        let (kind, rate) = match self {
            Self::MinRate(rate) => (MIN_RATE, rate),
            Self::MaxRate(rate) => (MAX_RATE, rate),
            Self::Experimenter { experimenter, data } => {
                return kind_and_part(out, EXPERIMENTER, |out| {
                    pad(out, 4);
                    experimenter.write(out);
                    pad(out, 4);
                    data.write(out);
                });
            }
        };
        kind_and_part(out, kind, |out| {
            pad(out, 4);
            rate.write(out);
            pad(out, 6);
        });
    }
}
