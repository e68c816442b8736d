//! The request by which netmap programs bind a port, made without netmap's headers.

use ringroad::control::netmap::{PortSizes, Register};

/// Value of `NR_REG_ALL_NIC`.
const ALL_NIC: u32 = 1;

/// Returns a request for all rings of the port `name`, with these sizes.
#[must_use]
pub fn register_all_rings(name: &str, sizes: PortSizes) -> Register {
    Register {
        name: name.to_owned(),
        sizes,
        mem_id: 0,
        ring_id: 0,
        mode: ALL_NIC,
        extra_buffers: 0,
        flags: 0,
        offsets: None,
        external_memory: None,
        needs_exclusive: false,
    }
}
