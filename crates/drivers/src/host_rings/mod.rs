//! The host stack's side of a network interface (`eth0^`): this port receives the frames that the host sends on the
//! interface, and these do not leave the interface. The host receives frames delivered to this port as if they came
//! from the interface. netmap calls these the host rings.
//!
//! The port sends and receives through a TAP interface (`rrh-` and the interface's index). Two tcx programs (Linux 6.6)
//! redirect frames: one from the interface's egress to the TAP, one from the TAP to the interface's ingress. A third
//! one drops frames from the wire, as netmap does: the host receives only frames delivered to this port. The programs
//! stay attached while the queues live. When the process ends, even by SIGKILL, the host has its interface back.
//!
//! With offloads, frames may be unfinished in both directions, as on any TAP. Frames delivered carry [`HOST_MARK`] on
//! the interface, so that a packet socket there can distinguish them from frames of the wire. Frames that bypass the
//! queueing discipline (AF_XDP, `PACKET_QDISC_BYPASS`) are not received here.

use std::sync::Arc;

use ringroad_bpf::error::BpfError;
use ringroad_bpf::link::{BpfLink, TcxSide};
use ringroad_bpf::program::{RedirectPath, TcxProgram};
use ringroad_netdev::{LinkWatch, NetdevError, link_change};
use ringroad_port::port_queue::HandOver;

use crate::device::DriverError;
use crate::tap::diverted::{self, LinkNeed, RedirectedQueue, keep_stack_off};
use crate::tap::{TapConfig, TapDevice, TapError};

/// Mark of the frames that were delivered to a host ring, while they are on the interface (`skb->mark`).
pub const HOST_MARK: u32 = 0x5252_4f44;

/// Properties of an interface's host side to be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRingsConfig {
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

/// The opened host side of an interface.
#[derive(Debug)]
pub struct HostRings {
    /// The requested queues.
    pub queues: Vec<RedirectedQueue>,
    /// Mechanism in use, as text for users.
    pub mode: String,
    /// Notes for the owner.
    pub notes: Vec<String>,
}

/// Reason why the host's side of an interface could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostRingsError {
    /// Another program has the host rings.
    #[error("{0}^ is in use by another program; end it first")]
    Busy(String),
    /// The TAP interface cannot be opened.
    #[error("{interface}^: {source}")]
    Tap { interface: String, source: TapError },
    /// The programs that redirect frames cannot be loaded or attached.
    #[error("{interface}^: {source}")]
    Bpf { interface: String, source: BpfError },
    /// The interface or the TAP cannot be queried or changed.
    #[error(transparent)]
    Netdev(#[from] NetdevError),
}

impl DriverError for HostRingsError {
    fn is_busy(&self) -> bool {
        matches!(self, Self::Busy(_) | Self::Tap { source: TapError::Busy(_), .. })
    }
}

/// The attached programs. When they are detached, the host has its traffic back.
#[derive(Debug)]
struct HostRedirect {
    _from_host: BpfLink,
    _to_host: BpfLink,
    _barrier: BpfLink,
}

impl diverted::Redirect for HostRedirect {}

impl HostRings {
    /// Diverts the host's traffic on the interface to this port, in the network namespace of the calling thread. The
    /// caller must forward the frames: otherwise the host neither sends nor receives on the interface.
    ///
    /// # Errors
    /// [`HostRingsError`]. The host's traffic is then not diverted.
    pub fn open(config: &HostRingsConfig) -> Result<Self, HostRingsError> {
        Self::open_or_resume(config, Vec::new())
    }

    /// Opens as [`Self::open`] does, but takes over the queues that another process leaves in `left`, if there are any.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_or_resume(config: &HostRingsConfig, left: Vec<HandOver>) -> Result<Self, HostRingsError> {
        let interface = || config.interface.clone();
        let bpf = |source| HostRingsError::Bpf { interface: interface(), source };
        let tap_config = TapConfig {
            name: tap_name(config.ifindex),
            queues: config.queues,
            mtu: Some(config.mtu),
            up: false,
            offloads: config.offloads,
            ..TapConfig::default()
        };
        let tap = TapDevice::open_or_resume(&tap_config, left).map_err(|source| match source {
            TapError::Busy(_) => HostRingsError::Busy(interface()),
            source => HostRingsError::Tap { interface: interface(), source },
        })?;
        let mut notes = Vec::new();
        if let Err(error) = keep_stack_off(&tap.name) {
            notes.push(format!("{}: the host may send IPv6 messages of its own there: {error}", tap.name));
        }
        link_change::set_up(&tap.name, true)?;

        let to_host =
            TcxProgram::redirect(config.ifindex, RedirectPath::Ingress, Some(HOST_MARK)).map_err(bpf)?;
        let from_host = TcxProgram::redirect(tap.ifindex, RedirectPath::Egress, None).map_err(bpf)?;
        // The program at the egress is attached last: from then on this port has the host's frames.
        let to_host = BpfLink::attach_tcx(&to_host, tap.ifindex, TcxSide::Ingress).map_err(bpf)?;
        let barrier = TcxProgram::drop_unless_marked(HOST_MARK).map_err(bpf)?;
        let barrier = BpfLink::attach_tcx(&barrier, config.ifindex, TcxSide::Ingress).map_err(bpf)?;
        let from_host = BpfLink::attach_tcx(&from_host, config.ifindex, TcxSide::Egress).map_err(bpf)?;
        let diversion: Arc<dyn diverted::Redirect> =
            Arc::new(HostRedirect { _from_host: from_host, _to_host: to_host, _barrier: barrier });

        let mode = format!("host stack of {} through tcx and {}", config.interface, tap.mode);
        let link = Arc::new(LinkWatch::open(config.ifindex)?);
        let queues = tap
            .queues
            .into_iter()
            .map(|queue| {
                RedirectedQueue::new(
                    Arc::clone(&diversion),
                    queue,
                    (Arc::clone(&link), LinkNeed::Up),
                    interface(),
                )
            })
            .collect();
        notes.extend(tap.notes);
        Ok(Self { queues, mode, notes })
    }
}

/// Name of the TAP that leads to the host's side of the interface with index `ifindex`. It exists while a program has
/// this side.
pub(crate) fn tap_name(ifindex: u32) -> String {
    format!("rrh-{ifindex}")
}

#[cfg(test)]
mod tests;
