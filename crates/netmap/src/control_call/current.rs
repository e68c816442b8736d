//! NIOCCTRL: a header, a body that depends on the type of the request, and a list of options.

use core::mem::{offset_of, size_of};

use ringroad_control::netmap::{Bound, ExternalMemory, NetmapReply, NetmapRequest, Offsets, PortSizes};
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::external_memory;
use super::option_list::OptionList;
use super::requests::{self, RegisterOptions, text};
use crate::abi::{
    API_VERSION, AttachBody, CsbOption, DetachBody, EventPair, ExternalMemoryOption, ListBody,
    LoopModeOption, LoopStartBody, NEWEST_API_VERSION, NewInterfaceBody, OffsetsOption, PollingBody,
    PoolsBody, PortHeaderBody, PortInfoBody, RegisterBody, RequestHeader, name_field, option_type,
    request_type,
};
use crate::descriptor::{LoopError, LoopPlan, NetmapFile};
use crate::user_memory::{read, read_bytes, write_bytes};

/// Size of the largest body, bytes.
const LARGEST_BODY: usize = 64;
/// Longest sleep between rounds of a sync loop, µs.
const LONGEST_SLEEP_US: u32 = 1_000_000;
/// Page size: external memory is replaced by the region page by page.
const PAGE: u64 = 4096;

/// Size of the body of requests of a type, bytes; unknown types have no body.
fn body_bytes(request: u16) -> usize {
    match request {
        request_type::REGISTER => size_of::<RegisterBody>(),
        request_type::PORT_INFO_GET => size_of::<PortInfoBody>(),
        request_type::VALE_ATTACH => size_of::<AttachBody>(),
        request_type::VALE_DETACH => size_of::<DetachBody>(),
        request_type::VALE_LIST => size_of::<ListBody>(),
        request_type::PORT_HDR_SET | request_type::PORT_HDR_GET => size_of::<PortHeaderBody>(),
        request_type::VALE_NEWIF => size_of::<NewInterfaceBody>(),
        request_type::VALE_POLLING_ENABLE | request_type::VALE_POLLING_DISABLE => size_of::<PollingBody>(),
        request_type::POOLS_INFO_GET => size_of::<PoolsBody>(),
        request_type::SYNC_KLOOP_START => size_of::<LoopStartBody>(),
        _ => 0,
    }
}

/// Carries out NIOCCTRL with the header at `argument`.
pub(super) fn control(device: &dyn NetmapFile, argument: usize) -> Result<(), Errno> {
    let header: RequestHeader = read(argument)?;
    if !(API_VERSION..=NEWEST_API_VERSION).contains(&u32::from(header.version)) || header.reserved != 0 {
        return Err(Errno::INVAL);
    }
    let mut room = [0; LARGEST_BODY];
    let body = room.get_mut(..body_bytes(header.request_type)).ok_or(Errno::INVAL)?;
    if body.is_empty() != (header.body == 0) {
        return Err(Errno::INVAL);
    }
    read_bytes(header.body as usize, body)?;
    let (mut options, walked) = OptionList::read(header.options, body.len());
    let performed = walked.and_then(|()| perform(device, &header, body, &mut options));
    let options_written = options.write_back(performed.is_ok());
    let found_name = performed?;
    options_written?;
    write_bytes(header.body as usize, body)?;
    match found_name {
        Some(name) => {
            let field: [u8; 64] = name_field(name.as_bytes());
            write_bytes(argument.wrapping_add(offset_of!(RequestHeader, name)), &field)
        }
        None => Ok(()),
    }
}

/// Calls `f` with a body as a structure.
fn with<T: FromBytes + IntoBytes + Immutable, R>(
    bytes: &mut [u8],
    f: impl FnOnce(&mut T) -> Result<R, Errno>,
) -> Result<R, Errno> {
    let mut body = T::read_from_bytes(bytes).map_err(|_| Errno::INVAL)?;
    let result = f(&mut body)?;
    bytes.copy_from_slice(body.as_bytes());
    Ok(result)
}

/// Carries out the request; returns a name if the header gets one.
fn perform(
    device: &dyn NetmapFile,
    header: &RequestHeader,
    body: &mut [u8],
    options: &mut OptionList,
) -> Result<Option<String>, Errno> {
    let name = text(&header.name);
    match header.request_type {
        request_type::REGISTER => with(body, |body| register(device, name, body, options)),
        request_type::PORT_INFO_GET => with(body, |body: &mut PortInfoBody| {
            let request = NetmapRequest::PortInfo { name, sizes: body.sizes, mem_id: body.mem_id };
            (body.memory_bytes, body.sizes, body.mem_id) = requests::port_info(device, request)?;
            Ok(())
        }),
        request_type::VALE_ATTACH => with(body, |body: &mut AttachBody| {
            let RegisterBody { mode, ring_id, mem_id, .. } = body.register;
            let request = NetmapRequest::ValeAttach { name, mode, ring_id, mem_id };
            body.port_index = requests::port_index(device, request)?;
            Ok(())
        }),
        request_type::VALE_DETACH => with(body, |body: &mut DetachBody| {
            body.port_index = requests::port_index(device, NetmapRequest::ValeDetach { name })?;
            Ok(())
        }),
        request_type::VALE_LIST => {
            return with(body, |body: &mut ListBody| {
                let found = requests::list(device, name, (body.switch_index, body.port_index))?;
                (body.switch_index, body.port_index) = (found.1, found.2);
                Ok(Some(found.0))
            });
        }
        request_type::PORT_HDR_SET => with(body, |body: &mut PortHeaderBody| {
            let request = NetmapRequest::PortHeaderSet { name, bytes: body.bytes };
            body.bytes = requests::header_bytes(device, request)?;
            Ok(())
        }),
        request_type::PORT_HDR_GET => with(body, |body: &mut PortHeaderBody| {
            body.bytes = requests::header_bytes(device, NetmapRequest::PortHeaderGet { name })?;
            Ok(())
        }),
        request_type::VALE_NEWIF => {
            with(body, |body: &mut NewInterfaceBody| new_interface(device, name, body))
        }
        request_type::VALE_DELIF => requests::done(device, NetmapRequest::ValeDeleteInterface { name }),
        request_type::VALE_POLLING_ENABLE => with(body, |body: &mut PollingBody| {
            let PollingBody { mode, first_cpu, cpus, .. } = *body;
            requests::done(device, NetmapRequest::PollingEnable { name, mode, first_cpu, cpus })
        }),
        request_type::VALE_POLLING_DISABLE => requests::done(device, NetmapRequest::PollingDisable { name }),
        request_type::POOLS_INFO_GET => with(body, |body| pools(device, name, body)),
        request_type::SYNC_KLOOP_START => {
            with(body, |body: &mut LoopStartBody| start_loop(device, body, options))
        }
        request_type::SYNC_KLOOP_STOP => device.stop_sync_loop(),
        request_type::CSB_ENABLE => enable_csb(device, options),
        _ => Err(Errno::INVAL),
    }
    .map(|()| None)
}

fn new_interface(device: &dyn NetmapFile, name: String, body: &mut NewInterfaceBody) -> Result<(), Errno> {
    let NewInterfaceBody { tx_slots, rx_slots, tx_rings, rx_rings, mem_id, .. } = *body;
    let sizes = PortSizes { tx_slots, rx_slots, tx_rings, rx_rings, ..PortSizes::default() };
    let (_, sizes, mem_id) =
        requests::port_info(device, NetmapRequest::ValeNewInterface { name, sizes, mem_id })?;
    let PortSizes { tx_slots, rx_slots, tx_rings, rx_rings, .. } = sizes;
    *body = NewInterfaceBody { tx_slots, rx_slots, tx_rings, rx_rings, mem_id, padding: body.padding };
    Ok(())
}

fn pools(device: &dyn NetmapFile, name: String, body: &mut PoolsBody) -> Result<(), Errno> {
    match device.ask(NetmapRequest::PoolsInfo { name, mem_id: body.mem_id })? {
        NetmapReply::Pools(pools) => {
            *body = pools.into();
            Ok(())
        }
        _ => Err(Errno::IO),
    }
}

/// Result of a check; `None`: only the binding shows it.
type Checked = Option<Result<(), Errno>>;

/// Option that a binding takes.
struct BindingOption {
    option_type: u32,
    /// Errors of the binding that go into this option's status.
    errors: &'static [Errno],
    /// Checks the body without the port, and puts it into the binding's request.
    apply: fn(&[u8], &mut RegisterOptions) -> Checked,
    /// Body that the program gets back after the binding, if it gets one.
    answer: fn(&RegisterOptions, &Bound) -> Option<Vec<u8>>,
}

/// All options of a binding, in the order in which they are checked.
const BINDING_OPTIONS: [BindingOption; 3] = [
    BindingOption {
        option_type: option_type::CSB,
        errors: &[Errno::INVAL, Errno::FAULT],
        apply: |body, requested| {
            requested.csb = CsbOption::read_from_bytes(body).ok();
            None
        },
        answer: |_, _| None,
    },
    BindingOption {
        option_type: option_type::EXTMEM,
        errors: &[Errno::INVAL, Errno::NOMEM, Errno::FAULT],
        apply: |body, requested| {
            let option = ExternalMemoryOption::read_from_bytes(body).ok()?;
            let memory = external_memory(&option);
            requested.external_memory = memory.ok().map(|memory| (memory, option.address as usize));
            Some(memory.map(|_| ()))
        },
        answer: |requested, bound| {
            let ((_, address), pools) = requested.external_memory.zip(bound.external_memory)?;
            let body = ExternalMemoryOption { address: address as u64, pools: pools.into() };
            Some(body.as_bytes().to_vec())
        },
    },
    BindingOption {
        option_type: option_type::OFFSETS,
        errors: &[Errno::INVAL, Errno::BUSY, Errno::OPNOTSUPP],
        apply: |body, requested| {
            let offsets = offsets(&OffsetsOption::read_from_bytes(body).ok()?);
            requested.offsets = offsets.ok();
            Some(offsets.map(|_| ()))
        },
        answer: |_, _| None,
    },
];

fn register(
    device: &dyn NetmapFile,
    name: String,
    body: &mut RegisterBody,
    options: &mut OptionList,
) -> Result<(), Errno> {
    if device.bound_rings().is_some() {
        return Err(Errno::BUSY);
    }
    // An option that no binding takes fails the request. A failure before the binding is better than undoing the
    // binding.
    if !options.has_only(|given| BINDING_OPTIONS.iter().any(|option| option.option_type == given)) {
        return Err(Errno::OPNOTSUPP);
    }
    let mut requested = RegisterOptions::default();
    for option in &BINDING_OPTIONS {
        if let Some(outcome) =
            options.body(option.option_type).and_then(|body| (option.apply)(body, &mut requested))
        {
            options.conclude(option.option_type, outcome);
            outcome?;
        }
    }
    let bound = requests::register(device, name, body, &requested);
    for option in &BINDING_OPTIONS {
        match &bound {
            Ok(bound) => {
                options.conclude(option.option_type, Ok(()));
                if let Some(body) = (option.answer)(&requested, bound) {
                    options.answer(option.option_type, &body);
                }
            }
            Err(errno) if option.errors.contains(errno) => options.conclude(option.option_type, Err(*errno)),
            Err(_) => {}
        }
    }
    bound.map(|_| ())
}

fn external_memory(option: &ExternalMemoryOption) -> Result<ExternalMemory, Errno> {
    if !option.address.is_multiple_of(PAGE) {
        return Err(Errno::INVAL);
    }
    let identity = external_memory::identity(option.address as usize)?;
    Ok(ExternalMemory { identity, pools: option.pools.into() })
}

fn offsets(option: &OffsetsOption) -> Result<Offsets, Errno> {
    let OffsetsOption { max, initial, bits, .. } = *option;
    let fits = match bits {
        0 | 64 => true,
        1..64 => max >> bits == 0,
        _ => false,
    };
    if fits && initial <= max { Ok(Offsets { max, initial, bits }) } else { Err(Errno::INVAL) }
}

fn enable_csb(device: &dyn NetmapFile, options: &mut OptionList) -> Result<(), Errno> {
    let addresses = options.structure(option_type::CSB).ok_or(Errno::INVAL)?;
    let enabled = device.enable_csb(addresses);
    options.conclude(option_type::CSB, enabled);
    enabled
}

fn start_loop(device: &dyn NetmapFile, body: &LoopStartBody, options: &mut OptionList) -> Result<(), Errno> {
    let (tx_rings, rx_rings) = device.bound_rings().ok_or(Errno::NXIO)?;
    if body.sleep_us > LONGEST_SLEEP_US {
        return Err(Errno::INVAL);
    }
    let events = match options.body(option_type::SYNC_KLOOP_EVENTFDS) {
        None => None,
        Some(bytes) if bytes.len() == (tx_rings + rx_rings) * size_of::<EventPair>() => {
            let pairs = bytes.chunks_exact(size_of::<EventPair>());
            Some(pairs.filter_map(|pair| EventPair::read_from_bytes(pair).ok()).collect())
        }
        Some(_) => {
            options.conclude(option_type::SYNC_KLOOP_EVENTFDS, Err(Errno::INVAL));
            return Err(Errno::INVAL);
        }
    };
    let mode =
        options.structure::<LoopModeOption>(option_type::SYNC_KLOOP_MODE).map_or(0, |option| option.mode);
    let (events_outcome, mode_outcome, result) =
        match device.run_sync_loop(LoopPlan { sleep_us: body.sleep_us, events, mode }) {
            Ok(()) => (Some(Ok(())), Some(Ok(())), Ok(())),
            Err(LoopError::EventsOption(errno)) => (Some(Err(errno)), None, Err(errno)),
            Err(LoopError::ModeOption(errno)) => (Some(Ok(())), Some(Err(errno)), Err(errno)),
            Err(LoopError::Request(errno)) => (None, None, Err(errno)),
        };
    if let Some(outcome) = events_outcome {
        options.conclude(option_type::SYNC_KLOOP_EVENTFDS, outcome);
    }
    if let Some(outcome) = mode_outcome {
        options.conclude(option_type::SYNC_KLOOP_MODE, outcome);
    }
    result
}
