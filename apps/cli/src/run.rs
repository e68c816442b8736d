//! A run of traffic: its duration, progress reports and processors.
//!
//! Loops read the clock once per burst and call [`Run::is_over`]; waits last at most [`Run::wait_limit`], so that a
//! signal that arrived just before a wait is noticed soon.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringroad_traffic::rate_meter::{RateMeter, TrafficSnapshot};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::failure::Failure;
use crate::options::RunLimits;
use crate::output::{Output, json, rates};

/// Longest wait between two checks of the stop flag.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// Flag that SIGINT and SIGTERM set. A second signal ends the process at once.
#[derive(Debug, Clone, Default)]
pub(crate) struct SignalFlag(Arc<AtomicBool>);

impl SignalFlag {
    /// Makes a flag that the signals set from now on.
    pub(crate) fn on_signals() -> Result<Self, Failure> {
        let flag = Self::default();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&flag.0))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag.0)))
                .map_err(|error| Failure::new(format!("watching for signals: {error}"), ""))?;
        }
        Ok(flag)
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the shared flag, for threads that set it too.
    pub(crate) fn shared(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The clock and limits of one run.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    start: Instant,
    stop: SignalFlag,
    duration_ns: u64,
}

impl Run {
    pub(crate) fn start(limits: &RunLimits) -> Result<Self, Failure> {
        Ok(Self {
            start: Instant::now(),
            stop: SignalFlag::on_signals()?,
            duration_ns: limits.duration.map_or(u64::MAX, as_ns),
        })
    }

    /// Returns the time since the start, ns.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        as_ns(self.start.elapsed())
    }

    /// Whether a signal or the duration has ended the run.
    #[inline]
    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.duration_ns || self.stop.is_set()
    }

    /// Ends the run, for all threads that have a copy.
    pub(crate) fn end(&self) {
        self.stop.set();
    }

    /// Returns the longest duration of a wait that begins now.
    pub(crate) fn wait_limit(&self, now_ns: u64) -> Duration {
        LONGEST_WAIT.min(Duration::from_nanos(self.duration_ns.saturating_sub(now_ns)))
    }
}

/// Returns a span of time in ns.
pub(crate) fn as_ns(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Pins this thread to a processor, if one is given.
pub(crate) fn pin(cpu: Option<usize>) -> Result<(), Failure> {
    let Some(cpu) = cpu else { return Ok(()) };
    ringroad_generator::affinity::pin(cpu).map_err(|error| Failure::new(error.to_string(), ""))
}

/// Rates of every interval: overwritten on a terminal, or on a line of their own if requested.
#[derive(Debug)]
pub(crate) struct Progress {
    output: Output,
    verb: &'static str,
    meter: RateMeter,
    interval_ns: u64,
    next_ns: u64,
    in_place: bool,
}

impl Progress {
    /// Makes the progress of the action `verb`, such as "received".
    pub(crate) fn new(output: &Output, limits: &RunLimits, verb: &'static str) -> Self {
        let in_place = limits.interval.is_none() && output.is_watched();
        let interval_ns = match limits.interval {
            Some(interval) => as_ns(interval),
            None if in_place => 1_000_000_000,
            None => u64::MAX,
        };
        Self {
            output: output.clone(),
            verb,
            meter: RateMeter::new(TrafficSnapshot::default()),
            interval_ns,
            next_ns: interval_ns,
            in_place,
        }
    }

    /// Shows the rate if an interval is over. Call it once per burst with the totals so far.
    #[inline]
    pub(crate) fn update(&mut self, now_ns: u64, frames: u64, bytes: u64) -> Result<(), Failure> {
        if now_ns >= self.next_ns { self.tell(now_ns, frames, bytes) } else { Ok(()) }
    }

    #[cold]
    fn tell(&mut self, now_ns: u64, frames: u64, bytes: u64) -> Result<(), Failure> {
        self.next_ns = now_ns.saturating_add(self.interval_ns);
        let rate = self.meter.update(TrafficSnapshot { frames, bytes, now_ns });
        if self.output.is_json() {
            return self.output.line(&json::line(&json::IntervalLine { interval: rate })?);
        }
        let seconds = now_ns as f64 / 1e9;
        let text = format!(
            "{seconds:8.1} s  {} {}, {}",
            rates::grouped(frames),
            self.verb,
            rates::traffic_rate(&rate)
        );
        if self.in_place {
            // Escape sequences: carriage return, and "erase to the end of the line" (ECMA-48, EL).
            let _ = write!(std::io::stderr(), "\r{text}\x1b[K");
        } else {
            self.output.note(&text);
        }
        Ok(())
    }

    /// Clears the line that progress has overwritten.
    pub(crate) fn finish(&self) {
        if self.in_place {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(duration: Option<Duration>) -> Run {
        let duration_ns = duration.map_or(u64::MAX, as_ns);
        Run { start: Instant::now(), stop: SignalFlag::default(), duration_ns }
    }

    #[test]
    fn a_run_ends_after_its_duration_or_when_a_copy_is_stopped() {
        let timed = run(Some(Duration::from_nanos(500)));
        assert!(!timed.is_over(499));
        assert!(timed.is_over(500));
        let open = run(None);
        let copy = open.clone();
        assert!(!open.is_over(u64::MAX - 1));
        copy.end();
        assert!(open.is_over(0));
    }

    #[test]
    fn a_wait_is_bounded_by_the_remaining_time_and_the_flag_check() {
        let timed = run(Some(Duration::from_millis(150)));
        assert_eq!(timed.wait_limit(0), LONGEST_WAIT);
        assert_eq!(timed.wait_limit(140_000_000), Duration::from_millis(10));
        assert_eq!(timed.wait_limit(900_000_000), Duration::ZERO);
    }

    #[test]
    fn a_missing_processor_is_named() {
        let failure = pin(Some(100_000)).unwrap_err();
        assert!(failure.message.contains("100000"), "{failure}");
        assert_eq!(pin(None), Ok(()));
    }
}
