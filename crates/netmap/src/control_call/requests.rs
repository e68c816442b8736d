//! Requests of NIOCCTRL and of legacy calls: each becomes a request to the daemon.

use ringroad_control::netmap::{
    Bound, ExternalMemory, NetmapReply, NetmapRequest, Offsets, PortSizes, Register,
};
use rustix::io::Errno;

use crate::abi::{CsbOption, RegisterBody};
use crate::descriptor::NetmapFile;

/// Options of a binding.
#[derive(Debug, Default)]
pub(super) struct RegisterOptions {
    /// Option OFFSETS.
    pub(super) offsets: Option<Offsets>,
    /// Option CSB.
    pub(super) csb: Option<CsbOption>,
    /// Option EXTMEM: the part that is sent to the daemon, and the address of the memory.
    pub(super) external_memory: Option<(ExternalMemory, usize)>,
}

/// Text before the first NUL; the last byte counts as NUL.
pub(super) fn text(bytes: &[u8]) -> String {
    let usable = bytes.split_last().map_or(bytes, |(_, before)| before);
    let end = usable.iter().position(|&byte| byte == 0).unwrap_or(usable.len());
    String::from_utf8_lossy(&usable[..end]).into_owned()
}

/// Carries out REGISTER.
///
/// # Errors
/// EBUSY if the device is bound, and the errors of the binding.
pub(super) fn register(
    device: &dyn NetmapFile,
    name: String,
    body: &mut RegisterBody,
    options: &RegisterOptions,
) -> Result<Bound, Errno> {
    let request = Register {
        name,
        sizes: body.sizes,
        mem_id: body.mem_id,
        ring_id: body.ring_id,
        mode: body.mode,
        extra_buffers: body.extra_buffers,
        flags: body.flags,
        offsets: options.offsets,
        external_memory: options.external_memory.map(|(memory, _)| memory),
        needs_exclusive: options.csb.is_some(),
    };
    let address = options.external_memory.map(|(_, address)| address);
    let bound = device.register(request, address, options.csb)?;
    body.set_reply(&bound);
    Ok(bound)
}

impl RegisterBody {
    /// Writes what became of the request.
    pub(super) fn set_reply(&mut self, bound: &Bound) {
        self.offset = bound.interface_offset;
        self.memory_bytes = bound.geometry.pools_bytes();
        self.sizes = bound.sizes;
        self.mem_id = bound.mem_id;
        self.extra_buffers = bound.extra_buffers;
        self.mode = bound.mode;
        self.flags = bound.flags;
    }
}

/// Size of the mapping, sizes and memory id of the port that a request is about.
pub(super) fn port_info(
    device: &dyn NetmapFile,
    request: NetmapRequest,
) -> Result<(u64, PortSizes, u16), Errno> {
    match device.ask(request)? {
        NetmapReply::PortInfo { memory_bytes, sizes, mem_id } => Ok((memory_bytes, sizes, mem_id)),
        _ => Err(Errno::IO),
    }
}

/// Index of the port that a request attaches or detaches.
pub(super) fn port_index(device: &dyn NetmapFile, request: NetmapRequest) -> Result<u32, Errno> {
    match device.ask(request)? {
        NetmapReply::PortIndex(index) => Ok(index),
        _ => Err(Errno::IO),
    }
}

/// Length of the virtio-net header that a request sets or queries, bytes.
pub(super) fn header_bytes(device: &dyn NetmapFile, request: NetmapRequest) -> Result<u32, Errno> {
    match device.ask(request)? {
        NetmapReply::HeaderBytes(bytes) => Ok(bytes),
        _ => Err(Errno::IO),
    }
}

/// Carries out VALE_LIST: finds the first port of this name, or at or after the indices of switch and port. Returns its
/// name and indices.
pub(super) fn list(
    device: &dyn NetmapFile,
    name: String,
    (switch_index, port_index): (u16, u32),
) -> Result<(String, u16, u32), Errno> {
    match device.ask(NetmapRequest::ValeList { name, switch_index, port_index })? {
        NetmapReply::Listed { name, switch_index, port_index } => Ok((name, switch_index, port_index)),
        _ => Err(Errno::IO),
    }
}

/// Sends a request without a result.
pub(super) fn done(device: &dyn NetmapFile, request: NetmapRequest) -> Result<(), Errno> {
    match device.ask(request)? {
        NetmapReply::Done => Ok(()),
        _ => Err(Errno::IO),
    }
}
