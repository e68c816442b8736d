//! The results of a script's run.

use ringroad_traffic::meter::MeterSummary;
use ringroad_traffic::pacing::{DepartureErrorReport, OfferedLoad};
use serde::Serialize;

/// Counts of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ScriptReport {
    /// Time from the start of the script to the end of its last task, s.
    pub seconds: f64,
    /// The ports that the script opened, in that order.
    pub devices: Vec<DeviceReport>,
}

/// Counts of a port.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct DeviceReport {
    /// Name under which the script opened the port.
    pub name: String,
    /// Driver of the port.
    pub driver: String,
    /// Counts of the port's queues.
    pub queues: Vec<QueueReport>,
}

/// Counts of a queue. Bytes are without FCS.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct QueueReport {
    /// Number of the queue.
    pub queue: usize,
    /// Frames put into the queue's ring.
    pub sent_frames: u64,
    /// Bytes of the sent frames.
    pub sent_bytes: u64,
    /// Sent frames that the other side had not taken at the end.
    pub unsent_frames: u64,
    /// Frames received into the script's buffers.
    pub received_frames: u64,
    /// Bytes of the received frames.
    pub received_bytes: u64,
    /// Frames received and dropped because they were longer than the script's buffers.
    pub too_long_frames: u64,
    /// Intended and sent frames while a rate was set.
    pub offered: OfferedLoad,
    /// Accuracy of the frames' times; absent if no rate was set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub departure: Option<DepartureErrorReport>,
    /// Reception of signed frames; absent if the script attached no meter. Streams that this run signed are compared
    /// with the sent frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meter: Option<MeterSummary>,
}
