//! NIOCREGIF and NIOCGINFO: one structure for all legacy requests, translated to requests of NIOCCTRL and back.
//!
//! On an error the program's structure stays as it was.

use rustix::io::Errno;

use super::requests::{self, RegisterOptions, name_field, text};
use crate::abi::{
    API_VERSION, AttachBody, DetachBody, LegacyRequest, ListBody, NewInterfaceBody, PollingBody,
    PortHeaderBody, PortInfoBody, RegisterBody, legacy_command, legacy_ring, mode, register_flag,
};
use crate::descriptor::NetmapFile;
use crate::user_memory::{read, write};

/// Mode bits of `nr_flags`.
const MODE_MASK: u32 = 0xF;

fn checked(argument: usize) -> Result<LegacyRequest, Errno> {
    let request: LegacyRequest = read(argument)?;
    if request.version < API_VERSION { Err(Errno::INVAL) } else { Ok(request) }
}

/// Carries out NIOCREGIF.
pub(super) fn bind_or_command(device: &dyn NetmapFile, argument: usize) -> Result<(), Errno> {
    let mut request = checked(argument)?;
    let name = text(&request.name);
    match request.command {
        legacy_command::NONE => bind(device, name, &mut request)?,
        legacy_command::ATTACH => {
            let how = if request.argument_1 & 1 == 0 { mode::ALL_NIC } else { mode::NIC_AND_SOFTWARE };
            let register = RegisterBody { mode: how, mem_id: request.argument_2, ..RegisterBody::default() };
            requests::attach(device, name, &mut AttachBody { register, ..AttachBody::default() })?;
        }
        legacy_command::DETACH => requests::detach(device, name, &mut DetachBody::default())?,
        legacy_command::HEADER_SET | legacy_command::HEADER_GET => {
            let mut body =
                PortHeaderBody { bytes: u32::from(request.argument_1), ..PortHeaderBody::default() };
            if request.command == legacy_command::HEADER_SET {
                requests::set_header(device, name, &mut body)?;
            } else {
                requests::get_header(device, name, &mut body)?;
            }
            request.argument_1 = body.bytes as u16;
        }
        legacy_command::NEW_INTERFACE => {
            let mut body = NewInterfaceBody {
                tx_slots: request.tx_slots,
                rx_slots: request.rx_slots,
                tx_rings: request.tx_rings,
                rx_rings: request.rx_rings,
                mem_id: request.argument_2,
                padding: 0,
            };
            requests::new_interface(device, name, &mut body)?;
            request.tx_slots = body.tx_slots;
            request.rx_slots = body.rx_slots;
            request.tx_rings = body.tx_rings;
            request.rx_rings = body.rx_rings;
            request.argument_2 = body.mem_id;
        }
        legacy_command::DELETE_INTERFACE => requests::delete_interface(device, name)?,
        legacy_command::POLLING_ON => requests::enable_polling(device, name, &polling(&request))?,
        legacy_command::POLLING_OFF => requests::disable_polling(device, name)?,
        _ => return Err(Errno::INVAL),
    }
    write(argument, &request)
}

/// Carries out NIOCGINFO.
pub(super) fn information(device: &dyn NetmapFile, argument: usize) -> Result<(), Errno> {
    let mut request = checked(argument)?;
    let name = text(&request.name);
    if request.command == legacy_command::LIST {
        let mut body = ListBody {
            switch_index: request.argument_1,
            port_index: u32::from(request.argument_2),
            padding: 0,
        };
        request.name = name_field(&requests::list(device, name, &mut body)?);
        request.argument_1 = body.switch_index;
        request.argument_2 = body.port_index as u16;
    } else {
        let mut body = PortInfoBody {
            tx_slots: request.tx_slots,
            rx_slots: request.rx_slots,
            tx_rings: request.tx_rings,
            rx_rings: request.rx_rings,
            mem_id: request.argument_2,
            ..PortInfoBody::default()
        };
        requests::port_info(device, name, &mut body)?;
        request.memory_bytes = body.memory_bytes as u32;
        request.tx_slots = body.tx_slots;
        request.rx_slots = body.rx_slots;
        request.tx_rings = body.tx_rings;
        request.rx_rings = body.rx_rings;
        request.argument_2 = body.mem_id;
    }
    write(argument, &request)
}

fn bind(device: &dyn NetmapFile, mut name: String, request: &mut LegacyRequest) -> Result<(), Errno> {
    if device.bound_rings().is_some() {
        return Err(Errno::BUSY);
    }
    let ring = request.ring_id & legacy_ring::NUMBER;
    let requested = match request.flags & MODE_MASK {
        0 if request.ring_id & legacy_ring::SOFTWARE != 0 => mode::SOFTWARE,
        0 if request.ring_id & legacy_ring::HARDWARE != 0 => mode::ONE_NIC,
        0 => mode::ALL_NIC,
        mode => mode,
    };
    let mut flags = u64::from(request.flags & !MODE_MASK);
    if request.ring_id & legacy_ring::NO_TX_POLL != 0 {
        flags |= register_flag::NO_TX_POLL;
    }
    if request.ring_id & legacy_ring::DO_RX_POLL != 0 {
        flags |= register_flag::DO_RX_POLL;
    }
    let (mode, ring_id) = match requested {
        mode::PIPE_MASTER | mode::PIPE_SLAVE => {
            name.push(if requested == mode::PIPE_MASTER { '{' } else { '}' });
            name.push_str(&ring.to_string());
            (mode::ALL_NIC, 0)
        }
        other => (other, ring),
    };
    let mut body = RegisterBody {
        tx_slots: request.tx_slots,
        rx_slots: request.rx_slots,
        tx_rings: request.tx_rings,
        rx_rings: request.rx_rings,
        mem_id: request.argument_2,
        ring_id,
        mode,
        extra_buffers: request.argument_3,
        flags,
        ..RegisterBody::default()
    };
    requests::register(device, name, &mut body, &RegisterOptions::default())?;
    request.offset = body.offset as u32;
    request.memory_bytes = body.memory_bytes as u32;
    request.tx_slots = body.tx_slots;
    request.rx_slots = body.rx_slots;
    request.tx_rings = body.tx_rings;
    request.rx_rings = body.rx_rings;
    request.argument_2 = body.mem_id;
    request.argument_3 = body.extra_buffers;
    Ok(())
}

/// Polling threads on one processor or one per ring; the execution refuses any other mode.
fn polling(request: &LegacyRequest) -> PollingBody {
    let mode = match request.flags & MODE_MASK {
        mode::ALL_NIC => 1,
        mode::ONE_NIC => 2,
        _ => 0,
    };
    PollingBody {
        mode,
        first_cpu: u32::from(request.ring_id & legacy_ring::NUMBER),
        cpus: u32::from(request.argument_1),
        padding: 0,
    }
}
