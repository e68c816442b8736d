//! The structures that cross to C, as `compat/include` lays them out. The same offsets are asserted there, in
//! `compat/tests/abi_layout.c`.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::AtomicU32;

use ringroad_ring::layout::InterfaceHeader;

/// `NETMAP_API`.
pub const API: u16 = 14;
/// `NETMAP_REQ_REGISTER`.
pub const REQ_REGISTER: u16 = 1;
/// `NETMAP_REQ_PORT_INFO_GET`.
pub const REQ_PORT_INFO_GET: u16 = 2;
/// `NETMAP_REQ_OPT_EXTMEM`.
pub const OPT_EXTMEM: u32 = 1;
/// `NETMAP_REQ_OPT_OFFSETS`.
pub const OPT_OFFSETS: u32 = 5;
/// `NMREQ_OPT_MAXKEYS`.
pub const MAX_KEYS: usize = 16;

/// `struct nmreq_header`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Header {
    /// `NETMAP_API`.
    pub version: u16,
    /// `NETMAP_REQ_*`.
    pub request_type: u16,
    /// 0.
    pub reserved: u32,
    /// Name of the port, NUL-terminated.
    pub name: [c_char; 64],
    /// First [`OptionHeader`], 0 for none.
    pub options: u64,
    /// The body, 0 for none.
    pub body: u64,
}

/// `struct nmreq_register`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Register {
    /// Of the bound port's [`InterfaceHeader`] in the region, bytes.
    pub offset: u64,
    /// Size of the region, bytes.
    pub memsize: u64,
    /// Slots of a tx ring.
    pub tx_slots: u32,
    /// Slots of an rx ring.
    pub rx_slots: u32,
    /// Tx rings.
    pub tx_rings: u16,
    /// Rx rings.
    pub rx_rings: u16,
    /// Host tx rings.
    pub host_tx_rings: u16,
    /// Host rx rings.
    pub host_rx_rings: u16,
    /// Region, 0 for any.
    pub mem_id: u16,
    /// Number of a single ring pair.
    pub ring_id: u16,
    /// `NR_REG_*`.
    pub mode: u32,
    /// Buffers besides those in slots.
    pub extra_bufs: u32,
    /// Unused.
    pub pad: u32,
    /// `NR_*`.
    pub flags: u64,
}

/// `struct nmreq_port_info_get`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct PortInfo {
    /// Size of the region, bytes.
    pub memsize: u64,
    /// Slots: tx, rx.
    pub slots: [u32; 2],
    /// Rings: tx, rx, host tx, host rx.
    pub rings: [u16; 4],
    /// Region.
    pub mem_id: u16,
    /// Unused.
    pub pad: [u16; 3],
}

/// `struct nmreq_option`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct OptionHeader {
    /// The next one, 0 for none.
    pub next: u64,
    /// `NETMAP_REQ_OPT_*`.
    pub option_type: u32,
    /// 0 or an errno, afterwards.
    pub status: u32,
    /// Bytes, where they vary.
    pub size: u64,
}

/// `struct nmreq_pools_info`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct PoolsInfo {
    /// Size of the region, bytes.
    pub memsize: u64,
    /// Region.
    pub mem_id: u16,
    /// Unused.
    pub pad: [u16; 3],
    /// Of `netmap_if`, rings and buffers.
    pub pools: [PoolInfo; 3],
}

/// One pool in [`PoolsInfo`].
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct PoolInfo {
    /// Where it begins in the region, bytes.
    pub offset: u64,
    /// Number of objects.
    pub objects: u32,
    /// Size of an object, bytes.
    pub object_bytes: u32,
}

/// `struct nmreq_opt_extmem`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct ExtmemOption {
    /// Begins every option.
    pub header: OptionHeader,
    /// Where the memory begins.
    pub memory: u64,
    /// Its size, and what to make of it.
    pub info: PoolsInfo,
}

/// `struct nmreq_opt_offsets`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct OffsetsOption {
    /// Begins every option.
    pub header: OptionHeader,
    /// Largest offset, bytes.
    pub max: u64,
    /// Offset of all slots at first, bytes.
    pub initial: u64,
    /// Low bits of `ptr` that hold it, 0 for all.
    pub bits: u32,
    /// Alignment on tx rings.
    pub tx_align: u32,
    /// Between frames that share a buffer, bytes.
    pub min_gap: u64,
}

/// `struct nmport_d`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Port {
    /// The request to bind.
    pub header: Header,
    /// Its body.
    pub register: Register,
    /// The mapped region, NULL before.
    pub region: *mut Region,
    /// Where it was made.
    pub context: *mut Context,
    /// Whether it is bound.
    pub register_done: c_int,
    /// Whether it is mapped.
    pub mmap_done: c_int,
    /// The option of this type, NULL without it.
    pub extmem: *mut ExtmemOption,
    /// -1 where it is not bound.
    pub fd: c_int,
    /// Unused. Named, as copies of the structure need not copy what has no name.
    pub pad1: u32,
    /// In the mapped region, NULL before.
    pub interface: *mut InterfaceHeader,
    /// Bound tx rings, first and last; first is above last where there is none.
    pub tx_ring: [u16; 2],
    /// Bound rx rings.
    pub rx_ring: [u16; 2],
    /// Where `nmport_inject` tries first.
    pub current_tx_ring: u16,
    /// For the program.
    pub current_rx_ring: u16,
    /// Unused.
    pub pad2: u32,
    /// Cleanups to run, newest last; NULL for none.
    pub cleanups: *mut Vec<Cleanup>,
}

/// Something that [`Port`] holds until it is forgotten (`struct nmport_cleanup_d`).
#[derive(Debug, Clone, Copy)]
pub enum Cleanup {
    /// An option in the list of the header, made by the context's allocator.
    Option(*mut OptionHeader),
    /// A mapped file, with its size in bytes.
    Mapping(*mut c_void, usize),
}

/// `struct nmem_d`.
#[repr(C)]
#[derive(Debug)]
pub struct Region {
    /// Its number, unique in the system.
    pub mem_id: u16,
    /// Ports that use it.
    pub references: c_int,
    /// Where it is mapped.
    pub memory: *mut c_void,
    /// Bytes.
    pub size: usize,
    /// Whether it lies in memory of the program.
    pub is_extmem: c_int,
    /// In a ring of all regions of the context.
    pub next: *mut Self,
    /// In a ring of all regions of the context.
    pub previous: *mut Self,
    /// Whether it must be unmapped after its last use; not known to C.
    pub unmap: bool,
}

/// `struct nmctx`.
#[repr(C)]
#[derive(Debug)]
pub struct Context {
    /// 0 for no messages.
    pub verbose: c_int,
    /// Is given messages.
    pub error: Option<unsafe extern "C" fn(*mut Self, *const c_char)>,
    /// Makes descriptors and options.
    pub malloc: Option<unsafe extern "C" fn(*mut Self, usize) -> *mut c_void>,
    /// Frees them.
    pub free: Option<unsafe extern "C" fn(*mut Self, *mut c_void)>,
    /// Locks (1) and unlocks (0) the regions.
    pub lock: Option<unsafe extern "C" fn(*mut Self, c_int)>,
    /// Any of the regions, NULL where there is none.
    pub regions: *mut Region,
}

/// `struct nmreq_opt_key`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct OptionKey {
    /// Its name.
    pub name: *const c_char,
    /// Index of its value.
    pub id: c_int,
    /// `NMREQ_OPTK_*`.
    pub flags: c_uint,
}

/// The type of an option's function.
pub type ParseOption = unsafe extern "C" fn(*mut ParseContext) -> c_int;

/// `struct nmreq_opt_parser`.
#[repr(C, align(16))]
#[derive(Debug)]
pub struct OptionParser {
    /// Name of the option.
    pub prefix: *const c_char,
    /// What it does.
    pub parse: Option<ParseOption>,
    /// Id of the key that `NAME=` means, -1 for none.
    pub default_key: c_int,
    /// How many keys there are.
    pub nr_keys: c_int,
    /// `NMREQ_OPTF_*`.
    pub flags: AtomicU32,
    /// The next one, NULL at the end.
    pub next: *const Self,
    /// The keys.
    pub keys: [OptionKey; MAX_KEYS],
}

/// `struct nmreq_parse_ctx`.
#[repr(C)]
#[derive(Debug)]
pub struct ParseContext {
    /// For messages and memory.
    pub context: *mut Context,
    /// As given to `nmreq_options_decode`.
    pub token: *mut c_void,
    /// Values by id, NULL where not given.
    pub keys: [*const c_char; MAX_KEYS],
}

impl Header {
    /// A request of this type without name, options or body.
    #[must_use]
    pub fn new(request_type: u16) -> Self {
        Self { version: API, request_type, reserved: 0, name: [0; 64], options: 0, body: 0 }
    }

    /// Puts a name in, which is cut where it is too long.
    pub fn set_name(&mut self, name: &[u8]) {
        self.name = [0; 64];
        for (to, from) in self.name[..63].iter_mut().zip(name) {
            *to = *from as c_char;
        }
    }

    /// The name up to its NUL.
    #[must_use]
    pub fn name(&self) -> Vec<u8> {
        self.name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect()
    }
}

impl Register {
    /// All ring pairs of a port, without further options.
    #[must_use]
    pub fn new() -> Self {
        Self {
            offset: 0,
            memsize: 0,
            tx_slots: 0,
            rx_slots: 0,
            tx_rings: 0,
            rx_rings: 0,
            host_tx_rings: 0,
            host_rx_rings: 0,
            mem_id: 0,
            ring_id: 0,
            mode: 0,
            extra_bufs: 0,
            pad: 0,
            flags: 0,
        }
    }
}

impl Default for Register {
    fn default() -> Self {
        Self::new()
    }
}

impl Port {
    /// Neither named nor bound. The header gets its body's address where it lies.
    #[must_use]
    pub fn new(context: *mut Context) -> Self {
        Self {
            header: Header::new(REQ_REGISTER),
            register: Register::new(),
            region: ptr::null_mut(),
            context,
            register_done: 0,
            mmap_done: 0,
            extmem: ptr::null_mut(),
            fd: -1,
            pad1: 0,
            interface: ptr::null_mut(),
            tx_ring: [0; 2],
            rx_ring: [0; 2],
            current_tx_ring: 0,
            current_rx_ring: 0,
            pad2: 0,
            cleanups: ptr::null_mut(),
        }
    }
}

const _: () = {
    assert!(size_of::<Header>() == 88);
    assert!(offset_of!(Header, name) == 8);
    assert!(offset_of!(Header, options) == 72);
    assert!(offset_of!(Header, body) == 80);
    assert!(size_of::<Register>() == 56);
    assert!(offset_of!(Register, tx_slots) == 16);
    assert!(offset_of!(Register, tx_rings) == 24);
    assert!(offset_of!(Register, host_tx_rings) == 28);
    assert!(offset_of!(Register, mem_id) == 32);
    assert!(offset_of!(Register, ring_id) == 34);
    assert!(offset_of!(Register, mode) == 36);
    assert!(offset_of!(Register, extra_bufs) == 40);
    assert!(offset_of!(Register, flags) == 48);
    assert!(size_of::<PortInfo>() == 32);
    assert!(offset_of!(PortInfo, rings) == 16);
    assert!(offset_of!(PortInfo, mem_id) == 24);
    assert!(size_of::<OptionHeader>() == 24);
    assert!(offset_of!(OptionHeader, option_type) == 8);
    assert!(offset_of!(OptionHeader, status) == 12);
    assert!(offset_of!(OptionHeader, size) == 16);
    assert!(size_of::<PoolsInfo>() == 64);
    assert!(offset_of!(PoolsInfo, mem_id) == 8);
    assert!(offset_of!(PoolsInfo, pools) == 16);
    assert!(size_of::<PoolInfo>() == 16);
    assert!(size_of::<ExtmemOption>() == 96);
    assert!(offset_of!(ExtmemOption, memory) == 24);
    assert!(offset_of!(ExtmemOption, info) == 32);
    assert!(size_of::<OffsetsOption>() == 56);
    assert!(offset_of!(OffsetsOption, initial) == 32);
    assert!(offset_of!(OffsetsOption, bits) == 40);
    assert!(offset_of!(OffsetsOption, min_gap) == 48);
    assert!(size_of::<Port>() == 216);
    assert!(offset_of!(Port, register) == 88);
    assert!(offset_of!(Port, region) == 144);
    assert!(offset_of!(Port, context) == 152);
    assert!(offset_of!(Port, register_done) == 160);
    assert!(offset_of!(Port, mmap_done) == 164);
    assert!(offset_of!(Port, extmem) == 168);
    assert!(offset_of!(Port, fd) == 176);
    assert!(offset_of!(Port, interface) == 184);
    assert!(offset_of!(Port, tx_ring) == 192);
    assert!(offset_of!(Port, rx_ring) == 196);
    assert!(offset_of!(Port, current_tx_ring) == 200);
    assert!(offset_of!(Port, current_rx_ring) == 202);
    assert!(offset_of!(Port, cleanups) == 208);
    assert!(offset_of!(Region, references) == 4);
    assert!(offset_of!(Region, memory) == 8);
    assert!(offset_of!(Region, size) == 16);
    assert!(offset_of!(Region, is_extmem) == 24);
    assert!(offset_of!(Region, next) == 32);
    assert!(offset_of!(Region, previous) == 40);
    assert!(offset_of!(Region, unmap) == 48);
    assert!(size_of::<Context>() == 48);
    assert!(offset_of!(Context, error) == 8);
    assert!(offset_of!(Context, malloc) == 16);
    assert!(offset_of!(Context, free) == 24);
    assert!(offset_of!(Context, lock) == 32);
    assert!(offset_of!(Context, regions) == 40);
    assert!(size_of::<OptionKey>() == 16);
    assert!(offset_of!(OptionKey, id) == 8);
    assert!(size_of::<OptionParser>() == 304);
    assert!(align_of::<OptionParser>() == 16);
    assert!(offset_of!(OptionParser, default_key) == 16);
    assert!(offset_of!(OptionParser, nr_keys) == 20);
    assert!(offset_of!(OptionParser, flags) == 24);
    assert!(offset_of!(OptionParser, next) == 32);
    assert!(offset_of!(OptionParser, keys) == 40);
    assert!(size_of::<ParseContext>() == 144);
    assert!(offset_of!(ParseContext, token) == 8);
    assert!(offset_of!(ParseContext, keys) == 16);
};
