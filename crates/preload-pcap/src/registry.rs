//! Registry of Ringroad's handles.
//!
//! A `pcap_t` of Ringroad is the address of an entry in a table of this library, which no other object can have. So the
//! address alone distinguishes a handle from the system's, foreign handles are never read, and a closed handle is
//! recognised. A lookup takes no lock: `pcap_breakloop` is called from signal handlers.
#![allow(unsafe_code)]

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::abi::Pcap;
use crate::handle::Handle;

/// Maximum number of open handles.
pub(crate) const MOST_HANDLES: usize = 1024;

static HANDLES: [AtomicPtr<Handle>; MOST_HANDLES] = [const { AtomicPtr::new(null_mut()) }; MOST_HANDLES];

/// Kind of a `pcap_t`.
pub(crate) enum Owner {
    /// The system's libpcap made the handle.
    System,
    /// The handle is open, and belongs to Ringroad.
    Ours(&'static Handle),
    /// The handle belonged to Ringroad, and is closed.
    Closed,
}

/// Entry that `handle` points to, if it is one.
#[inline]
fn entry(handle: *const Pcap) -> Option<&'static AtomicPtr<Handle>> {
    let offset = handle.addr().wrapping_sub(HANDLES.as_ptr().addr());
    if offset.is_multiple_of(size_of::<AtomicPtr<Handle>>()) {
        HANDLES.get(offset / size_of::<AtomicPtr<Handle>>())
    } else {
        None
    }
}

/// Adds a handle to the table. Returns `None` if all entries are in use.
pub(crate) fn add(handle: Handle) -> Option<*mut Pcap> {
    let handle = Arc::into_raw(Arc::new(handle)).cast_mut();
    for entry in &HANDLES {
        if entry.compare_exchange(null_mut(), handle, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return Some(std::ptr::from_ref(entry).cast_mut().cast());
        }
    }
    // SAFETY: the pointer came from `into_raw` above, and no other code has seen it.
    drop(unsafe { Arc::from_raw(handle) });
    None
}

/// Finds the owner of a handle. By libpcap's rules a handle is not closed while another function works on it, so it
/// lives for the call.
#[inline]
pub(crate) fn owner(handle: *const Pcap) -> Owner {
    let Some(entry) = entry(handle) else { return Owner::System };
    // SAFETY: the pointer is null, or a handle that `add` put there and that lives until `close`.
    match unsafe { entry.load(Ordering::Acquire).as_ref() } {
        Some(handle) => Owner::Ours(handle),
        None => Owner::Closed,
    }
}

/// Adds a reference to a handle, which keeps it alive if a callback closes it.
pub(crate) fn share(handle: &Handle) -> Arc<Handle> {
    let pointer = std::ptr::from_ref(handle);
    // SAFETY: every handle comes from `add`, so it lies in an `Arc`, which the caller's reference shows to be alive.
    unsafe { Arc::increment_strong_count(pointer) };
    // SAFETY: the added count belongs to the new reference.
    unsafe { Arc::from_raw(pointer) }
}

/// Calls `f` with every open handle.
pub(crate) fn for_each(f: impl Fn(&Handle)) {
    for entry in &HANDLES {
        // SAFETY: the pointer is null or an open handle, as in `owner`.
        if let Some(handle) = unsafe { entry.load(Ordering::Acquire).as_ref() } {
            f(handle);
        }
    }
}

/// Removes a handle from its entry; `None` if it is not Ringroad's, or was closed before.
pub(crate) fn close(handle: *const Pcap) -> Option<Arc<Handle>> {
    let taken = entry(handle)?.swap(null_mut(), Ordering::AcqRel);
    // SAFETY: `add` put the pointer there from `into_raw`, and only one swap can find it.
    (!taken.is_null()).then(|| unsafe { Arc::from_raw(taken.cast_const()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_open_ringroad_handles_are_recognised() {
        let one = add(Handle::new("vale0:a".into())).unwrap();
        let two = add(Handle::new("vale0:b".into())).unwrap();
        assert!(matches!(owner(one), Owner::Ours(handle) if handle.name == "vale0:a"));
        assert!(matches!(owner(one.wrapping_byte_add(1)), Owner::System));
        let foreign = Box::new(0u64);
        assert!(matches!(owner(std::ptr::from_ref(&*foreign).cast()), Owner::System));
        assert!(matches!(owner(std::ptr::null()), Owner::System));
        assert_eq!(close(one).unwrap().name, "vale0:a");
        assert!(close(one).is_none());
        assert!(matches!(owner(one), Owner::Closed));
        assert!(close(two).is_some());
    }
}
