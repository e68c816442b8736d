//! Failures of netmap requests: the errno for the program, and the cause for the user.

use ringroad_control::message::ErrorKind;
use ringroad_datapath::fabric::FabricError;
use ringroad_drivers::device::DeviceError;
use ringroad_ring::geometry::GeometryError;
use ringroad_ring::region::RegionError;
use rustix::io::Errno;

use crate::quotas::refuse_memory;
use crate::refusal::{Refusal, fabric_refusal};

/// Reason why a request fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetmapFailure {
    pub(crate) errno: Errno,
    pub(crate) message: String,
}

/// Creates a failure.
pub(crate) fn fail(errno: Errno, message: impl Into<String>) -> NetmapFailure {
    NetmapFailure { errno, message: message.into() }
}

impl From<RegionError> for NetmapFailure {
    fn from(error: RegionError) -> Self {
        match error {
            RegionError::Limit { bytes, source } => refuse_memory(bytes, source).into(),
            error => fail(Errno::NOMEM, error.to_string()),
        }
    }
}

impl From<GeometryError> for NetmapFailure {
    fn from(error: GeometryError) -> Self {
        fail(Errno::NOMEM, error.to_string())
    }
}

impl From<FabricError> for NetmapFailure {
    fn from(error: FabricError) -> Self {
        let message = error.to_string();
        Self { message, ..fabric_refusal(error).into() }
    }
}

impl From<DeviceError> for NetmapFailure {
    fn from(error: DeviceError) -> Self {
        let errno = match &error {
            DeviceError::Netdev(error) if error.is_no_interface() => Errno::NXIO,
            DeviceError::Region(_) => Errno::NOMEM,
            _ => Errno::INVAL,
        };
        fail(errno, error.to_string())
    }
}

impl From<Refusal> for NetmapFailure {
    fn from(refusal: Refusal) -> Self {
        let errno = match refusal.kind {
            ErrorKind::NoSuchPort => Errno::NXIO,
            ErrorKind::PortTaken | ErrorKind::Busy => Errno::BUSY,
            ErrorKind::PermissionDenied => Errno::ACCESS,
            ErrorKind::SwitchFull | ErrorKind::OutOfMemory | ErrorKind::TooManyPorts => Errno::NOMEM,
            ErrorKind::Internal => Errno::IO,
            _ => Errno::INVAL,
        };
        // An errno is not specific, so the cause names the remedy.
        let advice = if refusal.advice.is_empty() { String::new() } else { format!(": {}", refusal.advice) };
        fail(errno, refusal.message + &advice)
    }
}
