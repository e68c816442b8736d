//! Devices in epoll sets. The kernel's set does not contain them: when they change, a *doorbell*, an eventfd in the
//! set, wakes its waiters.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use libc::epoll_event;
use ringroad_netmap::private_descriptors::PrivateDescriptor;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::epoll::next;
use crate::errno;
use crate::signal_safe_lock::SignalSafeLock;
use crate::tracked::DeviceReference;

/// Bits of an interest's events that are not conditions.
const MODES: u32 = (libc::EPOLLET | libc::EPOLLONESHOT | libc::EPOLLWAKEUP | libc::EPOLLEXCLUSIVE) as u32;

/// Device in a set.
#[derive(Debug, Clone)]
pub(crate) struct EpollInterest {
    set: u64,
    /// Descriptor number under which the device was added.
    fd: RawFd,
    pub(crate) device: DeviceReference,
    events: u32,
    /// Data that the program gets with the device's events.
    pub(crate) data: u64,
}

impl EpollInterest {
    /// Requested conditions, as for poll(2); `None` while the interest is disabled after its one shot.
    pub(crate) fn conditions(&self) -> Option<i16> {
        (self.events != 0).then_some((self.events & !MODES) as i16)
    }
}

#[derive(Debug)]
struct EpollDoorbell {
    set: u64,
    bell: PrivateDescriptor,
}

#[derive(Debug)]
pub(crate) struct Interests {
    interests: Vec<EpollInterest>,
    doorbells: Vec<EpollDoorbell>,
}

/// Devices in all sets.
pub(crate) static INTERESTS: SignalSafeLock<Interests> =
    SignalSafeLock::new(Interests { interests: Vec::new(), doorbells: Vec::new() }, |all| {
        all.interests.len()
    });
static SETS: AtomicU64 = AtomicU64::new(1);
static BELL_MARK: AtomicU8 = AtomicU8::new(0);

/// Data of a doorbell's events: the address of a variable that the program does not know of.
pub(crate) fn doorbell_data() -> u64 {
    (&raw const BELL_MARK).addr() as u64
}

/// A number for a new set.
pub(crate) fn new_set() -> u64 {
    SETS.fetch_add(1, Ordering::Relaxed)
}

/// Adds a device to the set behind the descriptor `epoll`.
///
/// # Errors
/// EEXIST if the device is in the set; the errors of the doorbell.
pub(crate) fn add(
    epoll: RawFd,
    set: u64,
    fd: RawFd,
    device: DeviceReference,
    event: &epoll_event,
) -> Result<(), Errno> {
    let has_doorbell = INTERESTS.with(|all| all.doorbells.iter().any(|doorbell| doorbell.set == set));
    let doorbell = if has_doorbell { None } else { Some(hang_doorbell(epoll)?) };
    let (added, spare) = INTERESTS.with(|all| {
        // Another thread may have been faster; then this thread's doorbell is not used, and is closed.
        let spare = match doorbell {
            Some(bell) if !all.doorbells.iter().any(|known| known.set == set) => {
                all.doorbells.push(EpollDoorbell { set, bell });
                None
            }
            spare => spare,
        };
        if all.position(set, fd, &device).is_some() {
            return (Err(Errno::EXIST), spare);
        }
        all.interests.push(EpollInterest { set, fd, device, events: event.events | ALWAYS, data: event.u64 });
        all.ring(set);
        (Ok(()), spare)
    });
    drop(spare);
    added
}

/// Conditions that are always reported.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

fn hang_doorbell(epoll: RawFd) -> Result<PrivateDescriptor, Errno> {
    let bell = PrivateDescriptor::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let mut event = epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: doorbell_data() };
    // SAFETY: `event` is a structure of ours.
    let added =
        unsafe { next::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, bell.as_fd().as_raw_fd(), &raw mut event) };
    if added < 0 { Err(errno::last()) } else { Ok(bell) }
}

/// Changes the interest in a device.
///
/// # Errors
/// ENOENT if the device is not in the set.
pub(crate) fn modify(
    set: u64,
    fd: RawFd,
    device: &DeviceReference,
    event: &epoll_event,
) -> Result<(), Errno> {
    INTERESTS.with(|all| {
        let index = all.position(set, fd, device).ok_or(Errno::NOENT)?;
        all.interests[index].events = event.events | ALWAYS;
        all.interests[index].data = event.u64;
        all.ring(set);
        Ok(())
    })
}

/// Removes a device from a set.
///
/// # Errors
/// ENOENT if the device is not in the set.
pub(crate) fn remove(set: u64, fd: RawFd, device: &DeviceReference) -> Result<(), Errno> {
    let removed = INTERESTS.with(|all| {
        let index = all.position(set, fd, device).ok_or(Errno::NOENT)?;
        Ok(all.interests.remove(index))
    });
    removed.map(drop)
}

/// Disables a one-shot interest after its event.
pub(crate) fn told(interest: &EpollInterest) {
    if interest.events & libc::EPOLLONESHOT as u32 == 0 {
        return;
    }
    INTERESTS.with(|all| {
        if let Some(index) = all.position(interest.set, interest.fd, &interest.device) {
            all.interests[index].events = 0;
        }
    });
}

/// Passes the interests of a set to `f`.
pub(crate) fn for_each(set: u64, f: impl FnMut(&EpollInterest)) {
    INTERESTS.with(|all| all.interests.iter().filter(|interest| interest.set == set).for_each(f));
}

/// Removes a set whose last descriptor is closed.
pub(crate) fn remove_set(set: u64) {
    let removed = INTERESTS.with(|all| {
        let interests: Vec<_> = all.interests.extract_if(.., |interest| interest.set == set).collect();
        let doorbells: Vec<_> = all.doorbells.extract_if(.., |doorbell| doorbell.set == set).collect();
        (interests, doorbells)
    });
    drop(removed);
}

/// Removes a device whose last descriptor is closed.
pub(crate) fn remove_device(device: &DeviceReference) {
    let removed: Vec<_> =
        INTERESTS.with(|all| all.interests.extract_if(.., |interest| interest.device == *device).collect());
    drop(removed);
}

impl Interests {
    fn position(&self, set: u64, fd: RawFd, device: &DeviceReference) -> Option<usize> {
        let is_it = |known: &EpollInterest| known.set == set && known.fd == fd && known.device == *device;
        self.interests.iter().position(is_it)
    }

    /// Wakes threads that wait for a set.
    fn ring(&self, set: u64) {
        if let Some(doorbell) = self.doorbells.iter().find(|doorbell| doorbell.set == set) {
            // The doorbell has been rung if its count is full.
            let _ = rustix::io::write(&doorbell.bell, &1_u64.to_ne_bytes());
        }
    }
}
