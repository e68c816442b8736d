//! Removal of an interface's XDP program. Such a program need not have a link.

use ringroad_netdev::link::LinkXdpState;
use ringroad_netdev::{NetdevError, link_by_index, link_change};
use rustix::io::Errno;

use crate::error::BpfError;
use crate::link::detach_xdp_link;

/// Detaches any XDP program from `interface`, even one that another process attached. Call this only on the user's
/// request.
///
/// # Errors
/// [`BpfError`] if the kernel refuses. No attached program is not an error.
pub fn detach_xdp(interface: u32) -> Result<(), BpfError> {
    const QUERY: &str = "querying the XDP program of an interface";
    const STEP: &str = "detaching the XDP program of an interface";
    // Native and generic programs can both be attached only if one was added through the device. Two rounds remove
    // both.
    for _ in 0..2 {
        let link = link_by_index(interface).map_err(|error| failed(QUERY, interface, error))?;
        let Some(LinkXdpState { prog_id, mode }) = link.xdp else { return Ok(()) };
        if !detach_xdp_link(prog_id, interface).map_err(|source| BpfError::new(STEP, source))? {
            link_change::detach_xdp(interface, mode).map_err(|error| failed(STEP, interface, error))?;
        }
    }
    Ok(())
}

fn failed(step: &'static str, interface: u32, error: NetdevError) -> BpfError {
    let source = match error {
        NetdevError::Refused { source, .. } => source,
        NetdevError::Socket { source, .. } => Errno::from_io_error(&source).unwrap_or(Errno::IO),
        _ => Errno::BADMSG,
    };
    match source {
        Errno::NODEV => BpfError::NoInterface { step, interface },
        source => BpfError::new(step, source),
    }
}
