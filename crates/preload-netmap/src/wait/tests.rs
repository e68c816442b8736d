use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI16, AtomicU32, Ordering};

use libc::{POLLERR, POLLIN, POLLNVAL, POLLOUT};
use rustix::event::{EventfdFlags, eventfd};

use super::*;

/// Double of a device: ready when set, woken by a real eventfd.
struct EventDevice {
    conditions: AtomicI16,
    /// Number of polls after which the device is ready, independent of the set events.
    ready_after: AtomicU32,
    event: OwnedFd,
    slice: Option<Duration>,
    asked: AtomicU32,
    armed: AtomicU32,
    disarmed: AtomicU32,
    asked_for: AtomicI16,
}

type Shared = Arc<EventDevice>;

fn device() -> EventDevice {
    EventDevice {
        conditions: AtomicI16::new(0),
        ready_after: AtomicU32::new(u32::MAX),
        event: eventfd(0, EventfdFlags::NONBLOCK).unwrap(),
        slice: None,
        asked: AtomicU32::new(0),
        armed: AtomicU32::new(0),
        disarmed: AtomicU32::new(0),
        asked_for: AtomicI16::new(0),
    }
}

impl EventDevice {
    fn tell(&self, conditions: i16) {
        self.conditions.store(conditions, Ordering::SeqCst);
    }

    fn wake(&self) {
        rustix::io::write(&self.event, &1_u64.to_ne_bytes()).unwrap();
    }

    fn assert_disarmed(&self) {
        assert_eq!(self.armed.load(Ordering::SeqCst), self.disarmed.load(Ordering::SeqCst));
    }
}

struct Watch(Shared);

impl PartialEq for Watch {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Waitable for Watch {
    fn ready(&self, events: i16) -> i16 {
        let asked = self.0.asked.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.asked_for.store(events, Ordering::SeqCst);
        if asked > self.0.ready_after.load(Ordering::SeqCst) {
            return events;
        }
        self.0.conditions.load(Ordering::SeqCst) & (events | ALWAYS)
    }

    fn arm(&self, events: i16, wakers: &mut Wakers) -> i16 {
        let found = self.ready(events);
        if found == 0 {
            self.0.armed.fetch_add(1, Ordering::SeqCst);
            wakers.descriptors.push(self.0.event.as_raw_fd());
            if let Some(slice) = self.0.slice {
                wakers.check_every(slice);
            }
        }
        found
    }

    fn disarm(&self, _events: i16) {
        self.0.disarmed.fetch_add(1, Ordering::SeqCst);
        let _ = rustix::io::read(&self.0.event, &mut [0; 8]);
    }
}

fn wait_for(devices: &[(&Shared, i16)], others: &[(i32, i16)]) -> Wait<Watch> {
    let mut wait = Wait::new();
    devices.iter().for_each(|(device, events)| wait.watch(Watch(Arc::clone(device)), *events));
    others.iter().for_each(|(fd, events)| wait.add(*fd, *events));
    wait
}

fn found(wait: &Wait<Watch>, device: &Shared, events: i16) -> i16 {
    wait.found_at(&Watch(Arc::clone(device)), events)
}

/// Both ends of a pipe with a byte in it.
fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (read, write) = rustix::pipe::pipe().unwrap();
    rustix::io::write(&write, b"x").unwrap();
    (read, write)
}

const FOREVER: TimeLimit = TimeLimit::Never;
const NO_MASK: *const sigset_t = ptr::null();

#[test]
fn ready_devices_are_reported_with_other_descriptors() {
    let (first, second) = (Arc::new(device()), Arc::new(device()));
    first.tell(POLLIN);
    let (read, write) = full_pipe();
    let others = [(read.as_raw_fd(), POLLIN), (-1, POLLIN), (write.as_raw_fd(), POLLIN), (60_000, POLLIN)];
    let mut wait = wait_for(&[(&first, POLLIN | POLLOUT), (&second, POLLIN)], &others);
    wait.run(&FOREVER, NO_MASK).unwrap();
    assert_eq!((found(&wait, &first, POLLIN), found(&wait, &second, POLLIN)), (POLLIN, 0));
    assert_eq!(found(&wait, &first, POLLOUT), 0);
    let revents: Vec<_> = wait.others.iter().map(|other| other.revents).collect();
    assert_eq!(revents, [POLLIN, 0, 0, POLLNVAL]);
    assert_eq!(first.armed.load(Ordering::SeqCst) + second.armed.load(Ordering::SeqCst), 0);
}

#[test]
fn a_zero_timeout_polls_all_devices_and_arms_none() {
    let quiet = Arc::new(device());
    let (read, _write) = full_pipe();
    for others in [&[][..], &[(read.as_raw_fd(), POLLIN)]] {
        let mut wait = wait_for(&[(&quiet, POLLIN)], others);
        wait.run(&TimeLimit::Now, NO_MASK).unwrap();
        assert_eq!(found(&wait, &quiet, POLLIN), 0);
        assert!(wait.others.iter().all(|other| other.revents == POLLIN));
    }
    assert_eq!((quiet.asked.load(Ordering::SeqCst), quiet.armed.load(Ordering::SeqCst)), (2, 0));
}

#[test]
fn a_device_ends_a_sleep() {
    let sleeper = Arc::new(device());
    let mut wait = wait_for(&[(&sleeper, POLLIN)], &[]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while sleeper.armed.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            // The first wake-up is spurious.
            sleeper.wake();
            while sleeper.armed.load(Ordering::SeqCst) == 1 {
                std::thread::yield_now();
            }
            sleeper.tell(POLLIN | POLLERR);
            sleeper.wake();
        });
        wait.run(&FOREVER, NO_MASK).unwrap();
    });
    assert_eq!(found(&wait, &sleeper, POLLIN), POLLIN | POLLERR);
    assert!(wait.others.is_empty(), "the descriptor that woke it is not the program's");
    sleeper.assert_disarmed();
}

#[test]
fn another_descriptor_ends_a_sleep_and_devices_are_polled_again() {
    let quiet = Arc::new(device());
    let (read, write) = rustix::pipe::pipe().unwrap();
    let mut wait = wait_for(&[(&quiet, POLLOUT)], &[(read.as_raw_fd(), POLLIN)]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while quiet.armed.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            quiet.tell(POLLOUT);
            rustix::io::write(&write, b"x").unwrap();
        });
        wait.run(&FOREVER, NO_MASK).unwrap();
    });
    assert_eq!((wait.others.len(), wait.others[0].revents), (1, POLLIN));
    assert_eq!(found(&wait, &quiet, POLLOUT), POLLOUT);
    quiet.assert_disarmed();
}

#[test]
fn an_unwoken_device_is_polled_again() {
    let polled = Arc::new(EventDevice { slice: Some(Duration::from_micros(100)), ..device() });
    // Each round polls twice: before the sleep is announced, and after.
    polled.ready_after.store(6, Ordering::SeqCst);
    let mut wait = wait_for(&[(&polled, POLLIN)], &[]);
    wait.run(&FOREVER, NO_MASK).unwrap();
    assert_eq!((found(&wait, &polled, POLLIN), polled.asked.load(Ordering::SeqCst)), (POLLIN, 7));
    polled.assert_disarmed();
}

#[test]
fn a_wait_ends_at_its_timeout_with_a_last_poll() {
    let late = Arc::new(device());
    // The device is polled before the sleep, when armed, and at the end.
    late.ready_after.store(2, Ordering::SeqCst);
    let mut wait = wait_for(&[(&late, POLLIN)], &[]);
    wait.run(&TimeLimit::after(Duration::from_millis(1)), NO_MASK).unwrap();
    assert_eq!((found(&wait, &late, POLLIN), late.asked.load(Ordering::SeqCst)), (POLLIN, 3));
    let never = Arc::new(device());
    let mut wait = wait_for(&[(&never, POLLIN)], &[]);
    wait.run(&TimeLimit::after(Duration::from_millis(1)), NO_MASK).unwrap();
    assert_eq!(found(&wait, &never, POLLIN), 0);
    never.assert_disarmed();
}

#[test]
fn a_device_ready_when_armed_disarms_the_rest() {
    let (quiet, late) = (Arc::new(device()), Arc::new(device()));
    late.ready_after.store(1, Ordering::SeqCst);
    let mut wait = wait_for(&[(&quiet, POLLIN), (&late, POLLIN)], &[]);
    wait.run(&FOREVER, NO_MASK).unwrap();
    assert_eq!((found(&wait, &quiet, POLLIN), found(&wait, &late, POLLIN)), (0, POLLIN));
    assert_eq!(quiet.armed.load(Ordering::SeqCst), 1);
    quiet.assert_disarmed();
    late.assert_disarmed();
}

#[test]
fn a_device_given_twice_is_polled_once() {
    let twice = Arc::new(device());
    twice.tell(POLLOUT);
    let mut wait = wait_for(&[(&twice, POLLIN), (&twice, POLLOUT)], &[]);
    wait.run(&FOREVER, NO_MASK).unwrap();
    assert_eq!((found(&wait, &twice, POLLIN), found(&wait, &twice, POLLOUT)), (0, POLLOUT));
    assert_eq!(twice.asked.load(Ordering::SeqCst), 1);
    assert_eq!(twice.asked_for.load(Ordering::SeqCst), POLLIN | POLLOUT);
}

#[test]
fn many_devices_and_descriptors_work_alike() {
    let devices: Vec<_> = (0..40).map(|_| Arc::new(device())).collect();
    let pipes: Vec<_> = (0..70).map(|_| rustix::pipe::pipe().unwrap()).collect();
    let watched: Vec<_> = devices.iter().map(|device| (device, POLLIN)).collect();
    let others: Vec<_> = pipes.iter().map(|(read, _)| (read.as_fd().as_raw_fd(), POLLIN)).collect();
    let mut wait = wait_for(&watched, &others);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while devices[39].armed.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            devices[39].tell(POLLIN);
            devices[39].wake();
        });
        wait.run(&FOREVER, NO_MASK).unwrap();
    });
    assert_eq!(found(&wait, &devices[39], POLLIN), POLLIN);
    assert!(devices[..39].iter().all(|device| found(&wait, device, POLLIN) == 0));
    assert_eq!(wait.others.len(), 70);
    devices.iter().for_each(|device| device.assert_disarmed());
}

/// Makes a signal pending and blocked; returns a mask that does not block it.
fn pending_signal() -> sigset_t {
    extern "C" fn ignore(_signal: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = ignore;
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
    // SAFETY: all zeroes is a set.
    let mut blocked: sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set belongs to this function.
    unsafe { libc::sigaddset(&raw mut blocked, libc::SIGUSR1) };
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, ptr::null_mut()) };
    // SAFETY: the call always succeeds.
    let own = unsafe { libc::pthread_self() };
    // SAFETY: the thread runs.
    unsafe { libc::pthread_kill(own, libc::SIGUSR1) };
    // SAFETY: all zeroes is a set.
    unsafe { std::mem::zeroed() }
}

#[test]
fn an_unmasked_signal_ends_a_wait_unless_a_device_is_ready() {
    let quiet = Arc::new(device());
    for limit in [TimeLimit::Now, FOREVER] {
        let mask = pending_signal();
        let mut wait = wait_for(&[(&quiet, POLLIN)], &[]);
        assert_eq!(wait.run(&limit, &raw const mask), Err(Errno::INTR), "{limit:?}");
    }
    quiet.assert_disarmed();
    quiet.tell(POLLIN);
    let mask = pending_signal();
    let mut wait = wait_for(&[(&quiet, POLLIN)], &[]);
    assert_eq!(wait.run(&FOREVER, &raw const mask), Ok(()));
    assert_eq!(found(&wait, &quiet, POLLIN), POLLIN);
}
