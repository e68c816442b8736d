//! Regions that a context's ports have mapped (`struct nmem_d`): one for each number, with a reference count.
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
        // SAFETY: the program keeps the context.
        unsafe { nmctx_lock(context) };
        Self(context)
    }

    fn first(&self) -> *mut NmemDesc {
        // SAFETY: the program keeps the context, which is locked.
        unsafe { (*self.0).regions }
    }

    fn set_first(&self, region: *mut NmemDesc) {
        // SAFETY: the program keeps the context, which is locked.
        unsafe { (*self.0).regions = region };
    }

    /// Finds the region for which `wanted` is true.
    fn find(&self, wanted: impl Fn(&NmemDesc) -> bool) -> Option<*mut NmemDesc> {
        let first = self.first();
        let mut region = first;
        while !region.is_null() {
            // SAFETY: the region is in the list of a locked context, so it is alive and does not change.
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
            // SAFETY: the region is in the list of a locked context.
            (unsafe { (*first).previous }, first)
        };
        link(previous, region);
        link(region, next);
        self.set_first(region);
    }

    fn remove(&self, region: *mut NmemDesc) {
        // SAFETY: the region is in the list of a locked context.
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
        // SAFETY: `new` locked the context, on this thread.
        unsafe { nmctx_unlock(self.0) };
    }
}

fn link(one: *mut NmemDesc, next: *mut NmemDesc) {
    // SAFETY: both regions are in, or about to be in, the list of a locked context.
    unsafe { (*one).next = next };
    // SAFETY: both regions are in, or about to be in, the list of a locked context.
    unsafe { (*next).previous = one };
}

/// Source of a region's memory, for a context that does not have the region yet.
#[derive(Debug, Clone, Copy)]
pub enum MemorySource {
    /// Descriptor of a bound port, and number of bytes to map.
    Descriptor(c_int, usize),
    /// Memory of the program, and its size in bytes.
    Extmem(*mut c_void, usize),
}

/// Acquires the region of this number: adds a use if the context has the region, else maps it.
///
/// # Errors
///
/// Errors of `mmap(2)`.
pub fn acquire(context: *mut Nmctx, mem_id: u16, source: MemorySource) -> Result<*mut NmemDesc, CallError> {
    let regions = Locked::new(context);
    if let Some(region) = regions.find(|region| region.mem_id == mem_id) {
        // SAFETY: the region is in the list of a locked context.
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

/// Releases one use of a region. After the last one the region is unmapped, unless it is the program's memory.
///
/// # Safety
///
/// `region` came from [`acquire`] with this context and has not been released as often.
pub unsafe fn release(context: *mut Nmctx, region: *mut NmemDesc) {
    let regions = Locked::new(context);
    // SAFETY: the region is alive, since the caller uses it.
    let references = unsafe { &mut (*region).references };
    *references -= 1;
    if *references > 0 {
        return;
    }
    regions.remove(region);
    // SAFETY: `acquire` made the region from a box; this was its last use, and no list has it any more.
    let region = unsafe { Box::from_raw(region) };
    if region.unmap {
        // SAFETY: the memory was mapped for this region, which is no longer used.
        unsafe { device::unmap(region.memory, region.size) };
    }
}

/// Unmaps a file that was a port's region. If other ports still use it, it is unmapped after the last use.
///
/// # Safety
///
/// The port mapped it, and has released its own use of the region.
pub unsafe fn unmap_file(context: *mut Nmctx, memory: *mut c_void, size: usize) {
    let regions = Locked::new(context);
    if let Some(region) = regions.find(|region| region.is_extmem != 0 && region.memory == memory) {
        // SAFETY: the region is in the list of a locked context.
        unsafe { (*region).unmap = true };
    } else {
        // SAFETY: the port mapped the file, and no region is in it.
        unsafe { device::unmap(memory, size) };
    }
}
