//! Meters.

use std::fmt;
use std::str::FromStr;

use super::{Pair, Pairs, TextError, Word};
use crate::message::{MeterBand, MeterCommand, MeterConfig, MeterFlags, MeterMod};
use crate::meter_id;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterText {
    /// Number of the meter, or [`meter_id::ALL`].
    pub meter: u32,
    /// Flags, with the unit of the rates.
    pub flags: MeterFlags,
    pub bands: Vec<MeterBand>,
}

const FLAGS: [(&str, MeterFlags); 4] = [
    ("kbps", MeterFlags::KBPS),
    ("pktps", MeterFlags::PKTPS),
    ("burst", MeterFlags::BURST),
    ("stats", MeterFlags::STATS),
];

const NUMBERS: [(&str, u32); 3] =
    [("all", meter_id::ALL), ("controller", meter_id::CONTROLLER), ("slowpath", meter_id::SLOWPATH)];

impl MeterText {
    /// Makes the message that adds, changes or deletes the meter. Rates are in kbit/s by default.
    pub fn meter_mod(&self, command: MeterCommand) -> MeterMod {
        let has_unit = self.flags.0 & (MeterFlags::KBPS | MeterFlags::PKTPS).0 != 0;
        let flags =
            if has_unit || self.bands.is_empty() { self.flags } else { self.flags | MeterFlags::KBPS };
        MeterMod { command, flags, meter: self.meter, bands: self.bands.clone() }
    }
}

/// A band that is read in part.
struct Band<'a> {
    word: Word<'a>,
    is_remark: bool,
    rate: Option<u32>,
    burst: u32,
    levels: Option<u8>,
}

impl<'a> Band<'a> {
    fn new(pair: &Pair<'a>) -> Result<Self, TextError> {
        let is_remark = match pair.value()?.text {
            "drop" => false,
            "dscp_remark" => true,
            _ => return Err(pair.whole.wrong("a band is of type drop or dscp_remark")),
        };
        Ok(Self { word: pair.whole, is_remark, rate: None, burst: 0, levels: None })
    }

    fn finish(self) -> Result<MeterBand, TextError> {
        let rate = self.rate.ok_or_else(|| self.word.wrong("this band has no rate"))?;
        let burst = self.burst;
        match (self.is_remark, self.levels) {
            (false, None) => Ok(MeterBand::Drop { rate, burst }),
            (false, Some(_)) => Err(self.word.wrong("a band of type drop has no prec_level")),
            (true, levels) => Ok(MeterBand::DscpRemark { rate, burst, levels: levels.unwrap_or(0) }),
        }
    }
}

impl FromStr for MeterText {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let (mut number, mut flags) = (None, MeterFlags::default());
        let mut bands: Vec<Band> = Vec::new();
        for pair in Pairs::new(Word::new(text)) {
            let pair = pair?;
            let missing = || pair.whole.wrong("this is of a band, and no band=type=... is before it");
            match pair.key.text {
                "meter" => {
                    let word = pair.value()?;
                    let named = NUMBERS.iter().find(|(name, _)| word.text.eq_ignore_ascii_case(name));
                    number = Some(match named {
                        Some((_, number)) => *number,
                        None => match word.number()? {
                            number @ 1..=meter_id::MAX => number,
                            _ => return Err(word.wrong("no meter can have this number")),
                        },
                    });
                }
                // The first word of a band may follow the colon, or come later.
                "band" | "bands" => {
                    if let Some(first) = Pairs::new(pair.value()?).next() {
                        let first = first?;
                        if first.key.text != "type" {
                            return Err(first.whole.wrong("a band begins with its type"));
                        }
                        bands.push(Band::new(&first)?);
                    }
                }
                "type" => bands.push(Band::new(&pair)?),
                "rate" => bands.last_mut().ok_or_else(missing)?.rate = Some(pair.value()?.number()?),
                "burst_size" => bands.last_mut().ok_or_else(missing)?.burst = pair.value()?.number()?,
                "prec_level" => bands.last_mut().ok_or_else(missing)?.levels = Some(pair.value()?.number()?),
                key => match FLAGS.iter().find(|(name, _)| *name == key) {
                    Some((_, flag)) => {
                        pair.no_value()?;
                        flags = flags | *flag;
                    }
                    None => return Err(pair.whole.wrong("a meter has no such word")),
                },
            }
        }
        let meter = number.ok_or_else(|| Word::new(text).wrong("meter is missing"))?;
        Ok(Self { meter, flags, bands: bands.into_iter().map(Band::finish).collect::<Result<_, _>>()? })
    }
}

impl fmt::Display for MeterText {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match NUMBERS.iter().find(|(_, number)| *number == self.meter) {
            Some((name, _)) => write!(f, "meter={name}")?,
            None => write!(f, "meter={}", self.meter)?,
        }
        for (name, flag) in FLAGS {
            if self.flags.contains(flag) {
                write!(f, ",{name}")?;
            }
        }
        for band in &self.bands {
            let (kind, rate, burst, levels) = match *band {
                MeterBand::Drop { rate, burst } => ("drop", rate, burst, None),
                MeterBand::DscpRemark { rate, burst, levels } => ("dscp_remark", rate, burst, Some(levels)),
            };
            write!(f, ",band=type={kind},rate={rate}")?;
            if burst != 0 {
                write!(f, ",burst_size={burst}")?;
            }
            if let Some(levels) = levels {
                write!(f, ",prec_level={levels}")?;
            }
        }
        Ok(())
    }
}

impl From<&MeterConfig> for MeterText {
    fn from(config: &MeterConfig) -> Self {
        Self { meter: config.meter, flags: config.flags, bands: config.bands.clone() }
    }
}
