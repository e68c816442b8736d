//! Filters: the system's libpcap compiles them, and runs them on frames in the ring.
#![allow(unsafe_code)]

use libc::{c_int, c_uint};
use ringroad_c_face::ForeignFunction;

use crate::abi::{BpfProgram, Instruction};
use crate::error::PcapError;
use crate::system::{address, is_installed, system_call};

/// Type of `bpf_filter`: instructions, packet, length on the wire, and bytes present.
type Run = unsafe extern "C" fn(*const Instruction, *const u8, c_uint, c_uint) -> c_uint;

/// A filter that was checked.
#[derive(Debug)]
pub(crate) struct Filter {
    instructions: Box<[Instruction]>,
    run: Run,
}

impl Filter {
    /// Copies `program` after libpcap's check: it ends, and reads and jumps only within bounds.
    ///
    /// # Safety
    /// `program` is null or points to a program with all its instructions.
    pub(crate) unsafe fn copy(program: *const BpfProgram) -> Result<Self, PcapError> {
        // SAFETY: guaranteed by the caller.
        let program = unsafe { program.as_ref() };
        let program = program.ok_or_else(|| PcapError::new("no filter was given"))?;
        let (len, code) = (program.len as usize, program.instructions.cast_const());
        let Ok(count) = c_int::try_from(len) else { return Err(PcapError::new("the filter is too long")) };
        if code.is_null() || count == 0 {
            return Err(PcapError::new("the filter is empty: compile it first"));
        }
        if !is_installed() {
            return Err(PcapError::new("filters need the system's libpcap, which is not installed"));
        }
        // SAFETY: the caller guarantees the number of instructions in the program.
        let instructions: Box<[Instruction]> = unsafe { std::slice::from_raw_parts(code, len) }.into();
        let code = instructions.as_ptr();
        let sound = system_call!(bpf_validate(code: *const Instruction, count: c_int) -> c_int);
        if sound == 0 {
            return Err(PcapError::new("the filter is not a valid BPF program"));
        }
        static FUNCTION: ForeignFunction = ForeignFunction::new("bpf_filter\0");
        // SAFETY: libpcap's function has this type.
        let run: Run = unsafe { std::mem::transmute(address(&FUNCTION)) };
        Ok(Self { instructions, run })
    }

    /// Whether a frame passes, of which all bytes are present. The bytes may change meanwhile, since the other side of
    /// the ring may be hostile: the interpreter checks each offset against `len` before it reads, and its result is no
    /// more than yes or no.
    ///
    /// # Safety
    /// `len` bytes from `packet` on can be read.
    #[inline]
    pub(crate) unsafe fn passes(&self, packet: *const u8, len: u32) -> bool {
        // SAFETY: the program was checked; the caller guarantees the bytes.
        (unsafe { (self.run)(self.instructions.as_ptr(), packet, len, len) }) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compiles the filter `text` for Ethernet frames.
    fn compiled(text: &std::ffi::CStr) -> Filter {
        let mut program = BpfProgram { len: 0, instructions: std::ptr::null_mut() };
        let (snaplen, link, into, optimize, netmask) = (65535, 1, &raw mut program, 1, 0);
        let text = text.as_ptr();
        let status = system_call!(pcap_compile_nopcap(
            snaplen: c_int, link: c_int, into: *mut BpfProgram, text: *const libc::c_char, optimize: c_int, netmask: u32
        ) -> c_int);
        assert_eq!(status, 0);
        // SAFETY: libpcap has just made the program.
        let filter = unsafe { Filter::copy(into) }.unwrap();
        system_call!(pcap_freecode(into: *mut BpfProgram) -> ());
        filter
    }

    #[test]
    fn filters_decide_by_a_frames_bytes() {
        if ringroad_test_needs::installed_libpcap().is_none() {
            return;
        }
        let filter = compiled(c"ether proto 0x88b5 and greater 60");
        let mut frame = [0; 60];
        frame[12..14].copy_from_slice(&[0x88, 0xB5]);
        // SAFETY: the frame has the stated number of bytes.
        let passes = |frame: &[u8]| unsafe { filter.passes(frame.as_ptr(), frame.len() as u32) };
        assert!(passes(&frame));
        assert!(!passes(&frame[..59]));
        assert!(!passes(&frame[..3]));
        frame[13] = 0;
        assert!(!passes(&frame));
    }

    #[test]
    fn an_invalid_filter_program_is_refused() {
        // SAFETY: the pointer may be null.
        assert!(unsafe { Filter::copy(std::ptr::null()) }.is_err());
        let mut endless = [Instruction { code: 0x05, jt: 0, jf: 0, k: u32::MAX }];
        for len in [0, 1] {
            let program = BpfProgram { len, instructions: endless.as_mut_ptr() };
            // SAFETY: the program has at least as many instructions as it states.
            assert!(unsafe { Filter::copy(&raw const program) }.is_err());
        }
    }
}
