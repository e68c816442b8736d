//! The regions that a context's ports have mapped (`struct nmem_d`): one for each number, counted.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::abi::{Nmctx, NmemDesc};
use crate::context::{nmctx_lock, nmctx_unlock};
use crate::device;
use crate::failure::CallError;

/// A context whose regions this thread has locked.
struct Locked(*mut Nmctx);

impl Locked {
    fn new(context: *mut Nmctx) -> Self {
        // SAFETY: a context that the program keeps.
        unsafe { nmctx_lock(context) };
        Self(context)
    }

    fn first(&self) -> *mut NmemDesc {
        // SAFETY: a context that the program keeps, and locked.
        unsafe { (*self.0).regions }
    }

    fn set_first(&self, region: *mut NmemDesc) {
        // SAFETY: a context that the program keeps, and locked.
        unsafe { (*self.0).regions = region };
    }

    /// The region for which `wanted` is true.
    fn find(&self, wanted: impl Fn(&NmemDesc) -> bool) -> Option<*mut NmemDesc> {
        let first = self.first();
        let mut region = first;
        while !region.is_null() {
            // SAFETY: in the list of a locked context, and so alive; nothing changes it meanwhile.
            let seen = unsafe { &*region };
            if wanted(seen) {
                return Some(region);
            }
            region = if seen.next == first { ptr::null_mut() } else { seen.next };
        }
        None
    }

    fn insert(&self, region: *mut NmemDesc) {
        let first = self.first();
        let (previous, next) = if first.is_null() {
            (region, region)
        } else {
            // SAFETY: in the list of a locked context.
            (unsafe { (*first).previous }, first)
        };
        link(previous, region);
        link(region, next);
        self.set_first(region);
    }

    fn remove(&self, region: *mut NmemDesc) {
        // SAFETY: in the list of a locked context.
        let NmemDesc { previous, next, .. } = *unsafe { &*region };
        link(previous, next);
        if next == region {
            self.set_first(ptr::null_mut());
        } else if self.first() == region {
            self.set_first(next);
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: locked by `new`, on this thread.
        unsafe { nmctx_unlock(self.0) };
    }
}

fn link(one: *mut NmemDesc, next: *mut NmemDesc) {
    // SAFETY: both are in, or about to be in, the list of a locked context.
    unsafe { (*one).next = next };
    // SAFETY: as above.
    unsafe { (*next).previous = one };
}

/// Where a region's memory comes from if it is not there yet.
#[derive(Debug, Clone, Copy)]
pub enum MemorySource {
    /// The descriptor of a bound port, and the bytes to map.
    Descriptor(c_int, usize),
    /// Memory of the program, and its size.
    Extmem(*mut c_void, usize),
}

/// The region of this number: one more use of it if the context has it, else mapped now.
///
/// # Errors
///
/// As `mmap(2)`.
pub fn acquire(context: *mut Nmctx, mem_id: u16, source: MemorySource) -> Result<*mut NmemDesc, CallError> {
    let regions = Locked::new(context);
    if let Some(region) = regions.find(|region| region.mem_id == mem_id) {
        // SAFETY: in the list of a locked context.
        unsafe { (*region).references += 1 };
        return Ok(region);
    }
    let (memory, size, is_extmem) = match source {
        MemorySource::Descriptor(fd, size) => (device::map(fd, size)?, size, false),
        MemorySource::Extmem(memory, size) => (memory, size, true),
    };
    let region = Box::into_raw(Box::new(NmemDesc {
        mem_id,
        references: 1,
        memory,
        size,
        is_extmem: is_extmem.into(),
        next: ptr::null_mut(),
        previous: ptr::null_mut(),
        unmap: !is_extmem,
    }));
    regions.insert(region);
    Ok(region)
}

/// One use less; after the last one it is unmapped, unless it is the program's memory.
///
/// # Safety
///
/// `region` came from [`acquire`] with this context and has not been released as often.
pub unsafe fn release(context: *mut Nmctx, region: *mut NmemDesc) {
    let regions = Locked::new(context);
    // SAFETY: alive, since the caller has a use of it.
    let references = unsafe { &mut (*region).references };
    *references -= 1;
    if *references > 0 {
        return;
    }
    regions.remove(region);
    // SAFETY: made by `acquire` from a box; that was its last use, and no list leads to it any more.
    let region = unsafe { Box::from_raw(region) };
    if region.unmap {
        // SAFETY: mapped for this region, which is no longer used.
        unsafe { device::unmap(region.memory, region.size) };
    }
}

/// Unmaps a file that was a port's region; if other ports still use it, after the last of them.
///
/// # Safety
///
/// The port mapped it, and has released its own use of the region.
pub unsafe fn unmap_file(context: *mut Nmctx, memory: *mut c_void, size: usize) {
    let regions = Locked::new(context);
    if let Some(region) = regions.find(|region| region.is_extmem != 0 && region.memory == memory) {
        // SAFETY: in the list of a locked context.
        unsafe { (*region).unmap = true };
    } else {
        // SAFETY: mapped by the port, and no region is in it.
        unsafe { device::unmap(memory, size) };
    }
}
