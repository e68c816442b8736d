//! Tests of the back end with a front end of the `vhost` crate. The test is the guest and writes rings byte by byte.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::thread;

use ringroad_port::batch::Batch;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::port_queue::{Delivery, PortQueue};
use ringroad_virtqueue::layout::{DESC_NEXT, DESC_WRITE, features::*};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vhost::vhost_user::message::{
    VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures as Protocol,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserDirtyLogRegion, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

use crate::device::Device;
use crate::test_queue::{deliver, frames_of, resume, take};

mod whole_card;

const ENTRIES: u16 = 8;
const MEMORY_BYTES: u64 = 1 << 20;
const GUEST: u64 = 0x10_0000;
const USER: u64 = 0x7f00_0000_0000;
/// The rings of a guest's card: the receive ring, then the transmit ring.
const RECEIVE: u64 = 0;
const TRANSMIT: u64 = 1;
const RING_BYTES: u64 = 0x4000;
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
const BUFFERS: u64 = 0x2_0000;
const BUFFER_BYTES: u64 = 0x1000;

fn name(folder: &tempfile::TempDir) -> String {
    format!("vhost-user:{}", folder.path().join("s").display())
}

struct Testbed {
    folder: tempfile::TempDir,
    device: Device,
    queue: Box<dyn PortQueue>,
    front: Option<Frontend>,
    file: OwnedFd,
    calls: Vec<EventFd>,
}

fn memory(bytes: u64) -> OwnedFd {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, bytes).unwrap();
    file
}

fn region(file: &OwnedFd, guest: u64, bytes: u64) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr: guest,
        memory_size: bytes,
        userspace_addr: USER + guest - GUEST,
        mmap_offset: 0,
        mmap_handle: file.as_raw_fd(),
    }
}

fn ring_config(ring: u64, flags: u32) -> VringConfigData {
    let start = USER + ring * RING_BYTES;
    VringConfigData {
        queue_max_size: ENTRIES,
        queue_size: ENTRIES,
        flags,
        desc_table_addr: start,
        used_ring_addr: start + USED,
        avail_ring_addr: start + AVAILABLE,
        log_addr: (flags != 0).then_some(GUEST + ring * RING_BYTES + USED),
    }
}

impl Testbed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut device = crate::test_queue::open(&name(&folder));
        let queue = device.queues.pop().unwrap();
        Self { folder, device, queue, front: None, file: memory(MEMORY_BYTES), calls: Vec::new() }
    }

    /// Site with a guest that acknowledged `features`.
    fn with_guest(features: u64) -> Self {
        let mut site = Self::new();
        site.connect(features);
        site.start(0);
        site
    }

    /// Runs `what` at the front end, with replies to all its messages, while the worker continues.
    fn ask<T: Send>(&mut self, what: impl FnOnce(&mut Frontend) -> T + Send) -> T {
        let (front, queue) = (self.front.as_mut().unwrap(), &mut self.queue);
        thread::scope(|scope| {
            let asking = scope.spawn(move || what(front));
            while !asking.is_finished() {
                queue.sleeper().unwrap().prepare_sleep(false);
                thread::yield_now();
            }
            asking.join().unwrap()
        })
    }

    fn connect(&mut self, features: u64) {
        self.front = Some(Frontend::connect(self.folder.path().join("s"), 2).unwrap());
        let (first, file) = (region(&self.file, GUEST, MEMORY_BYTES), self.file.try_clone().unwrap());
        self.ask(move |front| {
            front.set_owner().unwrap();
            let offered = front.get_features().unwrap();
            assert_eq!(offered & features, features);
            let protocol = front.get_protocol_features().unwrap();
            assert!(protocol.contains(Protocol::REPLY_ACK | Protocol::LOG_SHMFD | Protocol::CONFIG));
            let wanted = Protocol::REPLY_ACK
                | Protocol::MQ
                | Protocol::LOG_SHMFD
                | Protocol::CONFIGURE_MEM_SLOTS
                | Protocol::INFLIGHT_SHMFD;
            front.set_protocol_features(wanted).unwrap();
            front.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
            front.set_features(features | PROTOCOL_FEATURES).unwrap();
            front.set_mem_table(&[first]).unwrap();
            drop(file);
        });
    }

    fn start(&mut self, flags: u32) {
        self.calls = (0..2).map(|_| EventFd::new(libc::EFD_NONBLOCK).unwrap()).collect();
        let calls: Vec<EventFd> = self.calls.iter().map(|call| call.try_clone().unwrap()).collect();
        self.ask(move |front| {
            for (ring, call) in calls.iter().enumerate() {
                front.set_vring_num(ring, ENTRIES).unwrap();
                front.set_vring_base(ring, 0).unwrap();
                front.set_vring_addr(ring, &ring_config(ring as u64, flags)).unwrap();
                front.set_vring_call(ring, call).unwrap();
                front.set_vring_kick(ring, &EventFd::new(libc::EFD_NONBLOCK).unwrap()).unwrap();
                front.set_vring_enable(ring, true).unwrap();
            }
        });
        assert_eq!(self.device.peer.as_ref().unwrap().status().active_queues, 1);
        // Each started ring wakes its driver.
        assert!(self.calls.iter().all(|call| call.read().is_ok()));
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        rustix::io::pwrite(&self.file, bytes, at).unwrap();
    }

    fn read(&self, at: u64, bytes: usize) -> Vec<u8> {
        let mut read = vec![0; bytes];
        rustix::io::pread(&self.file, &mut read, at).unwrap();
        read
    }

    fn word(&self, at: u64) -> u16 {
        u16::from_le_bytes(self.read(at, 2).try_into().unwrap())
    }

    /// Makes buffer `number` available, with `bytes` bytes, at its own address or at `address`.
    fn offer(&self, ring: u64, number: u16, bytes: u32, flags: u16, address: Option<u64>) {
        let usual_address = GUEST + BUFFERS + u64::from(number) * BUFFER_BYTES;
        let mut descriptor = address.unwrap_or(usual_address).to_le_bytes().to_vec();
        descriptor.extend(bytes.to_le_bytes());
        descriptor.extend([flags, 0].map(u16::to_le_bytes).concat());
        let start = ring * RING_BYTES;
        self.write(start + 16 * u64::from(number % ENTRIES), &descriptor);
        let index = self.word(start + AVAILABLE + 2);
        let head = number % ENTRIES;
        self.write(start + AVAILABLE + 4 + 2 * u64::from(index % ENTRIES), &head.to_le_bytes());
        self.write(start + AVAILABLE + 2, &(index + 1).to_le_bytes());
    }

    /// Sends a frame behind a header, as the guest.
    fn send(&self, number: u16, header: &[u8], frame: &[u8]) {
        let at = BUFFERS + u64::from(number) * BUFFER_BYTES;
        self.write(at, header);
        self.write(at + header.len() as u64, frame);
        self.offer(TRANSMIT, number, (header.len() + frame.len()) as u32, 0, None);
    }

    fn used(&self, ring: u64) -> u16 {
        self.word(ring * RING_BYTES + USED + 2)
    }

    /// Pauses the receiving of messages. It retries, because the handling of the last message may not have ended after
    /// its reply.
    fn pause(&mut self) {
        while !self.queue.upgrade().unwrap().prepare() {
            thread::yield_now();
        }
    }

    fn receive(&mut self) -> Batch {
        let mut batch = Batch::new();
        batch.reset(256);
        self.queue.receive(&mut batch);
        batch
    }

    fn deliver(&mut self, frame: &[u8]) -> Delivery {
        deliver(&mut *self.queue, &[frame.to_vec()], frame.len())
    }
}

const MODERN: u64 = VERSION_1 | NET_MRG_RXBUF;

#[test]
fn frames_are_lent_where_they_lie_and_come_in_merged_buffers() {
    let mut site = Testbed::with_guest(MODERN);
    site.send(0, &[0; 12], b"the first frame of the guest");
    site.send(1, &[0; 12], b"and its second one");
    let batch = site.receive();
    assert_eq!(frames_of(&batch), [&b"the first frame of the guest"[..], b"and its second one"]);
    assert!(!batch.is_unfinished());
    site.queue.flush();
    assert_eq!(site.used(TRANSMIT), 0);
    site.queue.release(batch.slots());
    site.queue.flush();
    assert_eq!(site.used(TRANSMIT), 2);
    assert_eq!(site.calls[TRANSMIT as usize].read().unwrap(), 1);

    for number in 0..3 {
        site.offer(RECEIVE, 20 + number, 64, DESC_WRITE, None);
    }
    let long: Vec<u8> = (0..100).collect();
    assert_eq!(site.deliver(&long).frames, 1);
    let first = BUFFERS + 20 * BUFFER_BYTES;
    assert_eq!(site.read(first, 12), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
    assert_eq!([site.read(first + 12, 52), site.read(first + BUFFER_BYTES, 48)].concat(), long);
    // The lengths of the buffers' content are in the used ring: 64 and 48.
    assert_eq!(site.used(RECEIVE), 2);
    assert_eq!(site.read(USED + 8, 4), [64, 0, 0, 0]);
    assert_eq!(site.read(USED + 16, 4), [48, 0, 0, 0]);
    assert_eq!(site.calls[RECEIVE as usize].read().unwrap(), 1);
    // One buffer is left, which is enough for a short frame but not for one of two buffers.
    assert_eq!(site.deliver(&long).dropped.of(DropCause::NoSpace), 1);
    assert_eq!(site.deliver(&long[..40]).frames, 1);
}

#[test]
fn guests_that_merge_nothing_and_old_ones_have_the_short_header() {
    let mut site = Testbed::with_guest(ANY_LAYOUT);
    site.offer(RECEIVE, 20, 64, DESC_WRITE, None);
    assert_eq!(site.deliver(&[7; 55]).dropped.of(DropCause::TooLong), 1);
    assert_eq!(site.deliver(&[7; 54]).frames, 1);
    assert_eq!(site.read(BUFFERS + 20 * BUFFER_BYTES + 9, 3), [0, 7, 7]);
    site.send(0, &[0; 10], b"a frame");
    assert_eq!(frames_of(&site.receive()), [b"a frame"]);
}

#[test]
fn unfinished_frames_go_only_to_guests_that_accept_them() {
    let unfinished = [1, 0, 0, 0, 0, 0, 34, 0, 16, 0, 0, 0];
    let mut site = Testbed::with_guest(MODERN | NET_CSUM);
    site.send(0, &unfinished, &[1; 60]);
    let batch = site.receive();
    assert!(batch.is_unfinished());
    assert_eq!(batch.meta(0).unfinished.to_header(), unfinished[..10]);
    assert!(!site.queue.takes_unfinished());
    // The header of a guest that did not acknowledge the feature is ignored.
    let mut site = Testbed::with_guest(MODERN | GUEST_OFFLOADS);
    site.send(0, &unfinished, &[1; 60]);
    assert!(!site.receive().is_unfinished());
    assert!(site.queue.takes_unfinished());
}

#[test]
fn buffers_in_memory_that_was_plugged_in_are_served_until_it_is_pulled() {
    let mut site = Testbed::with_guest(MODERN);
    let more = memory(1 << 20);
    let address = GUEST + (64 << 20);
    let plugged = region(&more, address, 1 << 20);
    rustix::io::pwrite(&more, b"in new memory", 12).unwrap();
    // The rings continue to run, with their content.
    site.send(0, &[0; 12], b"in old memory");
    site.ask(|front| front.add_mem_region(&plugged)).unwrap();
    site.offer(TRANSMIT, 1, 25, 0, Some(address));
    let batch = site.receive();
    assert_eq!(frames_of(&batch), [b"in old memory", &b"in new memory"[..]]);
    // Memory is not removed while the worker reads it: the front end waits, here in a thread, until the frames are
    // released.
    site.queue.release(batch.slots());
    site.ask(|front| front.remove_mem_region(&plugged)).unwrap();
}

#[test]
fn rings_are_taken_back_from_the_worker_with_where_they_stand() {
    let mut site = Testbed::with_guest(MODERN);
    for number in 0..3 {
        site.send(number, &[0; 12], &[1; 60]);
    }
    let batch = site.receive();
    let queue = &mut site.queue;
    let front = site.front.as_mut().unwrap();
    thread::scope(|scope| {
        let asking = scope.spawn(|| front.get_vring_base(TRANSMIT as usize).unwrap());
        // While a buffer is lent, the worker neither gives the ring back nor takes more frames.
        for _ in 0..100 {
            queue.sleeper().unwrap().prepare_sleep(false);
            thread::yield_now();
        }
        assert!(!asking.is_finished());
        queue.release(batch.slots());
        while !asking.is_finished() {
            queue.sleeper().unwrap().prepare_sleep(false);
        }
        assert_eq!(asking.join().unwrap(), 3);
    });
    assert_eq!(site.used(TRANSMIT), 3);
    site.send(3, &[0; 12], &[1; 60]);
    assert_eq!(site.receive().frames(), 0);
    site.start(0);
    assert_eq!(site.receive().frames(), 1);
}

#[test]
fn a_running_ring_misses_no_frame_while_its_log_and_its_wake_ups_change() {
    let mut site = Testbed::with_guest(MODERN);
    let log = memory(4096);
    let area = VhostUserDirtyLogRegion { mmap_size: 4096, mmap_offset: 0, mmap_handle: log.as_raw_fd() };
    let calls: Vec<EventFd> = site.calls.iter().map(|call| call.try_clone().unwrap()).collect();
    let (front, queue) = (site.front.as_mut().unwrap(), &mut site.queue);
    let missed = thread::scope(|scope| {
        let asking = scope.spawn(move || {
            // As QEMU begins and ends a migration.
            for is_logged in [true, false].into_iter().cycle().take(41) {
                let log_all = if is_logged { LOG_ALL } else { 0 };
                front.set_log_base(0, Some(area)).unwrap();
                front.set_features(MODERN | PROTOCOL_FEATURES | log_all).unwrap();
                for (ring, call) in calls.iter().enumerate() {
                    front.set_vring_addr(ring, &ring_config(ring as u64, is_logged.into())).unwrap();
                    front.set_vring_call(ring, call).unwrap();
                }
            }
        });
        let mut missed = 0;
        while !asking.is_finished() {
            missed += deliver(&mut **queue, &[vec![1; 60]], 60).dropped.of(DropCause::NotBound);
        }
        asking.join().unwrap();
        missed
    });
    assert_eq!(missed, 0);
    // The last change has begun a log.
    site.offer(RECEIVE, 3, 1600, DESC_WRITE, None);
    assert_eq!(site.deliver(&[1; 60]).frames, 1);
    let mut bits = [0; 4096];
    rustix::io::pread(&log, &mut bits, 0).unwrap();
    let page = ((GUEST + BUFFERS + 3 * BUFFER_BYTES) / 4096) as usize;
    assert_ne!(bits[page / 8] & (1 << (page % 8)), 0);
    assert_ne!(bits[((GUEST + USED) / 4096 / 8) as usize], 0);
}

#[test]
fn pages_written_are_logged_for_a_guest_that_moves() {
    let mut site = Testbed::new();
    site.connect(MODERN | LOG_ALL);
    let log = memory(4096);
    let area = VhostUserDirtyLogRegion { mmap_size: 4096, mmap_offset: 0, mmap_handle: log.as_raw_fd() };
    site.ask(move |front| front.set_log_base(0, Some(area))).unwrap();
    site.start(1);
    site.offer(RECEIVE, 3, 1600, DESC_WRITE, None);
    assert_eq!(site.deliver(&[1; 60]).frames, 1);
    let mut bits = [0; 4096];
    rustix::io::pread(&log, &mut bits, 0).unwrap();
    let marked: Vec<u64> =
        (0..32768).filter(|page| bits[*page as usize / 8] >> (page % 8) & 1 == 1).collect();
    let pages = [GUEST + USED, GUEST + BUFFERS + 3 * BUFFER_BYTES].map(|address| address / 4096);
    assert_eq!(marked, pages);
}

#[test]
fn frames_in_flight_when_a_back_end_ends_are_sent_by_the_next() {
    let mut site = Testbed::new();
    site.connect(MODERN);
    let asked = VhostUserInflight::new(0, 0, 2, ENTRIES);
    let (answer, kept) = site.ask(|front| front.get_inflight_fd(&asked)).unwrap();
    assert!(answer.mmap_size > 0);
    site.start(0);
    for number in 0..3 {
        site.send(number, &[0; 12], &[number as u8; 60]);
    }
    let batch = site.receive();
    assert_eq!(batch.frames(), 3);
    // One buffer is used. The back end ends while the others are in flight from the guest's view.
    site.queue.release(1);
    site.queue.flush();
    let Testbed { file, queue, device, .. } = site;
    drop((queue, device));
    let mut next = Testbed { file, ..Testbed::new() };
    next.connect(MODERN);
    let kept_fd = kept.as_fd().as_raw_fd();
    next.ask(|front| front.set_inflight_fd(&answer, kept_fd)).unwrap();
    next.start(0);
    assert_eq!(frames_of(&next.receive()), [[1; 60], [2; 60]]);
}

#[test]
fn a_guest_stays_connected_while_another_process_takes_over_its_rings() {
    let mut site = Testbed::with_guest(MODERN);
    site.send(0, &[0; 12], b"by the first process");
    assert_eq!(take(&mut *site.queue), [b"by the first process"]);
    assert!(site.queue.upgrade().unwrap().hand_over().is_none());
    site.pause();
    let left = site.queue.upgrade().unwrap().hand_over().unwrap();
    // The next process gives up before it takes over, and the guest does not notice it.
    drop(resume(&name(&site.folder), left));
    site.queue.upgrade().unwrap().resume();
    site.send(1, &[0; 12], b"by the first one again");
    assert_eq!(take(&mut *site.queue), [b"by the first one again"]);
    assert_eq!(site.ask(|front| front.get_features()).unwrap() & MODERN, MODERN);

    site.pause();
    let left = site.queue.upgrade().unwrap().hand_over().unwrap();
    let mut next = resume(&name(&site.folder), left);
    site.queue = next.queues.pop().unwrap();
    site.device = next;
    assert_eq!(site.device.peer.as_ref().unwrap().status().active_queues, 1);
    site.calls.iter().for_each(|call| drop(call.read()));
    site.queue.upgrade().unwrap().resume();
    // A guest that should have been woken before is woken now.
    assert!(site.calls.iter().all(|call| call.read().is_ok()));
    site.send(2, &[0; 12], b"by the next one");
    site.offer(RECEIVE, 20, 1600, DESC_WRITE, None);
    assert_eq!(take(&mut *site.queue), [b"by the next one"]);
    assert_eq!(site.deliver(b"to the guest").frames, 1);
    assert_eq!(site.used(RECEIVE), 1);
    // The guest's messages are answered as before, even those that depend on acknowledged features.
    let more = memory(1 << 20);
    let plugged = region(&more, GUEST + (64 << 20), 1 << 20);
    site.ask(|front| front.add_mem_region(&plugged)).unwrap();
    assert_eq!(site.ask(|front| front.get_vring_base(TRANSMIT as usize)).unwrap(), 3);
    let socket = site.folder.path().join("s");
    assert!(socket.exists());
    let Testbed { device, folder: _folder, .. } = site;
    drop(device);
    assert!(!socket.exists());
}

#[test]
fn a_guest_that_is_about_to_move_or_whose_socket_is_gone_reconnects() {
    let mut site = Testbed::with_guest(MODERN);
    let asked = VhostUserInflight::new(0, 0, 2, ENTRIES);
    site.ask(|front| front.get_inflight_fd(&asked)).unwrap();
    site.pause();
    assert!(site.queue.upgrade().unwrap().hand_over().is_none());
    let mut site = Testbed::with_guest(MODERN);
    std::fs::remove_file(site.folder.path().join("s")).unwrap();
    site.pause();
    assert!(site.queue.upgrade().unwrap().hand_over().is_none());
    site.queue.upgrade().unwrap().resume();
    // A port that cannot be handed over continues in this process.
    assert_eq!(site.ask(|front| front.get_features()).unwrap() & MODERN, MODERN);
}

#[test]
fn memory_that_shrinks_stops_its_guest_alone() {
    let mut site = Testbed::with_guest(MODERN);
    site.send(0, &[0; 12], &[1; 60]);
    ftruncate(&site.file, 0).unwrap();
    // The first read of any kind detects the lost memory.
    let _ = site.receive();
    assert_eq!(site.receive().frames(), 0);
    assert!(
        site.queue.diagnosis().unwrap().fault().unwrap().contains("taken back"),
        "{:?}",
        site.queue.diagnosis().unwrap().fault()
    );
    assert_eq!(site.deliver(&[1; 60]).dropped.of(DropCause::RingStopped), 1);
    assert!(!site.queue.sleeper().unwrap().has_waiting());
    // The port works for a new guest.
    site.front = None;
    let peer = site.device.peer.clone().unwrap();
    while peer.status().is_connected {
        site.queue.sleeper().unwrap().prepare_sleep(false);
    }
    site.file = memory(MEMORY_BYTES);
    site.connect(MODERN);
    site.start(0);
    site.send(0, &[0; 12], &[1; 60]);
    assert_eq!(site.receive().frames(), 1);
    assert_eq!(site.queue.diagnosis().unwrap().fault(), None);
}

#[test]
fn a_ring_with_a_violation_stops_until_it_is_set_up_again() {
    let mut site = Testbed::with_guest(MODERN);
    site.offer(TRANSMIT, 0, 60, 0, Some(1));
    assert_eq!(site.receive().frames(), 0);
    assert!(site.queue.diagnosis().unwrap().fault().unwrap().contains("not memory of the guest"));
    assert_eq!(
        (site.queue.diagnosis().unwrap().violations(), site.queue.diagnosis().unwrap().violations()),
        (1, 0)
    );
    // A change to a broken ring does not make it run again.
    let call = EventFd::new(libc::EFD_NONBLOCK).unwrap();
    site.ask(|front| front.set_vring_call(TRANSMIT as usize, &call)).unwrap();
    assert_eq!(site.receive().frames(), 0);
    site.ask(|front| front.set_vring_enable(TRANSMIT as usize, true)).unwrap();
    assert_eq!(site.receive().frames(), 0);
    assert_eq!(site.device.peer.as_ref().unwrap().status().active_queues, 0);
}

#[test]
fn a_blocking_full_call_eventfd_of_a_guest_does_not_block_a_worker() {
    let mut site = Testbed::with_guest(MODERN);
    let call = &site.calls[TRANSMIT as usize];
    call.write(u64::MAX - 1).unwrap();
    // SAFETY: the site keeps the eventfd open.
    let shared = unsafe { BorrowedFd::borrow_raw(call.as_raw_fd()) };
    rustix::fs::fcntl_setfl(shared, rustix::fs::OFlags::empty()).unwrap();
    site.send(0, &[0; 12], &[1; 60]);
    assert_eq!(site.receive().frames(), 1);
    site.queue.release(1);
    assert_eq!(site.queue.flush(), 1, "the guest is not woken");
}

#[test]
fn a_region_is_added_and_removed_once_for_each_queue_pair() {
    let mut site = Testbed::with_guest(MODERN);
    let plugged = memory(4096);
    let regions = [region(&site.file, GUEST, MEMORY_BYTES), region(&plugged, GUEST + MEMORY_BYTES, 4096)];
    for again in [&regions[0], &regions[0], &regions[1], &regions[1]] {
        site.ask(|front| front.add_mem_region(again)).unwrap();
    }
    for _ in 0..2 {
        site.ask(|front| front.remove_mem_region(&regions[1])).unwrap();
    }
    site.send(0, &[0; 12], &[1; 60]);
    assert_eq!(site.receive().frames(), 1);
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    let refused = |ask: fn(&mut Testbed) -> bool, part: &str| {
        let mut site = Testbed::new();
        site.connect(MODERN);
        assert!(ask(&mut site), "{part}: not refused");
        let peer = site.device.peer.clone().unwrap();
        while peer.status().is_connected {
            site.queue.sleeper().unwrap().prepare_sleep(false);
        }
        let error = peer.status().last_error.unwrap();
        assert!(error.contains(part), "{error}");
    };
    refused(|site| site.ask(|front| front.set_features(MODERN | 1 << 50)).is_err(), "not offered");
    refused(
        |site| {
            let short = memory(4096);
            let region = region(&short, GUEST, 8192);
            site.ask(|front| front.set_mem_table(&[region])).is_err()
        },
        "holds 4096 bytes, and 8192 were promised",
    );
    refused(
        |site| {
            let overlap = region(&site.file, GUEST + 4096, 4096);
            site.ask(|front| front.add_mem_region(&overlap)).is_err()
        },
        "overlap",
    );
    refused(
        |site| {
            site.ask(|front| {
                let config =
                    VringConfigData { desc_table_addr: USER + MEMORY_BYTES - 16, ..ring_config(0, 0) };
                front.set_vring_num(0, ENTRIES).unwrap();
                front.set_vring_addr(0, &config).unwrap();
                front.set_vring_enable(0, true).unwrap();
                front.set_vring_kick(0, &EventFd::new(0).unwrap()).is_err()
            })
        },
        "descriptor table",
    );
}
