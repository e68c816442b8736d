//! Refusals of requests, as clients get them.

use ringroad_control::message::{ErrorKind, ErrorReply};
use ringroad_datapath::fabric::FabricError;
use ringroad_drivers::device::DeviceError;
use ringroad_port_table::error::TableError;
use ringroad_ring::region::RegionError;

use crate::quotas::refuse_memory;

pub(crate) type Refusal = ErrorReply;

pub(crate) fn refuse(kind: ErrorKind, message: impl Into<String>, advice: impl Into<String>) -> Refusal {
    ErrorReply::new(kind, message, advice)
}

pub(crate) fn region_refusal(error: RegionError) -> Refusal {
    match error {
        RegionError::Geometry(error) => refuse(ErrorKind::BadProperties, error.to_string(), ""),
        RegionError::Limit { bytes, source } => refuse_memory(bytes, source),
        error @ RegionError::NoHugePages { .. } => refuse(ErrorKind::OutOfMemory, error.to_string(), ""),
        error => {
            refuse(ErrorKind::OutOfMemory, error.to_string(), "close some ports or request smaller ones")
        }
    }
}

pub(crate) fn fabric_refusal(error: FabricError) -> Refusal {
    let (kind, advice) = match error {
        FabricError::HasFlowTables(_) => {
            (ErrorKind::BadProperties, "leave vlan, trunk, isolated and storm out")
        }
        FabricError::HasSettings(_) => {
            (ErrorKind::BadProperties, "close or detach the ports that have settings: ringroad list")
        }
        FabricError::TableWithoutVlans(_) => (
            ErrorKind::BadProperties,
            "raise switch.mac_entries of the daemon's configuration, and start it again",
        ),
        _ => (fabric_kind(&error), ""),
    };
    refuse(kind, error.to_string(), advice)
}

fn fabric_kind(error: &FabricError) -> ErrorKind {
    match error {
        FabricError::SwitchFull(_) => ErrorKind::SwitchFull,
        FabricError::TooManySwitches => ErrorKind::TooManyPorts,
        FabricError::PortTaken(_) => ErrorKind::PortTaken,
        FabricError::NoSuchPort(_) => ErrorKind::NoSuchPort,
        _ => ErrorKind::Internal,
    }
}

/// Refusal for an error of the table; `name` is the port's name.
pub(crate) fn table_refusal(name: &str, error: TableError) -> Refusal {
    match error {
        TableError::Region(error) => region_refusal(error),
        TableError::Fabric(error) => fabric_refusal(error),
        error @ TableError::EndInUse(_) => {
            refuse(ErrorKind::PortTaken, error.to_string(), "open the other end, or another pipe")
        }
        TableError::SharedQueues { asked, has } => refuse(
            ErrorKind::BadProperties,
            format!("{name} cannot have {asked} queues in a region whose ports have {has}"),
            "leave the number of queues out, or do not share",
        ),
        error => refuse(ErrorKind::Internal, error.to_string(), ""),
    }
}

pub(crate) fn device_refusal(name: &str, error: &DeviceError) -> Refusal {
    let kind = match error {
        error if error.is_absence() => ErrorKind::NoSuchPort,
        error if error.is_busy() => ErrorKind::Busy,
        DeviceError::Region(_) => ErrorKind::OutOfMemory,
        _ => ErrorKind::BadProperties,
    };
    let told = error.to_string();
    let device = name.split_once('@').map_or(name, |(device, _)| device);
    // An interface can have the name of a switch; if none has, the port of the switch was forgotten.
    if kind == ErrorKind::NoSuchPort && device.starts_with("vale") && !device.contains(':') {
        let (fault, advice) = told.split_once("; ").unwrap_or((&told, ""));
        let forgotten = format!("a port of the switch {device} is named like {device}:a; {advice}");
        return refuse(kind, format!("opening {name}: {fault}"), forgotten);
    }
    refuse(kind, format!("opening {name}: {told}"), "")
}
