//! Filters in the language of libpcap (pcap-filter(7)). The system's libpcap compiles and runs them. It is loaded with
//! the first filter, so that programs without filters do not need it.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;

use crate::format::{LINKTYPE_ETHERNET, MAX_FRAME_BYTES};

/// File names of the library: Debian's, that of other distributions, and that of development packages.
const FILES: [&CStr; 3] = [c"libpcap.so.0.8", c"libpcap.so.1", c"libpcap.so"];
/// libpcap's "unknown" netmask: only `ip broadcast` needs one.
const UNKNOWN_NETMASK: u32 = u32::MAX;

/// An instruction of classic BPF (`struct bpf_insn`).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Instruction {
    code: u16,
    jump_true: u8,
    jump_false: u8,
    k: u32,
}

/// `struct bpf_program`.
#[repr(C)]
struct BpfProgram {
    len: c_uint,
    instructions: *mut Instruction,
}

/// `pcap_t`.
#[repr(C)]
struct Pcap {
    _opaque: [u8; 0],
}

type OpenDead = unsafe extern "C" fn(c_int, c_int) -> *mut Pcap;
type Compile = unsafe extern "C" fn(*mut Pcap, *mut BpfProgram, *const c_char, c_int, u32) -> c_int;
type ErrorText = unsafe extern "C" fn(*mut Pcap) -> *mut c_char;
type FreeCode = unsafe extern "C" fn(*mut BpfProgram);
type Close = unsafe extern "C" fn(*mut Pcap);
type Run = unsafe extern "C" fn(*const Instruction, *const u8, c_uint, c_uint) -> c_uint;

/// The required functions of libpcap.
struct Library {
    open_dead: OpenDead,
    compile: Compile,
    error_text: ErrorText,
    free_code: FreeCode,
    close: Close,
    run: Run,
}

/// A compiled filter expression.
#[derive(Debug)]
pub struct CaptureFilter {
    instructions: Box<[Instruction]>,
    run: Run,
}

/// Reason why a filter cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureFilterError {
    /// The library is not installed.
    #[error("a filter needs libpcap, which is not installed; on Debian: apt install libpcap0.8")]
    NoLibrary,
    /// The expression is invalid.
    #[error("the filter {expression:?}: {reason}; pcap-filter(7) has the language")]
    Expression {
        /// The expression.
        expression: String,
        /// libpcap's error message.
        reason: String,
    },
}

impl Library {
    /// The library, which is loaded at the first call; `None` if it is not installed.
    fn get() -> Option<&'static Self> {
        static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
        LIBRARY.get_or_init(Self::load).as_ref()
    }

    fn load() -> Option<Self> {
        let handle = FILES.iter().find_map(|file| {
            // SAFETY: the name ends with a NUL; the library stays loaded.
            NonNull::new(unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) })
        })?;
        let find = |name: &CStr| {
            // SAFETY: the library is loaded, and the name ends with a NUL.
            NonNull::new(unsafe { libc::dlsym(handle.as_ptr(), name.as_ptr()) }).map(NonNull::as_ptr)
        };
        // Each function has the type that pcap/pcap.h and pcap/bpf.h give it.
        Some(Self {
            // SAFETY: as above.
            open_dead: unsafe { std::mem::transmute::<*mut c_void, OpenDead>(find(c"pcap_open_dead")?) },
            // SAFETY: as above.
            compile: unsafe { std::mem::transmute::<*mut c_void, Compile>(find(c"pcap_compile")?) },
            // SAFETY: as above.
            error_text: unsafe { std::mem::transmute::<*mut c_void, ErrorText>(find(c"pcap_geterr")?) },
            // SAFETY: as above.
            free_code: unsafe { std::mem::transmute::<*mut c_void, FreeCode>(find(c"pcap_freecode")?) },
            // SAFETY: as above.
            close: unsafe { std::mem::transmute::<*mut c_void, Close>(find(c"pcap_close")?) },
            // SAFETY: as above.
            run: unsafe { std::mem::transmute::<*mut c_void, Run>(find(c"bpf_filter")?) },
        })
    }
}

impl CaptureFilter {
    /// Compiles `expression` for Ethernet frames, as tcpdump does. An empty expression passes all frames.
    ///
    /// # Errors
    /// [`CaptureFilterError`].
    pub fn compile(expression: &str) -> Result<Self, CaptureFilterError> {
        let library = Library::get().ok_or(CaptureFilterError::NoLibrary)?;
        let refused = |reason: &str| CaptureFilterError::Expression {
            expression: expression.to_owned(),
            reason: reason.to_owned(),
        };
        let text = CString::new(expression).map_err(|_| refused("there is a NUL in it"))?;
        // SAFETY: the arguments are plain numbers.
        let handle = unsafe { (library.open_dead)(LINKTYPE_ETHERNET as c_int, MAX_FRAME_BYTES as c_int) };
        if handle.is_null() {
            return Err(refused("there is no memory for it"));
        }
        let mut program = BpfProgram { len: 0, instructions: null_mut() };
        // SAFETY: the handle was just made, `program` is writable, and the text ends with a NUL.
        let status = unsafe { (library.compile)(handle, &mut program, text.as_ptr(), 1, UNKNOWN_NETMASK) };
        let compiled = if status == 0 {
            // SAFETY: libpcap has just made a program of this many instructions, at least one.
            let made = unsafe { std::slice::from_raw_parts(program.instructions, program.len as usize) };
            let instructions = made.into();
            // SAFETY: the program belongs to libpcap, and nothing refers to it any more.
            unsafe { (library.free_code)(&mut program) };
            Ok(Self { instructions, run: library.run })
        } else {
            // SAFETY: the handle is open.
            let reason = unsafe { (library.error_text)(handle) };
            // SAFETY: the text lies in the open handle and ends with a NUL.
            let reason = unsafe { CStr::from_ptr(reason) };
            Err(refused(&reason.to_string_lossy()))
        };
        // SAFETY: the handle is open, and is not used after this call.
        unsafe { (library.close)(handle) };
        compiled
    }

    /// Whether the filter passes `frame`, which must be complete.
    #[inline]
    #[must_use]
    pub fn passes(&self, frame: &[u8]) -> bool {
        let len = frame.len().min(MAX_FRAME_BYTES as usize) as c_uint;
        // SAFETY: the program is as libpcap made it, and checks each offset against the length before it reads.
        (unsafe { (self.run)(self.instructions.as_ptr(), frame.as_ptr(), len, len) }) != 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_filter_decides_by_a_frames_bytes() {
        if ringroad_test_needs::installed_libpcap().is_none() {
            return;
        }
        let filter = CaptureFilter::compile("ether proto 0x88b5 and greater 60").unwrap();
        let mut frame = [0; 60];
        frame[12..14].copy_from_slice(&[0x88, 0xB5]);
        assert!(filter.passes(&frame));
        assert!(!filter.passes(&frame[..59]));
        assert!(!filter.passes(&frame[..3]));
        frame[13] = 0;
        assert!(!filter.passes(&frame));
        assert!(CaptureFilter::compile("").unwrap().passes(&[]));
    }

    #[test]
    fn a_filter_reads_nothing_behind_a_frame() {
        const FILTERS: [&str; 4] = [
            "tcp port 80",
            "vlan and ip6 proto 17",
            "arp or ip[2:2] > 40",
            "ether[60:4] & 1 = 1 or len < 20",
        ];
        if ringroad_test_needs::installed_libpcap().is_none() {
            return;
        }
        proptest!(|(
            bytes in prop::collection::vec(any::<u8>(), 1..96),
            ether_type in prop::sample::select(vec![0x0800u16, 0x86dd, 0x8100, 0x0806]),
            at in any::<prop::sample::Index>(),
        )| {
            let mut bytes = bytes;
            if let Some(field) = bytes.get_mut(12..14) {
                field.copy_from_slice(&ether_type.to_be_bytes());
            }
            let len = at.index(bytes.len());
            let alone = bytes[..len].to_vec();
            let mut changed = bytes.clone();
            changed[len..].iter_mut().for_each(|byte| *byte = !*byte);
            for expression in FILTERS {
                let filter = CaptureFilter::compile(expression).unwrap();
                let verdict = filter.passes(&alone);
                prop_assert_eq!(filter.passes(&bytes[..len]), verdict);
                prop_assert_eq!(filter.passes(&changed[..len]), verdict);
            }
        });
    }

    #[test]
    fn an_invalid_filter_is_refused_with_the_reason() {
        if ringroad_test_needs::installed_libpcap().is_none() {
            return;
        }
        for expression in ["udp prot 53", "host 300.1.1.1", "(", "\0"] {
            let refused = CaptureFilter::compile(expression).unwrap_err();
            assert!(matches!(refused, CaptureFilterError::Expression { .. }), "{refused}");
            assert!(refused.to_string().contains("pcap-filter(7)"), "{refused}");
        }
    }
}
