//! A wait on an epoll set whose limit is exact.
//!
//! epoll_wait(2) takes its limit in whole milliseconds, and rustix rounds a limit up to them. For a sender of 1000
//! frames/s that would be a late frame in nearly every wait. epoll_pwait2(2) takes nanoseconds, but needs Linux 5.11,
//! and a system call filter that knows it. ppoll(2) takes them everywhere, and an epoll set can itself be polled.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

/// Waits until `set` has events, or until `limit` has passed; `None` waits without limit. Writes events to `events`,
/// and returns their number: 0 if the limit passed.
///
/// # Errors
/// The kernel's error; `EINTR` if a signal handler ran.
pub fn epoll_wait(
    set: impl AsFd,
    events: &mut [epoll::Event],
    limit: Option<Duration>,
) -> rustix::io::Result<usize> {
    let mut limit = limit.map(timespec);
    if limit.as_ref().is_some_and(|limit| limit.tv_nsec % 1_000_000 != 0) {
        if poll(&mut [PollFd::new(&set, PollFlags::IN)], limit.as_ref())? == 0 {
            return Ok(0);
        }
        limit = Some(timespec(Duration::ZERO));
    }
    epoll::wait(&set, events, limit.as_ref())
}

/// A span of time as the kernel takes it; the longest possible one if it is longer.
pub fn timespec(span: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(span.subsec_nanos()),
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
    };

    use super::*;
    use crate::eventfd;

    const SHORT: Duration = Duration::from_micros(100);

    fn nothing() -> epoll::Event {
        epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }
    }

    /// A set with an eventfd whose events have the number 7.
    fn watched() -> (OwnedFd, OwnedFd) {
        let (set, event) = (epoll::create(epoll::CreateFlags::CLOEXEC).unwrap(), eventfd::create().unwrap());
        epoll::add(&set, &event, epoll::EventData::new_u64(7), epoll::EventFlags::IN).unwrap();
        (set, event)
    }

    #[test]
    fn a_wait_of_less_than_a_millisecond_ends_before_the_millisecond_does() {
        let (set, _event) = watched();
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK).unwrap();
        let later = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(SHORT * 9) };
        // On a busy machine any wait may end late, but not every one.
        let ends_first = (0..1000).any(|_| {
            timerfd_settime(&timer, TimerfdTimerFlags::empty(), &later).unwrap();
            assert_eq!(epoll_wait(&set, &mut [nothing(); 4], Some(SHORT)), Ok(0));
            rustix::io::read(&timer, &mut [0; 8]) == Err(rustix::io::Errno::AGAIN)
        });
        assert!(ends_first, "a wait of 100 µs never ended within 900 µs");
    }

    #[test]
    fn events_are_reported_whatever_the_limit() {
        let (set, event) = watched();
        eventfd::ring_own(&event);
        for limit in [None, Some(Duration::ZERO), Some(SHORT), Some(Duration::MAX)] {
            let mut events = [nothing(); 4];
            assert_eq!(epoll_wait(&set, &mut events, limit), Ok(1), "{limit:?}");
            assert_eq!({ events[0].data }.u64(), 7, "{limit:?}");
        }
        eventfd::drain(&event);
        for limit in [Duration::ZERO, SHORT, Duration::from_millis(1)] {
            assert_eq!(epoll_wait(&set, &mut [nothing(); 4], Some(limit)), Ok(0), "{limit:?}");
        }
    }
}
