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

use ringroad_bpf::link::{BpfLink, TcxSide};
use ringroad_bpf::program::{RedirectPath, TcxProgram};
use ringroad_port::port_queue::HandOver;

use crate::device::Device;
use crate::diverted::{self, DivertConfig, DivertError, LinkNeed, Redirect};

/// Mark of the frames that were delivered to a host ring, while they are on the interface (`skb->mark`).
pub const HOST_MARK: u32 = 0x5252_4f44;

/// Diverts the host's traffic on the interface to a port, in the network namespace of the calling thread. The caller
/// must forward the frames: otherwise the host neither sends nor receives on the interface. Takes over the queues that
/// another process leaves in `left`, if there are any.
///
/// # Errors
/// [`DivertError`]. The host's traffic is then not diverted.
pub fn open(config: &DivertConfig, left: Vec<HandOver>) -> Result<Device, DivertError> {
    let names = ("host", format!("{}^", config.interface), "host stack");
    diverted::open(config, names, tap_name(config.ifindex), left, |tap, _| {
        let to_host = TcxProgram::redirect(config.ifindex, RedirectPath::Ingress, Some(HOST_MARK))?;
        let from_host = TcxProgram::redirect(tap.ifindex, RedirectPath::Egress, None)?;
        // The program at the egress is attached last: from then on this port has the host's frames.
        let to_host = BpfLink::attach_tcx(&to_host, tap.ifindex, TcxSide::Ingress)?;
        let barrier = TcxProgram::drop_unless_marked(HOST_MARK)?;
        let barrier = BpfLink::attach_tcx(&barrier, config.ifindex, TcxSide::Ingress)?;
        let from_host = BpfLink::attach_tcx(&from_host, config.ifindex, TcxSide::Egress)?;
        Ok(Redirect { _links: vec![from_host, to_host, barrier], shortcut: None, needs: LinkNeed::Up })
    })
}

/// Name of the TAP that leads to the host's side of the interface with index `ifindex`. It exists while a program has
/// this side.
pub(crate) fn tap_name(ifindex: u32) -> String {
    format!("rrh-{ifindex}")
}

#[cfg(test)]
mod tests;
