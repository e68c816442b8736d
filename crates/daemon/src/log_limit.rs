//! Limits on the log lines that untrusted peers can cause at will.
//!
//! A line counts as an untrusted peer's if it has the field `user` with the id of a user who is not an administrator,
//! or `visited` with a port or socket to which a peer connected. Each user and each such port can write a few lines at
//! once, then one now and then; all together can write little more. Omitted lines are counted, and the counts are
//! logged. All other lines stay.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber, warn};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Rate of one source of lines: a burst, then one per interval.
const OF_ONE: Rate = Rate { burst: 30, interval: Duration::from_secs(2) };
/// Rate of all sources together.
const OF_ALL: Rate = Rate { burst: 300, interval: Duration::from_millis(200) };
/// Maximum number of sources with a rate of their own.
const MAX_SOURCES: usize = 1024;
/// Maximum number of sources named in one report.
const NAMED_SOURCES: usize = 8;

#[derive(Debug, Clone, Copy)]
struct Rate {
    burst: u32,
    interval: Duration,
}

/// Source of lines.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    User(u64),
    Port(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(user) => write!(f, "user {user}"),
            Self::Port(port) => write!(f, "port {port}"),
        }
    }
}

/// Budget of one source's lines, or of all lines.
#[derive(Debug, Clone, Copy)]
struct Budget {
    /// Time at which the budget is full again.
    rested_at: Instant,
    left_out: u64,
}

impl Budget {
    fn new(now: Instant) -> Self {
        Self { rested_at: now, left_out: 0 }
    }

    fn has_room(&self, rate: Rate, now: Instant) -> bool {
        self.rested_at.saturating_duration_since(now) < rate.interval * rate.burst
    }

    fn spend(&mut self, rate: Rate, now: Instant) {
        self.rested_at = self.rested_at.max(now) + rate.interval;
    }
}

#[derive(Debug)]
struct LineLedger {
    sources: BTreeMap<Source, Budget>,
    all: Budget,
    /// Number of omitted lines of sources beyond [`MAX_SOURCES`].
    left_out: u64,
}

impl LineLedger {
    fn new(now: Instant) -> Self {
        Self { sources: BTreeMap::new(), all: Budget::new(now), left_out: 0 }
    }

    fn admit(&mut self, source: Source, now: Instant) -> bool {
        if self.sources.len() >= MAX_SOURCES && !self.sources.contains_key(&source) {
            self.forget_rested(now);
            if self.sources.len() >= MAX_SOURCES {
                self.left_out += 1;
                return false;
            }
        }
        let budget = self.sources.entry(source).or_insert_with(|| Budget::new(now));
        if !budget.has_room(OF_ONE, now) || !self.all.has_room(OF_ALL, now) {
            budget.left_out += 1;
            return false;
        }
        budget.spend(OF_ONE, now);
        self.all.spend(OF_ALL, now);
        true
    }

    fn forget_rested(&mut self, now: Instant) {
        self.sources.retain(|_, budget| budget.left_out > 0 || budget.rested_at > now);
    }

    /// Makes a sentence for each of the sources with the most omitted lines, and one for the others; counting restarts.
    fn report(&mut self, now: Instant) -> Vec<String> {
        let mut left_out: Vec<(u64, String)> = self
            .sources
            .iter_mut()
            .map(|(source, budget)| (std::mem::take(&mut budget.left_out), source))
            .filter(|(lines, _)| *lines > 0)
            .map(|(lines, source)| (lines, source.to_string()))
            .collect();
        self.forget_rested(now);
        left_out.sort_by(|a, b| b.cmp(a));
        let named = left_out.len().min(NAMED_SOURCES);
        let others = left_out.drain(named..).map(|(lines, _)| lines).sum::<u64>();
        let others = others + std::mem::take(&mut self.left_out);
        let others = (others > 0).then(|| (others, "others".to_owned()));
        left_out
            .into_iter()
            .chain(others)
            .map(|(lines, whom)| format!("{lines} more lines of {whom} left out"))
            .collect()
    }
}

/// Finds the source among an event's fields.
struct FindSource(Option<Source>);

impl Visit for FindSource {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "user" {
            self.0 = Some(Source::User(value));
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "visited" {
            self.0 = Some(Source::Port(format!("{value:?}")));
        }
    }
}

/// Layer that limits the lines of untrusted peers, in front of the layers that write lines.
#[derive(Debug, Clone)]
pub struct LogLimit {
    own_uid: u32,
    ledger: Arc<Mutex<LineLedger>>,
}

impl LogLimit {
    /// Limits the log of a daemon that runs as `own_uid`.
    #[must_use]
    pub fn new(own_uid: u32) -> Self {
        Self { own_uid, ledger: Arc::new(Mutex::new(LineLedger::new(Instant::now()))) }
    }

    /// Logs the number of lines omitted since the last report, if there were any.
    pub fn report(&self) {
        // The lock is released before the report's lines go through this layer.
        let sentences = self.ledger.lock().unwrap_or_else(PoisonError::into_inner).report(Instant::now());
        for sentence in sentences {
            warn!("{sentence}");
        }
    }
}

impl<S: Subscriber> Layer<S> for LogLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let mut source = FindSource(None);
        event.record(&mut source);
        match source.0 {
            None => true,
            Some(Source::User(user)) if user == 0 || user == u64::from(self.own_uid) => true,
            Some(source) => {
                self.ledger.lock().unwrap_or_else(PoisonError::into_inner).admit(source, Instant::now())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tracing::info;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn each_source_has_a_line_rate_and_omitted_lines_are_counted() {
        let start = Instant::now();
        let mut ledger = LineLedger::new(start);
        let user = || Source::User(1000);
        let admitted = (0..1000).filter(|_| ledger.admit(user(), start)).count();
        assert_eq!(admitted, OF_ONE.burst as usize);
        let later = start + 3 * OF_ONE.interval;
        assert_eq!((0..10).filter(|_| ledger.admit(user(), later)).count(), 3);
        assert!(ledger.admit(Source::User(1001), start), "another user has lines of his own");
        assert_eq!(ledger.report(later), ["977 more lines of user 1000 left out"]);
        assert_eq!(ledger.report(later), [""; 0]);
    }

    #[test]
    fn many_sources_together_are_bounded_in_lines_and_memory() {
        let now = Instant::now();
        let mut ledger = LineLedger::new(now);
        let admitted = (0..10_000).filter(|&user| ledger.admit(Source::User(user), now)).count();
        assert_eq!(admitted, OF_ALL.burst as usize);
        assert_eq!(ledger.sources.len(), MAX_SOURCES);
        let report = ledger.report(now);
        assert_eq!(report.len(), NAMED_SOURCES + 1);
        assert_eq!(report.last().unwrap(), "9692 more lines of others left out");
        ledger.report(now + OF_ONE.interval * OF_ONE.burst);
        assert!(ledger.sources.is_empty());
    }

    /// Collects the written lines.
    #[derive(Debug, Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_log_lines_about_other_users_are_bounded() {
        let written = Written::default();
        let writer = written.clone();
        let limit = LogLimit::new(900);
        let subscriber = tracing_subscriber::registry()
            .with(limit.clone())
            .with(tracing_subscriber::fmt::layer().with_writer(move || writer.clone()));
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..500 {
                info!(user = 1000u32, "stranger");
                info!(user = 0u32, "root");
                info!(user = 900u32, "owner");
                info!(visited = %"vale0:guest", "peer");
                info!("a worker");
            }
            limit.report();
        });
        let log = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let count = |word: &str| log.lines().filter(|line| line.contains(word)).count();
        for whose in ["root", "owner", "a worker"] {
            assert_eq!(count(whose), 500, "{whose}");
        }
        for whose in ["stranger", ": peer"] {
            assert!(count(whose) < 40, "{whose}: {}", count(whose));
        }
        assert!(log.contains("more lines of user 1000 left out"), "{log}");
        assert!(log.contains("more lines of port vale0:guest left out"), "{log}");
    }
}
