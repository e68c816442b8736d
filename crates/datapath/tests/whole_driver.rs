//! A whole driver, as an example of the contract: each frame of its port is a packet of a socket. The tests below run
//! it.

#![allow(clippy::unwrap_used, unsafe_code)]

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ringroad_datapath::fabric::{Fabric, QueueParts, Share};
use ringroad_datapath::worker::WorkerConfig;
use ringroad_port::batch::Batch;
use ringroad_port::counters::CounterSnapshot;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::Fragment;
use ringroad_port::port_queue::{Delivery, Diagnose, FailedDirection, PortQueue, QueueProperties, Sleep};
use ringroad_switch::MacTableConfig;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

const SLOTS: usize = 64;
const SLOT_BYTES: usize = 2048;

struct SocketQueue {
    socket: OwnedFd,
    /// Slots of received frames until these are released; used in turn.
    memory: Box<[u8]>,
    next: usize,
    borrowed: usize,
    is_gone: bool,
}

impl PortQueue for SocketQueue {
    fn properties(&mut self) -> QueueProperties {
        // A system call for each frame.
        QueueProperties { frame_cost: 16, take_cost: 16, ..QueueProperties::default() }
    }

    fn receive(&mut self, batch: &mut Batch) {
        while self.borrowed < SLOTS && batch.has_room(1) && !self.is_gone {
            let slot = &mut self.memory[self.next * SLOT_BYTES..][..SLOT_BYTES];
            let len = match rustix::net::recv(&self.socket, &mut *slot, RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return self.is_gone = true,
                Ok((len, _)) => len,
                Err(_) => return,
            };
            // SAFETY: the memory is never resized, lives as long as the queue does, and this slot is not written before
            // it is released.
            batch.push(unsafe { Fragment::from_private(&slot[..len], 0) }, true);
            self.next = (self.next + 1) % SLOTS;
            self.borrowed += 1;
        }
    }

    fn release(&mut self, slots: usize) {
        self.borrowed -= slots;
    }

    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery {
        let mut delivery = Delivery::default();
        for &frame in frames {
            let mut bytes = [0; SLOT_BYTES];
            let len = batch.frame_bytes(usize::from(frame));
            if len > SLOT_BYTES {
                delivery.dropped.add(DropCause::TooLong, 1);
                continue;
            }
            let mut at = 0;
            for fragment in batch.frame(usize::from(frame)) {
                at += fragment.bytes().read(&mut bytes[at..]);
            }
            match rustix::net::send(&self.socket, &bytes[..len], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(_) => {
                    delivery.frames += 1;
                    delivery.bytes += len as u64;
                }
                Err(Errno::AGAIN) => delivery.dropped.add(DropCause::NoSpace, 1),
                Err(_) => delivery.dropped.add(DropCause::LinkDown, 1),
            }
        }
        delivery
    }

    fn sleeper(&mut self) -> Option<&mut dyn Sleep> {
        Some(self)
    }

    fn diagnosis(&mut self) -> Option<&mut dyn Diagnose> {
        Some(self)
    }
}

impl Sleep for SocketQueue {
    fn has_waiting(&mut self) -> bool {
        let peeked = rustix::net::recv(&self.socket, &mut [0; 1][..], RecvFlags::DONTWAIT | RecvFlags::PEEK);
        !self.is_gone && self.borrowed < SLOTS && peeked != Err(Errno::AGAIN)
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        (!self.is_gone).then(|| self.socket.as_fd())
    }
}

impl Diagnose for SocketQueue {
    fn failure(&self, _way: FailedDirection) -> Option<String> {
        self.is_gone
            .then(|| "the other end of the socket was closed; connect it and open the port again".into())
    }

    fn is_gone(&self) -> bool {
        self.is_gone
    }
}

/// Creates a queue, with the other end of its socket.
fn pair() -> (Vec<QueueParts>, OwnedFd) {
    let flags = SocketFlags::CLOEXEC;
    let (socket, far) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let patience = Some(Duration::from_secs(20));
    rustix::net::sockopt::set_socket_timeout(&far, rustix::net::sockopt::Timeout::Recv, patience).unwrap();
    let memory = vec![0; SLOTS * SLOT_BYTES].into_boxed_slice();
    let queue = SocketQueue { socket, memory, next: 0, borrowed: 0, is_gone: false };
    (vec![QueueParts::new(Box::new(queue))], far)
}

fn frame(to: u8, from: u8, number: u8, len: usize) -> Vec<u8> {
    let mut frame = [[2, 0, 0, 0, 0, to], [2, 0, 0, 0, 0, from]].concat();
    frame.extend([0x88, 0xb5, number]);
    frame.resize(len, number);
    frame
}

/// Sends a frame, and waits for it at the other end.
fn pass(from: &OwnedFd, to: &OwnedFd, frame: &[u8]) {
    rustix::io::writev(from, &[IoSlice::new(frame)]).unwrap();
    let mut bytes = [0; SLOT_BYTES];
    let len = rustix::io::read(to, &mut bytes).unwrap();
    assert_eq!(&bytes[..len], frame);
}

#[test]
fn a_driver_on_a_switch_wakes_its_worker_and_accounts_for_every_frame() {
    // The worker sleeps as soon as it is idle, so each frame must wake it.
    let worker = WorkerConfig { index: 0, cpu: None, spin: Duration::ZERO, busy: false };
    let mut fabric = Fabric::threaded(vec![worker], MacTableConfig::new(0)).unwrap();
    let ((a, far_a), (b, far_b)) = (pair(), pair());
    fabric.attach("vale0", "a", Share::Own, a).unwrap();
    fabric.attach("vale0", "b", Share::Own, b).unwrap();
    for number in 0..100 {
        pass(&far_a, &far_b, &frame(2, 1, number, 60 + usize::from(number)));
        pass(&far_b, &far_a, &frame(1, 2, number, 1514));
    }
    fabric.settle().unwrap();
    let totals = fabric.switch_totals("vale0").unwrap().totals;
    assert_eq!((totals.received_frames, totals.delivered_frames), (200, 200));
    assert_eq!(CounterSnapshot::unaccounted(&[totals]), 0);
    let fault = |port| fabric.port_faults(&[("vale0", port)]).unwrap().remove(0);
    assert_eq!(fault("a"), None);
    drop(far_a);
    // Closing the other end wakes the worker, too.
    while fault("a").is_none() {
        std::thread::yield_now();
    }
    assert_eq!(fault("b"), None);
}

#[test]
fn a_burst_beyond_its_slots_is_held_in_the_socket_and_nothing_is_lost() {
    let (mut fabric, engine) = Fabric::stepped(MacTableConfig::new(0));
    let ((a, far_a), (b, far_b)) = (pair(), pair());
    fabric.wire(Share::Own, a, b).unwrap();
    let mut bytes = [0; SLOT_BYTES];
    for round in 0..10 {
        let mut sent = 0u8;
        while sent < 200 && rustix::net::send(&far_a, &frame(2, 1, sent, 60), SendFlags::DONTWAIT).is_ok() {
            sent += 1;
        }
        assert!(usize::from(sent) > SLOTS, "round {round}");
        let mut got = 0;
        while got < sent {
            engine.lock().unwrap().step();
            while let Ok((len, _)) = rustix::net::recv(&far_b, &mut bytes[..], RecvFlags::DONTWAIT) {
                assert_eq!(&bytes[..len], frame(2, 1, got, 60));
                got += 1;
            }
        }
    }
}

/// The smallest queue: it discards all frames.
struct Sink;

impl PortQueue for Sink {
    fn receive(&mut self, _batch: &mut Batch) {}

    fn release(&mut self, _slots: usize) {}

    fn deliver(&mut self, _batch: &mut Batch, frames: &[u16]) -> Delivery {
        Delivery { frames: frames.len() as u32, ..Delivery::default() }
    }
}

#[test]
fn a_datapath_never_sleeps_before_a_queue_that_cannot_wake_it() {
    let (mut fabric, engine) = Fabric::stepped(MacTableConfig::new(0));
    let sleeps = || {
        let mut engine = engine.lock().unwrap();
        let sleeps = engine.fall_asleep(usize::MAX);
        engine.awake();
        sleeps
    };
    let (socket, _far) = pair();
    fabric.attach("vale0", "socket", Share::Own, socket).unwrap();
    assert!(sleeps());
    fabric.attach("vale0", "sink", Share::Own, vec![QueueParts::new(Box::new(Sink))]).unwrap();
    assert!(!sleeps());
    fabric.detach("vale0", "sink").unwrap();
    assert!(sleeps());
}
