//! Stand-in for the device of a port while the device is not open: frames for the port are dropped as `link_down`.

use ringroad_port::batch::Batch;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::port_queue::{Delivery, Diagnose, PortCapabilities, PortQueue, Sleep};

use crate::device::{Device, DeviceInterface};

#[derive(Debug)]
struct AbsentQueue {
    reason: String,
}

impl PortQueue for AbsentQueue {
    fn receive(&mut self, _batch: &mut Batch) {}

    fn is_empty(&mut self) -> bool {
        true
    }

    fn release(&mut self, _slots: usize) {}

    fn deliver(&mut self, _batch: &mut Batch, frames: &[u16]) -> Delivery {
        Delivery::dropped(DropCause::LinkDown, frames.len())
    }

    fn sleeper(&mut self) -> Option<&mut dyn Sleep> {
        Some(self)
    }

    fn diagnosis(&mut self) -> Option<&mut dyn Diagnose> {
        Some(self)
    }
}

impl Sleep for AbsentQueue {
    fn has_waiting(&mut self) -> bool {
        false
    }
}

impl Diagnose for AbsentQueue {
    fn fault(&self) -> Option<String> {
        Some(self.reason.clone())
    }
}

/// Device in place of one with these capabilities at `interface`, which is not open for `reason`.
#[must_use]
pub fn stand_in(capabilities: PortCapabilities, interface: Option<DeviceInterface>, reason: &str) -> Device {
    let queue = Box::new(AbsentQueue { reason: reason.to_owned() });
    let capabilities = PortCapabilities { mode: "not open".to_owned(), ..capabilities };
    Device { interface, ..Device::new(vec![queue], capabilities) }
}
