//! The outer end of a veth pair: this port receives the frames that the inner end sends, and the inner end receives the
//! frames delivered to this port. The inner end is in a container or any other network namespace.
//!
//! Frames pass through a TAP interface (`rrv-` and the index of the outer end), to and from which two tcx programs
//! (Linux 6.6) redirect them, with checksum offload and TCP segmentation offload. Frames between two such ports of a
//! switch need not pass the switch: the program at the ingress of an outer end passes them to the other pair's inner
//! end within the kernel ([`crate::shortcut`]).

use std::sync::Arc;

use ringroad_bpf::link::{BpfLink, TcxSide};
use ringroad_bpf::program::{RedirectPath, TcxProgram};
use ringroad_port::port_queue::HandOver;

use crate::device::Device;
use crate::diverted::{self, DivertConfig, DivertError, LinkNeed, Redirect};
use crate::shortcut::Shortcut;

/// Diverts the frames of the pair to a port at its outer end, in the network namespace of the calling thread. Takes
/// over the queues that another process leaves in `left`, if there are any.
///
/// # Errors
/// [`DivertError`]. The pair is unchanged then.
pub fn open(config: &DivertConfig, left: Vec<HandOver>) -> Result<Device, DivertError> {
    let names = ("veth", format!("veth:{}", config.interface), "veth pair");
    let tap_name = format!("rrv-{}", config.ifindex);
    diverted::open(config, names, tap_name, left, |tap, notes| {
        let shortcut = match Shortcut::new(config.ifindex) {
            // Without offloads the datapath must finish frames, so they must not pass within the kernel.
            Ok(shortcut) if config.offloads => shortcut.map(Arc::new),
            Ok(_) => None,
            Err(error) => {
                notes.push(format!("no frames pass within the kernel: {error}"));
                None
            }
        };
        let from_pair = match &shortcut {
            Some(shortcut) => shortcut.program(tap.ifindex)?,
            None => TcxProgram::redirect(tap.ifindex, RedirectPath::Egress, None)?,
        };
        let to_pair = TcxProgram::redirect(config.ifindex, RedirectPath::Egress, None)?;
        let to_pair = BpfLink::attach_tcx(&to_pair, tap.ifindex, TcxSide::Ingress)?;
        let from_pair = BpfLink::attach_tcx(&from_pair, config.ifindex, TcxSide::Ingress)?;
        Ok(Redirect { _links: vec![from_pair, to_pair], shortcut, needs: LinkNeed::Carrier })
    })
}

#[cfg(test)]
mod tests;
