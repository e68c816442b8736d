//! Meters: one token bucket for each band.

use ringroad_openflow::message::{MeterBand, MeterConfig, MeterFlags};
use ringroad_openflow::meter_id;
use ringroad_port::token_bucket::TokenBucket;

use crate::counters::CounterId;

#[derive(Debug)]
pub struct MeterEntry {
    /// Configuration from the controller.
    pub config: MeterConfig,
    /// Time at which the meter was added, ns of the caller's clock.
    pub added_ns: u64,
    pub(crate) counter: CounterId,
    pub(crate) bands: Box<[Band]>,
}

/// A band of a meter.
#[derive(Debug)]
pub(crate) struct Band {
    pub counter: CounterId,
    /// Rate from the controller, in kbit/s or packets per second.
    rate: u32,
    /// Tokens: each is a packet, or a bit.
    bucket: TokenBucket,
}

impl MeterEntry {
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
            let tokens = |number: u32| u64::from(number) * if is_per_packet { 1 } else { 1000 };
            let burst = (has_burst && burst > 0).then(|| tokens(burst));
            Band { counter, rate, bucket: TokenBucket::new(tokens(rate), burst) }
        });
        Self { bands: bands.collect(), config, added_ns, counter }
    }

    /// Whether the meter is for all packets to the controllers, not for those of flow entries.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        meter_id::VIRTUAL.contains(&self.config.meter)
    }

    /// Measures a packet. Returns the number of the band whose rate it exceeds; of several, the one with the highest
    /// rate.
    #[must_use]
    pub fn measure(&self, bytes: usize, now_ns: u64) -> Option<usize> {
        self.judge(bytes, |bucket, tokens| bucket.take(tokens, now_ns))
    }

    /// Predicts the result of [`MeterEntry::measure`], without measuring.
    #[must_use]
    pub fn predict(&self, bytes: usize, now_ns: u64) -> Option<usize> {
        self.judge(bytes, |bucket, tokens| bucket.has(tokens, now_ns))
    }

    fn judge(&self, bytes: usize, passes: impl Fn(&TokenBucket, u64) -> bool) -> Option<usize> {
        let is_per_packet = self.config.flags.contains(MeterFlags::PKTPS);
        let tokens = if is_per_packet { 1 } else { bytes as u64 * 8 };
        let mut exceeded: Option<(u32, usize)> = None;
        for (number, band) in self.bands.iter().enumerate() {
            if !passes(&band.bucket, tokens) && exceeded.is_none_or(|(rate, _)| rate < band.rate) {
                exceeded = Some((band.rate, number));
            }
        }
        exceeded.map(|(_, number)| number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::CounterBank;

    const NS: u64 = 1_000_000_000;

    fn meter(flags: MeterFlags, bands: Vec<MeterBand>) -> MeterEntry {
        let mut bank = CounterBank::new(1);
        let mut counter = || bank.take().0;
        let (own, theirs) = (counter(), [counter(), counter()]);
        MeterEntry::new(MeterConfig { flags, meter: 1, bands }, 0, own, theirs)
    }

    #[test]
    fn a_band_lets_its_rate_pass() {
        let meter = meter(MeterFlags::PKTPS, vec![MeterBand::Drop { rate: 1000, burst: 0 }]);
        // Packets at twice the rate, for ten seconds.
        let passed = (0..20_000u64).filter(|packet| meter.measure(64, packet * NS / 2000).is_none()).count();
        assert!((10_000..=10_101).contains(&passed), "{passed}");
    }

    #[test]
    fn bits_count_where_the_rate_is_in_bits() {
        let meter =
            meter(MeterFlags::KBPS | MeterFlags::BURST, vec![MeterBand::Drop { rate: 1000, burst: 8 }]);
        // A burst of 8 kbit holds one thousand bytes.
        assert_eq!(meter.measure(1000, 0), None);
        assert_eq!(meter.measure(1, 0), Some(0));
        assert_eq!(meter.measure(500, NS / 250), None);
    }

    #[test]
    fn the_highest_rate_that_is_exceeded_counts() {
        let bands = vec![
            MeterBand::Drop { rate: 20, burst: 2 },
            MeterBand::DscpRemark { rate: 10, burst: 1, levels: 1 },
        ];
        let meter = meter(MeterFlags::PKTPS | MeterFlags::BURST, bands);
        assert_eq!(meter.measure(64, 0), None);
        assert_eq!(meter.measure(64, 0), Some(1));
        assert_eq!(meter.measure(64, 0), Some(0));
    }

    #[test]
    fn a_band_without_a_rate_is_the_slowest() {
        let bands = vec![
            MeterBand::Drop { rate: 0, burst: 1 },
            MeterBand::DscpRemark { rate: 10, burst: 1, levels: 1 },
        ];
        let meter = meter(MeterFlags::PKTPS | MeterFlags::BURST, bands);
        assert_eq!(meter.measure(64, 0), Some(0));
        assert_eq!(meter.measure(64, 0), Some(1));
    }

    #[test]
    fn what_is_predicted_is_not_metered() {
        let flags = MeterFlags::PKTPS | MeterFlags::BURST;
        let meter = meter(flags, vec![MeterBand::Drop { rate: 20, burst: 2 }]);
        for _ in 0..2 {
            assert_eq!([meter.predict(64, 0); 3], [None; 3]);
            assert_eq!(meter.measure(64, 0), None);
        }
        assert_eq!([meter.predict(64, 0), meter.measure(64, 0)], [Some(0); 2]);
    }

    #[test]
    fn nothing_passes_at_no_rate() {
        let meter = meter(MeterFlags::KBPS, vec![MeterBand::Drop { rate: 0, burst: 0 }]);
        assert_eq!(meter.measure(64, NS), Some(0));
    }
}
