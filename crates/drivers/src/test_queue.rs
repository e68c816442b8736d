//! Queues that tests drive in place of a worker.
#![allow(unsafe_code)]

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use ringroad_port::batch::Batch;
use ringroad_port::frame::Fragment;
use ringroad_port::port_queue::{Delivery, HandOver, PortQueue};
use ringroad_ring::layout::slot_flags::MORE_FRAGMENTS;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::catalogue::{open_device, plan_device, take_over_device};
use crate::device::{Device, DeviceError, DeviceRole};

/// Opens the device called `name` as a port of a switch.
pub(crate) fn open(name: &str) -> Device {
    try_open(name, DeviceRole::SwitchPort).unwrap()
}

/// Opens the device called `name`, or returns the error.
pub(crate) fn try_open(name: &str, role: DeviceRole) -> Result<Device, DeviceError> {
    let name = name.parse().unwrap();
    open_device(&name, plan_device(&name, None).unwrap(), role, None)
}

/// Takes over a device of one queue from another process.
pub(crate) fn resume(name: &str, left: HandOver) -> Device {
    let name = name.parse().unwrap();
    take_over_device(&name, plan_device(&name, None).unwrap(), DeviceRole::SwitchPort, None, vec![left])
        .unwrap()
}

/// The frames of a batch.
pub(crate) fn frames_of(batch: &Batch) -> Vec<Vec<u8>> {
    let bytes = |fragment: &Fragment| {
        let mut bytes = vec![0; fragment.len()];
        fragment.bytes().read(&mut bytes);
        bytes
    };
    (0..batch.frames()).map(|frame| batch.frame(frame).iter().flat_map(bytes).collect()).collect()
}

/// Takes a batch from `queue`, and gives it back.
pub(crate) fn take(queue: &mut dyn PortQueue) -> Vec<Vec<u8>> {
    let mut batch = Batch::new();
    batch.reset(256);
    queue.receive(&mut batch);
    let frames = frames_of(&batch);
    queue.release(batch.slots());
    queue.flush();
    frames
}

/// Takes all frames that are at `queue`.
pub(crate) fn receive_now(queue: &mut dyn PortQueue) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| Some(take(queue)).filter(|frames| !frames.is_empty())).flatten().collect()
}

/// Takes frames from `queue` until there are `count`, waiting for them.
pub(crate) fn receive(queue: &mut dyn PortQueue, count: usize) -> Vec<Vec<u8>> {
    let mut frames = receive_now(queue);
    while frames.len() < count {
        let sleeper = queue.sleeper().unwrap();
        sleeper.prepare_sleep(true);
        if !sleeper.has_waiting() {
            let mut ready = [PollFd::from_borrowed_fd(sleeper.wake_descriptor().unwrap(), PollFlags::IN)];
            let patience = Timespec { tv_sec: 20, tv_nsec: 0 };
            assert_ne!(poll(&mut ready, Some(&patience)).unwrap(), 0, "{} of {count} came", frames.len());
        }
        sleeper.prepare_sleep(false);
        frames.extend(receive_now(queue));
    }
    frames
}

/// Delivers `frames`, each cut into pieces of at most `piece` bytes.
pub(crate) fn deliver(queue: &mut dyn PortQueue, frames: &[Vec<u8>], piece: usize) -> Delivery {
    let mut batch = Batch::new();
    for frame in frames {
        let pieces = frame.len().div_ceil(piece);
        for (number, bytes) in frame.chunks(piece).enumerate() {
            let flags = if number + 1 < pieces { MORE_FRAGMENTS } else { 0 };
            // SAFETY: the frames outlive the batch, and nothing writes to them.
            batch.push(unsafe { Fragment::from_private(bytes, flags) }, number == 0);
        }
    }
    let numbers: Vec<u16> = (0..frames.len() as u16).collect();
    let delivery = queue.deliver(&mut batch, &numbers);
    queue.flush();
    delivery
}

/// Moves waiting frames of `from` to `to`, as a wire would. Returns their number.
pub(crate) fn forward(from: &mut dyn PortQueue, to: &mut dyn PortQueue, batch: &mut Batch) -> usize {
    batch.reset(256);
    from.receive(batch);
    let frames = batch.frames();
    if frames != 0 {
        let numbers: Vec<u16> = (0..frames as u16).collect();
        to.deliver(batch, &numbers);
        from.release(batch.fragment_count());
        to.flush();
        from.flush();
    }
    frames
}

/// Checks that the port at the other end of `peer` takes no descriptors, as far as the kernel (Linux 6.16) can refuse
/// them.
pub(crate) fn assert_refuses_descriptors(peer: impl AsFd) {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    if (numbers.next(), numbers.next()) < (Some(6), Some(16)) {
        return;
    }
    let descriptors = [peer.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let sent = sendmsg(&peer, &[IoSlice::new(&[0; 64])], &mut ancillary, SendFlags::DONTWAIT);
    assert_eq!(sent, Err(Errno::PERM));
}
