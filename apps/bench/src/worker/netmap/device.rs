//! `/dev/netmap` as a program written for netmap uses it: open, NIOCCTRL, mmap, the two sync calls and poll, all by the
//! C library's functions, so that a preloaded object can serve them. One tx and one rx ring.
//!
//! The program trusts the memory that it maps, as it would trust a kernel. It only checks indexes, since an invalid
//! index would crash it.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use libc::{c_int, c_ulong, c_void, pollfd};
use ringroad::PortError;
use ringroad_netmap::abi::{
    API_VERSION, NIOCCTRL, NIOCRXSYNC, NIOCTXSYNC, RegisterBody, RequestHeader, mode, request_type,
};
use ringroad_ring::layout::{InterfaceHeader, RingHeader, Slot};

/// Time after which a poll returns without frames or room, ms, so that the bench's commands are read.
const POLL_MS: c_int = 1;

/// Name of the failed call, and its error.
type Failure = (&'static str, io::Error);

/// A device that is bound to a port and mapped.
pub(super) struct BoundDevice {
    // Descriptor, closed before the mapping is removed: closing does not need the mapping.
    descriptor: OwnedFd,
    pub(super) tx: Ring,
    pub(super) rx: Ring,
    _mapping: DeviceMapping,
}

struct DeviceMapping {
    start: NonNull<u8>,
    bytes: usize,
}

impl Drop for DeviceMapping {
    fn drop(&mut self) {
        // SAFETY: `BoundDevice::open` made the mapping, and the device's rings are dropped with it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

fn control(descriptor: &OwnedFd, request: u32, argument: *mut c_void) -> io::Result<()> {
    // SAFETY: NIOCCTRL gets a header whose body has the length of its type; the other requests use no argument.
    match unsafe { libc::ioctl(descriptor.as_raw_fd(), c_ulong::from(request), argument) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl BoundDevice {
    /// Opens the device, binds it to all rings of port `name`, and maps its memory.
    pub(super) fn open(name: &str) -> Result<Self, Failure> {
        let last = |call| (call, io::Error::last_os_error());
        // SAFETY: the path ends with a NUL.
        let descriptor = unsafe { libc::open(c"/dev/netmap".as_ptr(), libc::O_RDWR) };
        if descriptor < 0 {
            return Err(last("open /dev/netmap"));
        }
        // SAFETY: the descriptor was just opened, and is not shared.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let mut body = RegisterBody { mode: mode::ALL_NIC, ..RegisterBody::default() };
        let mut header = RequestHeader {
            version: u16::try_from(API_VERSION).unwrap_or_default(),
            request_type: request_type::REGISTER,
            body: (&raw mut body).expose_provenance() as u64,
            ..RequestHeader::default()
        };
        let [room @ .., _nul] = &mut header.name;
        match room.get_mut(..name.len()) {
            Some(room) => room.copy_from_slice(name.as_bytes()),
            None => return Err(("NIOCCTRL", io::Error::from(io::ErrorKind::InvalidInput))),
        }
        control(&descriptor, NIOCCTRL, (&raw mut header).cast()).map_err(|error| ("NIOCCTRL", error))?;
        // SAFETY: the provider has written the body through the address above.
        let RegisterBody { offset, memory_bytes, .. } = unsafe { (&raw const body).read_volatile() };
        let bytes = usize::try_from(memory_bytes).unwrap_or(usize::MAX);
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, descriptor.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(last("mmap"));
        }
        let Some(start) = NonNull::new(start.cast::<u8>()) else { return Err(last("mmap")) };
        let mapping = DeviceMapping { start, bytes };
        let interface_offset = usize::try_from(offset).unwrap_or(usize::MAX);
        // SAFETY: the provider's offset is within the mapping.
        let interface = unsafe { start.add(interface_offset) };
        // SAFETY: the provider has put a `netmap_if` there, aligned to 8.
        let about = unsafe { interface.cast::<InterfaceHeader>().read() };
        let ring = |ring_number: u32| {
            // SAFETY: after the header there is a table with an entry for each ring.
            let entry = unsafe { interface.add(size_of::<InterfaceHeader>() + 8 * ring_number as usize) };
            // SAFETY: the entry is in the table, aligned to 8.
            let ring_offset = unsafe { entry.cast::<isize>().read() };
            // SAFETY: the provider's offset of a ring is within the mapping.
            let header = unsafe { interface.offset(ring_offset) };
            Ring::new(header.cast(), &mapping)
        };
        Ok(Self {
            tx: ring(0),
            rx: ring(about.tx_rings + about.host_tx_rings),
            descriptor,
            _mapping: mapping,
        })
    }

    /// Calls NIOCTXSYNC.
    #[inline]
    pub(super) fn tx_sync(&self) -> Result<(), PortError> {
        control(&self.descriptor, NIOCTXSYNC, std::ptr::null_mut())
            .map_err(|error| stopped("NIOCTXSYNC", &error))
    }

    /// Calls NIOCRXSYNC.
    #[inline]
    pub(super) fn rx_sync(&self) -> Result<(), PortError> {
        control(&self.descriptor, NIOCRXSYNC, std::ptr::null_mut())
            .map_err(|error| stopped("NIOCRXSYNC", &error))
    }

    /// Returns the device and its events to poll for: POLLIN, POLLOUT.
    #[inline]
    pub(super) fn awaited(&self, events: i16) -> pollfd {
        pollfd { fd: self.descriptor.as_raw_fd(), events, revents: 0 }
    }
}

/// Polls devices: syncs their rings, and sleeps if no device has an awaited event.
#[inline]
pub(super) fn poll<const N: usize>(mut awaited: [pollfd; N]) -> Result<(), PortError> {
    // SAFETY: N is the number of structures.
    let ready = unsafe { libc::poll(awaited.as_mut_ptr(), N as libc::nfds_t, POLL_MS) };
    if ready < 0 {
        return Err(stopped("poll", &io::Error::last_os_error()));
    }
    if awaited.iter().any(|entry| entry.revents & libc::POLLERR != 0) {
        return Err(PortError::Device("poll reported POLLERR".into()));
    }
    Ok(())
}

#[cold]
fn stopped(call: &str, error: &io::Error) -> PortError {
    PortError::Device(format!("{call}: {error}"))
}

/// A `netmap_ring` and the values that its macros compute.
pub(super) struct Ring {
    header: NonNull<RingHeader>,
    buffers: NonNull<u8>,
    buffer_count: usize,
    buffer_bytes: usize,
    slot_count: u32,
}

impl Ring {
    fn new(header: NonNull<RingHeader>, mapping: &DeviceMapping) -> Self {
        // SAFETY: the header is that of a ring in the mapping.
        let about = unsafe { header.read_volatile() };
        let offset = isize::try_from(about.buffers_offset).unwrap_or_default();
        // SAFETY: the provider's offset of the buffers is within the mapping.
        let buffers = unsafe { header.cast::<u8>().offset(offset) };
        let buffer_bytes = about.buffer_bytes as usize;
        let room = (mapping.start.addr().get() + mapping.bytes).saturating_sub(buffers.addr().get());
        Self {
            header,
            buffers,
            buffer_count: room.checked_div(buffer_bytes).unwrap_or_default(),
            buffer_bytes,
            slot_count: about.num_slots,
        }
    }

    /// Returns the first slot that belongs to the program.
    #[inline]
    pub(super) fn head(&self) -> u32 {
        // SAFETY: a field of a mapped header.
        let head = unsafe { &raw const (*self.header.as_ptr()).head };
        // SAFETY: as above; volatile, since the provider's calls access it too.
        unsafe { head.read_volatile() }
    }

    /// Returns the number of slots that belong to the program.
    #[inline]
    pub(super) fn space(&self) -> u32 {
        // SAFETY: a field of a mapped header.
        let tail = unsafe { &raw const (*self.header.as_ptr()).tail };
        // SAFETY: as above; volatile, since syncs move it.
        let (tail, head) = (unsafe { tail.read_volatile() }, self.head());
        if tail >= head { tail - head } else { tail + self.slot_count - head }
    }

    /// Returns the slot after slot `index`.
    #[inline]
    pub(super) fn next(&self, index: u32) -> u32 {
        if index + 1 == self.slot_count { 0 } else { index + 1 }
    }

    /// Hands over the slots before `head` at the next sync.
    #[inline]
    pub(super) fn give(&mut self, head: u32) {
        // SAFETY: a field of a mapped header.
        let own = unsafe { &raw mut (*self.header.as_ptr()).head };
        // SAFETY: as above; the program's to write.
        unsafe { own.write_volatile(head) };
        // SAFETY: a field of a mapped header.
        let cur = unsafe { &raw mut (*self.header.as_ptr()).cur };
        // SAFETY: as above; the program's to write.
        unsafe { cur.write_volatile(head) };
    }

    #[inline]
    fn slot(&self, index: u32) -> NonNull<Slot> {
        let index = if index < self.slot_count { index as usize } else { 0 };
        let offset = size_of::<RingHeader>() + index * size_of::<Slot>();
        // SAFETY: `slot_count` slots follow the header.
        unsafe { self.header.cast::<u8>().add(offset) }.cast()
    }

    /// Returns the buffer of slot `index`; the reserved buffer if the buffer index is invalid.
    #[inline]
    pub(super) fn buffer(&self, index: u32) -> NonNull<u8> {
        let slot = self.slot(index).as_ptr();
        // SAFETY: a field of a mapped slot.
        let buffer = unsafe { &raw const (*slot).buffer };
        // SAFETY: as above.
        let buffer = unsafe { buffer.read_volatile() } as usize;
        let buffer = if buffer < self.buffer_count { buffer } else { 0 };
        // SAFETY: the buffer index is less than the number of buffers.
        unsafe { self.buffers.add(buffer * self.buffer_bytes) }
    }

    /// Writes a frame into slot `index`.
    #[inline]
    pub(super) fn write(&mut self, index: u32, frame: &[u8]) {
        let length = frame.len().min(self.buffer_bytes);
        // SAFETY: the length is at most a buffer, which belongs to the program until it hands over the slot.
        unsafe { self.buffer(index).as_ptr().copy_from_nonoverlapping(frame.as_ptr(), length) };
        let slot = self.slot(index).as_ptr();
        // SAFETY: a field of a mapped slot, the program's.
        let len = unsafe { &raw mut (*slot).len };
        // SAFETY: as above.
        unsafe { len.write_volatile(u16::try_from(length).unwrap_or(u16::MAX)) };
        // SAFETY: a field of a mapped slot, the program's.
        let flags = unsafe { &raw mut (*slot).flags };
        // SAFETY: as above.
        unsafe { flags.write_volatile(0) };
    }

    /// Copies the frame of slot `index` out. Returns the number of copied bytes.
    #[inline]
    pub(super) fn read(&self, index: u32, frame: &mut [u8]) -> usize {
        let slot = self.slot(index).as_ptr();
        // SAFETY: a field of a mapped slot.
        let len = unsafe { &raw const (*slot).len };
        // SAFETY: as above.
        let len = usize::from(unsafe { len.read_volatile() });
        let length = len.min(frame.len()).min(self.buffer_bytes);
        // SAFETY: the length is at most the buffer and the destination, which do not overlap.
        unsafe { self.buffer(index).as_ptr().copy_to_nonoverlapping(frame.as_mut_ptr(), length) };
        length
    }
}
