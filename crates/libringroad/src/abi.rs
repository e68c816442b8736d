//! Structures that the library shares with C, laid out as in `compat/include`; those of requests are in
//! `ringroad_netmap::abi`. `compat/tests/abi_layout.c` asserts the same offsets in C.

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
    /// Header of the request to bind.
    pub header: RequestHeader,
    /// Body of the request to bind.
    pub register: RegisterBody,
    /// Mapped region; NULL while the port is not mapped.
    pub region: *mut NmemDesc,
    /// Context in which the port was made.
    pub context: *mut Nmctx,
    /// Whether the port is bound.
    pub register_done: c_int,
    /// Whether the port is mapped.
    pub mmap_done: c_int,
    /// Option for memory of the program; NULL if there is none.
    pub extmem: *mut ListedOption<ExternalMemoryOption>,
    /// Descriptor of the bound port; -1 if the port is not bound.
    pub fd: c_int,
    /// Unused. The field has a name because copies of the structure need not copy padding.
    pub pad1: u32,
    /// Interface in the mapped region; NULL while the port is not mapped.
    pub interface: *mut InterfaceHeader,
    /// First and last bound tx ring; the first is above the last if there is none.
    pub tx_ring: [u16; 2],
    /// First and last bound rx ring, in the same way.
    pub rx_ring: [u16; 2],
    /// Ring that `nmport_inject` tries first.
    pub current_tx_ring: u16,
    /// Ring number for the program's own use.
    pub current_rx_ring: u16,
    /// Unused.
    pub pad2: u32,
    /// Steps to undo, the newest last; NULL for none.
    pub cleanups: *mut Vec<Cleanup>,
}

/// A resource that [`NmportDesc`] holds until `nmport_undo_parse` (`struct nmport_cleanup_d`).
#[derive(Debug, Clone, Copy)]
pub enum Cleanup {
    /// An option in the header's list, allocated by the context.
    Option(*mut OptionHeader),
    /// A mapped file, with its size in bytes.
    Mapping(*mut c_void, usize),
}

/// `struct nmem_d`.
#[repr(C)]
#[derive(Debug)]
pub struct NmemDesc {
    /// Number of the region, unique in the system.
    pub mem_id: u16,
    /// Number of ports that use the region.
    pub references: c_int,
    /// Address of the mapping.
    pub memory: *mut c_void,
    /// Size in bytes.
    pub size: usize,
    /// Whether the region is in memory of the program.
    pub is_extmem: c_int,
    /// Next region in the circular list of the context's regions.
    pub next: *mut Self,
    /// Previous region in the circular list of the context's regions.
    pub previous: *mut Self,
    /// Whether the region must be unmapped after its last use; unknown to C.
    pub unmap: bool,
}

/// `struct nmctx`.
#[repr(C)]
#[derive(Debug)]
pub struct Nmctx {
    /// Verbosity; 0 for no messages.
    pub verbose: c_int,
    /// Function that gets messages.
    pub error: Option<unsafe extern "C" fn(*mut Self, *const c_char)>,
    /// Function that allocates descriptors and options.
    pub malloc: Option<unsafe extern "C" fn(*mut Self, usize) -> *mut c_void>,
    /// Function that frees what `malloc` allocated.
    pub free: Option<unsafe extern "C" fn(*mut Self, *mut c_void)>,
    /// Function that locks (1) and unlocks (0) the list of regions.
    pub lock: Option<unsafe extern "C" fn(*mut Self, c_int)>,
    /// One of the context's regions; NULL if there is none.
    pub regions: *mut NmemDesc,
}

/// `struct nmreq_opt_key`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct OptionKey {
    /// Name of the key.
    pub name: *const c_char,
    /// Index of the key's value.
    pub id: c_int,
    /// Flags: `NMREQ_OPTK_*`.
    pub flags: c_uint,
}

/// Type of an option's function.
pub type ParseOption = unsafe extern "C" fn(*mut ParseContext) -> c_int;

/// `struct nmreq_opt_parser`.
#[repr(C, align(16))]
#[derive(Debug)]
pub struct OptionParser {
    /// Name of the option.
    pub prefix: *const c_char,
    /// Function of the option.
    pub parse: Option<ParseOption>,
    /// Id of the key that `NAME=` sets; -1 for none.
    pub default_key: c_int,
    /// Number of keys.
    pub nr_keys: c_int,
    /// Flags: `NMREQ_OPTF_*`.
    pub flags: AtomicU32,
    /// Next parser of the list; NULL at the end.
    pub next: *const Self,
    /// Keys of the option.
    pub keys: [OptionKey; MAX_KEYS],
}

/// `struct nmreq_parse_ctx`.
#[repr(C)]
#[derive(Debug)]
pub struct ParseContext {
    /// Context for messages and memory.
    pub context: *mut Nmctx,
    /// Token given to `nmreq_options_decode`.
    pub token: *mut c_void,
    /// Values by id; NULL for a key that is not given.
    pub keys: [*const c_char; MAX_KEYS],
}

impl NmportDesc {
    /// Makes a port that is neither named nor bound. The caller sets the body's address in the header, once the port is
    /// at its final address.
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
