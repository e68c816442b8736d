//! Tests of frames behind a header, with any content, in any slots.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use proptest::prelude::*;
use ringroad_port::batch::{BATCH_FRAMES, Batch};
use ringroad_port::drop_cause::DropCause;
use ringroad_port::port_queue::{Delivery, PortQueue};
use ringroad_ring::layout::Direction;
use ringroad_ring::program_end::ProgramEnd;
use ringroad_ring::region::HugePages;
use ringroad_ring::ring_view::RingView;

use super::super::{BindingUpdates, NetmapQueue, PortShape, ShmPort};
use super::*;

const SLOTS: u32 = 128;
const BUFFER_BYTES: usize = 2048;

/// A program's port and the datapath's side of it.
struct Testbed {
    queue: NetmapQueue,
    state: Arc<BindingUpdates>,
    tx: ProgramEnd,
    rx: ProgramEnd,
    _port: ShmPort,
}

impl Testbed {
    fn new(header_bytes: u32) -> Self {
        let (slots, buffer_bytes) = (SLOTS, BUFFER_BYTES as u32);
        let huge_pages = HugePages::Never;
        let shape = PortShape { slots, buffer_bytes, huge_pages, ..PortShape::DEFAULT };
        let port = ShmPort::create("p", shape).unwrap();
        let state = Arc::<BindingUpdates>::default();
        state.set_header_bytes(header_bytes);
        state.set_rx_users(1);
        let queue = NetmapQueue::new(port.queue(0, Arc::default()).unwrap(), false, Arc::clone(&state));
        let end = |ring, direction| {
            ProgramEnd::take_up(RingView::new(port.region(), ring, SLOTS).unwrap(), direction)
        };
        let tx = end(port.placement().tx_rings[0], Direction::Tx);
        let rx = end(port.placement().rx_rings[0], Direction::Rx);
        Self { queue, state, tx, rx, _port: port }
    }

    /// Sends one frame, a slot for each part, with `flags` in the first.
    fn send(&mut self, parts: &[&[u8]], flags: u16) {
        let window = self.tx.window_mut();
        for (index, part) in (0..).zip(parts) {
            let more = if index as usize + 1 < parts.len() { MORE_FRAGMENTS } else { 0 };
            window.buffer(index).write(part);
            window.set(index, part.len() as u16, more | if index == 0 { flags } else { 0 });
        }
        window.advance(parts.len() as u32);
        self.tx.sync().unwrap();
    }

    /// Takes the frames at the datapath's side.
    fn take(&mut self) -> Batch {
        let mut batch = Batch::new();
        batch.reset(BATCH_FRAMES);
        self.queue.receive(&mut batch);
        batch
    }

    fn release(&mut self, batch: &Batch) {
        self.queue.release(batch.slots());
        self.queue.flush();
        self.tx.sync().unwrap();
    }

    fn deliver(&mut self, batch: &mut Batch) -> Delivery {
        let frames: Vec<u16> = (0..batch.frames() as u16).collect();
        let delivery = self.queue.deliver(batch, &frames);
        self.queue.flush();
        delivery
    }

    /// Frames that the program receives, and their numbers of slots.
    fn received(&mut self) -> Vec<(Vec<u8>, u16)> {
        self.rx.sync().unwrap();
        let window = self.rx.window_mut();
        let (mut frames, mut frame, mut slots) = (Vec::new(), Vec::new(), 0);
        for index in 0..window.available() {
            let start = frame.len();
            let bytes = window.bytes(index);
            frame.resize(start + bytes.len(), 0);
            bytes.read(&mut frame[start..]);
            slots += 1;
            if window.slot(index).flags & MORE_FRAGMENTS == 0 {
                frames.push((std::mem::take(&mut frame), std::mem::take(&mut slots)));
            }
        }
        assert!(frame.is_empty());
        window.advance(window.available());
        self.rx.sync().unwrap();
        frames
    }
}

fn content(batch: &Batch, frame: usize) -> Vec<u8> {
    let mut bytes = vec![0; batch.frame_bytes(frame)];
    let mut at = 0;
    for fragment in batch.frame(frame) {
        at += fragment.bytes().read(&mut bytes[at..]);
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_header_in_any_slots_is_removed_once_and_all_slots_come_back(
        long_form: bool,
        message in prop::collection::vec(any::<u8>(), 0..5000),
        cuts in prop::collection::vec(0usize..60, 0..8),
        to in prop::sample::select(vec![0u32, 10, 12]),
    ) {
        let header_bytes = if long_form { 12 } else { 10 };
        let mut from = Testbed::new(header_bytes as u32);
        let mut parts = Vec::new();
        let mut rest = &message[..];
        for cut in cuts {
            let (part, behind) = rest.split_at(cut.min(rest.len()));
            parts.push(part);
            rest = behind;
        }
        parts.extend(rest.chunks(BUFFER_BYTES));
        if parts.is_empty() {
            parts.push(&[]);
        }
        from.send(&parts, 0x300);
        let mut batch = from.take();
        prop_assert_eq!((batch.frames(), batch.slots()), (1, parts.len()));
        prop_assert_eq!(batch.first_fragment(0).unwrap().flags() & !MORE_FRAGMENTS, 0x300);
        let frame = message.get(header_bytes..).unwrap_or(&[]);
        prop_assert_eq!(content(&batch, 0), frame);
        let said = message.get(..header_bytes).map_or([0; 10], |header| *header.first_chunk().unwrap());
        prop_assert_eq!(batch.meta(0).unfinished.to_header(), said);

        // Unfinished frames go only to a queue that accepts them.
        let mut far = Testbed::new(to);
        prop_assert_eq!(far.queue.takes_unfinished(), to != 0);
        if to != 0 || !batch.is_unfinished() {
            prop_assert_eq!(far.deliver(&mut batch).frames, 1);
            let mut expected = batch.meta(0).unfinished.to_long_header((to as usize + frame.len()).div_ceil(BUFFER_BYTES).max(1) as u16)[..to as usize].to_vec();
            expected.extend_from_slice(frame);
            let slots = expected.len().div_ceil(BUFFER_BYTES).max(1) as u16;
            prop_assert_eq!(far.received(), [(expected, slots)]);
        }
        from.release(&batch);
        prop_assert_eq!(from.tx.window().available(), SLOTS - 1);
    }
}

#[test]
fn a_header_changed_after_it_was_read_changes_nothing() {
    let mut from = Testbed::new(12);
    let message = [7; 100];
    from.send(&[&message], 0);
    let batch = from.take();
    // The program writes its slots' buffers, although it does not own the slots now.
    from.tx.window().view().bytes(from.tx.window().view().slot(0).load().buffer, 12).write(&[0xff; 12]);
    assert_eq!(batch.meta(0).unfinished.to_header(), [7; 10]);
    from.release(&batch);
}

#[test]
fn a_frame_waits_for_its_rest_and_one_of_too_many_slots_stops_the_ring() {
    let mut from = Testbed::new(12);
    from.send(&[&[1; 12], &[2; 60]], 0);
    from.send(&[&[3; 5]], MORE_FRAGMENTS);
    let batch = from.take();
    assert_eq!((batch.frames(), batch.slots()), (1, 2));
    from.release(&batch);
    assert!(!from.queue.sleeper().unwrap().has_waiting());
    from.send(&[&[3; 7], &[4; 60]], 0);
    let batch = from.take();
    assert_eq!((batch.frames(), batch.slots(), content(&batch, 0)), (1, 3, vec![4; 60]));
    assert_eq!(batch.meta(0).unfinished.to_header(), [3; 10]);
    from.release(&batch);

    from.send(&[&[5; 12], &[6; 60]], 0);
    from.send(&[&[][..]; MAX_FRAGMENTS + 1], 0);
    let batch = from.take();
    assert_eq!((batch.frames(), batch.slots()), (1, 2));
    assert!(from.queue.diagnosis().unwrap().fault().is_some_and(|fault| fault.contains("tx ring stopped")));
}

#[test]
fn a_port_changes_its_header_length_between_batches() {
    let [mut from, mut far] = [0, 12].map(Testbed::new);
    for (bytes, expected) in [(12u32, 112), (10, 110), (0, 100)] {
        far.state.set_header_bytes(bytes);
        from.send(&[&[1; 100]], 0);
        let mut batch = from.take();
        assert_eq!(far.deliver(&mut batch).bytes, 100);
        assert_eq!(far.received().first().unwrap().0.len(), expected);
        from.release(&batch);
    }
    // The value before the change stays valid, so the unfinished work is not lost.
    from.state.set_header_bytes(10);
    far.state.set_header_bytes(12);
    from.send(&[&[1; 100]], 0);
    let mut batch = from.take();
    assert!(batch.is_unfinished() && far.queue.takes_unfinished());
    far.state.set_header_bytes(0);
    far.deliver(&mut batch);
    assert_eq!(far.received().first().unwrap().0.len(), 102);
    from.release(&batch);
}

#[test]
fn a_frame_that_fits_only_without_its_header_is_too_long_for_the_ring() {
    let [mut from, mut far] = [0, 12].map(Testbed::new);
    let parts = vec![[1; BUFFER_BYTES]; MAX_FRAGMENTS];
    from.send(&parts.iter().map(|part| &part[..]).collect::<Vec<_>>(), 0);
    let mut batch = from.take();
    assert_eq!(far.deliver(&mut batch).dropped.of(DropCause::TooLong), 1);
    far.state.set_header_bytes(0);
    assert_eq!(far.deliver(&mut batch).frames, 1);
    from.release(&batch);
}
