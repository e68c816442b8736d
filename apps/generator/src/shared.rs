//! State shared by a session and its threads.

use std::sync::{Arc, Mutex};

use ringroad::PortInfo;
use ringroad_traffic::meter::Meter;
use serde::Serialize;

use crate::control::QueueLoadCounters;
use crate::lineup::{Lineup, WireNumbers, WireStream};
use crate::queue_task::QueueTask;
use crate::receiver::ReceiveCounters;

/// Frames, and their bytes without FCS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct FrameCount {
    /// Number of frames.
    pub frames: u64,
    /// Bytes of the frames, without FCS.
    pub bytes: u64,
}

/// Parts of a lineup except its tasks.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) info: Vec<PortInfo>,
    pub(crate) meters: Vec<Arc<Mutex<Meter>>>,
    pub(crate) wire_streams: Vec<WireStream>,
    pub(crate) wire_numbers: WireNumbers,
    received: Vec<Vec<Arc<ReceiveCounters>>>,
    sent: Vec<Vec<Arc<QueueLoadCounters>>>,
}

impl Shared {
    pub(crate) fn split(lineup: Lineup) -> (Vec<QueueTask>, Self) {
        let Lineup { tasks, info, meters, received, sent, wire_streams, wire_numbers, control: _ } = lineup;
        (tasks, Self { info, meters, wire_streams, wire_numbers, received, sent })
    }

    /// Number of queue loads of a load: one for each queue of its port.
    pub(crate) fn lanes_of(&self, load: usize) -> usize {
        self.sent[load].len()
    }

    pub(crate) fn queues_of(&self, port: usize) -> usize {
        self.received[port].len()
    }

    /// Frames that a load has sent.
    pub(crate) fn sent(&self, load: usize) -> FrameCount {
        self.sent.get(load).into_iter().flatten().map(|counters| counters.get()).collect()
    }

    /// Frames that a port has received.
    pub(crate) fn received(&self, port: usize) -> FrameCount {
        self.received.get(port).into_iter().flatten().map(|counters| counters.get()).collect()
    }
}

impl FromIterator<(u64, u64)> for FrameCount {
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(counts: I) -> Self {
        let add = |sum: Self, (frames, bytes)| Self { frames: sum.frames + frames, bytes: sum.bytes + bytes };
        counts.into_iter().fold(Self::default(), add)
    }
}
