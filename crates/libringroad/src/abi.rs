//! The structures of the library that cross to C, as `compat/include` lays them out; those of requests are in
//! `ringroad_netmap::abi`. The same offsets are asserted there, in
//! `compat/tests/abi_layout.c`.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::AtomicU32;

use ringroad_netmap::abi::{
    ExternalMemoryOption, ListedOption, OptionHeader, RegisterBody, RequestHeader, request_type,
};
use ringroad_ring::layout::InterfaceHeader;

/// `NMREQ_OPT_MAXKEYS`.
pub const MAX_KEYS: usize = 16;

/// `struct nmport_d`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct NmportDesc {
    /// The request to bind.
    pub header: RequestHeader,
    /// Its body.
    pub register: RegisterBody,
    /// The mapped region, NULL before.
    pub region: *mut NmemDesc,
    /// Where it was made.
    pub context: *mut Nmctx,
    /// Whether it is bound.
    pub register_done: c_int,
    /// Whether it is mapped.
    pub mmap_done: c_int,
    /// The option of this type, NULL without it.
    pub extmem: *mut ListedOption<ExternalMemoryOption>,
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

/// Something that [`NmportDesc`] holds until it is forgotten (`struct nmport_cleanup_d`).
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
pub struct NmemDesc {
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
pub struct Nmctx {
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
    pub regions: *mut NmemDesc,
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
    pub context: *mut Nmctx,
    /// As given to `nmreq_options_decode`.
    pub token: *mut c_void,
    /// Values by id, NULL where not given.
    pub keys: [*const c_char; MAX_KEYS],
}

impl NmportDesc {
    /// Neither named nor bound. The header gets its body's address where it lies.
    #[must_use]
    pub fn new(context: *mut Nmctx) -> Self {
        Self {
            header: RequestHeader::new(request_type::REGISTER),
            register: RegisterBody::default(),
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
    assert!(size_of::<ListedOption<ExternalMemoryOption>>() == 96);
    assert!(offset_of!(ListedOption<ExternalMemoryOption>, body) == 24);
    assert!(size_of::<NmportDesc>() == 216);
    assert!(offset_of!(NmportDesc, register) == 88);
    assert!(offset_of!(NmportDesc, region) == 144);
    assert!(offset_of!(NmportDesc, context) == 152);
    assert!(offset_of!(NmportDesc, register_done) == 160);
    assert!(offset_of!(NmportDesc, mmap_done) == 164);
    assert!(offset_of!(NmportDesc, extmem) == 168);
    assert!(offset_of!(NmportDesc, fd) == 176);
    assert!(offset_of!(NmportDesc, interface) == 184);
    assert!(offset_of!(NmportDesc, tx_ring) == 192);
    assert!(offset_of!(NmportDesc, rx_ring) == 196);
    assert!(offset_of!(NmportDesc, current_tx_ring) == 200);
    assert!(offset_of!(NmportDesc, current_rx_ring) == 202);
    assert!(offset_of!(NmportDesc, cleanups) == 208);
    assert!(offset_of!(NmemDesc, references) == 4);
    assert!(offset_of!(NmemDesc, memory) == 8);
    assert!(offset_of!(NmemDesc, size) == 16);
    assert!(offset_of!(NmemDesc, is_extmem) == 24);
    assert!(offset_of!(NmemDesc, next) == 32);
    assert!(offset_of!(NmemDesc, previous) == 40);
    assert!(offset_of!(NmemDesc, unmap) == 48);
    assert!(size_of::<Nmctx>() == 48);
    assert!(offset_of!(Nmctx, error) == 8);
    assert!(offset_of!(Nmctx, malloc) == 16);
    assert!(offset_of!(Nmctx, free) == 24);
    assert!(offset_of!(Nmctx, lock) == 32);
    assert!(offset_of!(Nmctx, regions) == 40);
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
