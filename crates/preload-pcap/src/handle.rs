//! A device of Ringroad, from `pcap_create` to `pcap_close`.

mod settings;

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::Duration;

use libc::{c_char, c_int};
use ringroad::{Port, PortError, ProcessMark};

use crate::abi::{ERROR_TEXT_BYTES, PCAP_ERROR_BREAK, PCAP_ERROR_RFMON_NOTSUP, PCAP_TSTAMP_PRECISION_NANO};
use crate::device;
use crate::error::{PcapError, contained};
use crate::inject;
use crate::nudge::Nudge;
use crate::registry;
use crate::session::{Carrier, Session};
use crate::statistics::DropCounters;
pub(crate) use settings::{Settings, stamp_type};

/// A device behind one of Ringroad's `pcap_t`.
#[derive(Debug)]
pub(crate) struct Handle {
    /// Name of the device, as the program gave it.
    pub(crate) name: String,
    settings: Mutex<Settings>,
    nonblocking: AtomicBool,
    /// Whether `pcap_breakloop` was called, and no loop has ended since.
    breaking: AtomicBool,
    /// Text that `pcap_geterr` points to; always ends with a NUL.
    error: [AtomicU8; ERROR_TEXT_BYTES],
    active: OnceLock<Active>,
}

/// State of an activated handle.
#[derive(Debug)]
pub(crate) struct Active {
    session: Arc<Mutex<Session>>,
    /// Thread of the descriptor that the program polls.
    carrier: OnceLock<Carrier>,
    port_descriptor: RawFd,
    /// Wakes a thread that sleeps until frames come.
    pub(crate) nudge: Arc<Nudge>,
    reading: AtomicBool,
    /// Maximum time that a read waits; `None` is without limit.
    pub(crate) timeout: Option<Duration>,
    /// Whether a read may let frames gather before it returns.
    pub(crate) gathers: bool,
    /// Whether time stamps hold nanoseconds.
    pub(crate) nanoseconds: bool,
    /// Bytes of the receive ring's buffers.
    pub(crate) ring_bytes: c_int,
    /// Drop counters of the daemon.
    pub(crate) drops: DropCounters,
    /// Process that activated the handle.
    process: ProcessMark,
}

/// Permission to read, of which a handle has one.
#[derive(Debug)]
pub(crate) struct ReadPermit<'a>(&'a AtomicBool);

impl Drop for ReadPermit<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Handle {
    /// Makes a device that is not activated.
    pub(crate) fn new(name: String) -> Self {
        Self {
            name,
            settings: Mutex::default(),
            nonblocking: AtomicBool::new(false),
            breaking: AtomicBool::new(false),
            error: [const { AtomicU8::new(0) }; ERROR_TEXT_BYTES],
            active: OnceLock::new(),
        }
    }

    /// Settings before the activation.
    pub(crate) fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the settings. Fails once the handle is activated.
    pub(crate) fn set(&self, change: impl FnOnce(&mut Settings)) -> Result<c_int, PcapError> {
        if self.active.get().is_some() {
            return Err(PcapError::activated());
        }
        change(&mut self.settings());
        Ok(0)
    }

    /// Opens the port of the device.
    pub(crate) fn activate(&self) -> Result<c_int, PcapError> {
        if self.active.get().is_some() {
            return Err(PcapError::activated());
        }
        let active = Active::open(&self.name, &self.settings())?;
        self.active.set(active).map_err(|_| PcapError::activated())?;
        Ok(0)
    }

    /// State since the activation. Fails if the handle is not activated, or if a process that forked this one activated
    /// it.
    #[inline]
    pub(crate) fn active(&self) -> Result<&Active, PcapError> {
        let active = self.active.get().ok_or_else(PcapError::not_activated)?;
        if active.process.is_here() { Ok(active) } else { Err(PortError::OtherProcess.into()) }
    }

    /// Whether calls return instead of waiting.
    #[inline]
    pub(crate) fn is_nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Relaxed)
    }

    /// Sets whether calls return instead of waiting.
    pub(crate) fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    /// Requests the end of the loop, and wakes its thread. Signal handlers and other threads may call this.
    pub(crate) fn break_loop(&self) {
        self.breaking.store(true, Ordering::Release);
        if let Ok(active) = self.active() {
            active.nudge.give();
        }
    }

    /// Whether the loop's end was requested.
    #[inline]
    pub(crate) fn is_breaking(&self) -> bool {
        self.breaking.load(Ordering::Relaxed)
    }

    /// Whether the loop's end was requested; resets the request.
    #[inline]
    pub(crate) fn take_break(&self) -> bool {
        self.is_breaking() && self.breaking.swap(false, Ordering::AcqRel)
    }

    /// Return value of a libpcap function for `result`. The text of a failure is kept for `pcap_geterr`.
    #[inline]
    pub(crate) fn answer(&self, result: Result<c_int, PcapError>) -> c_int {
        match result {
            Ok(answer) => answer,
            Err(error) => self.fail(&error),
        }
    }

    /// Keeps the text of a failure for `pcap_geterr`, and returns its number.
    #[cold]
    pub(crate) fn fail(&self, error: &PcapError) -> c_int {
        if error.code != PCAP_ERROR_BREAK {
            self.set_error_text(&error.text);
        }
        error.code
    }

    fn set_error_text(&self, text: &str) {
        let most = ERROR_TEXT_BYTES - 1;
        let bytes = text.bytes().take(most).chain(std::iter::repeat(0));
        for (target, byte) in self.error.iter().zip(bytes) {
            target.store(byte, Ordering::Relaxed);
        }
        if let Some(last) = self.error.last() {
            last.store(0, Ordering::Relaxed);
        }
    }

    /// Address of the text of the last failure.
    pub(crate) fn error_pointer(&self) -> *mut c_char {
        self.error.as_ptr().cast_mut().cast()
    }

    /// Text of the last failure.
    pub(crate) fn error_text(&self) -> String {
        let bytes = self.error.iter().map(|byte| byte.load(Ordering::Relaxed)).take_while(|byte| *byte != 0);
        String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned()
    }
}

impl Active {
    fn open(name: &str, settings: &Settings) -> Result<Self, PcapError> {
        if settings.monitor {
            return Err(PcapError::coded(PCAP_ERROR_RFMON_NOTSUP, "ports of Ringroad have no monitor mode"));
        }
        let mut port =
            Port::open_with(&device::port_name(name, settings), &device::open_options(name, settings))?;
        let drops = DropCounters::of(name, &port);
        finish_at_exit();
        let nudge = Nudge::new().map_err(|errno| PcapError::new(format!("making an eventfd: {errno}")))?;
        let ring_bytes: u64 = port
            .queues()
            .iter_mut()
            .map(|queue| u64::from(queue.rx().slot_count()) * u64::from(queue.rx().buffer_bytes()))
            .sum();
        let port_descriptor = std::os::fd::AsFd::as_fd(&port).as_raw_fd();
        let nudge = Arc::new(nudge);
        let session = Session::new(port, settings.snaplen().cast_unsigned(), Arc::clone(&nudge));
        Ok(Self {
            session: Arc::new(Mutex::new(session)),
            carrier: OnceLock::new(),
            port_descriptor,
            nudge,
            reading: AtomicBool::new(false),
            timeout: settings.timeout(),
            gathers: settings.gathers(),
            nanoseconds: settings.precision == PCAP_TSTAMP_PRECISION_NANO,
            ring_bytes: c_int::try_from(ring_bytes).unwrap_or(c_int::MAX),
            drops,
            process: ProcessMark::here(),
        })
    }

    /// The open port, locked.
    #[inline]
    pub(crate) fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Descriptor for select, poll and epoll.
    pub(crate) fn selectable_descriptor(&self) -> Result<RawFd, PcapError> {
        let mut session = self.session();
        if session.selectable_descriptor().is_none() {
            let carrier = session.make_selectable(&self.session)?;
            // There is none yet: the session, which is locked, had no descriptor.
            let _ = self.carrier.set(carrier);
        }
        session.selectable_descriptor().ok_or_else(PcapError::not_activated)
    }

    /// Takes the permission to read. Fails while another thread, or the calling callback, reads.
    #[inline]
    pub(crate) fn take_turn(&self) -> Result<ReadPermit<'_>, PcapError> {
        if self.reading.swap(true, Ordering::Acquire) {
            return Err(PcapError::new("the device is being read already: one read at a time"));
        }
        Ok(ReadPermit(&self.reading))
    }

    /// Descriptor on which threads wait for the port's events.
    #[allow(unsafe_code)]
    pub(crate) fn port_descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the port lives in `session` as long as this value, and keeps its descriptor.
        unsafe { BorrowedFd::borrow_raw(self.port_descriptor) }
    }
}

impl Drop for Active {
    /// Ends the descriptor's thread before the port. A child of the process has a copy of the handle, but no such
    /// thread.
    fn drop(&mut self) {
        match self.carrier.take() {
            Some(carrier) if self.process.is_here() => carrier.end(),
            carrier => std::mem::forget(carrier),
        }
    }
}

/// Sends accepted frames of a program that ends without closing its devices.
#[allow(unsafe_code)]
fn finish_at_exit() {
    static REGISTERED: Once = Once::new();
    extern "C" fn finish() {
        contained(|| registry::for_each(|handle| handle.active().into_iter().for_each(inject::finish)));
    }
    REGISTERED.call_once(|| {
        // SAFETY: the function stays mapped with this object, which is loaded until the process ends.
        unsafe { libc::atexit(finish) };
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_sets_the_error_text_and_a_break_does_not() {
        let handle = Handle::new("vale0:a".into());
        assert_eq!(handle.answer(Err(PcapError::not_activated())), -3);
        let text = handle.error_text();
        assert!(text.contains("pcap_activate"), "{text}");
        assert_eq!(handle.answer(Err(PcapError::coded(PCAP_ERROR_BREAK, ""))), -2);
        assert_eq!(handle.error_text(), text);
        handle.fail(&PcapError::new("x".repeat(1000)));
        assert_eq!(handle.error_text().len(), ERROR_TEXT_BYTES - 1);
        handle.fail(&PcapError::new("short"));
        assert_eq!(handle.error_text(), "short");
    }

    #[test]
    fn a_break_is_reported_once() {
        let handle = Handle::new("vale0:a".into());
        assert!(!handle.take_break());
        handle.break_loop();
        assert!(handle.is_breaking());
        assert!(handle.take_break());
        assert!(!handle.take_break());
    }
}
