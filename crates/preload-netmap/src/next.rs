//! The C library's own functions, found after this library's in the order of symbol lookup.
//!
//! Each function is found when it is first needed, so that it can be called before any constructor has run. A
//! constructor finds all others, so that signal handlers need not.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    FILE, epoll_event, fd_set, iovec, mmsghdr, mode_t, msghdr, nfds_t, off_t, pollfd, sigset_t, size_t,
    ssize_t, stat as stat_buffer, statx as statx_buffer, timespec, timeval,
};

use crate::errno;

/// Function and its address.
struct Function {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Function {
    const fn new(name_with_nul: &'static str) -> Self {
        let name = match CStr::from_bytes_with_nul(name_with_nul.as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("names end with NUL"),
        };
        Self { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Address of the function; null if the C library does not have it.
    fn find(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: `name` is NUL-terminated, and RTLD_NEXT needs no handle.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Return value of a call of a function that does not exist.
trait Failure {
    const FAILED: Self;
}

impl Failure for c_int {
    const FAILED: Self = -1;
}

impl Failure for ssize_t {
    const FAILED: Self = -1;
}

impl Failure for *mut c_void {
    const FAILED: Self = libc::MAP_FAILED;
}

/// Defines one function: `safe` if any arguments are allowed, `variadic` if the C prototype ends with dots after the
/// semicolon.
macro_rules! function {
    ([safe] $name:ident ($($argument:ident: $type:ty),*) $result:ty) => {
        /// The C library's function.
        pub(crate) fn $name($($argument: $type),*) -> $result {
            let address = functions::$name.find();
            if address.is_null() {
                errno::set(libc::ENOSYS);
                return <$result as Failure>::FAILED;
            }
            // SAFETY: the C library's function of this name has this type.
            let function: unsafe extern "C" fn($($type),*) -> $result = unsafe { std::mem::transmute(address) };
            // SAFETY: the function takes only numbers, and checks them.
            unsafe { function($($argument),*) }
        }
    };
    ([unsafe] $name:ident ($($argument:ident: $type:ty),*) $result:ty) => {
        /// The C library's function. Pointers must be as its manual page requires.
        pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
            let address = functions::$name.find();
            if address.is_null() {
                errno::set(libc::ENOSYS);
                return <$result as Failure>::FAILED;
            }
            // SAFETY: the C library's function of this name has this type.
            let function: unsafe extern "C" fn($($type),*) -> $result = unsafe { std::mem::transmute(address) };
            // SAFETY: the caller's promise.
            unsafe { function($($argument),*) }
        }
    };
    ([variadic] $name:ident ($($argument:ident: $type:ty),*; $last:ident: $last_type:ty) $result:ty) => {
        /// The C library's function. Pointers must be as its manual page requires.
        pub(crate) unsafe fn $name($($argument: $type),*, $last: $last_type) -> $result {
            let address = functions::$name.find();
            if address.is_null() {
                errno::set(libc::ENOSYS);
                return <$result as Failure>::FAILED;
            }
            // SAFETY: the C library's function of this name has this type.
            let function: unsafe extern "C" fn($($type),*, ...) -> $result = unsafe { std::mem::transmute(address) };
            // SAFETY: the caller's promise. An argument that the function does not read is harmless.
            unsafe { function($($argument),*, $last) }
        }
    };
}

macro_rules! functions {
    ($($kind:tt $name:ident $arguments:tt -> $result:ty;)+) => {
        #[allow(non_upper_case_globals)]
        mod functions {
            use super::Function;
            $(pub(super) static $name: Function = Function::new(concat!(stringify!($name), "\0"));)+
        }

        $(function!($kind $name $arguments $result);)+

        /// Finds all functions.
        fn find_all() {
            $(functions::$name.find();)+
        }
    };
}

functions! {
    [variadic] open(path: *const c_char, flags: c_int; mode: mode_t) -> c_int;
    [variadic] openat(directory: c_int, path: *const c_char, flags: c_int; mode: mode_t) -> c_int;
    [unsafe] __open_2(path: *const c_char, flags: c_int) -> c_int;
    [unsafe] __openat_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int;
    [unsafe] creat(path: *const c_char, mode: mode_t) -> c_int;
    [variadic] ioctl(fd: c_int, request: c_ulong; argument: usize) -> c_int;
    [unsafe] mmap(address: *mut c_void, bytes: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void;
    [unsafe] munmap(address: *mut c_void, bytes: size_t) -> c_int;
    [variadic] mremap(old: *mut c_void, old_bytes: size_t, new_bytes: size_t, flags: c_int; new: *mut c_void) -> *mut c_void;
    [unsafe] poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    [unsafe] __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int;
    [unsafe] ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    [unsafe] __ppoll_chk(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t) -> c_int;
    [unsafe] select(count: c_int, readable: *mut fd_set, writable: *mut fd_set, exceptional: *mut fd_set, timeout: *mut timeval) -> c_int;
    [unsafe] pselect(count: c_int, readable: *mut fd_set, writable: *mut fd_set, exceptional: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    [safe] epoll_create(size: c_int) -> c_int;
    [safe] epoll_create1(flags: c_int) -> c_int;
    [unsafe] epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    [unsafe] epoll_wait(epoll: c_int, events: *mut epoll_event, room: c_int, timeout: c_int) -> c_int;
    [unsafe] epoll_pwait(epoll: c_int, events: *mut epoll_event, room: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
    [unsafe] epoll_pwait2(epoll: c_int, events: *mut epoll_event, room: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    [safe] close(fd: c_int) -> c_int;
    [safe] close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    [unsafe] fclose(file: *mut FILE) -> c_int;
    [safe] dup(fd: c_int) -> c_int;
    [safe] dup2(old: c_int, new: c_int) -> c_int;
    [safe] dup3(old: c_int, new: c_int, flags: c_int) -> c_int;
    [safe] daemon(stays: c_int, keeps: c_int) -> c_int;
    [variadic] fcntl(fd: c_int, command: c_int; argument: usize) -> c_int;
    [unsafe] recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    [unsafe] recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    [unsafe] read(fd: c_int, to: *mut c_void, bytes: size_t) -> ssize_t;
    [unsafe] write(fd: c_int, from: *const c_void, bytes: size_t) -> ssize_t;
    [unsafe] readv(fd: c_int, to: *const iovec, count: c_int) -> ssize_t;
    [unsafe] writev(fd: c_int, from: *const iovec, count: c_int) -> ssize_t;
    [unsafe] access(path: *const c_char, mode: c_int) -> c_int;
    [unsafe] eaccess(path: *const c_char, mode: c_int) -> c_int;
    [unsafe] euidaccess(path: *const c_char, mode: c_int) -> c_int;
    [unsafe] faccessat(directory: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int;
    [unsafe] stat(path: *const c_char, to: *mut stat_buffer) -> c_int;
    [unsafe] lstat(path: *const c_char, to: *mut stat_buffer) -> c_int;
    [unsafe] fstat(fd: c_int, to: *mut stat_buffer) -> c_int;
    [unsafe] fstatat(directory: c_int, path: *const c_char, to: *mut stat_buffer, flags: c_int) -> c_int;
    [unsafe] __xstat(version: c_int, path: *const c_char, to: *mut stat_buffer) -> c_int;
    [unsafe] __lxstat(version: c_int, path: *const c_char, to: *mut stat_buffer) -> c_int;
    [unsafe] __fxstat(version: c_int, fd: c_int, to: *mut stat_buffer) -> c_int;
    [unsafe] __fxstatat(version: c_int, directory: c_int, path: *const c_char, to: *mut stat_buffer, flags: c_int) -> c_int;
    [unsafe] statx(directory: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut statx_buffer) -> c_int;
}

/// Called by the loader before `main`.
extern "C" fn at_load() {
    find_all();
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

/// Makes the system call ppoll(2). Unlike the C library's function it is not a cancellation point, which would unwind
/// Rust frames.
///
/// # Safety
/// `fds` must be `count` structures.
pub(crate) unsafe fn ppoll_system_call(
    fds: *mut pollfd,
    count: usize,
    timeout: Option<&timespec>,
    mask: *const sigset_t,
) -> c_long {
    /// Bytes of the kernel's signal set.
    const MASK_BYTES: usize = 8;
    // The kernel writes the remaining time.
    let mut left = timeout.copied();
    let left = left.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: the caller's promise; `left` outlives the call, and the kernel checks `mask`.
    unsafe { libc::syscall(libc::SYS_ppoll, fds, count, left, mask, MASK_BYTES) }
}
