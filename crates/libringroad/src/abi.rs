//! Structures that the library shares with C, laid out as in `compat/include`; those of requests are in
//! `ringroad_netmap::abi`. `compat/tests/abi_layout.c` asserts the same offsets in C.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::offset_of;
use std::sync::atomic::AtomicU32;

use ringroad_netmap::abi::{
    ExternalMemoryOption, ListedOption, OptionHeader, RegisterBody, RequestHeader, request_type,
};
use ringroad_netmap::structures;
use ringroad_ring::layout::InterfaceHeader;
use zerocopy::FromZeros;

/// `NMREQ_OPT_MAXKEYS`.
pub const MAX_KEYS: usize = 16;

structures! {
    /// `struct nmport_d`.
    #[derive(Debug, Clone, Copy, FromZeros)]
    NmportDesc: 216 {
        /// Header of the request to bind.
        header @ 0: RequestHeader,
        /// Body of the request to bind.
        register @ 88: RegisterBody,
        /// Mapped region; NULL while the port is not mapped.
        region @ 144: *mut NmemDesc,
        /// Context in which the port was made.
        context @ 152: *mut Nmctx,
        /// Whether the port is bound.
        register_done @ 160: c_int,
        /// Whether the port is mapped.
        mmap_done @ 164: c_int,
        /// Option for memory of the program; NULL if there is none.
        extmem @ 168: *mut ListedOption<ExternalMemoryOption>,
        /// Descriptor of the bound port; -1 if the port is not bound.
        fd @ 176: c_int,
        /// Unused. The field has a name because copies of the structure need not copy padding.
        pad1 @ 180: u32,
        /// Interface in the mapped region; NULL while the port is not mapped.
        interface @ 184: *mut InterfaceHeader,
        /// First and last bound tx ring; the first is above the last if there is none.
        tx_ring @ 192: [u16; 2],
        /// First and last bound rx ring, in the same way.
        rx_ring @ 196: [u16; 2],
        /// Ring that `nmport_inject` tries first.
        current_tx_ring @ 200: u16,
        /// Ring number for the program's own use.
        current_rx_ring @ 202: u16,
        /// Unused.
        pad2 @ 204: u32,
        /// Steps to undo, the newest last; NULL for none.
        cleanups @ 208: *mut Vec<Cleanup>,
    }

    /// `struct nmem_d`.
    #[derive(Debug)]
    NmemDesc: 56 {
        /// Number of the region, unique in the system.
        mem_id @ 0: u16,
        /// Number of ports that use the region.
        references @ 4: c_int,
        /// Address of the mapping.
        memory @ 8: *mut c_void,
        /// Size in bytes.
        size @ 16: usize,
        /// Whether the region is in memory of the program.
        is_extmem @ 24: c_int,
        /// Next region in the circular list of the context's regions.
        next @ 32: *mut Self,
        /// Previous region in the circular list of the context's regions.
        previous @ 40: *mut Self,
        /// Whether the region must be unmapped after its last use; unknown to C.
        unmap @ 48: bool,
    }

    /// `struct nmctx`.
    #[derive(Debug)]
    Nmctx: 48 {
        /// Verbosity; 0 for no messages.
        verbose @ 0: c_int,
        /// Function that gets messages.
        error @ 8: Option<unsafe extern "C" fn(*mut Self, *const c_char)>,
        /// Function that allocates descriptors and options.
        malloc @ 16: Option<unsafe extern "C" fn(*mut Self, usize) -> *mut c_void>,
        /// Function that frees what `malloc` allocated.
        free @ 24: Option<unsafe extern "C" fn(*mut Self, *mut c_void)>,
        /// Function that locks (1) and unlocks (0) the list of regions.
        lock @ 32: Option<unsafe extern "C" fn(*mut Self, c_int)>,
        /// One of the context's regions; NULL if there is none.
        regions @ 40: *mut NmemDesc,
    }

    /// `struct nmreq_opt_key`.
    #[derive(Debug, Clone, Copy)]
    OptionKey: 16 {
        /// Name of the key.
        name @ 0: *const c_char,
        /// Index of the key's value.
        id @ 8: c_int,
        /// Flags: `NMREQ_OPTK_*`.
        flags @ 12: c_uint,
    }

    /// `struct nmreq_opt_parser`.
    #[derive(Debug)]
    #[repr(align(16))]
    OptionParser: 304 {
        /// Name of the option.
        prefix @ 0: *const c_char,
        /// Function of the option.
        parse @ 8: Option<ParseOption>,
        /// Id of the key that `NAME=` sets; -1 for none.
        default_key @ 16: c_int,
        /// Number of keys.
        nr_keys @ 20: c_int,
        /// Flags: `NMREQ_OPTF_*`.
        flags @ 24: AtomicU32,
        /// Next parser of the list; NULL at the end.
        next @ 32: *const Self,
        /// Keys of the option.
        keys @ 40: [OptionKey; MAX_KEYS],
    }

    /// `struct nmreq_parse_ctx`.
    #[derive(Debug)]
    ParseContext: 144 {
        /// Context for messages and memory.
        context @ 0: *mut Nmctx,
        /// Token given to `nmreq_options_decode`.
        token @ 8: *mut c_void,
        /// Values by id; NULL for a key that is not given.
        keys @ 16: [*const c_char; MAX_KEYS],
    }
}

/// A resource that [`NmportDesc`] holds until `nmport_undo_parse` (`struct nmport_cleanup_d`).
#[derive(Debug, Clone, Copy)]
pub enum Cleanup {
    /// An option in the header's list, allocated by the context.
    Option(*mut OptionHeader),
    /// A mapped file, with its size in bytes.
    Mapping(*mut c_void, usize),
}

/// Type of an option's function.
pub type ParseOption = unsafe extern "C" fn(*mut ParseContext) -> c_int;

impl NmportDesc {
    /// Makes a port that is neither named nor bound. The caller sets the body's address in the header, once the port is
    /// at its final address.
    #[must_use]
    pub fn new(context: *mut Nmctx) -> Self {
        let header = RequestHeader::new(request_type::REGISTER);
        Self { header, context, fd: -1, ..Self::new_zeroed() }
    }
}

const _: () = {
    assert!(size_of::<ListedOption<ExternalMemoryOption>>() == 96);
    assert!(offset_of!(ListedOption<ExternalMemoryOption>, body) == 24);
    assert!(align_of::<OptionParser>() == 16);
};
