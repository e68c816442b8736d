//! AF_XDP on veth pairs, each test in a network namespace of its own.
#![allow(unsafe_code)]

mod buffers;
mod failures;
mod metadata;
mod modes;
mod zero_copy;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;

use ringroad_netdev::link_by_name;
use ringroad_port::batch::{Batch, Custody};
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::Fragment;
use ringroad_port::port_queue::{Delivery, PortQueue};
use ringroad_ring::geometry::RegionGeometry;
use ringroad_ring::layout::FIRST_BUFFER;
use ringroad_ring::layout::slot_flags::MORE_FRAGMENTS;
use ringroad_ring::region::{HugePages, Region};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::{XdpConfig, XdpDevice, XdpError, XdpQueue};
use crate::af_xdp::AfXdpMode;
use crate::test_network::{RawSocket, in_own_namespace, ip, test_frame, until};
use crate::test_queue::frames_of;

/// EtherType for local experiments, which the test frames have.
const TEST_TYPE: u16 = 0x88B5;

const RING: u32 = 256;

fn config(ifindex: u32, mode: AfXdpMode) -> XdpConfig {
    XdpConfig {
        interface: "near".into(),
        ifindex,
        mtu: 1500,
        queues: 1,
        mode,
        ring_size: RING,
        need_wakeup: true,
        busy_poll_us: 0,
        force: false,
        may_zero_copy: false,
        native_defect: None,
        multi_buffer: true,
        leaves_checksums: false,
        has_vlan_tags: false,
    }
}

fn region(buffers: u32, buffer_bytes: u32) -> Arc<Region> {
    let geometry = RegionGeometry::for_ports(1, 1, 64, buffer_bytes, buffers).unwrap();
    Arc::new(Region::create(geometry, HugePages::Never).unwrap())
}

/// Consecutive buffers of a region, `count` for each of `lists`, from number `from` on.
fn buffers(lists: u32, count: u32, from: u32) -> Vec<Vec<u32>> {
    let list = |number: u32| (0..count).map(|buffer| FIRST_BUFFER + from + number * count + buffer).collect();
    (0..lists).map(list).collect()
}

fn open(config: &XdpConfig) -> Result<XdpDevice, XdpError> {
    let count = config.buffers_per_queue() as u32;
    let lists = u32::from(config.queues);
    XdpDevice::open(config, &region(lists * count, 2048), buffers(lists, count, 0))
}

fn frame(number: u32, len: usize) -> Vec<u8> {
    test_frame(2, number, len)
}

fn index_of(interface: &str) -> u32 {
    link_by_name(interface).unwrap().index
}

/// A veth pair `near` and `far`, both up, with `queues` queues in each direction and MTU `mtu`. Returns the index of
/// `near` and a raw socket on `far`.
fn veth(queues: u16, mtu: u32) -> (u32, RawSocket) {
    let each = format!("numrxqueues {queues} numtxqueues {queues} mtu {mtu}");
    ip(&format!("link add near {each} type veth peer name far {each}"));
    ip("link set near up");
    ip("link set far up");
    (index_of("near"), RawSocket::open("far", TEST_TYPE))
}

/// The kernel's report about `near`.
fn near_details() -> String {
    ip("-d link show near")
}

/// Asserts that no program is on `near`.
fn assert_detached() {
    assert!(!near_details().contains("xdp"), "{}", near_details());
}

/// Waits until the queue has a frame to receive.
fn await_frames(queue: &mut XdpQueue) {
    let descriptor = queue.sleeper().unwrap().wake_descriptor().unwrap();
    let mut wanted = [PollFd::new(&descriptor, PollFlags::IN)];
    let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut wanted, Some(&limit)).unwrap(), 1, "no frame came");
}

/// Receives until `count` frames came.
fn receive(queue: &mut XdpQueue, count: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut batch = Batch::new();
    while frames.len() < count {
        queue.sleeper().unwrap().prepare_sleep(true);
        if !queue.sleeper().unwrap().has_waiting() {
            await_frames(queue);
        }
        queue.sleeper().unwrap().prepare_sleep(false);
        batch.reset(256);
        queue.receive(&mut batch);
        frames.extend(frames_of(&batch));
        queue.lender().unwrap().reclaim(&batch);
        queue.release(batch.slots());
        queue.flush();
    }
    frames
}

/// Delivers frames from private memory, which must be copied, and calls the kernel to send them.
fn deliver(queue: &mut XdpQueue, frames: &[Vec<u8>]) -> Delivery {
    let delivery = put(queue, frames);
    queue.flush();
    delivery
}

/// Delivers frames from private memory. The kernel is not called for them.
fn put(queue: &mut XdpQueue, frames: &[Vec<u8>]) -> Delivery {
    let mut batch = Batch::new();
    for frame in frames {
        // SAFETY: the frames outlive the batch.
        batch.push(unsafe { Fragment::from_private(frame, 0) }, true);
    }
    let all: Vec<u16> = (0..frames.len() as u16).collect();
    queue.deliver(&mut batch, &all)
}
