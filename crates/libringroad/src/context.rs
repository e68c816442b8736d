//! Contexts (`nmctx_*`): the functions that a program may replace, and the default context.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use ringroad_c_face::set_errno;

use crate::abi::Nmctx;
use crate::failure::CallError;

/// The first default context, which C programs change as they like.
struct FirstContext(UnsafeCell<Nmctx>);

// SAFETY: what is shared between threads in it is the list of regions, which its lock protects; a program that changes
// the functions does so before it has threads, as with every `struct nmctx`.
unsafe impl Sync for FirstContext {}

static FIRST: FirstContext = FirstContext(UnsafeCell::new(Nmctx {
    verbose: 1,
    error: Some(print_message),
    malloc: Some(allocate),
    free: Some(release),
    lock: Some(lock_first),
    regions: ptr::null_mut(),
}));

static DEFAULT: AtomicPtr<Nmctx> = AtomicPtr::new(FIRST.0.get());

/// The lock of the first context. Of pthreads, because it is locked and unlocked in different calls.
struct RegionsLock(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a pthread mutex is made to be used by several threads.
unsafe impl Sync for RegionsLock {}

static REGIONS_LOCK: RegionsLock = RegionsLock(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));

/// Programs compiled for an older library set this; nothing reads it.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static mut nmctx_threadsafe: c_int = 0;

unsafe extern "C" fn print_message(_: *mut Nmctx, message: *const c_char) {
    // SAFETY: contexts are given messages that end with NUL.
    let message = unsafe { CStr::from_ptr(message) };
    eprintln!("{}", message.to_string_lossy());
}

unsafe extern "C" fn allocate(_: *mut Nmctx, size: usize) -> *mut c_void {
    // SAFETY: any size may be requested.
    unsafe { libc::malloc(size) }
}

unsafe extern "C" fn release(_: *mut Nmctx, memory: *mut c_void) {
    // SAFETY: `memory` came from `allocate`, as the caller of `nmctx_free` promises.
    unsafe { libc::free(memory) }
}

unsafe extern "C" fn lock_first(_: *mut Nmctx, lock: c_int) {
    let mutex = REGIONS_LOCK.0.get();
    if lock != 0 {
        // SAFETY: the mutex is a static, initialised one.
        unsafe { libc::pthread_mutex_lock(mutex) };
    } else {
        // SAFETY: the mutex is a static, initialised one, which this thread has locked.
        unsafe { libc::pthread_mutex_unlock(mutex) };
    }
}

/// The context's functions. They are read at each use: the program may change them.
macro_rules! function_of {
    ($context:expr, $field:ident) => {{
        let context: *mut Nmctx = $context;
        if context.is_null() {
            None
        } else {
            // SAFETY: not NULL, and so a context that the program keeps.
            unsafe { (*context).$field }
        }
    }};
}

/// Reports a failure, and sets `errno` from it.
pub fn report(context: *mut Nmctx, failure: CallError) {
    let errno = failure.errno;
    if let Some(message) = failure.tell() {
        // SAFETY: both strings end with NUL and live during the call; the context is one that the program keeps.
        unsafe { ringroad_formatted_error(context, c"%s".as_ptr(), message.as_ptr()) };
    }
    // The program's function may have changed it.
    set_errno(errno);
}

/// 0 for success; else -1, with the failure reported.
pub fn status(context: *mut Nmctx, result: Result<(), CallError>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(failure) => {
            report(context, failure);
            -1
        }
    }
}

/// Memory of the context with this value in it.
///
/// # Errors
///
/// `ENOMEM`.
pub fn allocate_value<T>(context: *mut Nmctx, value: T) -> Result<*mut T, CallError> {
    // SAFETY: the context is one that the program keeps.
    let memory = unsafe { nmctx_malloc(context, size_of::<T>()) }.cast::<T>();
    if memory.is_null() {
        return Err(CallError::new(libc::ENOMEM, format!("no memory for {} bytes", size_of::<T>())));
    }
    // SAFETY: there is room for a T, aligned as malloc aligns, which is enough for all that is allocated here.
    unsafe { memory.write(value) };
    Ok(memory)
}

/// `nmctx_get`.
#[unsafe(no_mangle)]
pub extern "C" fn nmctx_get() -> *mut Nmctx {
    DEFAULT.load(Ordering::Acquire)
}

/// `nmctx_set_default`; NULL brings the first one back.
#[unsafe(no_mangle)]
pub extern "C" fn nmctx_set_default(context: *mut Nmctx) -> *mut Nmctx {
    let context = if context.is_null() { FIRST.0.get() } else { context };
    DEFAULT.swap(context, Ordering::AcqRel)
}

/// `nmctx_set_threadsafe`.
#[unsafe(no_mangle)]
pub extern "C" fn nmctx_set_threadsafe() {
    let first = FIRST.0.get();
    // SAFETY: a static; the program must ensure that no other thread uses it meanwhile, as for any change of a context.
    unsafe { (*first).lock = Some(lock_first) };
}

/// `nmctx_malloc`.
///
/// # Safety
///
/// `context` is NULL or a context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmctx_malloc(context: *mut Nmctx, size: usize) -> *mut c_void {
    let malloc = function_of!(context, malloc).unwrap_or(allocate);
    // SAFETY: the program's function is made for its contexts.
    unsafe { malloc(context, size) }
}

/// `nmctx_free`.
///
/// # Safety
///
/// `context` is NULL or a context, and `memory` is NULL or came from [`nmctx_malloc`] of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmctx_free(context: *mut Nmctx, memory: *mut c_void) {
    let free = function_of!(context, free).unwrap_or(release);
    // SAFETY: the program's function is made for what its own made.
    unsafe { free(context, memory) }
}

/// `nmctx_lock`.
///
/// # Safety
///
/// `context` is NULL or a context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmctx_lock(context: *mut Nmctx) {
    if let Some(lock) = function_of!(context, lock) {
        // SAFETY: the program's function is made for its contexts.
        unsafe { lock(context, 1) };
    }
}

/// `nmctx_unlock`.
///
/// # Safety
///
/// `context` is NULL or a context, and this thread has locked it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmctx_unlock(context: *mut Nmctx) {
    if let Some(lock) = function_of!(context, lock) {
        // SAFETY: the program's function is made for its contexts.
        unsafe { lock(context, 0) };
    }
}

unsafe extern "C" {
    /// The body of [`nmctx_ferror`], in C: gives the message to the context, if it wants any.
    fn ringroad_formatted_error(context: *mut Nmctx, format: *const c_char, ...);
}

/// `nmctx_ferror`: continues in C with unchanged registers and stack, since its arguments are known only there.
///
/// # Safety
///
/// As for `printf`; `context` is NULL or a context.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn nmctx_ferror(context: *mut Nmctx, format: *const c_char) {
    std::arch::naked_asm!("jmp {body}", body = sym ringroad_formatted_error)
}

/// `nmctx_ferror`: continues in C with unchanged registers and stack, since its arguments are known only there.
///
/// # Safety
///
/// As for `printf`; `context` is NULL or a context.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn nmctx_ferror(context: *mut Nmctx, format: *const c_char) {
    std::arch::naked_asm!("b {body}", body = sym ringroad_formatted_error)
}
