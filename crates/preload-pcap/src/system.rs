//! The system's libpcap: loaded at its first use, and called for everything that is not Ringroad's.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::sync::OnceLock;

use libc::{FILE, c_char, c_int, c_long, c_uint, c_void};
use ringroad_c_face::ForeignFunction;

use crate::abi::{BpfProgram, Dumper, Instruction, PacketHeader, Pcap};
use crate::dlopen;

/// File names of the library: Debian's, that of other distributions, and that of development packages.
const FILES: [&CStr; 3] = [c"libpcap.so.0.8", c"libpcap.so.1", c"libpcap.so"];

/// Exit status of the dynamic linker when it does not find a function.
const EXIT_MISSING: c_int = 127;

/// Handle of the loaded library as `dlopen` returns it; 0 if there is none.
fn library() -> *mut c_void {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let find = || FILES.iter().map(|file| dlopen::open(file).expose_provenance()).find(|found| *found != 0);
    std::ptr::with_exposed_provenance_mut(*LIBRARY.get_or_init(|| find().unwrap_or(0)))
}

/// Whether there is a libpcap on this system.
pub(crate) fn is_installed() -> bool {
    !library().is_null()
}

/// Address of a function of the system's libpcap. If the library lacks the function, the process ends as it would without
/// this library: with the dynamic linker's message and exit status.
#[inline]
pub(crate) fn address(function: &ForeignFunction) -> *mut c_void {
    let address = function.find(library);
    if address.is_null() { end_without(function) } else { address }
}

#[cold]
fn end_without(function: &ForeignFunction) -> ! {
    eprintln!(
        "the program needs {} of libpcap, which is not installed here",
        function.name.to_string_lossy()
    );
    std::process::exit(EXIT_MISSING);
}

/// Calls a function of the system's libpcap by its name and type: `system_call!(pcap_close(handle: *mut Pcap) -> ())`.
macro_rules! system_call {
    ($name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty) => {{
        static FUNCTION: ringroad_c_face::ForeignFunction =
            ringroad_c_face::ForeignFunction::new(concat!(stringify!($name), "\0"));
        let address = $crate::system::address(&FUNCTION);
        // SAFETY: libpcap's public functions have the types of its headers, which are used here.
        let function: unsafe extern "C" fn($($type),*) -> $result = unsafe { core::mem::transmute(address) };
        // SAFETY: the arguments are those of libpcap's caller, or follow libpcap's rules.
        unsafe { function($($argument),*) }
    }};
}
pub(crate) use system_call;

/// Exports functions that do not concern Ringroad's handles.
macro_rules! pass_through {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
                system_call!($name($($argument: $type),*) -> pass_through!(@result $($result)?))
            }
        )*
    };
    (@result) => { () };
    (@result $result:ty) => { $result };
}

pass_through! {
    bpf_dump(program: *const BpfProgram, option: c_int);
    bpf_filter(code: *const Instruction, packet: *const u8, len: c_uint, captured: c_uint) -> c_uint;
    bpf_image(code: *const Instruction, number: c_int) -> *mut c_char;
    bpf_validate(code: *const Instruction, len: c_int) -> c_int;
    pcap_compile_nopcap(snaplen: c_int, link: c_int, program: *mut BpfProgram, text: *const c_char, optimize: c_int, netmask: u32) -> c_int;
    pcap_datalink_name_to_val(name: *const c_char) -> c_int;
    pcap_datalink_val_to_description(link: c_int) -> *const c_char;
    pcap_datalink_val_to_description_or_dlt(link: c_int) -> *const c_char;
    pcap_datalink_val_to_name(link: c_int) -> *const c_char;
    pcap_dump(dumper: *mut u8, header: *const PacketHeader, packet: *const u8);
    pcap_dump_close(dumper: *mut Dumper);
    pcap_dump_file(dumper: *mut Dumper) -> *mut FILE;
    pcap_dump_flush(dumper: *mut Dumper) -> c_int;
    pcap_dump_ftell(dumper: *mut Dumper) -> c_long;
    pcap_dump_ftell64(dumper: *mut Dumper) -> i64;
    pcap_ether_aton(text: *const c_char) -> *mut u8;
    pcap_ether_hostton(name: *const c_char) -> *mut u8;
    pcap_fopen_offline(file: *mut FILE, error: *mut c_char) -> *mut Pcap;
    pcap_fopen_offline_with_tstamp_precision(file: *mut FILE, precision: c_uint, error: *mut c_char) -> *mut Pcap;
    pcap_free_datalinks(links: *mut c_int);
    pcap_free_tstamp_types(types: *mut c_int);
    pcap_freecode(program: *mut BpfProgram);
    pcap_init(options: c_uint, error: *mut c_char) -> c_int;
    pcap_lib_version() -> *const c_char;
    pcap_lookupdev(error: *mut c_char) -> *mut c_char;
    pcap_nametoaddr(name: *const c_char) -> *mut *mut u32;
    pcap_nametoaddrinfo(name: *const c_char) -> *mut libc::addrinfo;
    pcap_nametoeproto(name: *const c_char) -> c_int;
    pcap_nametollc(name: *const c_char) -> c_int;
    pcap_nametonetaddr(name: *const c_char) -> u32;
    pcap_nametoport(name: *const c_char, port: *mut c_int, protocol: *mut c_int) -> c_int;
    pcap_nametoportrange(name: *const c_char, first: *mut c_int, last: *mut c_int, protocol: *mut c_int) -> c_int;
    pcap_nametoproto(name: *const c_char) -> c_int;
    pcap_next_etherent(file: *mut FILE) -> *mut c_void;
    pcap_offline_filter(program: *const BpfProgram, header: *const PacketHeader, packet: *const u8) -> c_int;
    pcap_open_dead(link: c_int, snaplen: c_int) -> *mut Pcap;
    pcap_open_dead_with_tstamp_precision(link: c_int, snaplen: c_int, precision: c_uint) -> *mut Pcap;
    pcap_open_offline(file: *const c_char, error: *mut c_char) -> *mut Pcap;
    pcap_open_offline_with_tstamp_precision(file: *const c_char, precision: c_uint, error: *mut c_char) -> *mut Pcap;
    pcap_statustostr(status: c_int) -> *const c_char;
    pcap_strerror(error: c_int) -> *const c_char;
    pcap_tstamp_type_name_to_val(name: *const c_char) -> c_int;
    pcap_tstamp_type_val_to_description(kind: c_int) -> *const c_char;
    pcap_tstamp_type_val_to_name(kind: c_int) -> *const c_char;
}

/// A handle of the system's libpcap without a device. It compiles filters and writes headers of capture files for a
/// device of Ringroad.
#[derive(Debug)]
pub(crate) struct DeadHandle(*mut Pcap);

// SAFETY: the handle belongs to one device, whose lock is held around every call.
unsafe impl Send for DeadHandle {}

impl DeadHandle {
    /// Makes a handle for Ethernet; `None` if the system has no libpcap, or no memory.
    pub(crate) fn new(snaplen: c_int, precision: c_int) -> Option<Self> {
        if !is_installed() {
            return None;
        }
        let link = crate::abi::DLT_EN10MB;
        let precision = precision.cast_unsigned();
        let made = system_call!(
            pcap_open_dead_with_tstamp_precision(link: c_int, snaplen: c_int, precision: c_uint) -> *mut Pcap
        );
        (!made.is_null()).then_some(Self(made))
    }

    /// Address of the handle.
    pub(crate) fn pointer(&self) -> *mut Pcap {
        self.0
    }

    /// Error text of the last call with the handle.
    pub(crate) fn error(&self) -> String {
        let handle = self.0;
        let text = system_call!(pcap_geterr(handle: *mut Pcap) -> *mut c_char);
        // SAFETY: libpcap's text is in the handle, and ends with NUL.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

impl Drop for DeadHandle {
    fn drop(&mut self) {
        let handle = self.0;
        system_call!(pcap_close(handle: *mut Pcap) -> ());
    }
}
