//! Contexts (`nmctx_*`): functions that a program may replace, and the default context.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use ringroad_c_face::set_errno;

use crate::abi::Nmctx;
use crate::failure::CallError;

/// The first default context, which C programs may change.
struct FirstContext(UnsafeCell<Nmctx>);

// SAFETY: threads share only the list of regions in it, which the context's lock protects. A program changes the
// functions before it starts threads, as with every `struct nmctx`.
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

/// Lock of the first context. It is a pthread mutex, because it is locked and unlocked in different calls.
struct RegionsLock(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a pthread mutex may be used by several threads.
unsafe impl Sync for RegionsLock {}

static REGIONS_LOCK: RegionsLock = RegionsLock(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));

/// Variable that programs compiled for an older library set; nothing reads it.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static mut nmctx_threadsafe: c_int = 0;

unsafe extern "C" fn print_message(_: *mut Nmctx, message: *const c_char) {
    // SAFETY: messages to contexts end with NUL.
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
        // SAFETY: the mutex is static, and initialised.
        unsafe { libc::pthread_mutex_lock(mutex) };
    } else {
        // SAFETY: the mutex is static and initialised, and this thread has locked it.
        unsafe { libc::pthread_mutex_unlock(mutex) };
    }
}

/// Function of a context. It is read at each use, because the program may change it.
macro_rules! function_of {
    ($context:expr, $field:ident) => {{
        let context: *mut Nmctx = $context;
        if context.is_null() {
            None
        } else {
            // SAFETY: the pointer is not NULL, so it is a context that the program keeps.
            unsafe { (*context).$field }
        }
    }};
}

/// Reports a failure, and sets `errno` from it.
pub fn report(context: *mut Nmctx, failure: CallError) {
    let errno = failure.errno;
    if let Some(message) = failure.tell() {
        // SAFETY: both strings end with NUL and live during the call; the program keeps the context.
        unsafe { ringroad_formatted_error(context, c"%s".as_ptr(), message.as_ptr()) };
    }
    // The program's error function may have changed `errno`.
    set_errno(errno);
}

/// Returns 0 for success; else reports the failure and returns -1.
pub fn status(context: *mut Nmctx, result: Result<(), CallError>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(failure) => {
            report(context, failure);
            -1
        }
    }
}

/// Returns the text that a program gave as `what`.
///
/// # Safety
///
/// `text` is NULL or ends with NUL, and stays during `'a`.
///
/// # Errors
///
/// `EINVAL` for NULL.
pub unsafe fn given<'a>(text: *const c_char, what: &str) -> Result<&'a CStr, CallError> {
    if text.is_null() {
        return Err(CallError::null(what));
    }
    // SAFETY: guaranteed by the caller.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// Allocates memory of the context, and stores this value in it.
///
/// # Errors
///
/// `ENOMEM` if there is no memory.
pub fn allocate_value<T>(context: *mut Nmctx, value: T) -> Result<*mut T, CallError> {
    // SAFETY: the program keeps the context.
    let memory = unsafe { nmctx_malloc(context, size_of::<T>()) }.cast::<T>();
    if memory.is_null() {
        return Err(CallError::new(libc::ENOMEM, format!("no memory for {} bytes", size_of::<T>())));
    }
    // SAFETY: there is room for a T, and malloc's alignment is enough for all types allocated here.
    unsafe { memory.write(value) };
    Ok(memory)
}

/// `nmctx_get`.
#[unsafe(no_mangle)]
pub extern "C" fn nmctx_get() -> *mut Nmctx {
    DEFAULT.load(Ordering::Acquire)
}

/// `nmctx_set_default`; NULL restores the first default context.
#[unsafe(no_mangle)]
pub extern "C" fn nmctx_set_default(context: *mut Nmctx) -> *mut Nmctx {
    let context = if context.is_null() { FIRST.0.get() } else { context };
    DEFAULT.swap(context, Ordering::AcqRel)
}

/// `nmctx_set_threadsafe`.
#[unsafe(no_mangle)]
pub extern "C" fn nmctx_set_threadsafe() {
    let first = FIRST.0.get();
    // SAFETY: the context is static; the program must ensure that no other thread uses it meanwhile, as for any change
    // of a context.
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
    // SAFETY: the program's function frees memory that its own `malloc` allocated.
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
    /// Implements [`nmctx_ferror`] in C: gives the message to the context, unless it wants none.
    fn ringroad_formatted_error(context: *mut Nmctx, format: *const c_char, ...);
}

/// `nmctx_ferror`: jumps to the C function with unchanged registers and stack, since only C can read the arguments.
///
/// # Safety
///
/// The arguments are those of `printf`; `context` is NULL or a context.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn nmctx_ferror(context: *mut Nmctx, format: *const c_char) {
    std::arch::naked_asm!("jmp {body}", body = sym ringroad_formatted_error)
}

/// `nmctx_ferror`: jumps to the C function with unchanged registers and stack, since only C can read the arguments.
///
/// # Safety
///
/// The arguments are those of `printf`; `context` is NULL or a context.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn nmctx_ferror(context: *mut Nmctx, format: *const c_char) {
    std::arch::naked_asm!("b {body}", body = sym ringroad_formatted_error)
}
