//! Epoll sets with devices in them. The kernel's set contains all other descriptors, and its own descriptor is one of
//! those waited for.

use std::ffi::c_int;
use std::mem::offset_of;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use libc::{epoll_event, sigset_t, timespec};
use ringroad_c_face::TimeLimit;
use ringroad_netmap::user_memory;
use rustix::io::Errno;
use smallvec::SmallVec;

use crate::epoll_interests::{self, EpollInterest};
use crate::errno;
use crate::hooks::hooks;
use crate::time_limit::from_timespec;
use crate::tracked::{self, DeviceReference, any_device};
use crate::wait::Wait;

/// Tracks the set behind a new descriptor, so that copies of the descriptor share the set's devices.
fn made(epoll: c_int) -> c_int {
    if epoll >= 0 {
        let before = errno::get();
        tracked::forget(epoll);
        // The addition of a device fails later if there is no room.
        let _ = tracked::add_epoll_set(epoll);
        errno::set(before);
    }
    epoll
}

/// Adds, changes or removes a device.
fn control(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    device: &DeviceReference,
    event: Option<&epoll_event>,
) -> Result<c_int, Errno> {
    let mut unused = epoll_event { events: 0, u64: 0 };
    // The kernel knows whether `epoll` is a set. A device's descriptor is in the kernel's set only if it was added
    // before it was known as a device.
    // SAFETY: `unused` is a structure of ours.
    let removed = unsafe { next::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, fd, &raw mut unused) };
    if removed < 0 && errno::last() != Errno::NOENT {
        return Err(errno::last());
    }
    let set = tracked::epoll_set(epoll).ok_or(Errno::NOMEM)?;
    match (operation, event) {
        (libc::EPOLL_CTL_ADD, Some(event)) => epoll_interests::add(epoll, set, fd, device.clone(), event)?,
        (libc::EPOLL_CTL_MOD, Some(event)) => epoll_interests::modify(set, fd, device, event)?,
        (libc::EPOLL_CTL_DEL, _) => epoll_interests::remove(set, fd, device)?,
        _ => return Err(Errno::INVAL),
    }
    Ok(0)
}

/// The program's event for epoll_ctl(2).
///
/// # Errors
/// EFAULT if it cannot be read.
fn read_event(event: *const epoll_event) -> Result<epoll_event, Errno> {
    let mut bytes = [0; size_of::<epoll_event>()];
    user_memory::read_bytes(event.addr(), &mut bytes)?;
    // SAFETY: any bytes are an event.
    Ok(unsafe { std::mem::transmute::<[u8; size_of::<epoll_event>()], epoll_event>(bytes) })
}

/// Room for a program's events.
struct Events {
    start: *mut epoll_event,
    room: c_int,
    count: c_int,
}

impl Events {
    /// Adds an event. There must be room left.
    ///
    /// # Errors
    /// EFAULT if the room cannot be written.
    fn push(&mut self, event: epoll_event) -> Result<(), Errno> {
        let mut bytes = [0; size_of::<epoll_event>()];
        bytes[offset_of!(epoll_event, events)..][..size_of::<u32>()]
            .copy_from_slice(&{ event.events }.to_ne_bytes());
        bytes[offset_of!(epoll_event, u64)..][..size_of::<u64>()]
            .copy_from_slice(&{ event.u64 }.to_ne_bytes());
        let slot = self.start.wrapping_add(self.count as usize);
        user_memory::write_bytes(slot.addr(), &bytes)?;
        self.count += 1;
        Ok(())
    }

    /// Adds the ready events of the kernel's set, without the doorbell; returns whether the doorbell was rung.
    ///
    /// # Safety
    /// `start` must have room for `room` events.
    unsafe fn take_from_kernel(&mut self, epoll: c_int) -> Result<bool, Errno> {
        if self.count == self.room {
            return Ok(false);
        }
        // SAFETY: the caller's promise.
        let start = unsafe { self.start.add(self.count as usize) };
        // SAFETY: the caller's promise.
        let taken = unsafe { next::epoll_wait(epoll, start, self.room - self.count, 0) };
        if taken < 0 {
            return Err(errno::last());
        }
        // SAFETY: the kernel has written that many.
        let kept = unsafe { without_doorbell(start, taken) };
        self.count += kept;
        Ok(kept < taken)
    }
}

/// Removes the doorbell from `count` events; returns the number of remaining events.
///
/// # Safety
/// `events` must be `count` events.
unsafe fn without_doorbell(events: *mut epoll_event, count: c_int) -> c_int {
    let mut kept = 0;
    for index in 0..count as usize {
        // SAFETY: the caller's promise.
        let slot = unsafe { events.add(index) };
        // SAFETY: the caller's promise.
        let event = unsafe { slot.read_unaligned() };
        if event.u64 == epoll_interests::doorbell_data() {
            continue;
        }
        // SAFETY: not behind `index`.
        let slot = unsafe { events.add(kept) };
        // SAFETY: as above.
        unsafe { slot.write_unaligned(event) };
        kept += 1;
    }
    kept as c_int
}

/// Waits for a set that may have devices.
///
/// # Safety
/// The conditions of epoll_wait(2).
unsafe fn wait(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    limit: &TimeLimit,
    mask: *const sigset_t,
) -> Result<c_int, Errno> {
    /// Start of the next search: it rotates, so that descriptors that are always ready do not hide the others.
    static TURN: AtomicUsize = AtomicUsize::new(0);
    loop {
        let mut wait = Wait::new();
        let mut interests: SmallVec<[EpollInterest; 16]> = SmallVec::new();
        if let Some(set) = tracked::known_epoll_set(epoll) {
            epoll_interests::for_each(set, |interest| interests.push(interest.clone()));
        }
        for interest in &interests {
            if let Some(conditions) = interest.conditions() {
                wait.watch(interest.device.clone(), conditions);
            }
        }
        wait.add(epoll, libc::POLLIN);
        wait.run(limit, mask)?;
        let turn = TURN.fetch_add(1, Ordering::Relaxed);
        let mut told = Events { start: events, room, count: 0 };
        let of_kernel = wait.others.first().is_some_and(|other| other.revents != 0);
        let kernel_first = !turn.is_multiple_of(2);
        if of_kernel && kernel_first {
            // SAFETY: the caller's promise.
            unsafe { told.take_from_kernel(epoll) }?;
        }
        let first = turn / 2 % interests.len().max(1);
        let (behind, ahead) = interests.split_at(first);
        for interest in ahead.iter().chain(behind) {
            let Some(conditions) = interest.conditions() else { continue };
            let found = wait.found_at(&interest.device, conditions);
            if found != 0 && told.count < room {
                let event = epoll_event { events: found as u32 & 0xFFFF, u64: interest.data };
                match told.push(event) {
                    Ok(()) => epoll_interests::told(interest),
                    Err(errno) if told.count == 0 => return Err(errno),
                    // The events so far are the program's: an edge of the kernel's set does not come again.
                    Err(_) => return Ok(told.count),
                }
            }
        }
        if of_kernel && !kernel_first {
            // SAFETY: the caller's promise.
            unsafe { told.take_from_kernel(epoll) }?;
        }
        if told.count > 0 || limit.left() == Some(Duration::ZERO) {
            return Ok(told.count);
        }
    }
}

/// Whether a set may have devices, and `events` has valid room for its events. The hook also waits correctly for a set
/// without devices.
fn may_have_devices(epoll: c_int, events: *mut epoll_event, room: c_int) -> bool {
    any_device()
        && !epoll_interests::INTERESTS.is_empty()
        && !events.is_null()
        && room > 0
        && tracked::known_epoll_set(epoll).is_some()
}

/// Result of a call that went to the C library. `None` if a device was added to the set while the call waited: then the
/// call must be repeated.
///
/// # Safety
/// `events` must be `count` events.
unsafe fn undisturbed(events: *mut epoll_event, count: c_int) -> Option<c_int> {
    if count <= 0 || !any_device() {
        return Some(count);
    }
    // SAFETY: the caller's promise.
    let kept = unsafe { without_doorbell(events, count) };
    (kept > 0).then_some(kept)
}

hooks! {
    [] epoll_create(size: c_int) -> c_int {
        made(next::epoll_create(size))
    }

    [] epoll_create1(flags: c_int) -> c_int {
        made(next::epoll_create1(flags))
    }

    [unsafe] epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        let device = if any_device() { tracked::device(fd) } else { None };
        let Some(device) = device else {
            // SAFETY: the program's own arguments.
            return unsafe { next::epoll_ctl(epoll, operation, fd, event) };
        };
        let event = match operation {
            libc::EPOLL_CTL_DEL => Ok(None),
            _ => read_event(event).map(Some),
        };
        errno::returned(event.and_then(|event| control(epoll, operation, fd, &device, event.as_ref())))
    }

    [unsafe] epoll_wait(epoll: c_int, events: *mut epoll_event, room: c_int, timeout: c_int) -> c_int {
        // SAFETY: the program's own arguments.
        unsafe { epoll_pwait(epoll, events, room, timeout, std::ptr::null()) }
    }

    [unsafe] epoll_pwait(
        epoll: c_int, events: *mut epoll_event, room: c_int, timeout: c_int, mask: *const sigset_t
    ) -> c_int {
        let limit = TimeLimit::from_milliseconds(timeout);
        if !may_have_devices(epoll, events, room) {
            // SAFETY: the program's own arguments.
            let count = unsafe { next::epoll_pwait(epoll, events, room, timeout, mask) };
            // SAFETY: the kernel has written that many.
            if let Some(count) = unsafe { undisturbed(events, count) } {
                return count;
            }
        }
        // SAFETY: the program's own arguments.
        errno::returned(unsafe { wait(epoll, events, room, &limit, mask) })
    }

    [unsafe] epoll_pwait2(
        epoll: c_int, events: *mut epoll_event, room: c_int, timeout: *const timespec, mask: *const sigset_t
    ) -> c_int {
        let limit = from_timespec(timeout);
        if limit.is_err() || !may_have_devices(epoll, events, room) {
            // SAFETY: the program's own arguments.
            let count = unsafe { next::epoll_pwait2(epoll, events, room, timeout, mask) };
            // SAFETY: the kernel has written that many.
            if let Some(count) = unsafe { undisturbed(events, count) } {
                return count;
            }
        }
        // SAFETY: the program's own arguments.
        errno::returned(limit.and_then(|limit| unsafe { wait(epoll, events, room, &limit, mask) }))
    }
}
