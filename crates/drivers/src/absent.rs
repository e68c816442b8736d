//! Stand-in for the other side of a port that has none for now: a device that is not open, or a program.

use ringroad_port::batch::Batch;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::port_queue::{
    Delivery, Diagnose, HandOver, PortCapabilities, PortQueue, QueueProperties, Sleep, Upgrade,
};
use ringroad_port::roles;

use crate::device::{Device, DeviceInterface};

/// Queue without another side. It receives no frames, and counts delivered ones as dropped.
#[derive(Debug)]
pub struct AbsentQueue {
    cause: DropCause,
    /// Reason why the device is not open. `None`: the port waits for a program.
    reason: Option<String>,
}

impl AbsentQueue {
    /// The queue of a persistent port that no program has bound.
    #[must_use]
    pub fn unbound() -> Self {
        Self { cause: DropCause::NotBound, reason: None }
    }
}

impl PortQueue for AbsentQueue {
    fn properties(&mut self) -> QueueProperties {
        QueueProperties { sleeps_alone: true, ..QueueProperties::default() }
    }

    fn receive(&mut self, _batch: &mut Batch) {}

    fn is_empty(&mut self) -> bool {
        true
    }

    fn release(&mut self, _slots: usize) {}

    fn deliver(&mut self, _batch: &mut Batch, frames: &[u16]) -> Delivery {
        Delivery::dropped(self.cause, frames.len())
    }

    roles! { sleeper: Sleep, diagnosis: Diagnose, upgrade: Upgrade }
}

impl Sleep for AbsentQueue {
    fn has_waiting(&mut self) -> bool {
        false
    }
}

impl Diagnose for AbsentQueue {
    fn fault(&self) -> Option<String> {
        self.reason.clone()
    }
}

impl Upgrade for AbsentQueue {
    /// Another process opens the device again.
    fn hand_over(&mut self) -> Option<HandOver> {
        self.reason.is_none().then(HandOver::default)
    }
}

/// Device in place of one with these capabilities at `interface`, which is not open for `reason`. Frames for it are
/// dropped as `link_down`.
#[must_use]
pub fn stand_in(capabilities: PortCapabilities, interface: Option<DeviceInterface>, reason: &str) -> Device {
    let queue = AbsentQueue { cause: DropCause::LinkDown, reason: Some(reason.to_owned()) };
    let capabilities = PortCapabilities { mode: "not open".to_owned(), ..capabilities };
    Device { interface, ..Device::new(vec![Box::new(queue)], capabilities) }
}
