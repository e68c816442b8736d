//! Meters: their changes, their bands and counters.

use crate::error::ErrorCode;
use crate::wire::{Reader, Wire, pad, sized, wire_enum, wire_flags, wire_struct};

wire_enum! {
    /// What a [`MeterMod`] does.
    pub enum MeterCommand: u16 {
        /// Adds a meter.
        Add = 0,
        /// Changes a meter.
        Modify = 1,
        /// Deletes a meter, or all.
        Delete = 2,
    } else METER_BAD_COMMAND;
}

wire_flags! {
    /// Flags of a meter.
    pub struct MeterFlags: u16 {
        /// Rates are in kb/s.
        KBPS = 1,
        /// Rates are in packets a second.
        PKTPS = 2,
        /// Bands have a burst size.
        BURST = 4,
        /// It counts.
        STATS = 8,
    } else METER_BAD_FLAGS;
}

/// What a meter does with packets above a rate. Rates are in kb/s or packets a second, bursts in kilobits or packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MeterBand {
    /// Drops them.
    Drop { rate: u32, burst: u32 },
    /// Raises the drop precedence in their DSCP by some levels.
    DscpRemark { rate: u32, burst: u32, levels: u8 },
}

const DROP: u16 = 1;
const DSCP_REMARK: u16 = 2;

impl Wire for MeterBand {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        let mut within = reader.within(ErrorCode::METER_BAD_BAND);
        let kind: u16 = within.get()?;
        let mut band = within.sized(2)?;
        *reader = within.within(reader.bad_length());
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
        sized(out, 2, |out| {
            kind.write(out);
            0u16.write(out);
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
        /// What to do.
        pub command: MeterCommand,
        /// What its rates mean.
        pub flags: MeterFlags,
        /// Its number; [`meter_id::ALL`](crate::meter_id::ALL) to delete all.
        pub meter: u32,
        /// Its bands.
        pub bands: Vec<MeterBand>,
    }

    /// Requests one meter, or all with [`meter_id::ALL`](crate::meter_id::ALL).
    pub struct MeterRequest {
        /// The meter.
        pub meter: u32 => 4,
    }

    /// The counters of a band.
    pub struct BandStats {
        /// Packets above its rate.
        pub packets: u64,
        /// Their bytes.
        pub bytes: u64,
    }

    /// What the meters of a switch can do.
    pub struct MeterFeatures {
        /// How many there can be.
        pub max_meters: u32,
        /// A bit for each kind of band: 2 is drop, 4 is DSCP remark.
        pub band_kinds: u32,
        /// What they can do, as the flags of a meter.
        pub capabilities: u32,
        /// The bands that one can have.
        pub max_bands: u8,
        /// The colours that there can be.
        pub max_colors: u8 => 2,
    }
}

/// The counters of a meter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterStats {
    /// The meter.
    pub meter: u32,
    /// How many flow entries use it.
    pub flows: u32,
    /// Packets that reached it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How long it is there, in whole seconds.
    pub duration_s: u32,
    /// And nanoseconds beyond.
    pub duration_ns: u32,
    /// Those of its bands.
    pub bands: Vec<BandStats>,
}

impl Wire for MeterStats {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        let meter = reader.get()?;
        let mut entry = reader.sized(4)?;
        entry.skip(6)?;
        Ok(Self {
            meter,
            flows: entry.get()?,
            packets: entry.get()?,
            bytes: entry.get()?,
            duration_s: entry.get()?,
            duration_ns: entry.get()?,
            bands: entry.get()?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        sized(out, 4, |out| {
            self.meter.write(out);
            pad(out, 8);
            self.flows.write(out);
            self.packets.write(out);
            self.bytes.write(out);
            self.duration_s.write(out);
            self.duration_ns.write(out);
            self.bands.write(out);
        });
    }
}

/// A meter as it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterConfig {
    /// What its rates mean.
    pub flags: MeterFlags,
    /// Its number.
    pub meter: u32,
    /// Its bands.
    pub bands: Vec<MeterBand>,
}

impl Wire for MeterConfig {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        let mut entry = reader.sized(0)?;
        Ok(Self { flags: entry.get()?, meter: entry.get()?, bands: entry.get()? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        sized(out, 0, |out| {
            0u16.write(out);
            self.flags.write(out);
            self.meter.write(out);
            self.bands.write(out);
        });
    }
}
