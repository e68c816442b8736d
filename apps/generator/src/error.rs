//! Errors of a session: it could not be made, or it ended early.

use ringroad_traffic::definition::StreamError;
use ringroad_traffic::frame_source::ShareError;
use ringroad_traffic::meter::MeterConfigError;
use ringroad_traffic::pacing::RateError;
use ringroad_traffic::stream_mix::MixError;

use crate::plan::TestPlanError;

/// Reason why a session could not be made, or ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The plan contradicts itself.
    #[error(transparent)]
    Plan(#[from] TestPlanError),
    /// A load's stream cannot be made.
    #[error("load \"{load}\": {source}")]
    Stream { load: String, source: Box<StreamError> },
    /// A load's stream cannot be shared by the queues of its port.
    #[error("load \"{load}\": {source}")]
    Share { load: String, source: ShareError },
    /// The weights of a load's streams cannot be combined.
    #[error("load \"{load}\": {source}")]
    Mix { load: String, source: MixError },
    /// A load's rate or shape cannot be offered.
    #[error("load \"{load}\": {source}")]
    Rate { load: String, source: RateError },
    /// A port cannot be opened.
    #[error("port {port}: {source}")]
    Open { port: String, source: ringroad::OpenError },
    /// The frames of a load fit neither the rings of its port nor the device behind it.
    #[error(
        "load \"{load}\" has frames of {frame_bytes} bytes (without FCS), and port {port} carries {most} at most; choose smaller frames, larger buffers, or a larger MTU of the interface"
    )]
    FrameTooLong {
        load: String,
        /// Bytes of the longest frame.
        frame_bytes: usize,
        port: String,
        /// Greatest length of a frame on the port, bytes.
        most: usize,
    },
    /// The number of ports handed in differs from the plan's.
    #[error("the plan has {planned} ports and {given} were given")]
    PortCount {
        /// Ports of the plan.
        planned: usize,
        /// Ports given.
        given: usize,
    },
    /// A port failed while it was in use.
    #[error("port {port}: {source}")]
    Port {
        port: String,
        /// The failed action.
        source: ringroad::PortError,
    },
    /// A thread could not be started or pinned.
    #[error("starting thread {index}: {source}")]
    Thread { index: usize, source: std::io::Error },
    /// A thread of the session panicked, which is a defect of this program.
    #[error("a thread of the generator failed; this is a defect: please report it")]
    Panic,
    /// A meter could not be made.
    #[error(transparent)]
    Meter(#[from] MeterConfigError),
}
