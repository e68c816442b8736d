//! A TAP to which eBPF programs redirect the frames of another interface.

use std::io::Error;
use std::path::PathBuf;
use std::sync::Arc;

use ringroad_bpf::error::BpfError;
use ringroad_bpf::link::BpfLink;
use ringroad_netdev::{LinkState, LinkWatch, NetdevError, link_change};
use ringroad_port::batch::Batch;
use ringroad_port::counters::BypassedFrames;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::port_queue::{Delivery, Diagnose, FailedDirection, HandOver, PortQueue};
use ringroad_port::roles;

use crate::device::{Device, DriverError};
use crate::shortcut::Shortcut;
use crate::tap::{TapConfig, TapDevice, TapError, TapQueue};

/// Properties of an interface whose frames are to be redirected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DivertConfig {
    /// Name of the interface, for messages.
    pub interface: String,
    /// Index of the interface in the namespace of the calling thread.
    pub ifindex: u32,
    /// MTU of the interface, bytes.
    pub mtu: u32,
    /// Number of queues, from 1.
    pub queues: u16,
    /// Whether frames may be unfinished, in both directions.
    pub offloads: bool,
}

/// Reason why the frames of an interface could not be redirected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DivertError {
    /// Another program has the port.
    #[error("{0} is in use by another program; end it first")]
    Busy(String),
    /// The TAP interface cannot be opened.
    #[error("{port}: {source}")]
    Tap { port: String, source: TapError },
    /// The programs that redirect frames cannot be loaded or attached.
    #[error("{port}: {source}")]
    Bpf { port: String, source: BpfError },
    /// The interface or the TAP cannot be queried or changed.
    #[error(transparent)]
    Netdev(#[from] NetdevError),
}

impl DriverError for DivertError {
    fn is_busy(&self) -> bool {
        matches!(self, Self::Busy(_) | Self::Tap { source: TapError::Busy(_), .. })
    }
}

/// The programs that redirect frames between the interface and the TAP.
#[derive(Debug)]
pub(crate) struct Redirect {
    /// The attached programs. They are detached with this value, in this order.
    pub(crate) _links: Vec<BpfLink>,
    /// The way of frames to other ports within the kernel.
    pub(crate) shortcut: Option<Arc<Shortcut>>,
    pub(crate) needs: LinkNeed,
}

/// State of the interface that delivered frames need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkNeed {
    /// The interface must be set up: frames go to the host's stack.
    Up,
    /// The interface must have carrier: frames leave through it.
    Carrier,
}

/// Redirects the frames of an interface of the calling thread's network namespace by `redirect`, to and from a TAP
/// called `tap_name`, for the driver `driver`. Takes over the queues that another process leaves in `left`, if there
/// are any. The port is `port` in messages, and `what` of the interface in its mode.
///
/// # Errors
/// [`DivertError`]. No frame is redirected then.
pub(crate) fn open(
    config: &DivertConfig,
    (driver, port, what): (&'static str, String, &str),
    tap_name: String,
    left: Vec<HandOver>,
    redirect: impl FnOnce(&TapDevice, &mut Vec<String>) -> Result<Redirect, BpfError>,
) -> Result<Device, DivertError> {
    let tap_config = TapConfig {
        name: tap_name,
        queues: config.queues,
        mtu: Some(config.mtu),
        up: false,
        offloads: config.offloads,
        ..TapConfig::default()
    };
    let tap = TapDevice::open(&tap_config, left).map_err(|source| match source {
        TapError::Busy(_) => DivertError::Busy(port.clone()),
        source => DivertError::Tap { port: port.clone(), source },
    })?;
    let mut notes = Vec::new();
    if let Err(error) = keep_stack_off(&tap.name) {
        notes.push(format!("{}: the host may send IPv6 messages of its own there: {error}", tap.name));
    }
    link_change::set_up(&tap.name, true)?;
    let redirect = redirect(&tap, &mut notes).map_err(|source| DivertError::Bpf { port, source })?;
    let redirect = Arc::new(redirect);
    let shortcut = redirect.shortcut.clone();
    let within = if shortcut.is_some() { ", a way within the kernel to ports of this kind" } else { "" };
    let mode = format!("{what} of {} through tcx and {}{within}", config.interface, tap.mode);
    let link = Arc::new(LinkWatch::open(config.ifindex)?);
    let queue = |tap| {
        let (redirect, link) = (Arc::clone(&redirect), Arc::clone(&link));
        RedirectedQueue { redirect, tap, link, name: config.interface.clone() }
    };
    let queues = tap.queues.into_iter().map(queue).collect();
    notes.extend(tap.notes);
    Ok(Device { shortcut, ..Device::of_interface(driver, queues, mode, config.mtu, notes) })
}

/// Keeps the host from speaking IPv6 on the TAP itself. A kernel without IPv6 needs no setting.
fn keep_stack_off(tap: &str) -> Result<(), Error> {
    let settings = PathBuf::from("/proc/sys/net/ipv6/conf").join(tap);
    if settings.exists() { std::fs::write(settings.join("disable_ipv6"), "1") } else { Ok(()) }
}

/// One queue of the TAP, which also watches the interface behind it.
#[derive(Debug)]
struct RedirectedQueue {
    /// Field before the TAP, so that the programs are detached before the TAP to which they redirect is gone.
    redirect: Arc<Redirect>,
    tap: TapQueue,
    link: Arc<LinkWatch>,
    /// Name of the interface when it was opened.
    name: String,
}

impl RedirectedQueue {
    /// State of the interface that keeps delivered frames from passing, if there is one.
    fn obstacle(&self) -> Option<LinkState> {
        match (self.link.state(), self.redirect.needs) {
            (LinkState::Running, _) | (LinkState::NoCarrier, LinkNeed::Up) => None,
            (state, _) => Some(state),
        }
    }
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

    roles! { diagnosis: Diagnose }
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

    fn take_passed(&mut self) -> BypassedFrames {
        self.redirect
            .shortcut
            .as_ref()
            .map_or_else(BypassedFrames::default, |shortcut| shortcut.take_passed())
    }
}
