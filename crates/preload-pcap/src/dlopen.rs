//! Replacement of `dlopen`: a program that loads libpcap gets this library, which passes other functions on.
//!
//! A call with any other name goes to the real `dlopen` by a jump, not a call: the dynamic linker reads the return
//! address to determine the search path (`DT_RUNPATH`).
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

use libc::{c_char, c_int, c_void};
use ringroad_c_face::ForeignFunction;

/// Address of the next `dlopen` after this one: the C library's, unless another preloaded object has one too.
fn real_dlopen() -> *mut c_void {
    static REAL_DLOPEN: ForeignFunction = ForeignFunction::new("dlopen\0");
    REAL_DLOPEN.find(|| libc::RTLD_NEXT)
}

/// Loads an object by the real `dlopen`.
pub(crate) fn open(name: &CStr) -> *mut c_void {
    let real = real_dlopen();
    if real.is_null() {
        return null_mut();
    }
    // SAFETY: the address is that of `dlopen`, whose type POSIX fixes.
    let real: unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void =
        unsafe { std::mem::transmute(real) };
    // SAFETY: the name ends with a NUL.
    unsafe { real(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) }
}

/// Path of this object's file, as the dynamic linker has it.
fn own_path() -> *const c_char {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be queried; `info` has room for the result.
    let found = unsafe { libc::dladdr(own_path as *const c_void, info.as_mut_ptr()) };
    // SAFETY: null pointers are valid here, and so is what dladdr wrote.
    let info = unsafe { info.assume_init() };
    if found == 0 { null() } else { info.dli_fname }
}

/// Whether a name, with a path or without, is a name of libpcap.
fn is_libpcap(name: &[u8]) -> bool {
    let file = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    file.strip_prefix(b"libpcap.so").is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
}

/// Name to load instead of `name`.
extern "C" fn replacement(name: *const c_char) -> *const c_char {
    if name.is_null() {
        return name;
    }
    // SAFETY: the caller of dlopen passes a string that ends with NUL.
    let text = unsafe { CStr::from_ptr(name) };
    if !is_libpcap(text.to_bytes()) {
        return name;
    }
    let own = own_path();
    if own.is_null() { name } else { own }
}

/// Address of the real `dlopen`. Ends the process if there is none.
extern "C" fn destination() -> *mut c_void {
    let real = real_dlopen();
    if real.is_null() {
        std::process::abort();
    }
    real
}

/// `dlopen(3)`.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "push rsi",
        "call {replacement}",
        "push rax",
        "sub rsp, 8",
        "call {destination}",
        "add rsp, 8",
        "pop rdi",
        "pop rsi",
        "jmp rax",
        replacement = sym replacement,
        destination = sym destination,
    )
}

/// `dlopen(3)`.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-32]!",
        "str x1, [sp, #16]",
        "bl {replacement}",
        "str x0, [sp, #24]",
        "bl {destination}",
        "mov x16, x0",
        "ldp x1, x0, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "br x16",
        replacement = sym replacement,
        destination = sym destination,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libpcap_is_recognised_by_its_file_name() {
        for name in
            ["libpcap.so", "libpcap.so.0.8", "libpcap.so.1", "/usr/lib/x86_64-linux-gnu/libpcap.so.1.10.3"]
        {
            assert!(is_libpcap(name.as_bytes()), "{name}");
        }
        for name in [
            "libpcapng.so",
            "libpcap.a",
            "libpcap.so3",
            "/libpcap.so/libc.so.6",
            "",
            "libringroad_preload_pcap.so",
        ] {
            assert!(!is_libpcap(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn other_names_pass_to_the_real_function() {
        let handle = dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY);
        assert!(!handle.is_null());
        assert!(dlopen(c"/nonexistent/object.so".as_ptr(), libc::RTLD_LAZY).is_null());
    }
}
