//! Frames that their sender left unfinished, between ports that take unfinished frames and ports that do not.

#![allow(clippy::unwrap_used, unsafe_code)]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringroad_datapath::fabric::{Fabric, QueueParts, Share};
use ringroad_datapath::worker::WorkerConfig;
use ringroad_port::batch::{Batch, FrameMeta};
use ringroad_port::counters::CounterSnapshot;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::Fragment;
use ringroad_port::offload::Unfinished;
use ringroad_port::port_queue::{Delivery, PortQueue, Sleep};
use ringroad_port::port_settings::{PortSettings, PortVlans};
use ringroad_ring::layout::slot_flags::MORE_FRAGMENTS;
use ringroad_switch::MacTableConfig;

/// A frame, and the work left on it if its sender states any.
type Sent = (Vec<u8>, Option<Unfinished>);
/// A frame, and the work left on it when it arrived.
type Got = (Vec<u8>, Unfinished);

/// Far side of a port: the frames that it sends, and those that it got.
#[derive(Clone, Default)]
struct Far {
    sends: Arc<Mutex<VecDeque<Sent>>>,
    got: Arc<Mutex<Vec<Got>>>,
    takes_unfinished: bool,
    takes_open_checksums: bool,
}

impl Far {
    fn take(&self) -> Vec<Got> {
        std::mem::take(&mut self.got.lock().unwrap())
    }

    fn frames(&self) -> Vec<Vec<u8>> {
        self.take()
            .into_iter()
            .map(|(frame, unfinished)| {
                assert!(unfinished.is_nothing(), "{unfinished:?}");
                frame
            })
            .collect()
    }
}

/// A queue that lends its frames in slots of 2048 bytes.
struct Near {
    far: Far,
    lent: VecDeque<Vec<u8>>,
}

impl PortQueue for Near {
    fn receive(&mut self, batch: &mut Batch) {
        let mut sends = self.far.sends.lock().unwrap();
        while batch.has_room(64)
            && let Some((frame, unfinished)) = sends.pop_front()
        {
            for (index, part) in frame.chunks(2048).enumerate() {
                let more = if (index + 1) * 2048 < frame.len() { MORE_FRAGMENTS } else { 0 };
                // SAFETY: a vector's bytes stay where they are when it moves, and the vector is kept until the release.
                batch.push(unsafe { Fragment::from_private(part, more) }, index == 0);
                self.lent.push_back(Vec::new());
            }
            if let Some(unfinished) = unfinished {
                batch.describe(FrameMeta { unfinished, ..FrameMeta::default() });
                // Header in a slot of its own.
                batch.skip_slot();
                self.lent.push_back(Vec::new());
            }
            *self.lent.back_mut().unwrap() = frame;
        }
    }

    fn release(&mut self, slots: usize) {
        self.lent.drain(..slots);
    }

    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery {
        let mut delivery = Delivery::default();
        for &number in frames {
            let unfinished = batch.meta(usize::from(number)).unfinished;
            let takes = self.far.takes_unfinished
                || (self.far.takes_open_checksums && unfinished.is_internet_checksum());
            assert!(takes || unfinished.is_nothing(), "{unfinished:?}");
            let mut frame = vec![0; batch.frame_bytes(usize::from(number))];
            let mut at = 0;
            for fragment in batch.frame(usize::from(number)) {
                at += fragment.bytes().read(&mut frame[at..]);
            }
            delivery.frames += 1;
            delivery.bytes += frame.len() as u64;
            self.far.got.lock().unwrap().push((frame, unfinished));
        }
        delivery
    }

    fn takes_unfinished(&mut self) -> bool {
        self.far.takes_unfinished
    }

    fn takes_open_checksums(&mut self) -> bool {
        self.far.takes_open_checksums
    }

    fn sleeper(&mut self) -> Option<&mut dyn Sleep> {
        Some(self)
    }
}

impl Sleep for Near {
    fn has_waiting(&mut self) -> bool {
        !self.far.sends.lock().unwrap().is_empty()
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        assert!(self.lent.is_empty(), "{} slots were not released", self.lent.len());
    }
}

/// Ports of a switch, named by letters: ports with capitals take unfinished frames, port `x` those with open checksums.
/// Each port sends from the address that ends with its letter.
struct Testbed {
    fabric: Fabric,
    step: Box<dyn Fn()>,
}

impl Testbed {
    /// Puts all ports into one engine that the test steps.
    fn stepped() -> Self {
        let (fabric, engine) = Fabric::stepped(MacTableConfig::new(0));
        Self { fabric, step: Box::new(move || while engine.lock().unwrap().step() != 0 {}) }
    }

    /// Distributes the ports among workers in turn.
    fn threaded() -> Self {
        // Busy polling, since nothing announces frames at these ports.
        let worker = |index| WorkerConfig { index, cpu: None, spin: Duration::ZERO, busy: true };
        let workers = vec![worker(0), worker(1)];
        Self { fabric: Fabric::threaded(workers, MacTableConfig::new(0)).unwrap(), step: Box::new(|| {}) }
    }

    fn attach(&mut self, name: &str) -> Far {
        let far = Far {
            takes_unfinished: name.chars().all(char::is_uppercase),
            takes_open_checksums: name == "x",
            ..Far::default()
        };
        let near = Near { far: far.clone(), lent: VecDeque::new() };
        self.fabric
            .attach(
                "vale0",
                name,
                Share::Program { user: 0, program: 0 },
                vec![QueueParts::new(Box::new(near))],
            )
            .unwrap();
        far
    }

    fn send(&self, far: &Far, frames: Vec<Sent>) {
        far.sends.lock().unwrap().extend(frames);
        (self.step)();
    }

    /// Waits until `out` frames were delivered or dropped and all workers have finished their turns: between two
    /// deliveries of a flooded frame the counters may look settled when they are not.
    fn settle(&self, out: u64) -> CounterSnapshot {
        loop {
            let totals = self.fabric.switch_totals("vale0").unwrap().totals;
            if totals.delivered_frames + totals.dropped_frames() >= out {
                self.fabric.settle().unwrap();
                let totals = self.fabric.switch_totals("vale0").unwrap().totals;
                let out = totals.delivered_frames + totals.dropped_frames();
                assert_eq!(totals.received_frames + totals.replicated_frames, out);
                return totals;
            }
            std::thread::yield_now();
        }
    }
}

fn header(flags: u8, gso_type: u8, gso_size: u16, start: u16, offset: u16) -> Unfinished {
    let fields = [54, gso_size, start, offset].map(u16::to_ne_bytes).concat();
    Unfinished::from_header(&[&[flags, gso_type][..], &fields].concat())
}

/// TCP over IPv4 with an open checksum, as a stack leaves it to its card.
fn open_frame(to: u8, payload: usize) -> Vec<u8> {
    let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, to])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .tcp(4000, 80, 1000, 512);
    let payload: Vec<u8> = (0..payload).map(|at| (at * 7) as u8).collect();
    let mut frame = Vec::new();
    builder.write(&mut frame, &payload).unwrap();
    // The sum of the pseudo header alone.
    let words = [0x0a00u32, 1, 0x0a00, 2, 6, 20 + payload.len() as u32];
    let sum = words.iter().sum::<u32>();
    let sum = (sum & 0xffff) + (sum >> 16);
    frame[50..52].copy_from_slice(&(sum as u16).to_be_bytes());
    frame
}

fn payload_of(frame: &[u8]) -> Vec<u8> {
    let sliced = etherparse::SlicedPacket::from_ethernet(frame).unwrap();
    let Some(etherparse::NetSlice::Ipv4(ip)) = sliced.net else { panic!("no IPv4") };
    let Some(etherparse::TransportSlice::Tcp(tcp)) = sliced.transport else { panic!("no TCP") };
    let ip = ip.header();
    assert_eq!(ip.header_checksum(), ip.to_header().calc_header_checksum());
    assert_eq!(tcp.checksum(), tcp.calc_checksum_ipv4(ip.source(), ip.destination()).unwrap());
    tcp.payload().to_vec()
}

const NEEDS_CHECKSUM: u8 = 1;
const TCP_IPV4: u8 = 1;

fn check_both_ways(mut site: Testbed) {
    let [a, b, c, d] = ["A", "B", "c", "d"].map(|name| site.attach(name));
    let checksum = header(NEEDS_CHECKSUM, 0, 0, 34, 16);
    let long = header(NEEDS_CHECKSUM, TCP_IPV4, 1400, 34, 16);
    let nothing = Unfinished::default();
    let (short, jumbo) = (open_frame(9, 100), open_frame(9, 60_000));
    let sent = vec![
        (short.clone(), Some(checksum)),
        (jumbo.clone(), Some(long)),
        (open_frame(9, 10), Some(nothing)),
        (short.clone(), Some(checksum)),
    ];
    site.send(&a, sent.clone());
    // Three ports got each flooded frame; two of them got 43 segments instead of one frame.
    let totals = site.settle(4 * 3 + 2 * 42);
    assert_eq!((totals.replicated_frames, totals.delivered_frames), (4 * 2 + 2 * 42, 4 * 3 + 2 * 42));
    assert_eq!(totals.dropped_frames(), 0);
    let expected: Vec<_> = sent.into_iter().map(|(frame, said)| (frame, said.unwrap())).collect();
    assert_eq!(b.take(), expected);
    for port in [&c, &d] {
        let frames = port.frames();
        assert_eq!(frames.len(), 3 + 43);
        assert_eq!(payload_of(&frames[0]), short[54..]);
        let payload: Vec<u8> = frames[1..44].iter().flat_map(|segment| payload_of(segment)).collect();
        assert!(payload == jumbo[54..]);
        assert!(frames[1..44].iter().all(|segment| segment.len() <= 54 + 1400));
        assert_eq!(frames[44], open_frame(9, 10));
        assert_eq!(payload_of(&frames[45]), short[54..]);
    }
    // Frames from a port without headers are finished frames at every destination.
    site.send(&c, vec![(open_frame(9, 20), None)]);
    site.settle(4 * 3 + 2 * 42 + 3);
    for port in [&a, &b, &d] {
        assert_eq!(port.frames(), [open_frame(9, 20)]);
    }
}

#[test]
fn each_port_gets_unfinished_frames_as_they_are_or_finished() {
    check_both_ways(Testbed::stepped());
}

#[test]
fn each_port_of_another_worker_gets_them_as_they_are_or_finished() {
    check_both_ways(Testbed::threaded());
}

#[test]
fn a_port_that_takes_open_checksums_gets_segments_with_them_and_no_other_open_task() {
    let mut site = Testbed::stepped();
    let [a, x] = ["A", "x"].map(|name| site.attach(name));
    let checksum = header(NEEDS_CHECKSUM, 0, 0, 34, 16);
    let crc = header(NEEDS_CHECKSUM, 0, 0, 34, 8);
    let long = header(NEEDS_CHECKSUM, TCP_IPV4, 1400, 34, 16);
    let (short, jumbo) = (open_frame(9, 100), open_frame(9, 60_000));
    let sent = vec![
        (short.clone(), Some(checksum)),
        (jumbo.clone(), Some(long)),
        (short.clone(), Some(crc)),
        (open_frame(9, 10), None),
    ];
    site.send(&a, sent);
    let totals = site.settle(4 + 42);
    assert_eq!((totals.replicated_frames, totals.dropped_frames()), (42, 0));
    let mut got = x.take();
    assert_eq!(got.pop(), Some((open_frame(9, 10), Unfinished::default())));
    assert_eq!(
        got.pop().map(|(_, unfinished)| unfinished),
        Some(Unfinished::default()),
        "SCTP's is filled in"
    );
    assert_eq!(got.remove(0), (short, checksum));
    assert_eq!(got.len(), 43);
    let finish = |(mut segment, unfinished): Got| {
        assert_eq!(Unfinished::detect(&segment, segment.len(), 1500), Some(unfinished));
        unfinished.complete_checksum(&mut segment);
        payload_of(&segment)
    };
    let payload: Vec<u8> = got.into_iter().flat_map(finish).collect();
    assert!(payload == jumbo[54..]);
}

/// Adds a VLAN tag in front of the type of a frame.
fn with_tag(frame: &[u8], vlan: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0], &vlan.to_be_bytes(), &frame[12..]].concat()
}

fn check_tags(mut site: Testbed) {
    let access = PortSettings { vlans: PortVlans::Access(10), ..PortSettings::default() };
    let tagged = "10".parse().unwrap();
    let trunk = PortSettings { vlans: PortVlans::Trunk { tagged, native: None }, ..PortSettings::default() };
    for (port, settings) in [("A", &access), ("B", &trunk), ("c", &access), ("d", &trunk)] {
        site.fabric.set_settings("vale0", port, settings.clone()).unwrap();
    }
    let [a, b, c, d] = ["A", "B", "c", "d"].map(|name| site.attach(name));
    let checksum = |start| header(NEEDS_CHECKSUM, 0, 0, start, 16);
    let long = |start| header(NEEDS_CHECKSUM, TCP_IPV4, 1400, start, 16);
    let (short, jumbo) = (open_frame(9, 100), open_frame(9, 60_000));
    site.send(&a, vec![(short.clone(), Some(checksum(34))), (jumbo.clone(), Some(long(34)))]);
    let totals = site.settle(2 * 3 + 2 * 42);
    assert_eq!(totals.dropped_frames(), 0);
    // A tag moves the offsets of the open tasks, as it moves the headers.
    let shifted = |frame: &[u8], said: Unfinished| (with_tag(frame, 10), said.shifted(4).unwrap());
    assert_eq!(b.take(), [shifted(&short, checksum(34)), shifted(&jumbo, long(34))]);
    for (port, vlan) in [(&c, None), (&d, Some(10))] {
        let frames = port.frames();
        assert_eq!(frames.len(), 1 + 43);
        assert!(
            frames.iter().all(|frame| vlan.is_none_or(|vlan: u16| frame[12..16] == [0x81, 0, 0, vlan as u8]))
        );
        assert_eq!(payload_of(&frames[0]), short[54..]);
        let payload: Vec<u8> = frames[1..].iter().flat_map(|segment| payload_of(segment)).collect();
        assert!(payload == jumbo[54..]);
    }
    // The other direction removes the tag.
    site.send(
        &b,
        vec![shifted(&jumbo, long(34))].into_iter().map(|(frame, said)| (frame, Some(said))).collect(),
    );
    site.settle(2 * 3 + 2 * 42 + 3 + 2 * 42);
    assert_eq!(a.take(), [(jumbo.clone(), long(34))]);
    for port in [&c, &d] {
        let payload: Vec<u8> = port.frames().iter().flat_map(|segment| payload_of(segment)).collect();
        assert!(payload == jumbo[54..]);
    }
}

#[test]
fn what_is_left_to_do_moves_with_a_vlan_tag() {
    check_tags(Testbed::stepped());
}

#[test]
fn what_is_left_to_do_moves_with_a_vlan_tag_to_another_worker() {
    check_tags(Testbed::threaded());
}

#[test]
fn frames_that_cannot_be_finished_are_counted_and_no_other_is_lost() {
    let mut site = Testbed::stepped();
    let [a, b, c] = ["A", "B", "c"].map(|name| site.attach(name));
    let good = (open_frame(9, 100), Some(header(NEEDS_CHECKSUM, 0, 0, 34, 16)));
    let hostile = [
        header(NEEDS_CHECKSUM, 0, 0, u16::MAX, u16::MAX),
        header(NEEDS_CHECKSUM, 0, 0, 150, 16),
        header(NEEDS_CHECKSUM, TCP_IPV4, 0, 34, 16),
        header(NEEDS_CHECKSUM, 77, 1400, 34, 16),
        header(0, TCP_IPV4, 1400, 34, 16),
    ];
    let mut frames = vec![good.clone()];
    for said in hostile {
        frames.push((open_frame(9, 100), Some(said)));
        frames.push(good.clone());
    }
    // Reading the frame shows that this is not a TCP segment: receivers that finish frames themselves get it.
    let mut other = open_frame(9, 3000);
    other[23] = 99;
    frames.push((other, Some(header(NEEDS_CHECKSUM, TCP_IPV4, 1400, 34, 16))));
    frames.push((vec![1; 13], Some(header(NEEDS_CHECKSUM, 0, 0, 0, 0))));
    let sent = frames.len() as u64;
    site.send(&a, frames);
    let totals = site.settle(sent);
    assert_eq!(totals.dropped_for(DropCause::BadOffload), 6);
    assert_eq!(totals.dropped_for(DropCause::TooShort), 1);
    assert_eq!(totals.dropped_frames(), 7);
    let counted_at =
        |port| site.fabric.port_counters("vale0", port).unwrap().dropped_for(DropCause::BadOffload);
    assert_eq!((counted_at("A"), counted_at("B"), counted_at("c")), (5, 0, 1));
    assert_eq!(b.take().len(), 7);
    assert_eq!(c.frames().iter().map(|frame| payload_of(frame)).filter(|p| *p == good.0[54..]).count(), 6);
}

#[test]
fn segments_beyond_a_batch_and_its_memory_all_arrive_in_order() {
    let mut site = Testbed::stepped();
    let [a, c] = ["A", "c"].map(|name| site.attach(name));
    // Segments of the minimum length: each frame of 64 KiB gives 250.
    let said = Some(header(NEEDS_CHECKSUM, TCP_IPV4, 256, 34, 16));
    let frame = open_frame(9, 64_000);
    for _ in 0..20 {
        site.send(&a, vec![(frame.clone(), said), (open_frame(9, 60_000), said), (frame.clone(), said)]);
        let segments = c.frames();
        assert_eq!(segments.len(), 250 + 235 + 250);
        let (first, rest) = segments.split_at(250);
        for cut in [first, &rest[235..]] {
            let payload: Vec<u8> = cut.iter().flat_map(|segment| payload_of(segment)).collect();
            assert!(payload == frame[54..]);
        }
    }
    let totals = site.settle(60);
    assert_eq!(totals.dropped_frames(), 0);
    assert_eq!(totals.replicated_frames, 20 * (250 + 235 + 250 - 3));
}
