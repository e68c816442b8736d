//! End of a call's waiting time.

use std::cell::OnceCell;
use std::time::{Duration, Instant};

use libc::timespec;
use rustix::io::Errno;

/// End of a wait without an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TimeLimit {
    /// The wait does not begin.
    Now,
    /// The wait ends this long after the first query of the remaining time, which sets the end: a call that succeeds at
    /// once reads no clock. `None`: the end is too far away to represent.
    After(Duration, OnceCell<Option<Instant>>),
    /// The wait does not end.
    Never,
}

impl TimeLimit {
    /// Limit after a time.
    pub(crate) fn after(time: Duration) -> Self {
        if time.is_zero() {
            return Self::Now;
        }
        Self::After(time, OnceCell::new())
    }

    /// Limit after milliseconds; negative: no limit.
    pub(crate) fn from_milliseconds(milliseconds: i32) -> Self {
        u64::try_from(milliseconds).map_or(Self::Never, |time| Self::after(Duration::from_millis(time)))
    }

    /// Limit after a `timespec`; without one there is no limit.
    ///
    /// # Errors
    /// EINVAL if it is invalid.
    pub(crate) fn from_timespec(time: Option<&timespec>) -> Result<Self, Errno> {
        let Some(time) = time else { return Ok(Self::Never) };
        let seconds = u64::try_from(time.tv_sec).map_err(|_| Errno::INVAL)?;
        match u32::try_from(time.tv_nsec) {
            Ok(nanoseconds) if nanoseconds < 1_000_000_000 => {
                Ok(Self::after(Duration::new(seconds, nanoseconds)))
            }
            _ => Err(Errno::INVAL),
        }
    }

    /// Remaining time, zero once the limit has passed; `None` without a limit.
    pub(crate) fn left(&self) -> Option<Duration> {
        match self {
            Self::Now => Some(Duration::ZERO),
            Self::After(time, end) => {
                let now = Instant::now();
                let end = end.get_or_init(|| now.checked_add(*time));
                end.map(|end| end.saturating_duration_since(now))
            }
            Self::Never => None,
        }
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
        assert_eq!(TimeLimit::from_timespec(None), Ok(TimeLimit::Never));
        for (tv_sec, tv_nsec, limit) in [
            (0, 0, Ok(TimeLimit::Now)),
            (i64::MAX, 0, Ok(TimeLimit::after(Duration::from_secs(i64::MAX as u64)))),
            (-1, 0, Err(Errno::INVAL)),
            (0, -1, Err(Errno::INVAL)),
            (0, 1_000_000_000, Err(Errno::INVAL)),
        ] {
            assert_eq!(TimeLimit::from_timespec(Some(&timespec { tv_sec, tv_nsec })), limit);
        }
    }

    #[test]
    fn the_remaining_time_never_exceeds_the_limit() {
        let hour = Duration::from_secs(3600);
        let left = TimeLimit::after(hour).left().unwrap();
        assert!(left <= hour && left > hour / 2);
        assert_eq!(TimeLimit::Now.left(), Some(Duration::ZERO));
        assert_eq!(TimeLimit::Never.left(), None);
        assert_eq!(TimeLimit::after(Duration::MAX).left(), None);
    }

    #[test]
    fn a_limit_comes_to_its_end() {
        let limit = TimeLimit::after(Duration::from_nanos(1));
        while limit.left() != Some(Duration::ZERO) {}
        assert_eq!(limit.left(), Some(Duration::ZERO));
    }

    #[test]
    fn times_are_passed_on_exactly() {
        let time = timespec_of(Duration::new(3, 999_999_999));
        assert_eq!((time.tv_sec, time.tv_nsec), (3, 999_999_999));
        assert_eq!(timespec_of(Duration::MAX).tv_sec, i64::MAX);
    }
}
