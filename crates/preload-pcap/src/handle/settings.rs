//! Settings of a device before the activation.

use std::time::Duration;

use libc::c_int;

use crate::abi::{
    MOST_SNAPLEN, PCAP_ERROR_TSTAMP_PRECISION_NOTSUP, PCAP_TSTAMP_HOST, PCAP_TSTAMP_PRECISION_MICRO,
    PCAP_TSTAMP_PRECISION_NANO, PCAP_WARNING_TSTAMP_TYPE_NOTSUP,
};
use crate::error::PcapError;

/// Settings made by the functions `pcap_set_...`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Settings {
    /// Maximum number of a frame's bytes; not above 0 means all.
    pub(crate) snaplen: c_int,
    /// Milliseconds that a read waits; not above 0 means no limit.
    pub(crate) timeout_ms: c_int,
    /// Whether frames for other hosts are requested.
    pub(crate) promiscuous: bool,
    /// Whether monitor mode is requested, which no device here has.
    pub(crate) monitor: bool,
    /// Whether frames are requested at once, without gathering.
    pub(crate) immediate: bool,
    /// Bytes of buffers for unread frames; not above 0 means the default.
    pub(crate) buffer_bytes: c_int,
    /// Precision of time stamps, as libpcap's number.
    pub(crate) precision: c_int,
}

impl Settings {
    /// Maximum number of a frame's bytes that the program gets, by libpcap's rules.
    pub(crate) fn snaplen(&self) -> c_int {
        if (1..=MOST_SNAPLEN).contains(&self.snaplen) { self.snaplen } else { MOST_SNAPLEN }
    }

    /// Maximum time that a read waits; `None` is without limit.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        let ms = u64::try_from(self.timeout_ms).ok().filter(|ms| *ms > 0)?;
        Some(Duration::from_millis(ms))
    }

    /// Whether frames may be reported in groups: libpcap's timeout allows that, unless the program requests immediate
    /// mode.
    pub(crate) fn gathers(&self) -> bool {
        self.timeout().is_some() && !self.immediate
    }

    /// Sets the precision: micro- or nanoseconds.
    pub(crate) fn set_precision(&mut self, precision: c_int) -> Result<c_int, PcapError> {
        if ![PCAP_TSTAMP_PRECISION_MICRO, PCAP_TSTAMP_PRECISION_NANO].contains(&precision) {
            let text = "time stamps are in micro- or nanoseconds";
            return Err(PcapError::coded(PCAP_ERROR_TSTAMP_PRECISION_NOTSUP, text));
        }
        self.precision = precision;
        Ok(0)
    }
}

/// Result of `pcap_set_tstamp_type`: this machine makes the stamps for every type.
pub(crate) fn stamp_type(kind: c_int) -> c_int {
    if kind == PCAP_TSTAMP_HOST { 0 } else { PCAP_WARNING_TSTAMP_TYPE_NOTSUP }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::PCAP_ERROR_RFMON_NOTSUP;

    #[test]
    fn odd_values_have_libpcaps_meaning() {
        let mut settings = Settings::default();
        assert_eq!((settings.snaplen(), settings.timeout()), (MOST_SNAPLEN, None));
        settings.snaplen = MOST_SNAPLEN + 1;
        settings.timeout_ms = -1;
        assert_eq!((settings.snaplen(), settings.timeout()), (MOST_SNAPLEN, None));
        settings.snaplen = 96;
        settings.timeout_ms = 7;
        assert_eq!((settings.snaplen(), settings.timeout()), (96, Some(Duration::from_millis(7))));
        assert!(settings.gathers());
        settings.immediate = true;
        assert!(!settings.gathers());
    }

    #[test]
    fn unsupported_settings_are_refused() {
        let mut settings = Settings::default();
        assert_eq!(settings.set_precision(2).unwrap_err().code, PCAP_ERROR_TSTAMP_PRECISION_NOTSUP);
        assert_eq!(settings.precision, PCAP_TSTAMP_PRECISION_MICRO);
        settings.set_precision(PCAP_TSTAMP_PRECISION_NANO).unwrap();
        assert_eq!(settings.precision, PCAP_TSTAMP_PRECISION_NANO);
        settings.monitor = true;
        let refused = crate::handle::Active::open("vale0:a", &settings).unwrap_err();
        assert_eq!(refused.code, PCAP_ERROR_RFMON_NOTSUP);
        assert_eq!((stamp_type(0), stamp_type(3)), (0, PCAP_WARNING_TSTAMP_TYPE_NOTSUP));
    }
}
