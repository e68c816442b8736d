//! A TAP to which eBPF programs redirect the frames of another interface.

use std::fmt::Debug;
use std::io::Error;
use std::path::PathBuf;
use std::sync::Arc;

use ringroad_netdev::{LinkState, LinkWatch};
use ringroad_port::batch::Batch;
use ringroad_port::counters::BypassedFrames;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::port_queue::{Delivery, Diagnose, FailedDirection, PortQueue};

use super::TapQueue;

/// The programs that redirect frames between the interface and the TAP.
pub(crate) trait Redirect: Debug + Send + Sync {
    /// Frames that passed within the kernel since the last call: from this port to others, and from other ports to this
    /// one.
    fn take_passed(&self) -> BypassedFrames {
        BypassedFrames::default()
    }
}

/// One queue of the TAP, which also watches the interface behind it.
#[derive(Debug)]
pub struct RedirectedQueue {
    /// Field before the TAP, so that the programs are detached before the TAP to which they redirect is gone.
    diversion: Arc<dyn Redirect>,
    tap: TapQueue,
    link: Arc<LinkWatch>,
    needs: LinkNeed,
    /// Name of the interface when it was opened.
    name: String,
}

/// State of the interface that delivered frames need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkNeed {
    /// The interface must be set up: frames go to the host's stack.
    Up,
    /// The interface must have carrier: frames leave through it.
    Carrier,
}

impl RedirectedQueue {
    pub(crate) fn new(
        diversion: Arc<dyn Redirect>,
        tap: TapQueue,
        (link, needs): (Arc<LinkWatch>, LinkNeed),
        name: String,
    ) -> Self {
        Self { diversion, tap, link, needs, name }
    }

    /// State of the interface that keeps delivered frames from passing, if there is one.
    fn obstacle(&self) -> Option<LinkState> {
        match (self.link.state(), self.needs) {
            (LinkState::Running, _) | (LinkState::NoCarrier, LinkNeed::Up) => None,
            (state, _) => Some(state),
        }
    }
}

/// Keeps the host from speaking IPv6 on the TAP itself. A kernel without IPv6 needs no setting.
pub(crate) fn keep_stack_off(tap: &str) -> Result<(), Error> {
    let settings = PathBuf::from("/proc/sys/net/ipv6/conf").join(tap);
    if settings.exists() { std::fs::write(settings.join("disable_ipv6"), "1") } else { Ok(()) }
}

impl PortQueue for RedirectedQueue {
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
        // The kernel would take the frames and drop them between the TAP and the interface, without an error.
        if self.obstacle().is_some() {
            return Delivery::dropped(DropCause::LinkDown, frames.len());
        }
        self.tap.deliver(batch, frames)
    }

    fn diagnosis(&mut self) -> Option<&mut dyn Diagnose> {
        Some(self)
    }
}

impl Diagnose for RedirectedQueue {
    fn failure(&self, way: FailedDirection) -> Option<String> {
        self.tap.failure(way)
    }

    fn fault(&self) -> Option<String> {
        self.obstacle().and_then(|state| state.fault(&self.name)).or_else(|| self.tap.fault())
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

    fn take_passed(&mut self) -> BypassedFrames {
        self.diversion.take_passed()
    }
}
