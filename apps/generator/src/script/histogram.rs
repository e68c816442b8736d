//! The histogram behind `require "histogram"`.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hdrhistogram::Histogram;
use mlua::{UserData, UserDataMethods, UserDataRef};

use super::memory::NumberBlock;

/// Number of values that a script gathers before it hands them over.
const PENDING: usize = 1024;
/// Largest recorded value: 1000 s. Larger values count as 1000 s.
const MOST_NS: u64 = 1_000_000_000_000;

/// The recorded values, and the number of missing values.
#[derive(Debug)]
pub(super) struct Values {
    histogram: Histogram<u64>,
    /// Number of values below 0 or not a number.
    outside: u64,
}

/// A histogram of one task. The values may be shared with other tasks.
#[derive(Debug)]
pub(super) struct HistogramRef {
    values: Arc<Mutex<Values>>,
    pending: NumberBlock,
}

impl HistogramRef {
    /// An empty histogram.
    pub(super) fn new() -> mlua::Result<Self> {
        let histogram = Histogram::new_with_bounds(1, MOST_NS, 3).map_err(mlua::Error::external)?;
        Self::of(Arc::new(Mutex::new(Values { histogram, outside: 0 })))
    }

    /// A histogram of another task with the same values.
    pub(super) fn of(values: Arc<Mutex<Values>>) -> mlua::Result<Self> {
        let pending = NumberBlock::new(PENDING);
        let pending = pending.ok_or_else(|| mlua::Error::runtime("not enough memory for a histogram"))?;
        Ok(Self { values, pending })
    }

    pub(super) fn values(&self) -> &Arc<Mutex<Values>> {
        &self.values
    }

    fn lock(&self) -> MutexGuard<'_, Values> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UserData for HistogramRef {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("pending", |_, this, ()| Ok((this.pending.address(), this.pending.count())));
        methods.add_method("record", |_, this, count: usize| {
            let mut values = this.lock();
            for number in this.pending.numbers(count) {
                // NaN fails this comparison, too.
                if number >= 0.0 {
                    values.histogram.saturating_record(number.round() as u64);
                } else {
                    values.outside += 1;
                }
            }
            Ok(())
        });
        methods.add_method("totals", |_, this, ()| {
            let values = this.lock();
            let (count, mean) = (values.histogram.len() as f64, values.histogram.mean());
            Ok((count, count * mean, mean))
        });
        methods.add_method("outside", |_, this, ()| Ok(this.lock().outside));
        methods.add_method("average", |_, this, ()| Ok(this.lock().histogram.mean()));
        methods.add_method("standardDeviation", |_, this, ()| Ok(this.lock().histogram.stdev()));
        methods.add_method("min", |_, this, ()| Ok(this.lock().histogram.min()));
        methods.add_method("max", |_, this, ()| Ok(this.lock().histogram.max()));
        methods.add_method("percentile", |_, this, percent: f64| {
            if !(0.0..=100.0).contains(&percent) {
                return Err(mlua::Error::runtime(format!(
                    "percentile: {percent}: give a number from 0 to 100"
                )));
            }
            Ok(this.lock().histogram.value_at_percentile(percent))
        });
        methods.add_method("merge", |_, this, other: UserDataRef<Self>| {
            if Arc::ptr_eq(&this.values, &other.values) {
                return Ok(());
            }
            let (from, outside) = {
                let other = other.lock();
                (other.histogram.clone(), other.outside)
            };
            let mut values = this.lock();
            values.outside += outside;
            values.histogram.add(from).map_err(mlua::Error::external)
        });
        methods.add_method("lines", |_, this, ()| {
            let values = this.lock();
            let mut lines = String::new();
            for value in values.histogram.iter_recorded() {
                // Writing to a string cannot fail.
                let _ =
                    writeln!(lines, "{},{}", value.value_iterated_to(), value.count_since_last_iteration());
            }
            Ok(lines)
        });
    }
}
