//! The results of a script's run.

use ringroad_traffic::meter::MeterSummary;
use ringroad_traffic::pacing::{DepartureErrorReport, OfferedLoad};
use serde::Serialize;

/// The counters of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ScriptReport {
    /// From the start of the script to the end of its last task, s.
    pub seconds: f64,
    /// The ports that it opened, in that order.
    pub devices: Vec<DeviceReport>,
}

/// The counters of a port.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct DeviceReport {
    /// The name under which the script opened it.
    pub name: String,
    /// The driver that serves it.
    pub driver: String,
    /// Its queues.
    pub queues: Vec<QueueReport>,
}

/// The counters of a queue. Bytes are without FCS.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct QueueReport {
    /// Its number.
    pub queue: usize,
    /// Frames put into its ring, and their bytes.
    pub sent_frames: u64,
    /// Bytes of these.
    pub sent_bytes: u64,
    /// Frames among them that the other side had not taken at the end.
    pub unsent_frames: u64,
    /// Frames received into the script's buffers.
    pub received_frames: u64,
    /// Bytes of these.
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
