//! One open of `/dev/netmap`.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use ringroad_control::netmap::{Badge, Bound, NetmapReply, NetmapRequest, PortSizes, Register};
use rustix::io::Errno;

use crate::abi::{CsbOption, mode, register_flag};
use crate::binding::Binding;
use crate::csb::{Csb, check_alignment};
use crate::daemon_link;
use crate::descriptor::{LoopError, LoopPlan, NetmapFile};
use crate::sync_loop::LoopState;
use crate::wakers::Wakers;

const PAGE: usize = 4096;

/// One open of `/dev/netmap` in this process; copies of its descriptor share it.
#[derive(Debug)]
pub struct NetmapDevice {
    badge: Badge,
    binding: OnceLock<Binding>,
    csb: OnceLock<Csb>,
    sync_loop: LoopState,
    early_mapping: Mutex<EarlyMapping>,
}

/// State of a device whose program, one of 2012, may map it before it binds it. In netmap of that time all interfaces
/// lay in one region, which could always be mapped.
#[derive(Debug, Default)]
enum EarlyMapping {
    #[default]
    Unexpected,
    /// A mapping binds the device to all rings of this port.
    Expected(String),
    /// A mapping has done so.
    Done(String),
}

/// Devices of this process: every copy of a descriptor refers to the same device.
static DEVICES: Mutex<Vec<Weak<NetmapDevice>>> = Mutex::new(Vec::new());

impl NetmapDevice {
    /// Opens a device: returns the program's descriptor, and the device behind it.
    ///
    /// # Errors
    /// ENOENT if no daemon runs and none can be started; EACCES if the program may not use the daemon.
    pub fn open() -> Result<(OwnedFd, Arc<Self>), Errno> {
        let (descriptor, badge) = daemon_link::open_device()?;
        Ok((descriptor, Self::known(badge)))
    }

    /// The device behind a descriptor that this process inherited or received, if it is a device. Reads the descriptor
    /// without consuming data.
    #[must_use]
    pub fn recognise(descriptor: BorrowedFd<'_>) -> Option<Arc<Self>> {
        daemon_link::badge_in(descriptor).map(Self::known)
    }

    fn known(badge: Badge) -> Arc<Self> {
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        devices.retain(|device| device.strong_count() > 0);
        if let Some(device) = devices.iter().filter_map(Weak::upgrade).find(|device| device.badge == badge) {
            return device;
        }
        let device = Arc::new(Self {
            badge,
            binding: OnceLock::new(),
            csb: OnceLock::new(),
            sync_loop: LoopState::default(),
            early_mapping: Mutex::default(),
        });
        devices.push(Arc::downgrade(&device));
        device
    }

    /// Binding of the device, perhaps made by another process.
    #[inline]
    fn binding(&self) -> Option<&Binding> {
        self.binding.get().or_else(|| self.ask_for_binding())
    }

    #[cold]
    fn ask_for_binding(&self) -> Option<&Binding> {
        let (reply, descriptors) = daemon_link::ask(Some(self.badge), NetmapRequest::Binding).ok()?;
        let NetmapReply::Bound(bound) = reply else { return None };
        self.bind(*bound, descriptors).ok()
    }

    fn bind(&self, bound: Bound, descriptors: Vec<OwnedFd>) -> Result<&Binding, Errno> {
        let binding = Binding::new(self.badge, bound, descriptors)?;
        Ok(self.binding.get_or_init(|| binding))
    }

    fn early_mapping(&self) -> MutexGuard<'_, EarlyMapping> {
        self.early_mapping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Binds the device for a mapping that comes before the program's own request.
    fn bind_early(&self) -> Result<&Binding, Errno> {
        let mut early_mapping = self.early_mapping();
        let EarlyMapping::Expected(name) = &*early_mapping else { return Err(Errno::INVAL) };
        let name = name.clone();
        let request = Register {
            name: name.clone(),
            sizes: PortSizes::default(),
            mem_id: 0,
            ring_id: 0,
            mode: mode::ALL_NIC,
            extra_buffers: 0,
            flags: register_flag::OF_2012,
            offsets: None,
            external_memory: None,
            needs_exclusive: false,
        };
        self.register(request, None, None)?;
        *early_mapping = EarlyMapping::Done(name);
        self.binding().ok_or(Errno::INVAL)
    }

    /// Binding, for syncs with the rings' own indexes.
    #[inline]
    fn synced(&self) -> Result<&Binding, Errno> {
        if self.csb.get().is_some() {
            return Err(Errno::BUSY);
        }
        self.binding().ok_or(Errno::NXIO)
    }

    /// To be called after a descriptor or a mapping of a device was closed: waits until the daemon has taken back
    /// everything that ended with it.
    pub fn settle_closed() {
        daemon_link::settle();
    }

    /// Carries out mmap(2) on the device: maps `[offset, offset + bytes)` of the region.
    ///
    /// # Safety
    /// The conditions of mmap(2): with `MAP_FIXED`, a mapping at `address` is replaced.
    ///
    /// # Errors
    /// EINVAL if the device is not bound or the range is not in the region, and the errors of mmap(2). Programs of 2012
    /// may map before they bind; then the errors are those of binding, too.
    pub unsafe fn map(
        &self,
        address: *mut c_void,
        bytes: usize,
        protection: i32,
        flags: i32,
        offset: i64,
    ) -> Result<*mut c_void, Errno> {
        let binding = self.binding().map_or_else(|| self.bind_early(), Ok)?;
        let region_bytes = binding.bound.geometry.pools_bytes();
        let end = u64::try_from(offset).ok().and_then(|offset| offset.checked_add(bytes as u64));
        if end.is_none_or(|end| end > region_bytes.next_multiple_of(PAGE as u64)) {
            return Err(Errno::INVAL);
        }
        let descriptor = binding.mapping.region.as_fd().as_raw_fd();
        // Private pages would not show the writes of other processes to the program.
        let flags = flags & !libc::MAP_PRIVATE | libc::MAP_SHARED;
        // SAFETY: the caller guarantees the address; the memfd cannot shrink.
        let mapped = unsafe { libc::mmap(address, bytes, protection, flags, descriptor, offset) };
        if mapped == libc::MAP_FAILED {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
        }
        Ok(mapped)
    }

    /// Polls as poll(2) without sleeping: syncs as `events` (POLLIN, POLLOUT, ...) require, and returns `revents`.
    #[must_use]
    pub fn ready(&self, events: i16) -> i16 {
        self.synced().map_or(libc::POLLERR, |binding| binding.ready(events))
    }

    /// Prepares a sleep: announces it, then polls as [`Self::ready`] does. If the result is not 0, no sleep is
    /// prepared; otherwise `wakers` gets the descriptors to wait for. [`Self::disarm`] must follow in every case.
    #[must_use]
    pub fn arm(&self, events: i16, wakers: &mut Wakers) -> i16 {
        self.synced().map_or(libc::POLLERR, |binding| binding.arm(events, wakers))
    }

    /// Ends the sleep that [`Self::arm`] prepared.
    pub fn disarm(&self, events: i16) {
        if let Some(binding) = self.binding.get() {
            binding.disarm(events);
        }
    }

    /// Replaces the program's memory at `address` by the region.
    fn map_over(&self, binding: &Binding, address: usize) -> Result<(), Errno> {
        if !address.is_multiple_of(PAGE) {
            return Err(Errno::INVAL);
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let bytes = binding.bound.geometry.pools_bytes() as usize;
        // SAFETY: the program has offered `bytes` bytes of memory at this address for a region; the daemon made the
        // region no larger.
        unsafe { self.map(address as *mut c_void, bytes, protection, flags, 0) }.map(drop)
    }
}

impl NetmapFile for NetmapDevice {
    fn register(
        &self,
        request: Register,
        external_memory: Option<usize>,
        csb: Option<CsbOption>,
    ) -> Result<Bound, Errno> {
        // The arrays are checked before the device is bound.
        if let Some(csb) = &csb {
            check_alignment(csb)?;
        }
        if external_memory.is_some_and(|address| !address.is_multiple_of(PAGE)) {
            return Err(Errno::INVAL);
        }
        let has = request.external_memory.map_or(0, |external| external.pools.memory_bytes);
        let (reply, descriptors) = daemon_link::ask(Some(self.badge), NetmapRequest::Register(request))?;
        let NetmapReply::Bound(bound) = reply else { return Err(Errno::IO) };
        // The memory after the offered range is the program's.
        let fits =
            has.checked_next_multiple_of(PAGE as u64).is_some_and(|has| bound.geometry.pools_bytes() <= has);
        if external_memory.is_some() && !fits {
            return Err(Errno::IO);
        }
        let binding = self.bind(*bound, descriptors)?;
        binding.begin_as_2012();
        if let Some(address) = external_memory {
            self.map_over(binding, address)?;
        }
        if let Some(csb) = csb {
            self.enable_csb(csb)?;
        }
        Ok(binding.bound.clone())
    }

    fn expect_early_mapping(&self, name: String) {
        let mut early_mapping = self.early_mapping();
        if !matches!(*early_mapping, EarlyMapping::Done(_)) {
            *early_mapping = EarlyMapping::Expected(name);
        }
    }

    fn take_early_binding(&self, name: &str) -> Option<Bound> {
        let EarlyMapping::Done(bound_to) = std::mem::take(&mut *self.early_mapping()) else { return None };
        self.binding().filter(|_| bound_to == name).map(|binding| binding.bound.clone())
    }

    fn ask(&self, request: NetmapRequest) -> Result<NetmapReply, Errno> {
        daemon_link::ask(Some(self.badge), request).map(|(reply, _)| reply)
    }

    fn bound_rings(&self) -> Option<(usize, usize)> {
        self.binding().map(|binding| (binding.tx.len(), binding.rx.len()))
    }

    fn enable_csb(&self, addresses: CsbOption) -> Result<(), Errno> {
        let binding = self.binding().ok_or(Errno::NXIO)?;
        if self.sync_loop.is_running() {
            return Err(Errno::BUSY);
        }
        const EXCLUSIVE: u64 = 0x800;
        if binding.bound.flags & EXCLUSIVE == 0 {
            return Err(Errno::INVAL);
        }
        let csb = Csb::enable(addresses, binding.rings())?;
        // The first arrays stay if CSB mode is enabled twice.
        let _ = self.csb.set(csb);
        Ok(())
    }

    fn run_sync_loop(&self, plan: LoopPlan) -> Result<(), LoopError> {
        let binding = self.binding().ok_or(LoopError::Request(Errno::NXIO))?;
        let csb = self.csb.get().ok_or(LoopError::Request(Errno::INVAL))?;
        self.sync_loop.run(binding, csb, &plan)
    }

    fn stop_sync_loop(&self) -> Result<(), Errno> {
        self.binding().ok_or(Errno::NXIO)?;
        self.sync_loop.stop();
        Ok(())
    }

    fn tx_sync(&self) -> Result<(), Errno> {
        self.synced()?.tx_sync()
    }

    fn rx_sync(&self) -> Result<(), Errno> {
        self.synced()?.rx_sync()
    }
}
