//! The outer end of a veth pair: this port receives the frames that the inner end sends, and the inner end receives the
//! frames delivered to this port. The inner end is in a container or any other network namespace.
//!
//! Frames pass through a TAP interface (`rrv-` and the index of the outer end), to and from which two tcx programs
//! (Linux 6.6) redirect them, with checksum offload and TCP segmentation offload. Frames between two such ports of a
//! switch need not pass the switch: the program at the ingress of an outer end passes them to the other pair's inner
//! end within the kernel ([`shortcut`]).

pub mod shortcut;

use std::sync::Arc;

use ringroad_bpf::error::BpfError;
use ringroad_bpf::link::{BpfLink, TcxSide};
use ringroad_bpf::program::{RedirectPath, TcxProgram};
use ringroad_netdev::{LinkWatch, NetdevError, link_change};
use ringroad_port::counters::BypassedFrames;
use ringroad_port::port_queue::HandOver;

use self::shortcut::Shortcut;
use crate::device::DriverError;
use crate::tap::diverted::{self, LinkNeed, RedirectedQueue, keep_stack_off};
use crate::tap::{TapConfig, TapDevice, TapError};

/// Properties of a veth pair's outer end to be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VethConfig {
    /// Name of the outer end, for messages.
    pub interface: String,
    /// Index of the outer end in the namespace of the calling thread.
    pub ifindex: u32,
    /// MTU of the outer end, bytes.
    pub mtu: u32,
    /// Number of queues, from 1.
    pub queues: u16,
    /// Whether frames may be unfinished, in both directions.
    pub offloads: bool,
}

/// The opened outer end of a veth pair.
#[derive(Debug)]
pub struct VethDevice {
    /// The requested queues.
    pub queues: Vec<RedirectedQueue>,
    /// Control of the port's path within the kernel, if the kernel supports one.
    pub shortcut: Option<Arc<Shortcut>>,
    /// Mechanism in use, as text for users.
    pub mode: String,
    /// Notes for the owner.
    pub notes: Vec<String>,
}

/// Reason why a veth pair's outer end could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VethError {
    /// The interface is of another kind.
    #[error("{interface} is a {kind} interface, not an end of a veth pair; name it without `veth:`")]
    NotVeth { interface: String, kind: String },
    /// Another program uses the veth pair.
    #[error("veth:{0} is in use by another program; end it first")]
    Busy(String),
    /// The TAP interface cannot be opened.
    #[error("veth:{interface}: {source}")]
    Tap { interface: String, source: TapError },
    /// The programs that redirect frames cannot be loaded or attached.
    #[error("veth:{interface}: {source}")]
    Bpf { interface: String, source: BpfError },
    /// The interface or the TAP cannot be queried or changed.
    #[error(transparent)]
    Netdev(#[from] NetdevError),
}

impl DriverError for VethError {
    fn is_busy(&self) -> bool {
        matches!(self, Self::Busy(_) | Self::Tap { source: TapError::Busy(_), .. })
    }
}

/// The attached programs.
#[derive(Debug)]
struct VethRedirect {
    _from_pair: BpfLink,
    _to_pair: BpfLink,
    shortcut: Option<Arc<Shortcut>>,
}

impl diverted::Redirect for VethRedirect {
    fn take_passed(&self) -> BypassedFrames {
        self.shortcut.as_ref().map_or_else(BypassedFrames::default, |shortcut| shortcut.take_passed())
    }
}

impl VethDevice {
    /// Diverts the frames of the pair to this port, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`VethError`]. The pair is unchanged then.
    pub fn open(config: &VethConfig) -> Result<Self, VethError> {
        Self::open_or_resume(config, Vec::new())
    }

    /// Opens as [`Self::open`] does, but takes over the queues that another process leaves in `left`, if there are any.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_or_resume(config: &VethConfig, left: Vec<HandOver>) -> Result<Self, VethError> {
        let interface = || config.interface.clone();
        let bpf = |source| VethError::Bpf { interface: interface(), source };
        let tap_config = TapConfig {
            name: format!("rrv-{}", config.ifindex),
            queues: config.queues,
            mtu: Some(config.mtu),
            up: false,
            offloads: config.offloads,
            ..TapConfig::default()
        };
        let tap = TapDevice::open_or_resume(&tap_config, left).map_err(|source| match source {
            TapError::Busy(_) => VethError::Busy(interface()),
            source => VethError::Tap { interface: interface(), source },
        })?;
        let mut notes = Vec::new();
        if let Err(error) = keep_stack_off(&tap.name) {
            notes.push(format!("{}: the host may send IPv6 messages of its own there: {error}", tap.name));
        }
        link_change::set_up(&tap.name, true)?;

        let shortcut = match Shortcut::new(config.ifindex) {
            // Without offloads the datapath must finish frames, so they must not pass within the kernel.
            Ok(shortcut) if config.offloads => shortcut.map(Arc::new),
            Ok(_) => None,
            Err(error) => {
                notes.push(format!("no frames pass within the kernel: {error}"));
                None
            }
        };
        let plain = || TcxProgram::redirect(tap.ifindex, RedirectPath::Egress, None);
        let from_pair = shortcut.as_ref().map_or_else(plain, |shortcut| shortcut.program(tap.ifindex));
        let from_pair = from_pair.map_err(bpf)?;
        let to_pair = TcxProgram::redirect(config.ifindex, RedirectPath::Egress, None).map_err(bpf)?;
        let to_pair = BpfLink::attach_tcx(&to_pair, tap.ifindex, TcxSide::Ingress).map_err(bpf)?;
        let from_pair = BpfLink::attach_tcx(&from_pair, config.ifindex, TcxSide::Ingress).map_err(bpf)?;
        let diversion: Arc<dyn diverted::Redirect> =
            Arc::new(VethRedirect { _from_pair: from_pair, _to_pair: to_pair, shortcut: shortcut.clone() });

        let within = if shortcut.is_some() { ", a way within the kernel to ports of this kind" } else { "" };
        let mode = format!("veth pair of {} through tcx and {}{within}", config.interface, tap.mode);
        let link = Arc::new(LinkWatch::open(config.ifindex)?);
        let queues = tap
            .queues
            .into_iter()
            .map(|queue| {
                RedirectedQueue::new(
                    Arc::clone(&diversion),
                    queue,
                    (Arc::clone(&link), LinkNeed::Carrier),
                    interface(),
                )
            })
            .collect();
        notes.extend(tap.notes);
        Ok(Self { queues, shortcut, mode, notes })
    }
}

#[cfg(test)]
mod tests;
