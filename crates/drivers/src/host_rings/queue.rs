//! One queue of the host's side of an interface.

use std::sync::Arc;

use ringroad_netdev::{LinkProbe, LinkState};
use ringroad_port::batch::Batch;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::port_queue::{Delivery, Diagnose, PortQueue, Way};

use super::Diversion;
use crate::tap::TapQueue;

/// One queue: that of a TAP interface, with an eye on the interface behind it.
#[derive(Debug)]
pub struct HostQueue {
    /// Before the TAP, so that the programs are gone before the interface to which they lead.
    _diversion: Arc<Diversion>,
    tap: TapQueue,
    link: Arc<LinkProbe>,
    /// Name of the interface when it was opened.
    name: String,
}

impl HostQueue {
    pub(super) fn new(diversion: Arc<Diversion>, tap: TapQueue, link: Arc<LinkProbe>, name: String) -> Self {
        Self { _diversion: diversion, tap, link, name }
    }
}

impl PortQueue for HostQueue {
    fn inner(&mut self) -> Option<&mut dyn PortQueue> {
        Some(&mut self.tap)
    }

    fn receive(&mut self, batch: &mut Batch) {
        self.tap.receive(batch);
    }

    fn release(&mut self, fragments: usize) {
        self.tap.release(fragments);
    }

    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery {
        // The kernel would take the frames and drop them on the way from the TAP to the interface, without a word.
        if !self.link.is_up() {
            let mut delivery = Delivery::default();
            delivery.dropped.add(DropCause::LinkDown, frames.len() as u32);
            return delivery;
        }
        self.tap.deliver(batch, frames)
    }

    fn diagnosis(&mut self) -> Option<&mut dyn Diagnose> {
        Some(self)
    }
}

impl Diagnose for HostQueue {
    fn failure(&self, way: Way) -> Option<String> {
        self.tap.failure(way)
    }

    fn fault(&self) -> Option<String> {
        let name = &self.name;
        match self.link.state() {
            LinkState::Running | LinkState::NoCarrier => self.tap.fault(),
            LinkState::Down => Some(format!("interface {name} is down (`ip link set {name} up`)")),
            LinkState::Gone => Some(format!("interface {name} is gone")),
        }
    }

    fn is_gone(&self) -> bool {
        self.link.state() == LinkState::Gone || self.tap.is_gone()
    }

    fn missed_frames(&mut self) -> u64 {
        self.tap.missed_frames()
    }

    fn violations(&mut self) -> u64 {
        self.tap.violations()
    }
}
