//! The drivers by name: the only place that lists them. Composition roots ask here; nobody else names a driver.

use std::path::PathBuf;

use ringroad_port::port_name::PortBase;
use ringroad_port::port_queue::{Capabilities, PortQueue};

use crate::null::NullQueue;
use crate::pcap_file::PcapQueue;

/// A driver's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriverEntry {
    /// Name in reports and metrics.
    pub name: &'static str,
    /// How its port names look.
    pub names: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
}

/// All drivers of this build.
pub const DRIVERS: &[DriverEntry] = &[
    DriverEntry { name: "shm", names: "vale0:a", about: "a program's rings in shared memory, on a switch" },
    DriverEntry { name: "pipe", names: "x{1 and x}1", about: "two programs joined directly" },
    DriverEntry {
        name: "null",
        names: "null:size=60,copy=0",
        about: "frames without end, the overhead floor",
    },
    DriverEntry { name: "pcap", names: "pcap:FILE", about: "frames of a capture file, or into one" },
];

/// Why a device cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The capture file.
    #[error(transparent)]
    Capture(#[from] ringroad_capture::CaptureError),
    /// The name is not a device's.
    #[error("{0} is not a device: devices are null: and pcap: ports")]
    NotADevice(String),
    /// The driver has no such number of queues.
    #[error("a {driver} port has at most {most} queue(s), not {asked}")]
    Queues {
        /// Driver.
        driver: &'static str,
        /// Queues it can have.
        most: u16,
        /// Queues asked for.
        asked: u16,
    },
}

/// A device opened: its queues, and what it can do.
pub struct Device {
    /// One per queue.
    pub queues: Vec<Box<dyn PortQueue>>,
    /// What it is.
    pub capabilities: Capabilities,
}

/// Whether `base` names a port that a driver of the datapath itself serves, with no program at its rings.
#[must_use]
pub fn is_device(base: &PortBase) -> bool {
    matches!(base, PortBase::Null { .. } | PortBase::Pcap { .. })
}

/// Opens the device that `base` names, with `queues` queues.
///
/// # Errors
/// [`DeviceError`].
pub fn open_device(base: &PortBase, queues: u16) -> Result<Device, DeviceError> {
    match base {
        PortBase::Null { size_bytes, copy, no_rx } => Ok(Device {
            queues: (0..queues)
                .map(|_| Box::new(NullQueue::new(*size_bytes, *copy, *no_rx)) as Box<dyn PortQueue>)
                .collect(),
            capabilities: Capabilities {
                driver: "null",
                mode: format!("null, {size_bytes} B frames, {}", if *copy { "copied" } else { "not copied" }),
                max_frame_bytes: 65535,
            },
        }),
        PortBase::Pcap { input, output } => {
            if queues > 1 {
                return Err(DeviceError::Queues { driver: "pcap", most: 1, asked: queues });
            }
            let queue = PcapQueue::open(input.as_deref(), output.as_deref())?;
            let part = |word: &str, path: &Option<PathBuf>| {
                path.as_ref().map(|path| format!("{word} {}", path.display())).unwrap_or_default()
            };
            Ok(Device {
                queues: vec![Box::new(queue)],
                capabilities: Capabilities {
                    driver: "pcap",
                    mode: format!("{} {}", part("from", input), part("to", output)).trim().to_owned(),
                    max_frame_bytes: 65535,
                },
            })
        }
        other => Err(DeviceError::NotADevice(other.to_string())),
    }
}
