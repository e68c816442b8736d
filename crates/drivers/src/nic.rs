//! Ports of network interfaces: which mechanism serves one, and what it is told.
//!
//! The mechanisms themselves ([`crate::af_xdp`], [`crate::af_packet`], [`crate::host_rings`], [`crate::tap`]) know nothing of
//! port names or of each other. Everything here runs in the interface's network namespace.

use ringroad_netdev::namespace::{Namespace, NamespaceError, in_namespace};

use ringroad_port::device_options::DeviceOptions;
use ringroad_port::port_queue::{Capabilities, PortQueue};

use crate::registry::{Device, DeviceError, DeviceInterface, DevicePlan};
use crate::tap::{TapDevice, TapWish};

/// Runs `f` in the namespace that a name's options give, else here.
pub(crate) fn within<T: Send>(
    netns: Option<&str>,
    f: impl FnOnce() -> Result<T, DeviceError> + Send,
) -> Result<T, DeviceError> {
    let namespace = match netns {
        Some(text) => text.parse::<Namespace>()?,
        None => Namespace::Current,
    };
    in_namespace(&namespace, f)?
}

impl From<NamespaceError> for DeviceError {
    fn from(error: NamespaceError) -> Self {
        Self::Namespace(error)
    }
}

fn boxed<Q: PortQueue + 'static>(queues: Vec<Q>) -> Vec<Box<dyn PortQueue>> {
    queues.into_iter().map(|queue| Box::new(queue) as Box<dyn PortQueue>).collect()
}

/// Opens a TAP.
pub(crate) fn open_tap(
    interface: &str,
    options: &DeviceOptions,
    plan: DevicePlan,
) -> Result<Device, DeviceError> {
    let wish = TapWish {
        name: interface.to_owned(),
        queues: plan.queues,
        persistent: options.persistent.unwrap_or(false),
        mtu: options.mtu,
        mac: options.mac,
        vnet_hdr: options.vnet_hdr.unwrap_or(false),
        up: true,
    };
    let tap = within(options.netns.as_deref(), || Ok(TapDevice::open(&wish)?))?;
    Ok(Device {
        queues: boxed(tap.queues),
        capabilities: Capabilities { driver: "tap", mode: tap.mode, max_frame_bytes: 65535 },
        interface: Some(DeviceInterface { name: tap.name, netns: options.netns.clone() }),
        notes: tap.notes,
        keep: None,
    })
}
