//! Entries of the list of attached ports as version 0.1.0 wrote them.

use ringroad_control::message::{PortProperties, PortSpec};
use ringroad_drivers::catalogue::port_kind::DeviceName;
use ringroad_drivers::catalogue::port_name::{PortName, host_side_text};
use serde::Deserialize;

use crate::attaching::PortRecord;
use crate::port_entries::PortOrigin;

/// A request of a command to attach a port.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OldEntry {
    /// Name of the port with its options, as the user typed it.
    name: String,
    /// Device that serves the port; `None` if a program opens the port.
    driver: Option<String>,
    /// Whether the host stack's side of the interface is attached too.
    host: bool,
    #[serde(rename = "wish")]
    properties: PortProperties,
    netns: Option<u64>,
    number: u64,
}

impl OldEntry {
    /// Records of the ports that the request made: the port, and the host stack's side of its interface.
    pub(super) fn into_records(self) -> impl Iterator<Item = PortRecord> {
        let Self { name, driver, host, properties, netns, number } = self;
        let host_side = driver.as_deref().filter(|_| host).and_then(host_stack_of);
        let host_side = host_side.map(|driver| (host_side_text(&name), Some(driver)));
        [(name, driver)].into_iter().chain(host_side).map(move |(name, driver)| {
            let spec = PortSpec { name, driver, properties: properties.clone(), netns };
            PortRecord::new(spec, PortOrigin::Command { number })
        })
    }
}

/// Host stack's side of the interface that the device `driver` uses.
fn host_stack_of(driver: &str) -> Option<String> {
    let name: PortName = driver.parse().ok()?;
    let (interface, _) = name.base.device()?.interface()?;
    DeviceName::host_stack_of(interface).map(|device| device.to_string())
}
