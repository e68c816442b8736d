//! The messages of a guest's front end, and their effect on the rings (vhost-user protocol, QEMU's
//! `docs/interop/vhost-user.rst`).
//!
//! The `vhost` crate reads and answers the messages. A ring runs when it was started by its kick, is enabled, and its
//! addresses lie in the shared memory. For most changes the ring is taken back from the worker first and handed over
//! again afterwards. Wake-ups and the log change while a ring runs: then no frame may find the ring missing, so the
//! worker keeps it. The control queue stays with the connection's thread ([`control`]).

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ringroad_virtqueue::device_ring::{DeviceRing, RingPosition, VirtqueueConfig};
use ringroad_virtqueue::dirty_log::DirtyLog;
use ringroad_virtqueue::guest_memory::{GuestMemory, GuestRegion, RegionLayout};
use ringroad_virtqueue::inflight::{Inflight, InflightLayout};
use ringroad_virtqueue::layout::{
    MAX_RING_ENTRIES, NET_HEADER_BYTES, SHORT_NET_HEADER_BYTES, features as feature,
};
use ringroad_wire::mac::Mac;
use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};

use self::control::{ControlRing, DriverSettings};
use super::call::{Call, is_stream_socket};
use super::features::{describe, offered_protocol};
use super::messages::OwnMessage;
use super::vring::{Scratch, Vring};
use crate::peer::handover::Mailbox;
use crate::peer::wake_set::{WakeSet, check_eventfd};
use crate::peer::watch::PeerWatch;

mod control;
mod hand_over;

/// Maximum number of memory regions: QEMU's number of slots.
const MAX_MEMORY_SLOTS: usize = 509;
/// The network card's configuration (virtio 1.2, section 5.1.4): address, status, pairs of queues, MTU.
const CONFIG_BYTES: usize = 12;
/// Maximum number of regions whose files are kept for another process: the number that every front end may have. A
/// guest with more regions must reconnect after a handover.
const MAX_KEPT_FILES: usize = 8;
/// Part of the configuration with the address.
const ADDRESS_BYTES: usize = 6;
const LINK_UP: u16 = 1;
/// The guest is to announce itself.
const ANNOUNCE: u16 = 2;

/// Setup of one ring by the front end.
#[derive(Debug, Default)]
struct VringSetup {
    entries: u16,
    addresses: Option<VringAddresses>,
    position: RingPosition,
    is_started: bool,
    is_enabled: bool,
    /// Whether the worker has the ring.
    runs: bool,
    /// Whether the ring broke a rule. It does not run again until it is set up again.
    is_broken: bool,
    kick: Option<OwnedFd>,
    call: Option<Arc<Call>>,
    error: Option<Arc<Call>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct VringAddresses {
    descriptors: u64,
    driver: u64,
    device: u64,
    is_logged: bool,
}

/// A region of the guest's memory.
#[derive(Debug, Clone)]
struct KnownRegion {
    mapped: Arc<GuestRegion>,
    /// File of the region, for a process that takes over the guest.
    file: Option<Arc<OwnedFd>>,
}

impl KnownRegion {
    fn map(layout: RegionLayout, file: impl Into<OwnedFd>) -> Result<Self> {
        let file = file.into();
        let mapped = GuestRegion::map(layout, file.as_fd()).map_err(refuse)?;
        Ok(Self { mapped: Arc::new(mapped), file: Some(Arc::new(file)) })
    }
}

/// The back end of one port, with one front end after the other.
#[derive(Debug)]
pub(super) struct BackEnd {
    offered: u64,
    features: u64,
    protocol_features: u64,
    regions: Vec<KnownRegion>,
    memory: Arc<GuestMemory>,
    log: Option<Arc<DirtyLog>>,
    inflight: Option<Arc<Inflight>>,
    vrings: Vec<VringSetup>,
    /// Mailboxes of the rings, in the order of the front end's numbers: receive and transmit queue of each pair.
    mailboxes: Vec<Mailbox<Vring>>,
    /// The control queue, while it runs.
    control: Option<ControlRing>,
    /// The descriptors that wake the connection's thread for the control queue.
    control_wake: Arc<WakeSet>,
    settings: DriverSettings,
    /// Address that the card has in the beginning, if this side gives it one.
    address: Option<Mac>,
    /// Status of the device, as the front end last set it (virtio 1.2, section 2.1).
    status: u64,
    /// The front end's socket for messages of this side.
    channel: Option<OwnedFd>,
    watch: Arc<PeerWatch>,
}

/// Error of this back end, which is reported to the front end if it requests replies, and to users.
fn refuse(why: impl ToString) -> Error {
    Error::ReqHandlerError(std::io::Error::other(why.to_string()))
}

impl BackEnd {
    /// Back end that offers the features `offered`, of a card with the address `address`.
    ///
    /// # Errors
    /// The kernel has no descriptors left.
    pub(super) fn new(
        (offered, address): (u64, Option<Mac>),
        mailboxes: Vec<Mailbox<Vring>>,
        watch: Arc<PeerWatch>,
    ) -> rustix::io::Result<Self> {
        // One more for the control queue.
        let vrings = (0..=mailboxes.len()).map(|_| VringSetup::default()).collect();
        Ok(Self {
            offered,
            features: 0,
            protocol_features: 0,
            regions: Vec::new(),
            memory: Arc::default(),
            log: None,
            inflight: None,
            vrings,
            mailboxes,
            control: None,
            control_wake: Arc::new(WakeSet::new()?),
            settings: DriverSettings::new(address),
            address,
            status: 0,
            channel: None,
            watch,
        })
    }

    /// Forgets a front end: no part of its memory is in use afterwards.
    pub(super) fn reset(&mut self) {
        for index in 0..self.vrings.len() {
            self.stop(index);
        }
        self.vrings.iter_mut().for_each(|setup| *setup = VringSetup::default());
        (self.features, self.protocol_features, self.status) = (0, 0, 0);
        self.settings = DriverSettings::new(self.address);
        self.channel = None;
        self.regions.clear();
        self.memory = Arc::default();
        self.log = None;
        self.inflight = None;
    }

    fn has(&self, bits: u64) -> bool {
        self.features & bits == bits
    }

    fn setup(&mut self, index: u32) -> Result<&mut VringSetup> {
        let count = self.vrings.len();
        let no_such = || refuse(format!("there is no ring {index}: the port has {count}"));
        self.vrings.get_mut(index as usize).ok_or_else(no_such)
    }

    /// Number of pairs of queues.
    fn pairs(&self) -> usize {
        self.mailboxes.len() / 2
    }

    /// Takes a ring back from the worker, if the worker has it.
    fn stop(&mut self, index: usize) {
        let Some(setup) = self.vrings.get_mut(index) else { return };
        if !std::mem::take(&mut setup.runs) {
            return;
        }
        let control = self.control.take_if(|control| control.index == index);
        let mailbox = self.mailboxes.get(index).filter(|_| control.is_none());
        if let Some(kick) = &setup.kick {
            mailbox.map_or(&*self.control_wake, Mailbox::wake).remove(kick.as_fd());
        }
        let given_back = || mailbox.and_then(|mailbox| mailbox.exchange(None));
        if let Some(vring) = control.map(|control| control.vring).or_else(given_back) {
            setup.position = vring.ring.position();
            setup.is_broken |= vring.fault.is_some();
        }
    }

    /// Hands a ring to the worker if it should run. The worker does not have it.
    fn start(&mut self, index: usize) -> Result<()> {
        let Some(mut vring) = self.prepare(index)? else { return Ok(()) };
        vring.begin();
        if self.is_control(index) {
            self.start_control(ControlRing { index, vring })?;
        } else if let Some(mailbox) = self.mailboxes.get(index) {
            mailbox.exchange(Some(vring));
        }
        Ok(())
    }

    /// Makes a ring for the worker if it should run. The guest sees no change.
    fn prepare(&mut self, index: usize) -> Result<Option<Vring>> {
        let (features, is_mergeable) = (self.features, self.has(feature::NET_MRG_RXBUF));
        let log = self.log_in_use();
        let (is_control, filter) = (self.is_control(index), self.filter_of(index));
        let wake = match self.mailboxes.get(index) {
            _ if is_control => &*self.control_wake,
            Some(mailbox) if self.settings.uses(index) => mailbox.wake(),
            _ => return Ok(None),
        };
        let Some(setup) = self.vrings.get_mut(index) else { return Ok(None) };
        let enabled = setup.is_enabled || features & feature::PROTOCOL_FEATURES == 0;
        let Some(addresses) = setup.addresses.filter(|_| setup.is_started && enabled && !setup.is_broken)
        else {
            return Ok(None);
        };
        let has = |bits: u64| features & bits == bits;
        let config = VirtqueueConfig {
            entries: setup.entries,
            descriptors: addresses.descriptors,
            driver: addresses.driver,
            device: addresses.device,
            is_packed: has(feature::RING_PACKED),
            has_event_index: has(feature::EVENT_IDX),
            has_tables: has(feature::INDIRECT_DESC),
        };
        let mut ring = DeviceRing::new(Arc::clone(&self.memory), &config, setup.position).map_err(refuse)?;
        // A command that is carried out twice has the same effect as once.
        if let Some(inflight) = self.inflight.as_ref().filter(|_| !is_control) {
            ring.track(inflight, index as u16).map_err(refuse)?;
        }
        let short = !is_mergeable && !has(feature::VERSION_1);
        let vring = Vring {
            ring,
            call: setup.call.clone(),
            error: setup.error.clone(),
            log,
            logs_ring: addresses.is_logged,
            header_bytes: if short { SHORT_NET_HEADER_BYTES } else { NET_HEADER_BYTES },
            is_mergeable,
            reads_offloads: has(feature::NET_CSUM),
            takes_unfinished: has(feature::GUEST_OFFLOADS),
            filter,
            fault: None,
            is_uncounted: false,
            scratch: Scratch::new(),
        };
        if let Some(kick) = &setup.kick {
            wake.add(kick.as_fd()).map_err(refuse)?;
        }
        setup.runs = true;
        Ok(Some(vring))
    }

    /// Changes a ring while no worker has it.
    fn change(&mut self, index: u32, change: impl FnOnce(&mut VringSetup)) -> Result<()> {
        self.setup(index)?;
        self.stop(index as usize);
        change(self.setup(index)?);
        let outcome = self.start(index as usize);
        self.tell();
        outcome
    }

    /// Changes common state of all rings, while no worker has any of them.
    fn change_all(&mut self, change: impl FnOnce(&mut Self)) -> Result<()> {
        for index in 0..self.vrings.len() {
            self.stop(index);
        }
        change(self);
        for index in 0..self.vrings.len() {
            self.start(index)?;
        }
        self.tell();
        Ok(())
    }

    /// Changes a ring that may run. It goes on running.
    fn edit(&mut self, index: usize, edit: impl FnOnce(&mut Vring) + Send + 'static) {
        if let Some(control) = self.control.as_mut().filter(|control| control.index == index) {
            edit(&mut control.vring);
        } else if let (Some(setup), Some(mailbox)) = (self.vrings.get(index), self.mailboxes.get(index))
            && setup.runs
        {
            mailbox.edit(edit);
        }
    }

    /// The log of pages that rings write, if there is to be one.
    fn log_in_use(&self) -> Option<Arc<DirtyLog>> {
        self.log.clone().filter(|_| self.has(feature::LOG_ALL))
    }

    /// Begins or ends the logging of what running rings write.
    fn follow_log(&mut self) {
        for index in 0..self.vrings.len() {
            let log = self.log_in_use();
            let addresses = self.vrings.get(index).and_then(|setup| setup.addresses);
            let logs_ring = addresses.is_some_and(|addresses| addresses.is_logged);
            self.edit(index, move |vring| (vring.log, vring.logs_ring) = (log, logs_ring));
        }
        self.tell();
    }

    /// Reports the state to users.
    fn tell(&self) {
        let pairs = self.vrings.chunks_exact(2).take(self.pairs());
        let pairs = pairs.take_while(|pair| pair.iter().all(|setup| setup.runs)).count();
        self.watch.agreed(describe(self.features), pairs as u16);
        self.watch.has_address(self.guest_address());
    }

    /// Carries out a message that the `vhost` crate does not pass on. Returns the value that the front end requests.
    pub(super) fn carry_out(&mut self, message: OwnMessage) -> Result<Option<u64>> {
        let needed = message.protocol_features();
        if self.protocol_features & needed.bits() != needed.bits() {
            return Err(Error::InactiveOperation(needed));
        }
        match message {
            OwnMessage::SetMemTable { regions, files } => {
                let files = files.into_iter().map(File::from).collect();
                self.set_mem_table(&regions, files, None)?;
            }
            OwnMessage::SetVringEnable { index, is_enabled } => self.set_vring_enable(index, is_enabled)?,
            OwnMessage::SetBackendReqFd(socket) => {
                if !is_stream_socket(socket.as_fd()) {
                    return Err(refuse("the channel for messages of the back end is not a stream socket"));
                }
                self.channel = Some(socket);
            }
            OwnMessage::SetStatus(status) => {
                self.status = status;
                // Zero resets the device.
                if status == 0 {
                    self.reset_device()?;
                }
            }
            OwnMessage::GetStatus => return Ok(Some(self.status)),
        }
        Ok(None)
    }

    fn set_memory(&mut self, mut regions: Vec<KnownRegion>) -> Result<()> {
        let mapped = regions.iter().map(|region| Arc::clone(&region.mapped)).collect();
        let memory = GuestMemory::new(mapped).map_err(refuse)?;
        if regions.len() > MAX_KEPT_FILES {
            regions.iter_mut().for_each(|region| region.file = None);
        }
        self.change_all(|this| (this.regions, this.memory) = (regions, Arc::new(memory)))
    }

    /// The regions without this one. The addresses and the size identify a region; the file's offset does not.
    fn regions_but(&self, region: &VhostUserMemoryRegion) -> Vec<KnownRegion> {
        let key = |layout: RegionLayout| (layout.guest, layout.user, layout.bytes);
        let gone = key(layout_of(region));
        self.regions.iter().filter(|known| key(known.mapped.layout()) != gone).cloned().collect()
    }

    fn inflight_layout(&self, asked: &VhostUserInflight) -> InflightLayout {
        let (rings, entries) = (asked.num_queues, asked.queue_size);
        InflightLayout { rings, entries, is_packed: self.has(feature::RING_PACKED) }
    }
}

fn layout_of(region: &VhostUserMemoryRegion) -> RegionLayout {
    RegionLayout {
        guest: region.guest_phys_addr,
        user: region.user_addr,
        bytes: region.memory_size,
        file_offset: region.mmap_offset,
    }
}

/// Makes a call of the guest's driver or front end from a message's file.
fn call(file: Option<File>) -> Result<Option<Arc<Call>>> {
    file.map(|file| Call::new(file.into()).map(Arc::new).map_err(refuse)).transpose()
}

impl VhostUserBackendReqHandlerMut for BackEnd {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset_device()
    }

    fn reset_device(&mut self) -> Result<()> {
        for index in 0..self.vrings.len() {
            self.stop(index);
        }
        for setup in &mut self.vrings {
            (setup.is_started, setup.is_enabled, setup.is_broken) = (false, false, false);
        }
        self.reset_settings();
        self.tell();
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.offered)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        let odd = features & !self.offered;
        if odd != 0 {
            return Err(refuse(format!("the front end wants features that were not offered: {odd:#x}")));
        }
        match features ^ self.features {
            0 => return Ok(()),
            feature::LOG_ALL => {
                self.features = features;
                self.follow_log();
                return Ok(());
            }
            _ => {}
        }
        self.change_all(|this| {
            let changed = std::mem::replace(&mut this.features, features) ^ features;
            if changed & control::FEATURES != 0 {
                this.reset_settings();
            }
        })
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        let map = |(region, file)| KnownRegion::map(layout_of(region), file);
        self.set_memory(regions.iter().zip(files).map(map).collect::<Result<_>>()?)?;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, entries: u32) -> Result<()> {
        let entries = u16::try_from(entries).ok().filter(|entries| (1..=MAX_RING_ENTRIES).contains(entries));
        let entries = entries.ok_or_else(|| refuse("a ring has 1 to 32768 entries"))?;
        self.change(index, |setup| setup.entries = entries)
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        flags: VhostUserVringAddrFlags,
        descriptors: u64,
        device: u64,
        driver: u64,
        _log: u64,
    ) -> Result<()> {
        let is_logged = flags.contains(VhostUserVringAddrFlags::VHOST_VRING_F_LOG);
        let addresses = VringAddresses { descriptors, driver, device, is_logged };
        let setup = self.setup(index)?;
        if setup.runs && setup.addresses.map(|known| VringAddresses { is_logged, ..known }) == Some(addresses)
        {
            setup.addresses = Some(addresses);
            self.follow_log();
            return Ok(());
        }
        self.change(index, |setup| setup.addresses = Some(addresses))
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.change(index, |setup| (setup.position, setup.is_broken) = (RingPosition(base), false))
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        // This message stops the ring until the next kick is set.
        self.change(index, |setup| (setup.is_started, setup.kick) = (false, None))?;
        Ok(VhostUserVringState::new(index, self.setup(index)?.position.0))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let kick: Option<OwnedFd> = file.map(OwnedFd::from);
        if let Some(kick) = &kick {
            check_eventfd(kick.as_fd()).map_err(refuse)?;
        }
        self.change(index.into(), |setup| (setup.is_started, setup.kick) = (true, kick))
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let call = call(file)?;
        // The former one is closed here, not by the worker.
        let _former = std::mem::replace(&mut self.setup(index.into())?.call, call.clone());
        self.edit(index.into(), |vring| {
            vring.call = call;
            // The guest may have missed a wake-up meanwhile.
            vring.begin();
        });
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let error = call(file)?;
        let _former = std::mem::replace(&mut self.setup(index.into())?.error, error.clone());
        self.edit(index.into(), |vring| vring.error = error);
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(offered_protocol())
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        let odd = features & !(offered_protocol() | VhostUserProtocolFeatures::REPLY_ACK).bits();
        if odd != 0 {
            return Err(refuse(format!(
                "the front end wants protocol features that were not offered: {odd:#x}"
            )));
        }
        self.protocol_features = features;
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.pairs() as u64)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.change(index, |setup| setup.is_enabled = enable)
    }

    fn get_config(&mut self, offset: u32, size: u32, _flags: VhostUserConfigFlags) -> Result<Vec<u8>> {
        let mut config = [0; CONFIG_BYTES];
        // The address is zero if this side has none for the guest. The MTU stays zero, because it is not offered.
        let address = self.settings.filter.address.unwrap_or_default();
        config[..ADDRESS_BYTES].copy_from_slice(&address.octets());
        let status = LINK_UP | if self.settings.is_to_announce { ANNOUNCE } else { 0 };
        config[6..8].copy_from_slice(&status.to_le_bytes());
        config[8..10].copy_from_slice(&(self.pairs() as u16).to_le_bytes());
        let end = offset.checked_add(size).map_or(usize::MAX, |end| end as usize);
        let part = config.get(offset as usize..end);
        part.map(<[u8]>::to_vec).ok_or_else(|| refuse(format!("the configuration has {CONFIG_BYTES} bytes")))
    }

    fn set_config(&mut self, offset: u32, config: &[u8], _flags: VhostUserConfigFlags) -> Result<()> {
        let mut address = self.settings.filter.address.unwrap_or_default().octets();
        let part = usize::try_from(offset)
            .ok()
            .and_then(|offset| address.get_mut(offset..)?.get_mut(..config.len()));
        // Drivers of virtio 1 have a command for the address.
        let Some(part) = part.filter(|_| !self.has(feature::VERSION_1)) else {
            return Err(refuse("of the configuration only the address of a legacy card can be written"));
        };
        part.copy_from_slice(config);
        self.set_address(Mac::from_octets(address))
    }

    fn set_gpu_socket(&mut self, _socket: GpuBackend) -> Result<()> {
        Err(refuse("this is a network card"))
    }

    fn get_shared_object(&mut self, _object: VhostUserSharedMsg) -> Result<File> {
        Err(refuse("a network card shares no objects"))
    }

    fn get_inflight_fd(&mut self, asked: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let layout = self.inflight_layout(asked);
        let (inflight, file) = Inflight::create(layout).map_err(refuse)?;
        self.change_all(|this| this.inflight = Some(Arc::new(inflight)))?;
        let answer = VhostUserInflight::new(layout.bytes(), 0, layout.rings, layout.entries);
        Ok((answer, file.into()))
    }

    fn set_inflight_fd(&mut self, inflight: &VhostUserInflight, file: File) -> Result<()> {
        let layout = self.inflight_layout(inflight);
        if inflight.mmap_size < layout.bytes() {
            return Err(refuse("the memory for buffers in flight is too short"));
        }
        let inflight = Inflight::map(layout, file.as_fd(), inflight.mmap_offset).map_err(refuse)?;
        self.change_all(|this| this.inflight = Some(Arc::new(inflight)))
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(MAX_MEMORY_SLOTS as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        // QEMU before 8.0 adds and removes each region once for each queue pair.
        let mut regions = self.regions_but(region);
        if regions.len() == MAX_MEMORY_SLOTS {
            return Err(refuse(format!("more than {MAX_MEMORY_SLOTS} regions of memory")));
        }
        regions.push(KnownRegion::map(layout_of(region), file)?);
        self.set_memory(regions)?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        self.set_memory(self.regions_but(region))
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _file: File,
    ) -> Result<Option<File>> {
        Err(refuse("the card has no state of its own to move"))
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(refuse("the card has no state of its own to move"))
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(refuse("a network card shares no memory of its own"))
    }

    fn set_log_base(&mut self, log: &VhostUserLog, file: File) -> Result<()> {
        let log = DirtyLog::map(file.as_fd(), log.mmap_offset, log.mmap_size).map_err(refuse)?;
        // The former log is unmapped here, when no worker has it any more.
        let _former = self.log.replace(Arc::new(log));
        self.follow_log();
        Ok(())
    }
}
