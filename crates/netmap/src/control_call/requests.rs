//! Requests of NIOCCTRL and of legacy calls: each becomes a request to the daemon, and the reply is written into the
//! body.

use ringroad_control::netmap::{
    Bound, ExternalMemory, NetmapReply, NetmapRequest, Offsets, Pool, PortSizes, Register,
};
use rustix::io::Errno;

use crate::abi::{
    AttachBody, DetachBody, ListBody, NewInterfaceBody, PollingBody, PoolFields, PoolsBody, PortHeaderBody,
    PortInfoBody, RegisterBody,
};
use crate::descriptor::{CsbAddresses, NetmapFile};

/// Options of a binding.
#[derive(Debug, Default)]
pub(super) struct RegisterOptions {
    /// Option OFFSETS.
    pub(super) offsets: Option<Offsets>,
    /// Option CSB.
    pub(super) csb: Option<CsbAddresses>,
    /// Option EXTMEM: the part that is sent to the daemon, and the address of the memory.
    pub(super) external_memory: Option<(ExternalMemory, usize)>,
}

/// Text before the first NUL; the last byte counts as NUL.
pub(super) fn text(bytes: &[u8]) -> String {
    let usable = bytes.split_last().map_or(bytes, |(_, before)| before);
    let end = usable.iter().position(|&byte| byte == 0).unwrap_or(usable.len());
    String::from_utf8_lossy(&usable[..end]).into_owned()
}

/// `text` as a NUL-terminated name, cut if it is too long.
pub(super) fn name_field<const BYTES: usize>(text: &str) -> [u8; BYTES] {
    let mut field = [0; BYTES];
    for (to, from) in field.iter_mut().take(BYTES - 1).zip(text.bytes()) {
        *to = from;
    }
    field
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
        sizes: PortSizes {
            tx_slots: body.tx_slots,
            rx_slots: body.rx_slots,
            tx_rings: body.tx_rings,
            rx_rings: body.rx_rings,
            host_tx_rings: body.host_tx_rings,
            host_rx_rings: body.host_rx_rings,
        },
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
    body.offset = bound.interface_offset;
    body.memory_bytes = bound.geometry.pools_bytes();
    body.tx_slots = bound.sizes.tx_slots;
    body.rx_slots = bound.sizes.rx_slots;
    body.tx_rings = bound.sizes.tx_rings;
    body.rx_rings = bound.sizes.rx_rings;
    body.host_tx_rings = bound.sizes.host_tx_rings;
    body.host_rx_rings = bound.sizes.host_rx_rings;
    body.mem_id = bound.mem_id;
    body.extra_buffers = bound.extra_buffers;
    body.mode = bound.mode;
    body.flags = bound.flags;
    Ok(bound)
}

/// Carries out PORT_INFO_GET.
pub(super) fn port_info(device: &dyn NetmapFile, name: String, body: &mut PortInfoBody) -> Result<(), Errno> {
    let sizes = PortSizes {
        tx_slots: body.tx_slots,
        rx_slots: body.rx_slots,
        tx_rings: body.tx_rings,
        rx_rings: body.rx_rings,
        host_tx_rings: body.host_tx_rings,
        host_rx_rings: body.host_rx_rings,
    };
    match device.ask(NetmapRequest::PortInfo { name, sizes, mem_id: body.mem_id })? {
        NetmapReply::PortInfo { memory_bytes, sizes, mem_id } => {
            body.memory_bytes = memory_bytes;
            body.tx_slots = sizes.tx_slots;
            body.rx_slots = sizes.rx_slots;
            body.tx_rings = sizes.tx_rings;
            body.rx_rings = sizes.rx_rings;
            body.host_tx_rings = sizes.host_tx_rings;
            body.host_rx_rings = sizes.host_rx_rings;
            body.mem_id = mem_id;
            Ok(())
        }
        other => unexpected(&other),
    }
}

/// Carries out VALE_ATTACH.
pub(super) fn attach(device: &dyn NetmapFile, name: String, body: &mut AttachBody) -> Result<(), Errno> {
    let RegisterBody { mode, ring_id, mem_id, .. } = body.register;
    match device.ask(NetmapRequest::ValeAttach { name, mode, ring_id, mem_id })? {
        NetmapReply::PortIndex(index) => {
            body.port_index = index;
            Ok(())
        }
        other => unexpected(&other),
    }
}

/// Carries out VALE_DETACH.
pub(super) fn detach(device: &dyn NetmapFile, name: String, body: &mut DetachBody) -> Result<(), Errno> {
    match device.ask(NetmapRequest::ValeDetach { name })? {
        NetmapReply::PortIndex(index) => {
            body.port_index = index;
            Ok(())
        }
        other => unexpected(&other),
    }
}

/// Carries out VALE_LIST: returns the name of the found port.
pub(super) fn list(device: &dyn NetmapFile, name: String, body: &mut ListBody) -> Result<String, Errno> {
    let request =
        NetmapRequest::ValeList { name, switch_index: body.switch_index, port_index: body.port_index };
    match device.ask(request)? {
        NetmapReply::Listed { name, switch_index, port_index } => {
            body.switch_index = switch_index;
            body.port_index = port_index;
            Ok(name)
        }
        other => unexpected(&other),
    }
}

/// Carries out PORT_HDR_SET.
pub(super) fn set_header(
    device: &dyn NetmapFile,
    name: String,
    body: &mut PortHeaderBody,
) -> Result<(), Errno> {
    header_answer(device.ask(NetmapRequest::PortHeaderSet { name, bytes: body.bytes })?, body)
}

/// Carries out PORT_HDR_GET.
pub(super) fn get_header(
    device: &dyn NetmapFile,
    name: String,
    body: &mut PortHeaderBody,
) -> Result<(), Errno> {
    header_answer(device.ask(NetmapRequest::PortHeaderGet { name })?, body)
}

fn header_answer(reply: NetmapReply, body: &mut PortHeaderBody) -> Result<(), Errno> {
    match reply {
        NetmapReply::HeaderBytes(bytes) => {
            body.bytes = bytes;
            Ok(())
        }
        other => unexpected(&other),
    }
}

/// Carries out VALE_NEWIF.
pub(super) fn new_interface(
    device: &dyn NetmapFile,
    name: String,
    body: &mut NewInterfaceBody,
) -> Result<(), Errno> {
    let sizes = PortSizes {
        tx_slots: body.tx_slots,
        rx_slots: body.rx_slots,
        tx_rings: body.tx_rings,
        rx_rings: body.rx_rings,
        ..PortSizes::default()
    };
    match device.ask(NetmapRequest::ValeNewInterface { name, sizes, mem_id: body.mem_id })? {
        NetmapReply::PortInfo { sizes, mem_id, .. } => {
            body.tx_slots = sizes.tx_slots;
            body.rx_slots = sizes.rx_slots;
            body.tx_rings = sizes.tx_rings;
            body.rx_rings = sizes.rx_rings;
            body.mem_id = mem_id;
            Ok(())
        }
        other => unexpected(&other),
    }
}

/// Carries out VALE_DELIF.
pub(super) fn delete_interface(device: &dyn NetmapFile, name: String) -> Result<(), Errno> {
    done(device.ask(NetmapRequest::ValeDeleteInterface { name })?)
}

/// Carries out VALE_POLLING_ENABLE.
pub(super) fn enable_polling(device: &dyn NetmapFile, name: String, body: &PollingBody) -> Result<(), Errno> {
    let PollingBody { mode, first_cpu, cpus, .. } = *body;
    done(device.ask(NetmapRequest::PollingEnable { name, mode, first_cpu, cpus })?)
}

/// Carries out VALE_POLLING_DISABLE.
pub(super) fn disable_polling(device: &dyn NetmapFile, name: String) -> Result<(), Errno> {
    done(device.ask(NetmapRequest::PollingDisable { name })?)
}

/// Carries out POOLS_INFO_GET.
pub(super) fn pools(device: &dyn NetmapFile, name: String, body: &mut PoolsBody) -> Result<(), Errno> {
    match device.ask(NetmapRequest::PoolsInfo { name, mem_id: body.mem_id })? {
        NetmapReply::Pools(pools) => {
            *body = pools_fields(&pools);
            Ok(())
        }
        other => unexpected(&other),
    }
}

fn done(reply: NetmapReply) -> Result<(), Errno> {
    match reply {
        NetmapReply::Done => Ok(()),
        other => unexpected(&other),
    }
}

/// Error for a reply to another request.
fn unexpected<T>(reply: &NetmapReply) -> Result<T, Errno> {
    Err(match reply {
        NetmapReply::Failed { errno, .. } => Errno::from_raw_os_error(*errno),
        _ => Errno::IO,
    })
}

/// Pools in the layout of the ABI.
pub(super) fn pools_fields(pools: &ringroad_control::netmap::Pools) -> PoolsBody {
    let fields = |pool: &Pool| PoolFields {
        offset: pool.offset,
        objects: pool.objects,
        object_bytes: pool.object_bytes,
    };
    PoolsBody {
        memory_bytes: pools.memory_bytes,
        mem_id: pools.mem_id,
        padding: [0; 3],
        interfaces: fields(&pools.interfaces),
        rings: fields(&pools.rings),
        buffers: fields(&pools.buffers),
    }
}

/// Pools as a program requests them.
pub(super) fn requested_pools(body: &PoolsBody) -> ringroad_control::netmap::Pools {
    let pool = |fields: &PoolFields| Pool {
        offset: fields.offset,
        objects: fields.objects,
        object_bytes: fields.object_bytes,
    };
    ringroad_control::netmap::Pools {
        memory_bytes: body.memory_bytes,
        mem_id: body.mem_id,
        interfaces: pool(&body.interfaces),
        rings: pool(&body.rings),
        buffers: pool(&body.buffers),
    }
}
