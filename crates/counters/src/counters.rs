//! Statistics of a queue, in one table, which determines the counters, their sums, their handover and the reports.
//!
//! Each value has one writer, the worker that serves the queue; any thread may read at any time. A reader sees each
//! value as of some moment, and exact sums once traffic has stopped.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::drop_cause::{DropCause, DropTally};

/// A statistic of a port as users see it.
#[derive(Debug, Clone, Copy)]
pub struct Statistic {
    /// Name in reports. In metrics the name of the counted object stands in front of it.
    pub name: &'static str,
    /// Meaning of the value.
    pub meaning: &'static str,
    /// Meaning of the value in metrics, for every counted object: a port, a switch or the datapath.
    pub help: &'static str,
    /// Whether the value can decrease.
    pub is_gauge: bool,
    /// Reads the value from a report.
    pub value: fn(&CounterReport) -> u64,
}

/// Makes the statistics. Each statistic is one line here, with its meaning, its name, and its help text in metrics.
///
/// - `traffic` passes through a port. The methods below count it: frames and their bytes go together.
/// - `copies` are frames that a switch adds to its traffic. Reports show them for switches alone.
/// - `events` are all others. A method of an event's name counts it. A new event has `#[serde(default)]`: reports of
///   older daemons do not have it.
/// - `waiting` is subtracted from the delivered frames as long as it lasts.
macro_rules! statistics {
    (
        traffic { $($(#[doc = $traffic_meaning:literal])+ $traffic:ident = $traffic_help:literal,)+ }
        copies { $($(#[doc = $copies_meaning:literal])+ $copies:ident,)+ }
        events { $($(#[doc = $meaning:literal])+ $(#[serde($default:ident)])? $event:ident = $help:literal,)+ }
        waiting { $(#[doc = $waiting_meaning:literal])+ $waiting:ident = $waiting_help:literal, }
        hidden { $(#[doc = $hidden_meaning:literal])+ $hidden:ident = $hidden_help:literal, }
    ) => {
        /// Counters of one queue. `received` and `delivered` are seen from the datapath: received from the port,
        /// delivered to it.
        #[derive(Debug, Default)]
        pub struct QueueCounters {
            $($traffic: AtomicU64,)+
            $($copies: AtomicU64,)+
            dropped: [AtomicU64; DropCause::ALL.len()],
            $($event: AtomicU64,)+
            waiting_frames: AtomicU64,
            waiting_bytes: AtomicU64,
            hidden_frames: AtomicU64,
        }

        /// Values of a queue's counters, or sums of several queues'.
        #[derive(Debug, Default, Clone, PartialEq, Eq)]
        pub struct CounterSnapshot {
            $($(#[doc = $traffic_meaning])+ pub $traffic: u64,)+
            $($(#[doc = $copies_meaning])+ pub $copies: u64,)+
            /// Frames dropped, indexed by [`DropCause`].
            pub dropped: [u64; DropCause::ALL.len()],
            $($(#[doc = $meaning])+ pub $event: u64,)+
            /// Frames that a device has not taken, as of the last check; in no other value.
            pub waiting: Waiting,
            /// Frames that the kernel has received and not handed over, as of the last check; in no other value.
            pub hidden_frames: u64,
        }

        /// Traffic of a port, with drops and events.
        #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub struct CounterReport {
            $($(#[doc = $traffic_meaning])+ pub $traffic: u64,)+
            /// Frames dropped, by cause; causes that never happened may be left out.
            pub drops: BTreeMap<String, u64>,
            $($(#[doc = $meaning])+ $(#[serde($default)])? pub $event: u64,)+
            $(#[doc = $waiting_meaning])+
            #[serde(default)]
            pub $waiting: u64,
            $(#[doc = $hidden_meaning])+
            #[serde(default)]
            pub $hidden: u64,
        }

        impl Statistic {
            /// All statistics of a port but its drops, in the order of reports.
            pub const ALL: &[Self] = &[
                $(Self {
                    name: stringify!($traffic),
                    meaning: concat!($($traffic_meaning),+).trim_ascii(),
                    help: $traffic_help,
                    is_gauge: false,
                    value: |report| report.$traffic,
                },)+
                $(Self {
                    name: stringify!($event),
                    meaning: concat!($($meaning),+).trim_ascii(),
                    help: $help,
                    is_gauge: false,
                    value: |report| report.$event,
                },)+
                Self {
                    name: stringify!($waiting),
                    meaning: concat!($($waiting_meaning),+).trim_ascii(),
                    help: $waiting_help,
                    is_gauge: true,
                    value: |report| report.$waiting,
                },
                Self {
                    name: stringify!($hidden),
                    meaning: concat!($($hidden_meaning),+).trim_ascii(),
                    help: $hidden_help,
                    is_gauge: true,
                    value: |report| report.$hidden,
                },
            ];
        }

        impl QueueCounters {
            /// Creates counters that begin with the values of another process's queue.
            #[must_use]
            pub fn resume(snapshot: &CounterSnapshot) -> Self {
                Self {
                    $($traffic: snapshot.$traffic.into(),)+
                    $($copies: snapshot.$copies.into(),)+
                    dropped: snapshot.dropped.map(AtomicU64::new),
                    $($event: snapshot.$event.into(),)+
                    ..Self::default()
                }
            }

            /// The values as they are counted: waiting frames are among the delivered frames.
            fn counted(&self) -> CounterSnapshot {
                let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
                CounterSnapshot {
                    $($traffic: get(&self.$traffic),)+
                    $($copies: get(&self.$copies),)+
                    dropped: self.dropped.each_ref().map(get),
                    $($event: get(&self.$event),)+
                    waiting: Waiting::default(),
                    hidden_frames: get(&self.hidden_frames),
                }
            }

            $(
                #[doc = concat!("Counts more [`CounterSnapshot::", stringify!($event), "`].")]
                #[inline]
                pub fn $event(&self, more: u64) {
                    add(&self.$event, more);
                }
            )+
        }

        impl std::ops::AddAssign for CounterSnapshot {
            fn add_assign(&mut self, other: Self) {
                $(self.$traffic += other.$traffic;)+
                $(self.$copies += other.$copies;)+
                for (total, dropped) in self.dropped.iter_mut().zip(other.dropped) {
                    *total += dropped;
                }
                $(self.$event += other.$event;)+
                self.waiting += other.waiting;
                self.hidden_frames += other.hidden_frames;
            }
        }

        impl CounterSnapshot {
            /// The events, by name.
            pub fn events(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($event), self.$event)),+].into_iter()
            }

            /// The events by name, to change them.
            pub fn events_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut u64)> {
                [$((stringify!($event), &mut self.$event)),+].into_iter()
            }
        }

        impl From<&CounterSnapshot> for CounterReport {
            fn from(snapshot: &CounterSnapshot) -> Self {
                let drops = DropCause::ALL.into_iter().map(|cause| (cause, snapshot.dropped_for(cause)));
                let drops = drops.filter(|(_, frames)| *frames > 0);
                Self {
                    $($traffic: snapshot.$traffic,)+
                    drops: drops.map(|(cause, frames)| (cause.name().to_owned(), frames)).collect(),
                    $($event: snapshot.$event,)+
                    $waiting: snapshot.waiting.frames,
                    $hidden: snapshot.hidden_frames,
                }
            }
        }
    };
}

statistics! {
    traffic {
        /// Frames that the datapath took from the port.
        received_frames = "Frames that the datapath took from here",
        /// Bytes of the received frames, without FCS.
        received_bytes = "Bytes of those frames, without FCS",
        /// Frames that the datapath put into the port.
        delivered_frames = "Frames that the datapath put here",
        /// Bytes of the delivered frames, without FCS.
        delivered_bytes = "Bytes of those frames, without FCS",
    }
    copies {
        /// Copies of flooded frames of this port beyond the first, and segments beyond the first of long frames
        /// delivered to the port.
        replicated_frames,
    }
    events {
        /// Times that the program broke a rule of shared memory; each stopped a ring.
        violations = "Rings stopped because a program broke a rule",
        /// Times that the datapath woke the program.
        wakeups = "Times that the datapath woke a program",
        /// Frames put into the port without a copy of their bytes: by exchange of buffers, or from where they lay.
        #[serde(default)]
        uncopied_frames = "Frames that the datapath put here without a copy of their bytes",
    }
    waiting {
        /// Frames put into an interface's ring that its driver has not taken; not among the delivered frames.
        waiting_frames = "Frames that the driver of an interface has not taken, in no other account",
    }
    hidden {
        /// Frames that the kernel holds for an interface's port; not among the received frames.
        hidden_frames = "Frames that the kernel has not handed over yet, in no other account",
    }
}

/// Frames that passed a queue's port without the queue's worker.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct BypassedFrames {
    /// Frames that came in by the port.
    pub received_frames: u64,
    /// Bytes of the received frames, without FCS.
    pub received_bytes: u64,
    /// Frames that went out by the port.
    pub delivered_frames: u64,
    /// Bytes of the delivered frames, without FCS.
    pub delivered_bytes: u64,
}

/// Frames delivered to a queue that its device has not taken.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Number of frames.
    pub frames: u64,
    /// Bytes of the waiting frames, without FCS.
    pub bytes: u64,
}

/// Frames delivered to a queue that its device dropped.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RefusedFrames {
    /// Number of frames, by cause.
    pub dropped: DropTally,
    /// Bytes of the refused frames, without FCS.
    pub bytes: u64,
}

/// Adds with a relaxed load and store: there is one writer, so no locked instruction is needed.
#[inline]
fn add(counter: &AtomicU64, amount: u64) {
    if amount != 0 {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }
}

impl QueueCounters {
    /// Counts frames taken from the port.
    #[inline]
    pub fn received(&self, frames: u64, bytes: u64) {
        add(&self.received_frames, frames);
        add(&self.received_bytes, bytes);
    }

    /// Counts frames put into the port.
    #[inline]
    pub fn delivered(&self, frames: u64, bytes: u64) {
        add(&self.delivered_frames, frames);
        add(&self.delivered_bytes, bytes);
    }

    /// Counts copies beyond the first.
    #[inline]
    pub fn replicated(&self, frames: u64) {
        add(&self.replicated_frames, frames);
    }

    /// Counts frames dropped.
    #[inline]
    pub fn dropped(&self, tally: &DropTally) {
        if tally.total() != 0 {
            self.dropped_by_cause(tally);
        }
    }

    #[cold]
    fn dropped_by_cause(&self, tally: &DropTally) {
        for cause in DropCause::ALL {
            add(&self.dropped[cause as usize], u64::from(tally.of(cause)));
        }
    }

    /// Counts frames dropped for one cause.
    #[inline]
    pub fn dropped_as(&self, cause: DropCause, frames: u64) {
        add(&self.dropped[cause as usize], frames);
    }

    /// Counts frames that the kernel dropped before they could be received, as received and as dropped.
    pub fn missed(&self, frames: u64) {
        add(&self.received_frames, frames);
        self.dropped_as(DropCause::KernelDropped, frames);
    }

    /// Counts frames whose last piece did not come, as received and as dropped.
    pub fn incomplete(&self, frames: u64) {
        add(&self.received_frames, frames);
        self.dropped_as(DropCause::Incomplete, frames);
    }

    /// Counts frames as dropped that were counted as delivered: their device refused them.
    pub fn refused(&self, refused: &RefusedFrames) {
        add(&self.delivered_frames, u64::from(refused.dropped.total()).wrapping_neg());
        add(&self.delivered_bytes, refused.bytes.wrapping_neg());
        self.dropped(&refused.dropped);
    }

    /// Records the delivered frames that the device has not taken.
    pub fn waiting(&self, waiting: Waiting) {
        self.waiting_frames.store(waiting.frames, Ordering::Relaxed);
        self.waiting_bytes.store(waiting.bytes, Ordering::Relaxed);
    }

    /// Records the frames that the kernel has received and not handed over.
    pub fn hidden(&self, frames: u64) {
        self.hidden_frames.store(frames, Ordering::Relaxed);
    }

    /// Counts the waiting frames as dropped: their device has ended.
    pub fn give_up_waiting(&self) {
        let waiting = self.waiting_frames.swap(0, Ordering::Relaxed);
        add(&self.delivered_frames, waiting.wrapping_neg());
        add(&self.delivered_bytes, self.waiting_bytes.swap(0, Ordering::Relaxed).wrapping_neg());
        self.dropped_as(DropCause::LinkDown, waiting);
    }

    /// Counts frames that passed the port without the worker.
    pub fn passed(&self, traffic: BypassedFrames) {
        self.received(traffic.received_frames, traffic.received_bytes);
        self.delivered(traffic.delivered_frames, traffic.delivered_bytes);
    }

    /// Adds the values to `sum`.
    pub fn add_to(&self, sum: &mut CounterSnapshot) {
        let waiting = Waiting {
            frames: self.waiting_frames.load(Ordering::Relaxed),
            bytes: self.waiting_bytes.load(Ordering::Relaxed),
        };
        let mut counters = CounterSnapshot { waiting, ..self.counted() };
        counters.delivered_frames = counters.delivered_frames.saturating_sub(waiting.frames);
        counters.delivered_bytes = counters.delivered_bytes.saturating_sub(waiting.bytes);
        *sum += counters;
    }
}

impl std::ops::AddAssign for Waiting {
    fn add_assign(&mut self, other: Self) {
        self.frames += other.frames;
        self.bytes += other.bytes;
    }
}

impl CounterSnapshot {
    /// Number of frames dropped for `cause`.
    #[must_use]
    pub fn dropped_for(&self, cause: DropCause) -> u64 {
        self.dropped[cause as usize]
    }

    /// Counts the waiting frames as dropped: their ring ends with the process.
    pub fn give_up_waiting(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        self.dropped[DropCause::LinkDown as usize] += waiting.frames;
    }

    /// Number of all dropped frames.
    #[must_use]
    pub fn dropped_frames(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// The conservation sum over ports that exchange frames: received + replicated - delivered - dropped. Zero once
    /// traffic has stopped.
    #[must_use]
    pub fn unaccounted(all: &[Self]) -> i128 {
        all.iter()
            .map(|port| {
                i128::from(port.received_frames) + i128::from(port.replicated_frames)
                    - i128::from(port.delivered_frames)
                    - i128::from(port.dropped_frames())
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(counters: &QueueCounters) -> CounterSnapshot {
        let mut sum = CounterSnapshot::default();
        counters.add_to(&mut sum);
        sum
    }

    #[test]
    fn what_waits_is_delivered_once_it_is_taken_and_dropped_if_it_never_is() {
        let counters = QueueCounters::default();
        counters.received(5, 500);
        counters.delivered(5, 500);
        counters.waiting(Waiting { frames: 3, bytes: 300 });
        let stuck = snapshot(&counters);
        assert_eq!((stuck.delivered_frames, stuck.delivered_bytes, stuck.waiting.frames), (2, 200, 3));
        counters.waiting(Waiting { frames: 1, bytes: 100 });
        assert_eq!(snapshot(&counters).delivered_frames, 4);

        // Another process continues the counters, without the waiting frames.
        let mut left = snapshot(&counters);
        left.give_up_waiting();
        let resumed = snapshot(&QueueCounters::resume(&left));
        counters.give_up_waiting();
        for ended in [snapshot(&counters), resumed] {
            assert_eq!((ended.delivered_frames, ended.delivered_bytes), (4, 400));
            assert_eq!((ended.dropped_for(DropCause::LinkDown), ended.waiting), (1, Waiting::default()));
            assert_eq!(CounterSnapshot::unaccounted(&[ended]), 0);
        }
    }

    #[test]
    fn refused_frames_are_dropped_and_not_delivered() {
        let counters = QueueCounters::default();
        counters.received(5, 500);
        counters.delivered(5, 500);
        let mut refused = RefusedFrames { bytes: 200, ..RefusedFrames::default() };
        refused.dropped.add(DropCause::Refused, 2);
        counters.refused(&refused);
        let sum = snapshot(&counters);
        assert_eq!((sum.delivered_frames, sum.delivered_bytes), (3, 300));
        assert_eq!(sum.dropped_for(DropCause::Refused), 2);
        assert_eq!(CounterSnapshot::unaccounted(&[sum]), 0);
    }

    #[test]
    fn incomplete_frames_are_received_and_dropped() {
        let counters = QueueCounters::default();
        counters.incomplete(7);
        let sum = snapshot(&counters);
        assert_eq!((sum.received_frames, sum.dropped_for(DropCause::Incomplete)), (7, 7));
        assert_eq!(CounterSnapshot::unaccounted(&[sum]), 0);
    }
}
