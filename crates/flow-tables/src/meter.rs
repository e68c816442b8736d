//! Meters: token buckets that all workers share.

use std::sync::atomic::{AtomicU64, Ordering};

use ringroad_openflow::message::{MeterBand, MeterConfig, MeterFlags};

use crate::counters::CounterId;

const NS: u64 = 1_000_000_000;

/// A meter.
#[derive(Debug)]
pub struct Meter {
    /// As the controller gave it.
    pub config: MeterConfig,
    /// When it was added, ns of the caller's clock.
    pub added_ns: u64,
    pub(crate) counter: CounterId,
    pub(crate) bands: Box<[Band]>,
}

/// A band of a meter, and how far its bucket is used.
#[derive(Debug)]
pub(crate) struct Band {
    pub counter: CounterId,
    /// Time of one unit (a packet, or a bit) at the band's rate, ns in 32.32 fixed point; 0: no rate at all.
    unit: u64,
    /// How much time the bucket holds, ns.
    burst_ns: u64,
    /// When the bucket would be full again, ns: what has passed lies before it (ITU-T I.371's virtual scheduling).
    full_at: AtomicU64,
}

/// A meter's verdict on a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metered {
    /// No band is exceeded.
    Passes,
    /// It is above the rate of the band of this number.
    Exceeds(usize),
}

impl Meter {
    pub(crate) fn new(
        config: MeterConfig,
        added_ns: u64,
        counter: CounterId,
        counters: impl IntoIterator<Item = CounterId>,
    ) -> Self {
        let is_per_packet = config.flags.contains(MeterFlags::PKTPS);
        let has_burst = config.flags.contains(MeterFlags::BURST);
        let bands = config.bands.iter().zip(counters).map(|(band, counter)| {
            let (MeterBand::Drop { rate, burst } | MeterBand::DscpRemark { rate, burst, .. }) = *band;
            // Rates are in kbit/s, or in packets per second.
            let (unit_rate, units_of_burst) = match is_per_packet {
                true => (u64::from(rate), u64::from(burst)),
                false => (u64::from(rate) * 1000, u64::from(burst) * 1000),
            };
            let unit =
                ((u128::from(NS) << 32) / u128::from(unit_rate.max(1))).min(u128::from(u64::MAX)) as u64;
            // Without a burst of its own the bucket holds what a tenth of a second brings.
            let burst_ns = match has_burst && burst > 0 {
                true => ((u128::from(units_of_burst) * u128::from(unit)) >> 32).min(u128::from(u64::MAX / 4))
                    as u64,
                false => NS / 10,
            };
            Band { counter, unit: if rate == 0 { 0 } else { unit }, burst_ns, full_at: AtomicU64::new(0) }
        });
        Self { bands: bands.collect(), config, added_ns, counter }
    }

    /// Measures a packet. Of the bands whose rate is exceeded, the one with the highest rate counts.
    #[must_use]
    pub fn measure(&self, bytes: usize, now_ns: u64) -> Metered {
        self.judge(bytes, |band, units| band.takes(units, now_ns))
    }

    /// What [`Meter::measure`] would return, without measuring.
    #[must_use]
    pub fn foresee(&self, bytes: usize, now_ns: u64) -> Metered {
        let takes =
            |band: &Band, units| band.room(band.full_at.load(Ordering::Relaxed), units, now_ns).is_some();
        self.judge(bytes, takes)
    }

    fn judge(&self, bytes: usize, takes: impl Fn(&Band, u64) -> bool) -> Metered {
        let is_per_packet = self.config.flags.contains(MeterFlags::PKTPS);
        let units = if is_per_packet { 1 } else { bytes as u64 * 8 };
        let mut exceeded: Option<(u64, usize)> = None;
        for (number, band) in self.bands.iter().enumerate() {
            if !takes(band, units) && exceeded.is_none_or(|(unit, _)| band.unit < unit) {
                exceeded = Some((band.unit, number));
            }
        }
        exceeded.map_or(Metered::Passes, |(_, number)| Metered::Exceeds(number))
    }
}

impl Band {
    /// When the bucket would be full again if it took `units` units; `None` where it has no room for them.
    fn room(&self, full_at: u64, units: u64, now_ns: u64) -> Option<u64> {
        let needed = ((u128::from(units) * u128::from(self.unit)) >> 32) as u64;
        let then = full_at.max(now_ns).saturating_add(needed);
        (self.unit != 0 && then - now_ns <= self.burst_ns.max(needed)).then_some(then)
    }

    /// Adds `units` units to the bucket if it has room for them, and returns whether it had.
    fn takes(&self, units: u64, now_ns: u64) -> bool {
        let mut full_at = self.full_at.load(Ordering::Relaxed);
        // Another worker may be first a few times; then the packet passes, instead of further retries by this worker.
        for _ in 0..8 {
            let Some(then) = self.room(full_at, units, now_ns) else { return false };
            match self.full_at.compare_exchange_weak(full_at, then, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => full_at = other,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::CounterBank;

    fn meter(flags: MeterFlags, bands: Vec<MeterBand>) -> Meter {
        let mut bank = CounterBank::new(1);
        let mut counter = || bank.take().0;
        let (own, theirs) = (counter(), [counter(), counter()]);
        Meter::new(MeterConfig { flags, meter: 1, bands }, 0, own, theirs)
    }

    #[test]
    fn a_band_lets_its_rate_pass() {
        let meter = meter(MeterFlags::PKTPS, vec![MeterBand::Drop { rate: 1000, burst: 0 }]);
        // Twice the rate for ten seconds.
        let passed =
            (0..20_000u64).filter(|packet| meter.measure(64, packet * NS / 2000) == Metered::Passes).count();
        assert!((10_000..=10_101).contains(&passed), "{passed}");
    }

    #[test]
    fn bits_count_where_the_rate_is_in_bits() {
        let meter =
            meter(MeterFlags::KBPS | MeterFlags::BURST, vec![MeterBand::Drop { rate: 1000, burst: 8 }]);
        // A burst of 8 kbit holds one thousand bytes.
        assert_eq!(meter.measure(1000, 0), Metered::Passes);
        assert_eq!(meter.measure(1, 0), Metered::Exceeds(0));
        assert_eq!(meter.measure(500, NS / 250), Metered::Passes);
    }

    #[test]
    fn the_highest_rate_that_is_exceeded_counts() {
        let bands = vec![
            MeterBand::Drop { rate: 20, burst: 2 },
            MeterBand::DscpRemark { rate: 10, burst: 1, levels: 1 },
        ];
        let meter = meter(MeterFlags::PKTPS | MeterFlags::BURST, bands);
        assert_eq!(meter.measure(64, 0), Metered::Passes);
        assert_eq!(meter.measure(64, 0), Metered::Exceeds(1));
        assert_eq!(meter.measure(64, 0), Metered::Exceeds(0));
    }

    #[test]
    fn what_is_foreseen_is_not_measured() {
        let flags = MeterFlags::PKTPS | MeterFlags::BURST;
        let meter = meter(flags, vec![MeterBand::Drop { rate: 20, burst: 2 }]);
        for _ in 0..2 {
            assert_eq!([meter.foresee(64, 0); 3], [Metered::Passes; 3]);
            assert_eq!(meter.measure(64, 0), Metered::Passes);
        }
        assert_eq!([meter.foresee(64, 0), meter.measure(64, 0)], [Metered::Exceeds(0); 2]);
    }

    #[test]
    fn nothing_passes_at_no_rate() {
        let meter = meter(MeterFlags::KBPS, vec![MeterBand::Drop { rate: 0, burst: 0 }]);
        assert_eq!(meter.measure(64, NS), Metered::Exceeds(0));
    }
}
