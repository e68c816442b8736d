//! NIOCREGIF and NIOCGINFO: one structure for all legacy requests, translated to requests of NIOCCTRL and back.
//!
//! On an error the program's structure stays as it was.
//!
//! The header for programs of 2012 gives these two requests numbers of their own. So its programs, which may set no
//! version, differ from those that know `head`, and from those compiled with netmap's own header of that time, whose
//! slots have another size.

use ringroad_control::netmap::{NetmapRequest, PortSizes};
use rustix::io::Errno;

use super::requests::{self, RegisterOptions, text};
use crate::abi::{
    API_VERSION, LegacyRequest, RegisterBody, legacy_command, legacy_ring, mode, name_field, register_flag,
};
use crate::descriptor::NetmapFile;
use crate::user_memory::{read, write};

/// Mode bits of `nr_flags`.
const MODE_MASK: u32 = 0xF;

fn checked(argument: usize) -> Result<LegacyRequest, Errno> {
    let request: LegacyRequest = read(argument)?;
    if request.version < API_VERSION { Err(Errno::INVAL) } else { Ok(request) }
}

/// Request of a program of 2012, which knows no commands, memory ids and modes: these fields were spare.
fn of_2012(argument: usize) -> Result<LegacyRequest, Errno> {
    let request: LegacyRequest = read(argument)?;
    Ok(LegacyRequest {
        command: legacy_command::NONE,
        argument_1: 0,
        argument_2: 0,
        argument_3: 0,
        flags: 0,
        ring_id: request.ring_id & !legacy_ring::DO_RX_POLL,
        ..request
    })
}

impl LegacyRequest {
    fn sizes(&self) -> PortSizes {
        let Self { tx_slots, rx_slots, tx_rings, rx_rings, .. } = *self;
        PortSizes { tx_slots, rx_slots, tx_rings, rx_rings, ..PortSizes::default() }
    }

    fn set_sizes(&mut self, sizes: PortSizes) {
        self.tx_slots = sizes.tx_slots;
        self.rx_slots = sizes.rx_slots;
        self.tx_rings = sizes.tx_rings;
        self.rx_rings = sizes.rx_rings;
    }

    fn set_reply(&mut self, body: &RegisterBody) {
        self.offset = body.offset as u32;
        self.memory_bytes = body.memory_bytes as u32;
        self.set_sizes(body.sizes);
        self.argument_2 = body.mem_id;
        self.argument_3 = body.extra_buffers;
    }
}

/// Carries out NIOCREGIF.
pub(super) fn bind_or_command(device: &dyn NetmapFile, argument: usize) -> Result<(), Errno> {
    let mut request = checked(argument)?;
    let name = text(&request.name);
    match request.command {
        legacy_command::NONE => bind(device, name, &mut request, 0)?,
        legacy_command::ATTACH => {
            let mode = if request.argument_1 & 1 == 0 { mode::ALL_NIC } else { mode::NIC_AND_SOFTWARE };
            let mem_id = request.argument_2;
            requests::port_index(device, NetmapRequest::ValeAttach { name, mode, ring_id: 0, mem_id })?;
        }
        legacy_command::DETACH => {
            requests::port_index(device, NetmapRequest::ValeDetach { name })?;
        }
        legacy_command::HEADER_SET => {
            let asked = NetmapRequest::PortHeaderSet { name, bytes: request.argument_1.into() };
            request.argument_1 = requests::header_bytes(device, asked)? as u16;
        }
        legacy_command::HEADER_GET => {
            request.argument_1 =
                requests::header_bytes(device, NetmapRequest::PortHeaderGet { name })? as u16;
        }
        legacy_command::NEW_INTERFACE => {
            let (sizes, mem_id) = (request.sizes(), request.argument_2);
            let asked = NetmapRequest::ValeNewInterface { name, sizes, mem_id };
            let (_, sizes, mem_id) = requests::port_info(device, asked)?;
            request.set_sizes(sizes);
            request.argument_2 = mem_id;
        }
        legacy_command::DELETE_INTERFACE => {
            requests::done(device, NetmapRequest::ValeDeleteInterface { name })?;
        }
        legacy_command::POLLING_ON => requests::done(device, enable_polling(name, &request))?,
        legacy_command::POLLING_OFF => requests::done(device, NetmapRequest::PollingDisable { name })?,
        _ => return Err(Errno::INVAL),
    }
    write(argument, &request)
}

/// Carries out NIOCREGIF of a program of 2012, which may have mapped the region before.
pub(super) fn bind_of_2012(device: &dyn NetmapFile, argument: usize) -> Result<(), Errno> {
    let mut request = of_2012(argument)?;
    let name = text(&request.name);
    let wants_all_rings = request.ring_id & (legacy_ring::HARDWARE | legacy_ring::SOFTWARE) == 0;
    match device.take_early_binding(&name).filter(|_| wants_all_rings) {
        Some(bound) => {
            let mut body = RegisterBody::default();
            body.set_reply(&bound);
            request.set_reply(&body);
        }
        None => bind(device, name, &mut request, register_flag::OF_2012)?,
    }
    write(argument, &request)
}

/// Carries out NIOCGINFO.
pub(super) fn information(device: &dyn NetmapFile, argument: usize) -> Result<(), Errno> {
    inform(device, argument, checked(argument)?)
}

/// Carries out NIOCGINFO of a program of 2012.
pub(super) fn information_of_2012(device: &dyn NetmapFile, argument: usize) -> Result<(), Errno> {
    let request = of_2012(argument)?;
    inform(device, argument, request)?;
    device.expect_early_mapping(text(&request.name));
    Ok(())
}

fn inform(device: &dyn NetmapFile, argument: usize, mut request: LegacyRequest) -> Result<(), Errno> {
    let name = text(&request.name);
    if request.command == legacy_command::LIST {
        let at = (request.argument_1, u32::from(request.argument_2));
        let (name, switch_index, port_index) = requests::list(device, name, at)?;
        request.name = name_field(name.as_bytes());
        request.argument_1 = switch_index;
        request.argument_2 = port_index as u16;
    } else {
        let asked = NetmapRequest::PortInfo { name, sizes: request.sizes(), mem_id: request.argument_2 };
        let (memory_bytes, sizes, mem_id) = requests::port_info(device, asked)?;
        request.memory_bytes = memory_bytes as u32;
        request.set_sizes(sizes);
        request.argument_2 = mem_id;
    }
    write(argument, &request)
}

/// Binds the device. `flags`: flags of the binding besides those of the request.
fn bind(
    device: &dyn NetmapFile,
    mut name: String,
    request: &mut LegacyRequest,
    mut flags: u64,
) -> Result<(), Errno> {
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
    flags |= u64::from(request.flags & !MODE_MASK);
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
        sizes: request.sizes(),
        mem_id: request.argument_2,
        ring_id,
        mode,
        extra_buffers: request.argument_3,
        flags,
        ..RegisterBody::default()
    };
    requests::register(device, name, &mut body, &RegisterOptions::default())?;
    request.set_reply(&body);
    Ok(())
}

/// Request for polling threads on one processor or one per ring; the execution refuses any other mode.
fn enable_polling(name: String, request: &LegacyRequest) -> NetmapRequest {
    let mode = match request.flags & MODE_MASK {
        mode::ALL_NIC => 1,
        mode::ONE_NIC => 2,
        _ => 0,
    };
    NetmapRequest::PollingEnable {
        name,
        mode,
        first_cpu: u32::from(request.ring_id & legacy_ring::NUMBER),
        cpus: u32::from(request.argument_1),
    }
}
