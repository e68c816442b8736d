//! Errors of ports, at opening and afterwards.

use ringroad_control::ControlError;
use ringroad_datapath::fabric::FabricError;
use ringroad_drivers::catalogue::port_name::PortNameError;
use ringroad_drivers::device::DeviceError;
use ringroad_port::impairment::ImpairmentPlanError;
use ringroad_port_table::error::TableError;
use ringroad_ring::geometry::GeometryError;
use ringroad_ring::region::RegionError;
use ringroad_ring::violation::RingViolation;

use crate::daemon_start::StartError;

/// Reason why a port cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The name does not parse.
    #[error(transparent)]
    Name(#[from] PortNameError),
    /// The daemon is not running and cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The daemon refused, or cannot be reached.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The daemon's region cannot be used.
    #[error("mapping the port's region: {0}")]
    Region(#[from] RegionError),
    /// A size is out of range.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The device cannot be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// An embedded datapath refused the port.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// An impairment plan holds a value out of range.
    #[error(transparent)]
    Impairment(#[from] ImpairmentPlanError),
    /// The kernel refused a resource or an operation.
    #[error("{what}: {source}")]
    System {
        /// Attempted operation.
        what: &'static str,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// This kind of port cannot be opened here.
    #[error("{name} cannot be opened {context}: {why}")]
    NotHere {
        /// Name of the port.
        name: String,
        /// Situation in which the opening was tried.
        context: &'static str,
        /// Reason, and what to do instead.
        why: &'static str,
    },
    /// The daemon's reply does not fit the request.
    #[error("ringroadd answered an open request with something else; are library and daemon of one version?")]
    UnexpectedReply,
}

impl From<TableError> for OpenError {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Region(error) => error.into(),
            TableError::Fabric(error) => error.into(),
            TableError::EndInUse(name) => {
                Self::NotHere { name, context: "twice", why: "this end of the pipe is open already" }
            }
            TableError::SharedQueues { .. } => {
                GeometryError::Impossible("the ports of the shared region have another number of queues")
                    .into()
            }
            error => Self::System { what: "making a port", source: std::io::Error::other(error) },
        }
    }
}

/// Reason why an open port stopped working.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The peer or the program broke a rule of the ring, and the ring has stopped. Close the port and open it again.
    #[error("the ring was stopped: {0}; close the port and open it again")]
    RingStopped(#[source] RingViolation),
    /// The port belongs to the process that opened it, and this process is a child of that process.
    #[error(
        "the port belongs to the process that opened it, and this is a child of that process: open a port here"
    )]
    OtherProcess,
    /// The daemon ended or removed the port.
    #[error("the daemon is gone or has removed the port; open it again")]
    DaemonGone,
    /// The daemon came back, and the port cannot be opened there.
    #[error("opening the port again: {0}")]
    Reopen(#[source] Box<OpenError>),
    /// The frame is too long for every ring of this port.
    #[error("a frame of {len} bytes does not fit: the port takes frames up to {most} bytes")]
    FrameTooLong {
        /// Length of the frame, bytes.
        len: usize,
        /// Longest frame, bytes.
        most: usize,
    },
    /// The embedded device stopped: the end of a truncated capture file, a full disk, a peer that broke a rule or has
    /// ended.
    #[error("{0}")]
    Device(String),
    /// The kernel refused to wait.
    #[error("waiting on a port: {0}")]
    Wait(#[from] rustix::io::Errno),
}

impl From<RingViolation> for PortError {
    #[cold]
    fn from(violation: RingViolation) -> Self {
        match violation {
            RingViolation::OtherProcess => Self::OtherProcess,
            violation => Self::RingStopped(violation),
        }
    }
}
