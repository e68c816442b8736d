//! Descriptors of this process that are devices, or epoll sets that may contain devices.

use std::ops::Deref;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use ringroad_netmap::device::NetmapDevice;
use rustix::fs::{FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use crate::descriptor_table::{DescriptorTable, Reference, Removed};
use crate::epoll_interests;
use crate::process;

/// Number of descriptor numbers that can be tracked; a higher one cannot be a device.
const NUMBERS: usize = 65536;
/// Maximum number of devices and epoll sets of a process.
const ENTRIES: usize = 1024;

/// Kind of the object behind a number.
#[derive(Debug)]
pub(crate) enum Tracked {
    /// One open of the device.
    Device(Arc<NetmapDevice>),
    /// Epoll set, with its number in [`epoll_interests`].
    Epoll(u64),
}

static TABLE: DescriptorTable<Tracked, NUMBERS, ENTRIES> = DescriptorTable::new();

/// Bit: descriptors that existed before this library was loaded have been checked.
const CHECKED: u8 = 1;
/// Bit: there has been a device.
const SOME: u8 = 2;
static DEVICES: AtomicU8 = AtomicU8::new(0);

/// Reference to a device.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DeviceReference(Reference<Tracked>);

impl DeviceReference {
    fn new(reference: Reference<Tracked>) -> Option<Self> {
        matches!(*reference, Tracked::Device(_)).then_some(Self(reference))
    }
}

impl Deref for DeviceReference {
    type Target = NetmapDevice;

    fn deref(&self) -> &NetmapDevice {
        match &*self.0 {
            Tracked::Device(device) => device,
            // `new` accepts only devices, and an entry's value does not change.
            Tracked::Epoll(_) => unreachable!(),
        }
    }
}

/// Whether there has been a device in this process. Checks the inherited descriptors once.
#[inline]
pub(crate) fn any_device() -> bool {
    let seen = DEVICES.load(Ordering::Relaxed);
    if seen & CHECKED != 0 {
        return seen & SOME != 0;
    }
    if DEVICES.fetch_or(CHECKED, Ordering::Relaxed) & CHECKED == 0 {
        check_inherited();
    }
    DEVICES.load(Ordering::Relaxed) & SOME != 0
}

/// Checks all open descriptors, without memory from the heap: the first wait may be in a signal handler.
fn check_inherited() {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(folder) = rustix::fs::open(c"/proc/self/fd", flags, Mode::empty()) else { return };
    let mut room = [const { std::mem::MaybeUninit::uninit() }; 2048];
    let mut entries = RawDir::new(&folder, &mut room);
    while let Some(Ok(entry)) = entries.next() {
        let number = entry.file_name().to_str().ok().and_then(|name| name.parse::<RawFd>().ok());
        if let Some(number) = number.filter(|&number| number != folder.as_raw_fd()) {
            recognise(number);
        }
    }
}

/// Whether a number has an entry.
#[inline]
pub(crate) fn is_tracked(number: RawFd) -> bool {
    TABLE.has(number)
}

/// Device behind a number, if the number is known to be a device.
#[inline]
pub(crate) fn device(number: RawFd) -> Option<DeviceReference> {
    DeviceReference::new(TABLE.get(number)?)
}

/// Device behind a number that may not be known yet, because it was inherited or received.
pub(crate) fn recognise(number: RawFd) -> Option<DeviceReference> {
    if number < 0 || ringroad_netmap::private_descriptors::owns(number) {
        return None;
    }
    if TABLE.has(number) {
        return device(number);
    }
    // SAFETY: the number is not -1. The caller keeps it open; if it is closed meanwhile, the kernel reports that.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    let is_socket = rustix::fs::fstat(descriptor)
        .is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::Socket);
    if !is_socket {
        return None;
    }
    add_device(number, NetmapDevice::recognise(descriptor)?).ok()
}

/// Registers a number as a device.
///
/// # Errors
/// EMFILE if the tables have no room for it.
pub(crate) fn add_device(number: RawFd, device: Arc<NetmapDevice>) -> Result<DeviceReference, Errno> {
    process::take_tables();
    DEVICES.fetch_or(SOME, Ordering::Relaxed);
    let is_known =
        |tracked: &Tracked| matches!(tracked, Tracked::Device(known) if Arc::ptr_eq(known, &device));
    let reference = match TABLE.find(is_known) {
        Some(known) => known,
        None => TABLE.add(Tracked::Device(device)).map_err(|_full| Errno::MFILE)?,
    };
    set(number, &reference).map_err(|()| Errno::MFILE)?;
    DeviceReference::new(reference).ok_or(Errno::MFILE)
}

/// Set behind the number of an epoll descriptor; `None` if there is no room for a set.
pub(crate) fn epoll_set(number: RawFd) -> Option<u64> {
    known_epoll_set(number).or_else(|| add_epoll_set(number))
}

/// Set behind a number, if the number is known to be a set.
pub(crate) fn known_epoll_set(number: RawFd) -> Option<u64> {
    match TABLE.get(number).as_deref() {
        Some(Tracked::Epoll(set)) => Some(*set),
        _ => None,
    }
}

/// Registers a number as a new epoll set.
pub(crate) fn add_epoll_set(number: RawFd) -> Option<u64> {
    process::take_tables();
    let set = epoll_interests::new_set();
    let reference = TABLE.add(Tracked::Epoll(set)).ok()?;
    self::set(number, &reference).ok()?;
    Some(set)
}

/// Tracks `new`, a copy of `old`.
pub(crate) fn copied(old: RawFd, new: RawFd) {
    if !(is_tracked(old) || is_tracked(new)) || !process::owns_tables() {
        return;
    }
    match TABLE.get(old) {
        // A copy for which the table has no room is recognised when it is used.
        Some(reference) => drop(set(new, &reference)),
        None => forget(new),
    }
}

/// Removes a number from the table. Call it before the number is closed, or after the number refers to another file.
#[inline]
pub(crate) fn forget(number: RawFd) {
    if is_tracked(number)
        && process::owns_tables()
        && let Some(old) = TABLE.remove(number)
    {
        removed(old);
    }
}

fn set(number: RawFd, reference: &Reference<Tracked>) -> Result<(), ()> {
    if let Some(old) = TABLE.set(number, reference)? {
        removed(old);
    }
    Ok(())
}

/// Ends the state that belongs to the last number of a device or set.
fn removed(removed: Removed<Tracked>) {
    if removed.was_last {
        match &*removed.reference {
            Tracked::Epoll(set) => epoll_interests::remove_set(*set),
            Tracked::Device(_) => epoll_interests::remove_device(&DeviceReference(removed.reference.clone())),
        }
    }
}
