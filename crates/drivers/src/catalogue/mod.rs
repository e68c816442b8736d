//! The kinds of port. Each driver describes its kinds ([`PortKind`]); names, help, documentation and checks follow from
//! the descriptions.
//!
//! A new kind of port needs a folder (or file) with a `KINDS`, and a line in [`KINDS`] here.

use std::sync::Arc;

use ringroad_netdev::namespace::{HeldNamespace, Namespace};
use ringroad_port::port_queue::HandOver;
use ringroad_ring::eventfd;

use self::port_kind::{NameTarget, OpenContext, OpenedBy, Planning, PortKind};
use self::port_name::{PortBase, PortName};
use crate::device::{Device, DeviceError, DevicePlan, DeviceRole};
use crate::shm::ShmRegion;
use crate::{dgram, memif, nic, null, pcap_file, stream, sze2, szedata, vhost_user, virtio_user};

pub mod port_kind;
pub mod port_name;
pub mod port_option;
pub mod switch_port;

pub use crate::nic::NETNS;

/// The kinds of each driver, in the order of the documentation.
static KINDS: &[&[PortKind]] = &[
    nic::KINDS,
    vhost_user::KINDS,
    virtio_user::KINDS,
    memif::KINDS,
    dgram::KINDS,
    stream::KINDS,
    sze2::KINDS,
    szedata::KINDS,
    null::KINDS,
    pcap_file::KINDS,
];

/// All kinds of port that a device serves.
pub fn kinds() -> impl Iterator<Item = &'static PortKind> {
    KINDS.iter().flat_map(|kinds| kinds.iter())
}

/// Forms of the names of devices, for messages.
#[must_use]
pub fn forms() -> String {
    kinds().map(|kind| kind.form).collect::<Vec<_>>().join(", ")
}

/// Whether `base` names a device that a program opens in its own process.
#[must_use]
pub fn is_own_device(base: &PortBase) -> bool {
    base.device().is_some_and(|device| device.kind.access == OpenedBy::Program)
}

/// Checks whether the device named `name` can be opened, and returns what it needs. An interface is looked up in the
/// namespace of its name, or else in that of this thread. `queues` is the requested number of queues if the name does
/// not state it.
///
/// # Errors
/// [`DeviceError`] if it is already known that the device cannot be opened.
pub fn plan_device(name: &PortName, queues: Option<u16>) -> Result<DevicePlan, DeviceError> {
    let named = name.options.device.text(&NETNS);
    let netns = named.map(|text| text.parse::<Namespace>()?.hold()).transpose()?;
    plan_device_in(netns.as_ref(), name, queues)
}

/// Checks as [`plan_device`] does, but looks up an interface in `netns`, independent of its name.
///
/// # Errors
/// As [`plan_device`].
pub fn plan_device_in(
    netns: Option<&HeldNamespace>,
    name: &PortName,
    queues: Option<u16>,
) -> Result<DevicePlan, DeviceError> {
    let device = name.base.device().ok_or_else(|| DeviceError::NotADevice(name.base.to_string()))?;
    let queues = name.options.queues.or(queues);
    (device.kind.plan)(&Planning { target: &device.target, options: &name.options, netns, queues })
}

/// Opens the device named `name` as planned. `home` is the region that it shares with its program or with others.
///
/// # Errors
/// [`DeviceError`].
pub fn open_device(
    name: &PortName,
    plan: DevicePlan,
    role: DeviceRole,
    home: Option<&Arc<ShmRegion>>,
) -> Result<Device, DeviceError> {
    take_over_device(name, plan, role, home, Vec::new())
}

/// Opens a device as [`open_device`] does, with the state that another process leaves of it, queue by queue. The device
/// continues where that process stopped.
///
/// # Errors
/// [`DeviceError`].
pub fn take_over_device(
    name: &PortName,
    plan: DevicePlan,
    role: DeviceRole,
    home: Option<&Arc<ShmRegion>>,
    inherited: Vec<HandOver>,
) -> Result<Device, DeviceError> {
    let device = name.base.device().ok_or_else(|| DeviceError::NotADevice(name.base.to_string()))?;
    if device.kind.target == NameTarget::Socket {
        eventfd::prepare().map_err(DeviceError::NoWaking)?;
    }
    (device.kind.open)(OpenContext {
        target: &device.target,
        options: &name.options,
        plan,
        role,
        home,
        inherited,
    })
}

#[cfg(test)]
mod tests {
    mod documentation;

    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_kinds_have_one_spelling_and_no_option_hides_a_common_one() {
        let mut spellings = HashSet::new();
        for kind in kinds() {
            assert!(spellings.insert(format!("{:?}", kind.spelling)), "{}", kind.form);
            let common = port_name::COMMON_OPTIONS.iter().chain(&switch_port::SWITCH_PORT_OPTIONS);
            let mut keys: HashSet<_> = common.map(|option| option.key).collect();
            for option in kind.options {
                assert!(keys.insert(option.key), "{}: {}", kind.form, option.key);
            }
        }
    }

    #[test]
    fn the_form_of_each_kind_is_a_name_of_that_kind() {
        for kind in kinds() {
            let name: PortName = kind.form.parse().unwrap();
            assert_eq!(name.base.device().unwrap().kind, kind);
        }
    }
}
