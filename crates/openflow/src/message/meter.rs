//! Meters: their changes, their bands and counters.

use crate::error::ErrorCode;
use crate::wire::{Reader, Wire, kind_and_part, pad, wire_enum, wire_flags, wire_struct};

wire_enum! {
    /// Command of a [`MeterMod`].
    pub enum MeterCommand: u16 {
        /// Adds a meter.
        Add = 0,
        /// Changes a meter.
        Modify = 1,
        /// Deletes a meter, or all meters.
        Delete = 2,
    } else METER_BAD_COMMAND;
}

wire_flags! {
    pub struct MeterFlags: u16 {
        /// Rates are in kbit/s.
        KBPS = 1,
        /// Rates are in packets per second.
        PKTPS = 2,
        /// Bands have a burst size.
        BURST = 4,
        /// The meter has counters.
        STATS = 8,
    } else METER_BAD_FLAGS;
}

/// A band: what a meter does with packets above a rate. Rates are in kbit/s or packets per second, bursts in kilobits
/// or packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MeterBand {
    /// Drops the packets.
    Drop { rate: u32, burst: u32 },
    /// Raises the drop precedence in the packets' DSCP by some levels.
    DscpRemark { rate: u32, burst: u32, levels: u8 },
}

const DROP: u16 = 1;
const DSCP_REMARK: u16 = 2;

impl Wire for MeterBand {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        let (kind, mut band) = reader.reporting(ErrorCode::METER_BAD_BAND, Reader::kind_and_part)?;
        let (rate, burst) = (band.get()?, band.get()?);
        let read = match kind {
            DROP => {
                band.skip(4)?;
                Self::Drop { rate, burst }
            }
            DSCP_REMARK => {
                let levels = band.get()?;
                band.skip(3)?;
                Self::DscpRemark { rate, burst, levels }
            }
            _ => return Err(ErrorCode::METER_BAD_BAND),
        };
        band.finish().map(|()| read)
    }

    fn write(&self, out: &mut Vec<u8>) {
        let (kind, rate, burst, levels) = match *self {
            Self::Drop { rate, burst } => (DROP, rate, burst, 0),
            Self::DscpRemark { rate, burst, levels } => (DSCP_REMARK, rate, burst, levels),
        };
        kind_and_part(out, kind, |out| {
            rate.write(out);
            burst.write(out);
            levels.write(out);
            pad(out, 3);
        });
    }
}

wire_struct! {
    /// A change of meters.
    pub struct MeterMod {
        /// Command to carry out.
        pub command: MeterCommand,
        /// Flags, with the unit of the rates.
        pub flags: MeterFlags,
        /// Number of the meter; [`meter_id::ALL`](crate::meter_id::ALL) to delete all.
        pub meter: u32,
        pub bands: Vec<MeterBand>,
    }

    /// Requests one meter, or all with [`meter_id::ALL`](crate::meter_id::ALL).
    pub struct MeterRequest {
        pub meter: u32 => 4,
    }

    /// Counters of a band.
    pub struct BandStats {
        /// Number of packets above the band's rate.
        pub packets: u64,
        /// Number of bytes of these packets.
        pub bytes: u64,
    }

    /// Features of a switch's meters.
    pub struct MeterFeatures {
        /// Maximum number of meters.
        pub max_meters: u32,
        /// Bit mask of the supported kinds of bands: 2 is drop, 4 is DSCP remark.
        pub band_kinds: u32,
        /// Supported flags of a meter, as a bit mask.
        pub capabilities: u32,
        /// Maximum number of bands of a meter.
        pub max_bands: u8,
        /// Maximum number of colours.
        pub max_colors: u8 => 2,
    }

    /// Counters of a meter.
    pub struct MeterStats {
        [pub meter: u32, length => 6]
        /// Number of flow entries that use the meter.
        pub flows: u32,
        /// Number of packets that reached the meter.
        pub packets: u64,
        /// Number of bytes of these packets.
        pub bytes: u64,
        /// Age of the meter, in whole seconds.
        pub duration_s: u32,
        /// Remainder of the age, in nanoseconds.
        pub duration_ns: u32,
        /// Counters of the bands.
        pub bands: Vec<BandStats>,
    }

    /// A meter as it was requested.
    pub struct MeterConfig {
        [length]
        /// Flags, with the unit of the rates.
        pub flags: MeterFlags,
        pub meter: u32,
        pub bands: Vec<MeterBand>,
    }
}
