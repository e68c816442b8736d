//! Small program over libpcap, written like users' programs: it loads the installed libpcap, and has no code for
//! Ringroad.
//!
//! The same binary with the same libpcap calls is measured twice, with the system's library and with Ringroad's object
//! before it.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::ptr::NonNull;

use libc::{c_char, c_int, c_void};
use ringroad::PortError;

use super::WorkerCounts;
use super::frame::template;
use super::roles::RoleStep;

/// Name of libpcap on Debian.
const LIBRARY: &CStr = c"libpcap.so.0.8";
/// Size of the buffer for an error's text, bytes.
const ERROR_BYTES: usize = 256;
/// Captured bytes of a frame, enough for all bytes, as in tcpdump.
const SNAPLEN: c_int = 262_144;
/// Time after which a read returns without a frame, ms.
const TIMEOUT_MS: c_int = 10;
/// Number of frames sent between two checks of the bench's commands.
const FRAMES_PER_TURN: u64 = 64;

type OpenLive = unsafe extern "C" fn(*const c_char, c_int, c_int, c_int, *mut c_char) -> *mut c_void;
type Dispatch = unsafe extern "C" fn(*mut c_void, c_int, Callback, *mut u8) -> c_int;
type Callback = unsafe extern "C" fn(*mut u8, *const c_void, *const u8);
type Inject = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> c_int;

/// Open device of libpcap.
struct LivePcap {
    handle: NonNull<c_void>,
    library: NonNull<c_void>,
}

impl LivePcap {
    fn open(name: &str) -> Result<Self, String> {
        // SAFETY: the name ends with a NUL.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW) };
        let library = NonNull::new(library).ok_or("libpcap is not installed (Debian package libpcap0.8)")?;
        let open = function(library, c"pcap_open_live")?;
        // SAFETY: the function with that name in libpcap has this type.
        let open: OpenLive = unsafe { std::mem::transmute(open) };
        let device = CString::new(name).map_err(|_| format!("{name:?} is not a device name"))?;
        let mut error = [0u8; ERROR_BYTES];
        // SAFETY: the device's name ends with a NUL, and `error` has room for libpcap's error text.
        let handle = unsafe { open(device.as_ptr(), SNAPLEN, 1, TIMEOUT_MS, error.as_mut_ptr().cast()) };
        let told = || CStr::from_bytes_until_nul(&error).unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { handle: NonNull::new(handle).ok_or_else(told)?, library })
    }

    /// Function `pcap_inject`.
    fn inject(&self) -> Result<Inject, String> {
        let inject = function(self.library, c"pcap_inject")?;
        // SAFETY: the function with that name in libpcap has this type.
        Ok(unsafe { std::mem::transmute::<*mut c_void, Inject>(inject) })
    }

    /// Function `pcap_dispatch`.
    fn dispatch(&self) -> Result<Dispatch, String> {
        let dispatch = function(self.library, c"pcap_dispatch")?;
        // SAFETY: the function with that name in libpcap has this type.
        Ok(unsafe { std::mem::transmute::<*mut c_void, Dispatch>(dispatch) })
    }
}

fn function(library: NonNull<c_void>, name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: the library is loaded, and the name ends with a NUL.
    let found = unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) };
    if found.is_null() { Err(format!("libpcap has no {}", name.to_string_lossy())) } else { Ok(found) }
}

/// Sender of frames, with a call for each frame.
pub(super) struct Injector {
    device: LivePcap,
    inject: Inject,
    frame: Vec<u8>,
}

impl Injector {
    pub(super) fn open(name: &str, slot_bytes: u32) -> Result<Self, String> {
        let device = LivePcap::open(name)?;
        Ok(Self { inject: device.inject()?, device, frame: template(1, 2, slot_bytes) })
    }
}

impl RoleStep for Injector {
    fn turn(&mut self, tally: &mut WorkerCounts) -> Result<(), PortError> {
        let [sent, _] = &mut tally.directions_frames;
        for _ in 0..FRAMES_PER_TURN {
            let (bytes, len) = (self.frame.as_ptr().cast(), self.frame.len());
            // SAFETY: the device is open, and the frame has that length.
            let injected = unsafe { (self.inject)(self.device.handle.as_ptr(), bytes, len) };
            // A full queue of the kernel is not a failure: the frame was not sent, and does not count.
            *sent += u64::from(injected > 0);
        }
        Ok(())
    }
}

/// Counter of received frames.
pub(super) struct Capturer {
    device: LivePcap,
    dispatch: Dispatch,
}

impl Capturer {
    pub(super) fn open(name: &str) -> Result<Self, String> {
        let device = LivePcap::open(name)?;
        Ok(Self { dispatch: device.dispatch()?, device })
    }
}

/// Counts one frame in the `u64` at `count`.
unsafe extern "C" fn count(count: *mut u8, _header: *const c_void, _frame: *const u8) {
    let count: *mut u64 = count.cast();
    // SAFETY: the caller of `pcap_dispatch` passed a counter, which nothing else uses meanwhile.
    unsafe { *count += 1 };
}

impl RoleStep for Capturer {
    fn turn(&mut self, tally: &mut WorkerCounts) -> Result<(), PortError> {
        let [received, _] = &mut tally.directions_frames;
        let counter: *mut u64 = received;
        // SAFETY: the device is open, and the callback gets the counter that it expects.
        let status = unsafe { (self.dispatch)(self.device.handle.as_ptr(), -1, count, counter.cast()) };
        dispatched(status)
    }
}

/// Result of `pcap_dispatch`.
fn dispatched(status: c_int) -> Result<(), PortError> {
    if status < 0 { Err(PortError::Device(format!("pcap_dispatch returned {status}"))) } else { Ok(()) }
}

/// Forwarder of frames from one device to another.
pub(super) struct PcapForwarder {
    from: LivePcap,
    dispatch: Dispatch,
    to: Outlet,
}

/// Device by which a forwarder sends.
struct Outlet {
    device: LivePcap,
    inject: Inject,
    sent: u64,
}

impl PcapForwarder {
    pub(super) fn open([from, to]: [&str; 2]) -> Result<Self, String> {
        let (from, device) = (LivePcap::open(from)?, LivePcap::open(to)?);
        Ok(Self {
            dispatch: from.dispatch()?,
            from,
            to: Outlet { inject: device.inject()?, device, sent: 0 },
        })
    }
}

/// Start of `struct pcap_pkthdr`, by pcap(3PCAP).
#[repr(C)]
struct PcapFrameHeader {
    stamp: libc::timeval,
    captured_bytes: u32,
}

/// Sends one frame by the [`Outlet`] at `outlet`.
unsafe extern "C" fn forward(outlet: *mut u8, header: *const c_void, frame: *const u8) {
    // SAFETY: the caller of `pcap_dispatch` passed an outlet, which nothing else uses meanwhile.
    let outlet = unsafe { &mut *outlet.cast::<Outlet>() };
    // SAFETY: libpcap passes the frame's header.
    let header = unsafe { &*header.cast::<PcapFrameHeader>() };
    let bytes = header.captured_bytes as usize;
    // SAFETY: the device is open, and libpcap passes that many bytes.
    let injected = unsafe { (outlet.inject)(outlet.device.handle.as_ptr(), frame.cast(), bytes) };
    outlet.sent += u64::from(injected > 0);
}

impl RoleStep for PcapForwarder {
    fn turn(&mut self, tally: &mut WorkerCounts) -> Result<(), PortError> {
        let outlet: *mut Outlet = &raw mut self.to;
        // SAFETY: the device is open, and the callback gets the outlet that it expects.
        let status = unsafe { (self.dispatch)(self.from.handle.as_ptr(), -1, forward, outlet.cast()) };
        let [sent, _] = &mut tally.directions_frames;
        *sent = self.to.sent;
        dispatched(status)
    }
}
