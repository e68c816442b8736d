//! Guard of mappings that are shared with other processes: against pages that another process takes back, and for the
//! children of this process.
//!
//! Any holder of a mapping's file can shorten the file, or punch holes into a file of huge pages and take these pages.
//! The next access raises SIGBUS, which would end the process. So a table lists all such mappings. On a SIGBUS in one
//! of them, zero pages of our own replace the whole mapping in place, and the mapping is marked as lost
//! ([`MappingGuard::is_lost`]). The access continues and reads zeros; the user of the memory checks the mark. A SIGBUS
//! elsewhere goes to the handler that was installed before.
//!
//! After fork(2) the mappings of the table are replaced in the child ([`ChildMemory`]), before fork(2) returns there.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};

use crate::fork;

/// Maximum number of guarded mappings of a process at a time. The kernel allows a process slightly fewer mappings
/// (`vm.max_map_count`), so one guest cannot use up the entries of another. Entries that were never in use take no
/// memory.
pub const MAX_GUARDED_MAPPINGS: usize = 1 << 16;

/// Reason why a mapping cannot be guarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// The table is full.
    #[error("{MAX_GUARDED_MAPPINGS} mappings of shared memory are guarded, which is all there can be")]
    TooMany,
    /// The kernel refused the handler of SIGBUS.
    #[error("guarding shared memory: {}", std::io::Error::from_raw_os_error(*.0))]
    Signal(i32),
}

/// What a child of this process finds in place of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildMemory {
    /// The mapping.
    Shared,
    /// Private pages of zeros.
    Zeros,
    /// Private pages: zeros up to this offset, bytes, and 0xFF in each byte from there on.
    OnesFrom(usize),
}

/// Value of [`GuardEntry::ones_from`] for [`ChildMemory::Shared`].
const SHARED: usize = usize::MAX;
/// Value of [`GuardEntry::start`] while the entry is being filled.
const FILLING: usize = 1;

/// Entry of the table; in one page, so that a child finds it whole.
#[repr(align(32))]
struct GuardEntry {
    /// First byte of the mapping; 0 in a free entry.
    start: AtomicUsize,
    bytes: AtomicUsize,
    /// First byte of ones in a child; at least `bytes` if there is none.
    ones_from: AtomicUsize,
    /// Number of times that the entry was taken.
    version: AtomicU32,
    /// Whether another process can take pages back.
    may_be_lost: AtomicBool,
    lost: AtomicBool,
}

impl GuardEntry {
    const fn new() -> Self {
        Self {
            start: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            ones_from: AtomicUsize::new(0),
            version: AtomicU32::new(0),
            may_be_lost: AtomicBool::new(false),
            lost: AtomicBool::new(false),
        }
    }

    /// Takes the entry, if it is free.
    fn take(&self) -> bool {
        let taken = self.start.compare_exchange(0, FILLING, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if taken {
            self.version.fetch_add(1, Ordering::Release);
            // A reader that sees a later store sees the new version too.
            fence(Ordering::Release);
        }
        taken
    }

    fn fill(&self, start: usize, bytes: usize, may_be_lost: bool, children: ChildMemory) {
        let ones_from = match children {
            ChildMemory::Shared => SHARED,
            ChildMemory::Zeros => bytes,
            ChildMemory::OnesFrom(offset) => offset,
        };
        self.bytes.store(bytes, Ordering::Relaxed);
        self.ones_from.store(ones_from, Ordering::Relaxed);
        self.may_be_lost.store(may_be_lost, Ordering::Relaxed);
        self.lost.store(false, Ordering::Relaxed);
        self.start.store(start, Ordering::Release);
    }

    fn give_back(&self) {
        self.start.store(0, Ordering::Release);
    }

    /// Start and size of the mapping. `None` if the entry is free, or changes during the call: then no user of its
    /// mapping is the caller.
    fn mapping(&self) -> Option<(usize, usize)> {
        self.read(|| {})
    }

    /// Works as [`Self::mapping`], and calls `meanwhile` in the middle.
    fn read(&self, meanwhile: impl FnOnce()) -> Option<(usize, usize)> {
        let version = self.version.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Acquire);
        meanwhile();
        let bytes = self.bytes.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        (start > FILLING && self.version.load(Ordering::Relaxed) == version).then_some((start, bytes))
    }
}

static GUARDS: [GuardEntry; MAX_GUARDED_MAPPINGS] = [const { GuardEntry::new() }; MAX_GUARDED_MAPPINGS];
/// Number of entries that were ever in use.
static USED_GUARDS: AtomicUsize = AtomicUsize::new(0);
/// Previous handler of SIGBUS; set once, before the first entry is in use.
static PREVIOUS: OnceLock<Result<libc::sigaction, i32>> = OnceLock::new();

/// Index of a mapping's entry in the table; the entry lasts as long as the value.
#[derive(Debug)]
pub struct MappingGuard(usize);

impl MappingGuard {
    /// Guards the mapping of `bytes` bytes at `start`, whose pages another process can take back.
    ///
    /// # Errors
    /// [`GuardError`].
    ///
    /// # Safety
    /// The range is whole pages of mappings that the caller owns. They hold only bytes that other processes may change
    /// at any time, and stay mapped until the guard is dropped.
    pub unsafe fn new(start: NonNull<u8>, bytes: usize, children: ChildMemory) -> Result<Self, GuardError> {
        watch_for_loss()?;
        Self::enter(start, bytes, true, children)
    }

    /// Guards a mapping whose pages no process can take back: only for the children of this process.
    ///
    /// # Errors
    /// [`GuardError::TooMany`].
    ///
    /// # Safety
    /// The conditions of [`Self::new`].
    pub unsafe fn for_children(
        start: NonNull<u8>,
        bytes: usize,
        children: ChildMemory,
    ) -> Result<Self, GuardError> {
        Self::enter(start, bytes, false, children)
    }

    fn enter(
        start: NonNull<u8>,
        bytes: usize,
        may_be_lost: bool,
        children: ChildMemory,
    ) -> Result<Self, GuardError> {
        fork::watch();
        let guard = Self(take_guard()?);
        GUARDS[guard.0].fill(start.as_ptr() as usize, bytes, may_be_lost, children);
        Ok(guard)
    }

    /// Whether an access found that pages were taken back: the whole mapping reads as zeros since then, and no other
    /// process sees writes to it.
    #[inline]
    #[must_use]
    pub fn is_lost(&self) -> bool {
        GUARDS[self.0].lost.load(Ordering::Relaxed)
    }
}

impl Drop for MappingGuard {
    fn drop(&mut self) {
        GUARDS[self.0].give_back();
    }
}

fn take_guard() -> Result<usize, GuardError> {
    for (index, entry) in GUARDS.iter().enumerate() {
        if entry.take() {
            USED_GUARDS.fetch_max(index + 1, Ordering::AcqRel);
            return Ok(index);
        }
    }
    Err(GuardError::TooMany)
}

fn watch_for_loss() -> Result<(), GuardError> {
    let installed = PREVIOUS.get_or_init(|| {
        // SAFETY: all zeros are a valid sigaction.
        let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: reads the present action into memory of our own. The action must be known before our handler can run.
        if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut previous) } != 0 {
            return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0));
        }
        Ok(previous)
    });
    static INSTALLED: OnceLock<()> = OnceLock::new();
    let mut outcome = installed.as_ref().map(|_| ()).map_err(|&errno| errno);
    if outcome.is_ok() {
        INSTALLED.get_or_init(|| {
            // SAFETY: all zeros are a valid sigaction.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = on_bus_error as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            // SAFETY: the action is complete; the handler calls only functions that are safe in a handler.
            if unsafe { libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) } != 0 {
                outcome = Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0));
            }
        });
    }
    outcome.map_err(GuardError::Signal)
}

extern "C" fn on_bus_error(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a siginfo of its own.
    let info_of_fault = unsafe { &*info };
    // SAFETY: a SIGBUS has an address.
    let address = unsafe { info_of_fault.si_addr() } as usize;
    // The interrupted thread uses the mapping that it found lost, so no thread removes the entry or the mapping now.
    let lost = used_entries().find_map(|entry| {
        let (start, bytes) = entry.mapping()?;
        (start..start + bytes).contains(&address).then_some((entry, start, bytes))
    });
    if let Some((entry, start, bytes)) = lost
        && entry.may_be_lost.load(Ordering::Relaxed)
    {
        entry.lost.store(true, Ordering::Relaxed);
        // SAFETY: replaces exactly a mapping of the table, which stays during the call.
        if unsafe { replace(start, bytes, libc::PROT_READ | libc::PROT_WRITE) } {
            return;
        }
    }
    pass_on(signal, info, context);
}

fn used_entries() -> impl Iterator<Item = &'static GuardEntry> {
    GUARDS.iter().take(USED_GUARDS.load(Ordering::Acquire))
}

/// Replaces a mapping by private pages of zeros. Returns whether the kernel did.
///
/// # Safety
/// The range is a mapping of the table, and stays one during the call.
unsafe fn replace(start: usize, bytes: usize, protection: i32) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: guaranteed by the caller; users of the mapping expect its bytes to change.
    let pages = unsafe { libc::mmap(start as *mut libc::c_void, bytes, protection, flags, -1, 0) };
    pages != libc::MAP_FAILED
}

/// In a child that was just forked: replaces its copies of the parent's mappings.
pub(crate) fn replace_in_child() {
    for entry in used_entries() {
        let Some((start, bytes)) = entry.mapping() else { continue };
        let ones_from = entry.ones_from.load(Ordering::Relaxed);
        if ones_from == SHARED {
            continue;
        }
        // SAFETY: a mapping of the table, which no other thread of the child can remove: there is none.
        if !unsafe { replace(start, bytes, libc::PROT_READ | libc::PROT_WRITE) } {
            // Addresses without memory cost nothing. An access ends the child, instead of reaching the parent's rings.
            // SAFETY: as above.
            unsafe { replace(start, bytes, libc::PROT_NONE) };
        } else if let Some(ones @ 1..) = bytes.checked_sub(ones_from) {
            // SAFETY: the bytes are the last ones of the pages that were just mapped.
            unsafe { std::ptr::write_bytes((start + ones_from) as *mut u8, 0xFF, ones) };
        }
    }
}

/// Calls the handler that was installed before. Without such a handler, the access is repeated and ends the process as
/// usual.
fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    type WithInfo = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
    type Plain = extern "C" fn(i32);
    match PREVIOUS.get() {
        Some(Ok(previous)) if ![libc::SIG_DFL, libc::SIG_IGN].contains(&previous.sa_sigaction) => {
            if previous.sa_flags & libc::SA_SIGINFO != 0 {
                // SAFETY: the code that set the action guaranteed a function of this type.
                let handler = unsafe { std::mem::transmute::<usize, WithInfo>(previous.sa_sigaction) };
                handler(signal, info, context);
            } else {
                // SAFETY: as above.
                let handler = unsafe { std::mem::transmute::<usize, Plain>(previous.sa_sigaction) };
                handler(signal);
            }
        }
        _ => {
            // SAFETY: setting a signal's default action is safe in a handler.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_changes_while_it_is_read_names_no_mapping() {
        let entry = GuardEntry::new();
        let enter = |start, bytes| {
            assert!(entry.take());
            entry.fill(start, bytes, true, ChildMemory::Zeros);
        };
        enter(1 << 20, 4096);
        assert_eq!(entry.mapping(), Some((1 << 20, 4096)));
        let reuse = || {
            entry.give_back();
            enter(1 << 30, 1 << 21);
        };
        assert_eq!(entry.read(reuse), None);
        assert_eq!(entry.mapping(), Some((1 << 30, 1 << 21)));
        entry.give_back();
        assert_eq!(entry.mapping(), None);
    }

    #[test]
    fn a_child_finds_private_pages_in_place_of_a_mapping() {
        const BYTES: usize = 8 * 4096;
        let file = rustix::fs::memfd_create("guarded", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, BYTES as u64).unwrap();
        let kinds = [ChildMemory::Shared, ChildMemory::Zeros, ChildMemory::OnesFrom(4096)];
        for (children, expected) in kinds.into_iter().zip([[7, 7], [0, 0], [0, 0xFF]]) {
            use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping, at an address that the kernel chooses.
            let map = unsafe { mmap(std::ptr::null_mut(), BYTES, protection, MapFlags::SHARED, &file, 0) };
            let start = NonNull::new(map.unwrap().cast::<u8>()).unwrap();
            // SAFETY: as above; the guard is dropped first.
            let guard = unsafe { MappingGuard::for_children(start, BYTES, children) }.unwrap();
            // SAFETY: the last byte of the mapping.
            let last = unsafe { start.add(BYTES - 1) };
            for byte in [start, last] {
                // SAFETY: mapped, and no other code uses it.
                unsafe { byte.write_volatile(7) };
            }
            // SAFETY: the child uses no memory but these bytes, and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: mapped in a child too.
                let found = [start, last].map(|byte| unsafe { byte.read_volatile() });
                // SAFETY: as above.
                unsafe { start.write_volatile(9) };
                // SAFETY: ends the child.
                unsafe { libc::_exit(i32::from(found != expected)) };
            }
            let child = rustix::process::Pid::from_raw(child).unwrap();
            let (_, status) = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty())
                .unwrap()
                .unwrap();
            assert_eq!(status.exit_status(), Some(0), "{children:?}");
            // SAFETY: mapped, and no other process uses it any more.
            let left = unsafe { start.read_volatile() };
            assert_eq!(left, if children == ChildMemory::Shared { 9 } else { 7 }, "{children:?}");
            drop(guard);
            // SAFETY: nothing uses the mapping any more.
            unsafe { munmap(start.as_ptr().cast(), BYTES) }.unwrap();
        }
    }
}
