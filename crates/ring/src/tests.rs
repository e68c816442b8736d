//! Tests of the ends against each other, and against a hostile other side.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use proptest::prelude::*;

use crate::control_block::FillCounts;
use crate::datapath_end::{RxPutEnd, TxTakeEnd};
use crate::geometry::{PortPlacement, RegionGeometry};
use crate::layout::slot_flags::MORE_FRAGMENTS;
use crate::layout::{Direction, FIRST_BUFFER, Slot};
use crate::pipe_end::PipeSendEnd;
use crate::program_end::ProgramEnd;
use crate::region::{HugePages, Region};
use crate::ring_view::{RingView, lay_out_port};
use crate::violation::RingViolation;

const SLOTS: u32 = 8;

fn region(ports: u32) -> Arc<Region> {
    let geometry = RegionGeometry::for_ports(ports, 1, SLOTS, 128, 0).unwrap();
    let region = Arc::new(Region::create(geometry, HugePages::Never).unwrap());
    let mut buffers = FIRST_BUFFER..geometry.buffers;
    for port in 0..ports {
        let placement = PortPlacement {
            interface: port,
            tx_rings: vec![2 * port],
            rx_rings: vec![2 * port + 1],
            slots: SLOTS,
            extra_buffers: 0,
        };
        lay_out_port(&region, "test", &placement, &mut buffers).unwrap();
    }
    region
}

fn view(region: &Arc<Region>, ring: u32) -> RingView {
    RingView::new(region, ring, SLOTS).unwrap()
}

fn tx_pair() -> (ProgramEnd, TxTakeEnd, RingView) {
    let region = region(1);
    let program = ProgramEnd::take_up(view(&region, 0), Direction::Tx);
    (program, TxTakeEnd::new(view(&region, 0)), view(&region, 0))
}

fn rx_pair() -> (ProgramEnd, RxPutEnd, RingView) {
    let region = region(1);
    let program = ProgramEnd::take_up(view(&region, 1), Direction::Rx);
    (program, RxPutEnd::new(view(&region, 1)), view(&region, 1))
}

fn send(program: &mut ProgramEnd, frame: &[u8]) {
    let window = program.window_mut();
    window.buffer(0).write(frame);
    window.set(0, frame.len() as u16, 0);
    window.advance(1);
    program.sync().unwrap();
}

#[test]
fn a_fresh_tx_ring_offers_all_slots_but_one() {
    let (program, _, _) = tx_pair();
    assert_eq!(program.window().available(), SLOTS - 1);
}

#[test]
fn frames_sent_are_taken_in_order_and_slots_come_back() {
    let (mut program, mut datapath, _) = tx_pair();
    for round in 0u8..50 {
        send(&mut program, &[round; 20]);
        assert_eq!(datapath.refresh(), Ok(1));
        let mut seen = [0; 20];
        let fragment = datapath.take().unwrap().unwrap();
        assert_eq!(fragment.bytes.len(), 20);
        fragment.bytes.read(&mut seen);
        assert_eq!(seen, [round; 20]);
        datapath.release(1);
    }
    program.sync().unwrap();
    assert_eq!(program.window().available(), SLOTS - 1);
}

#[test]
fn heads_that_leave_the_window_stop_the_ring() {
    for head in [SLOTS, u32::MAX, SLOTS + 1] {
        let (mut program, mut datapath, raw) = tx_pair();
        raw.control().program.head.store(head, Ordering::Release);
        assert_eq!(datapath.refresh(), Err(RingViolation::Head));
        assert_eq!(datapath.refresh(), Err(RingViolation::Head), "a stopped ring stays stopped");
        assert_eq!(program.sync(), Err(RingViolation::Head));
    }
}

#[test]
fn a_head_that_moves_backwards_stops_the_ring() {
    let (mut program, mut datapath, raw) = tx_pair();
    send(&mut program, &[1; 20]);
    send(&mut program, &[2; 20]);
    datapath.refresh().unwrap();
    raw.control().program.head.store(1, Ordering::Release);
    assert_eq!(datapath.refresh(), Err(RingViolation::Head));
}

#[test]
fn wild_slots_stop_the_ring_and_the_program_learns_why() {
    for (slot, violation) in [
        (Slot { buffer: 0, len: 20, flags: 0, ptr: 0 }, RingViolation::BufferIndex),
        (Slot { buffer: u32::MAX, len: 20, flags: 0, ptr: 0 }, RingViolation::BufferIndex),
        (Slot { buffer: FIRST_BUFFER, len: 129, flags: 0, ptr: 0 }, RingViolation::Length),
    ] {
        let (mut program, mut datapath, raw) = tx_pair();
        raw.slot(0).store(slot);
        raw.control().program.head.store(1, Ordering::Release);
        datapath.refresh().unwrap();
        assert_eq!(datapath.take().unwrap_err(), violation);
        assert_eq!(program.sync(), Err(violation));
    }
}

#[test]
fn delivered_frames_appear_only_after_flush() {
    let (mut program, mut datapath, _) = rx_pair();
    let (mut bytes, buffer) = datapath.buffer(0, 5).unwrap();
    bytes.write(b"hello");
    datapath.describe(0, buffer, 5, 1, false);
    datapath.commit(1);
    assert_eq!(program.sync().unwrap().gained, 0);
    assert!(datapath.flush());
    assert_eq!(program.sync().unwrap().gained, 1);
    let mut seen = [0; 5];
    program.window().bytes(0).read(&mut seen);
    assert_eq!(&seen, b"hello");
}

#[test]
fn a_full_rx_ring_has_no_room_until_the_program_releases() {
    let (mut program, mut datapath, _) = rx_pair();
    assert_eq!(datapath.free(1), Ok(SLOTS - 1));
    for _ in 0..SLOTS - 1 {
        let (_, buffer) = datapath.buffer(0, 0).unwrap();
        datapath.describe(0, buffer, 0, 1, false);
        datapath.commit(1);
    }
    datapath.flush();
    assert_eq!(datapath.free(1), Ok(0));
    program.sync().unwrap();
    program.window_mut().advance(3);
    program.sync().unwrap();
    assert_eq!(datapath.free(1), Ok(3));
}

#[test]
fn a_datapath_that_breaks_the_order_is_noticed_by_the_program() {
    let (mut program, _, raw) = rx_pair();
    raw.control().datapath.tail.store(SLOTS + 3, Ordering::Release);
    assert_eq!(program.sync(), Err(RingViolation::Tail));
}

/// Both ends of one pipe direction: sender (port 0) and receiver (port 1).
fn pipe() -> (PipeSendEnd, ProgramEnd, Arc<Region>) {
    let region = region(2);
    let receive = ProgramEnd::take_up(view(&region, 3), Direction::Rx);
    (PipeSendEnd::take_up(view(&region, 0), view(&region, 3)), receive, region)
}

fn pipe_send(end: &mut PipeSendEnd, frame: &[u8], flags: u16) {
    let window = end.window_mut();
    window.buffer(0).write(frame);
    window.set(0, frame.len() as u16, flags);
    window.advance(1);
    end.sync().unwrap();
}

#[test]
fn a_full_pipe_holds_the_sender_back_and_drops_nothing() {
    let (mut send, mut receive, _region) = pipe();
    for value in 0..(SLOTS - 1) as u8 {
        pipe_send(&mut send, &[value; 10], 0);
    }
    assert_eq!(send.window().available(), 0);
    assert_eq!(receive.sync().unwrap().gained, SLOTS - 1);
    for value in 0..(SLOTS - 1) as u8 {
        let mut seen = [0xFF; 10];
        receive.window().bytes(0).read(&mut seen);
        assert_eq!(seen, [value; 10]);
        receive.window_mut().advance(1);
    }
    receive.sync().unwrap();
    send.sync().unwrap();
    assert_eq!(send.window().available(), SLOTS - 1);
}

#[test]
fn an_unfinished_frame_stays_at_the_sender() {
    let (mut send, mut receive, _region) = pipe();
    pipe_send(&mut send, &[1; 10], 0);
    pipe_send(&mut send, &[2; 10], MORE_FRAGMENTS);
    assert_eq!(receive.sync().unwrap().gained, 1);
    pipe_send(&mut send, &[3; 10], 0);
    assert_eq!(receive.sync().unwrap().gained, 2);
    let counted = receive.window().view().control().datapath.filled.read();
    assert_eq!(counted, FillCounts { frames: 2, bytes: 30, missed: 0 });
}

#[test]
fn a_sender_that_returns_finds_its_frames_still_pending() {
    let (mut send, mut receive, region) = pipe();
    pipe_send(&mut send, &[7; 10], 0);
    pipe_send(&mut send, &[8; 10], 0);
    drop(send);
    let mut send = PipeSendEnd::take_up(view(&region, 0), view(&region, 3));
    assert_eq!(send.pending(), 2);
    pipe_send(&mut send, &[9; 10], 0);
    receive.sync().unwrap();
    for value in 7..=9 {
        let mut seen = [0; 10];
        receive.window().bytes(0).read(&mut seen);
        assert_eq!(seen, [value; 10]);
        receive.window_mut().advance(1);
    }
}

#[test]
fn buffers_that_the_receiver_exchanged_come_back_to_the_sender() {
    let (mut send, mut receive, region) = pipe();
    let spare = view(&region, 1).slot(0).load().buffer;
    pipe_send(&mut send, &[1; 10], 0);
    receive.sync().unwrap();
    let slot = receive.window().slot(0);
    receive.window_mut().exchange(0, Slot { buffer: spare, ..slot });
    receive.window_mut().advance(1);
    receive.sync().unwrap();
    send.sync().unwrap();
    assert_eq!(view(&region, 0).slot(0).load().buffer, spare);
}

#[test]
fn buffers_exchanged_before_their_turn_to_be_released_come_back_too() {
    let (mut send, mut receive, region) = pipe();
    let spare = [0, 1].map(|slot| view(&region, 1).slot(slot).load().buffer);
    pipe_send(&mut send, &[1; 10], 0);
    pipe_send(&mut send, &[2; 10], 0);
    receive.sync().unwrap();
    for (index, buffer) in (0..).zip(spare) {
        let slot = receive.window().slot(index);
        receive.window_mut().exchange(index, Slot { buffer, ..slot });
    }
    for (index, buffer) in (0..).zip(spare) {
        receive.window_mut().advance(1);
        receive.sync().unwrap();
        send.sync().unwrap();
        assert_eq!(view(&region, 0).slot(index).load().buffer, buffer, "slot {index}");
    }
}

#[test]
fn a_receiver_that_releases_slots_it_never_had_is_noticed() {
    let (mut send, _receive, region) = pipe();
    pipe_send(&mut send, &[1; 10], 0);
    view(&region, 3).control().program.head.store(5, Ordering::Release);
    assert_eq!(send.sync(), Err(RingViolation::Tail));
}

proptest! {
    #[test]
    fn the_datapath_stays_in_bounds_with_any_writes_of_the_program(
        steps in prop::collection::vec((0u8..5, any::<u32>(), any::<u16>()), 1..200),
    ) {
        let (_program, mut take, raw) = tx_pair();
        for (what, value, small) in steps {
            match what {
                0 => raw.control().program.head.store(value % 12, Ordering::Release),
                1 => raw.slot(value % SLOTS).store(Slot { buffer: u32::from(small) % 20, len: small % 200, flags: small, ptr: 0 }),
                2 => raw.control().datapath.tail.store(value, Ordering::Release),
                3 => {
                    if let Ok(waiting) = take.refresh() {
                        prop_assert!(waiting < SLOTS);
                        if let Ok(Some(fragment)) = take.take() {
                            prop_assert!(fragment.bytes.len() <= 128);
                            let mut sink = [0; 128];
                            fragment.bytes.read(&mut sink);
                            take.release(1);
                        }
                    }
                }
                _ => raw.control().datapath.violation.store(value, Ordering::Release),
            }
        }
    }
}
