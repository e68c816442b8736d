//! Waiting times in the form that system calls take.

use std::time::Duration;

use libc::timespec;
use ringroad_c_face::TimeLimit;
use ringroad_netmap::user_memory;
use rustix::io::Errno;

/// Limit after the program's `timespec`; without one there is no limit.
///
/// # Errors
/// EFAULT if it cannot be read, EINVAL if it is invalid.
pub(crate) fn from_timespec(time: *const timespec) -> Result<TimeLimit, Errno> {
    if time.is_null() {
        return Ok(TimeLimit::Never);
    }
    let [seconds, nanoseconds]: [i64; 2] = user_memory::read(time.addr())?;
    let seconds = u64::try_from(seconds).map_err(|_| Errno::INVAL)?;
    match u32::try_from(nanoseconds) {
        Ok(nanoseconds) if nanoseconds < 1_000_000_000 => {
            Ok(TimeLimit::after(Duration::new(seconds, nanoseconds)))
        }
        _ => Err(Errno::INVAL),
    }
}

/// Time in the form that system calls take.
pub(crate) fn timespec_of(time: Duration) -> timespec {
    timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_calls_time_limits_are_read() {
        assert_eq!(TimeLimit::from_milliseconds(-5), TimeLimit::Never);
        assert_eq!(TimeLimit::from_milliseconds(0), TimeLimit::Now);
        assert_eq!(from_timespec(std::ptr::null()), Ok(TimeLimit::Never));
        assert_eq!(from_timespec(std::ptr::without_provenance(8)), Err(Errno::FAULT));
        for (tv_sec, tv_nsec, limit) in [
            (0, 0, Ok(TimeLimit::Now)),
            (i64::MAX, 0, Ok(TimeLimit::after(Duration::from_secs(i64::MAX as u64)))),
            (-1, 0, Err(Errno::INVAL)),
            (0, -1, Err(Errno::INVAL)),
            (0, 1_000_000_000, Err(Errno::INVAL)),
        ] {
            assert_eq!(from_timespec(&timespec { tv_sec, tv_nsec }), limit);
        }
    }

    #[test]
    fn times_are_passed_on_exactly() {
        let time = timespec_of(Duration::new(3, 999_999_999));
        assert_eq!((time.tv_sec, time.tv_nsec), (3, 999_999_999));
        assert_eq!(timespec_of(Duration::MAX).tv_sec, i64::MAX);
    }
}
