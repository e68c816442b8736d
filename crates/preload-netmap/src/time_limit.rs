//! Waiting times in the form that system calls take.

use std::time::Duration;

use libc::timespec;
use ringroad_c_face::TimeLimit;
use rustix::io::Errno;

/// Limit after a `timespec`; without one there is no limit.
///
/// # Errors
/// EINVAL if it is invalid.
pub(crate) fn from_timespec(time: Option<&timespec>) -> Result<TimeLimit, Errno> {
    let Some(time) = time else { return Ok(TimeLimit::Never) };
    let seconds = u64::try_from(time.tv_sec).map_err(|_| Errno::INVAL)?;
    match u32::try_from(time.tv_nsec) {
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
        assert_eq!(from_timespec(None), Ok(TimeLimit::Never));
        for (tv_sec, tv_nsec, limit) in [
            (0, 0, Ok(TimeLimit::Now)),
            (i64::MAX, 0, Ok(TimeLimit::after(Duration::from_secs(i64::MAX as u64)))),
            (-1, 0, Err(Errno::INVAL)),
            (0, -1, Err(Errno::INVAL)),
            (0, 1_000_000_000, Err(Errno::INVAL)),
        ] {
            assert_eq!(from_timespec(Some(&timespec { tv_sec, tv_nsec })), limit);
        }
    }

    #[test]
    fn times_are_passed_on_exactly() {
        let time = timespec_of(Duration::new(3, 999_999_999));
        assert_eq!((time.tv_sec, time.tv_nsec), (3, 999_999_999));
        assert_eq!(timespec_of(Duration::MAX).tv_sec, i64::MAX);
    }
}
