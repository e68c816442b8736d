use super::*;
use crate::mac_table::MacTableConfig;

const NOW: Tick = Tick(3);
const A: Mac = Mac::from_octets([2, 0, 0, 0, 0, 0xa]);
const B: Mac = Mac::from_octets([2, 0, 0, 0, 0, 0xb]);
const C: Mac = Mac::from_octets([2, 0, 0, 0, 0, 0xc]);
const MULTICAST: Mac = Mac::from_octets([1, 0, 0x5e, 0, 0, 1]);
const TO_SELF: Outcome = Outcome::Drop(DropCause::ToSelf);
const PORT_GONE: Outcome = Outcome::Drop(DropCause::PortGone);

/// A switch with ports 0 to 3.
struct Switch {
    table: MacTable,
    ports: PortSet,
}

impl Switch {
    fn new() -> Self {
        let config = MacTableConfig { entries: 4, ageing_ticks: 10, hash_key: 1 };
        let ports = PortSet::new();
        assert!((0..4).all(|index| ports.insert(PortIndex(index))));
        Self { table: MacTable::new(config).unwrap(), ports }
    }

    fn send(&self, from: PortIndex, frames: &[FrameHeader], now: Tick) -> Vec<Outcome> {
        // Initial outcome that no test expects.
        let mut outcomes = vec![Outcome::Port(PortIndex(99)); frames.len()];
        classify(frames, from, &self.table, &self.ports, now, &mut outcomes);
        outcomes
    }

    fn send_from(&self, index: u8, frames: &[FrameHeader]) -> Vec<Outcome> {
        self.send(PortIndex(index), frames, NOW)
    }

    fn port_of(&self, mac: Mac) -> Option<u8> {
        self.table.lookup(mac, NOW).map(|port| port.0)
    }
}

fn frame(source: Mac, destination: Mac) -> FrameHeader {
    FrameHeader { destination, source, flags: 0 }
}

fn flagged(source: Mac, destination: Mac, flags: u16) -> FrameHeader {
    FrameHeader { destination, source, flags }
}

#[test]
fn both_constructors_read_the_same_header() {
    let bytes: [u8; 14] = std::array::from_fn(|index| index as u8 * 17 + 2);
    let word = |from: usize| u64::from_ne_bytes(bytes[from..from + 8].try_into().unwrap());
    let header = FrameHeader::from_bytes(&bytes, 0x1234);
    assert_eq!(FrameHeader::from_words(word(0), word(6), 0x1234), header);
    assert_eq!(header.destination.octets(), bytes[..6]);
    assert_eq!(header.source.octets(), bytes[6..12]);
    assert_eq!(header.flags, 0x1234);
}

#[test]
fn an_unknown_destination_is_flooded_and_a_learned_one_is_not() {
    let switch = Switch::new();
    assert_eq!(switch.send_from(1, &[frame(A, B)]), [Outcome::Flood]);
    assert_eq!(switch.send_from(2, &[frame(B, A)]), [Outcome::Port(PortIndex(1))]);
    assert_eq!(switch.send_from(1, &[frame(A, B)]), [Outcome::Port(PortIndex(2))]);
}

#[test]
fn multicast_is_flooded_and_never_learned() {
    let switch = Switch::new();
    let frames =
        [frame(A, Mac::BROADCAST), frame(A, MULTICAST), frame(MULTICAST, B), frame(Mac::BROADCAST, B)];
    assert_eq!(switch.send_from(1, &frames), [Outcome::Flood; 4]);
    assert_eq!(switch.table.len(), 1);
    assert_eq!(switch.send_from(2, &[frame(B, MULTICAST), frame(B, Mac::BROADCAST)]), [Outcome::Flood; 2]);
}

#[test]
fn a_frame_to_its_own_port_is_dropped() {
    let switch = Switch::new();
    switch.send_from(1, &[frame(A, B)]);
    assert_eq!(switch.send_from(1, &[frame(C, A)]), [TO_SELF]);
    assert_eq!(switch.send_from(1, &[frame(C, C)]), [TO_SELF]);
}

#[test]
fn a_frame_to_a_port_that_left_is_dropped_until_its_addresses_are_forgotten() {
    let switch = Switch::new();
    switch.send_from(1, &[frame(A, B)]);
    switch.ports.remove(PortIndex(1));
    assert_eq!(switch.send_from(2, &[frame(B, A)]), [PORT_GONE]);
    switch.table.forget_port(PortIndex(1));
    assert_eq!(switch.send_from(2, &[frame(B, A)]), [Outcome::Flood]);
}

#[test]
fn no_learn_keeps_a_source_out_of_the_table() {
    let switch = Switch::new();
    switch.send_from(1, &[flagged(A, B, FrameHeader::NO_LEARN)]);
    assert_eq!(switch.port_of(A), None);
    switch.send_from(1, &[frame(A, B)]);
    switch.send_from(2, &[flagged(A, B, FrameHeader::NO_LEARN)]);
    assert_eq!(switch.port_of(A), Some(1), "nor does it move one");
}

#[test]
fn flags_unknown_to_the_switch_change_nothing() {
    let switch = Switch::new();
    assert_eq!(switch.send_from(1, &[flagged(A, B, 0x00f7)]), [Outcome::Flood]);
    assert_eq!(switch.port_of(A), Some(1));
}

#[test]
fn a_forced_destination_overrides_the_address() {
    let switch = Switch::new();
    switch.send_from(1, &[frame(A, C)]);
    let forced = [
        (A, 0x0300, Outcome::Port(PortIndex(3))),
        (Mac::BROADCAST, 0x0300, Outcome::Port(PortIndex(3))),
        (A, 0xfe00, Outcome::Flood),
        (A, 0x0200, TO_SELF),
        (A, 0x0900, PORT_GONE),
        (A, 0xff00, PORT_GONE),
        (A, 0x0000, Outcome::Port(PortIndex(1))),
    ];
    let frames = forced.map(|(destination, flags, _)| flagged(B, destination, flags));
    assert_eq!(switch.send_from(2, &frames), forced.map(|(_, _, outcome)| outcome));
    assert_eq!(switch.port_of(B), Some(2), "forced frames are learned from");
}

#[test]
fn a_forced_frame_leaves_the_decision_of_its_neighbours_alone() {
    let switch = Switch::new();
    switch.send_from(1, &[frame(A, C)]);
    let frames =
        [frame(B, A), flagged(B, A, 0x0300), frame(B, A), flagged(B, C, 0x0300), frame(B, C), frame(B, A)];
    let to = |index| Outcome::Port(PortIndex(index));
    assert_eq!(switch.send_from(2, &frames), [to(1), to(3), to(1), to(3), Outcome::Flood, to(1)]);
}

#[test]
fn an_address_that_moves_goes_where_it_was_last_seen() {
    let switch = Switch::new();
    switch.send_from(1, &[frame(A, B)]);
    switch.send_from(2, &[frame(A, B)]);
    assert_eq!(switch.send_from(3, &[frame(C, A)]), [Outcome::Port(PortIndex(2))]);
}

#[test]
fn an_address_that_moves_away_and_back_is_learned_again() {
    let switch = Switch::new();
    let [first, second] = [1, 2].map(PortIndex);
    for _ in 0..3 {
        switch.send(first, &[frame(A, B), frame(A, B)], NOW);
        assert_eq!(switch.port_of(A), Some(1));
        switch.send(second, &[frame(A, B), frame(A, B)], NOW);
        assert_eq!(switch.port_of(A), Some(2));
    }
}

#[test]
fn a_forgotten_or_displaced_source_is_learned_by_its_next_batch() {
    let switch = Switch::new();
    let port = PortIndex(1);
    let rounds: [&dyn Fn(); 4] = [
        &|| _ = switch.table.forget_port(PortIndex(1)),
        &|| _ = switch.table.forget_learned(None),
        &|| _ = switch.table.sweep(Tick(NOW.0 + 11)),
        &|| {
            // Newer addresses, as many as there are entries, displace the old one.
            for last in 0..4 {
                switch.table.learn(Mac::from([6, 0, 0, 0, 0, last]), PortIndex(3), Tick(NOW.0 + 1));
            }
        },
    ];
    for (round, lose) in rounds.into_iter().enumerate() {
        switch.send(port, &[frame(A, B)], NOW);
        assert_eq!(switch.port_of(A), Some(1), "round {round}");
        lose();
        assert_eq!(switch.port_of(A), None, "round {round}");
        switch.send(port, &[frame(A, B)], NOW);
        assert_eq!(switch.port_of(A), Some(1), "round {round}");
    }
}

#[test]
fn a_source_that_keeps_sending_does_not_age() {
    let switch = Switch::new();
    let port = PortIndex(1);
    for tick in 0..=255 {
        switch.send(port, &[frame(A, B)], Tick(tick));
        switch.table.sweep(Tick(tick));
        assert_eq!(switch.table.entries(Tick(tick)).map(|entry| entry.age_ticks).collect::<Vec<_>>(), [0]);
    }
}

#[test]
fn the_sources_of_a_batch_are_known_to_all_its_frames() {
    let switch = Switch::new();
    assert_eq!(switch.send_from(1, &[frame(A, B), frame(B, A)]), [TO_SELF; 2]);
}

#[test]
fn an_expired_destination_is_flooded() {
    let switch = Switch::new();
    switch.send_from(1, &[frame(A, B)]);
    let port = PortIndex(2);
    assert_eq!(switch.send(port, &[frame(B, A)], Tick(NOW.0 + 10)), [Outcome::Port(PortIndex(1))]);
    assert_eq!(switch.send(port, &[frame(B, A)], Tick(NOW.0 + 11)), [Outcome::Flood]);
}

#[test]
fn frames_beyond_the_shorter_slice_are_neither_learned_nor_written() {
    let switch = Switch::new();
    let port = PortIndex(1);
    let mut outcomes = [PORT_GONE; 3];
    classify(&[frame(A, B)], port, &switch.table, &switch.ports, NOW, &mut outcomes);
    assert_eq!(outcomes, [Outcome::Flood, PORT_GONE, PORT_GONE]);
    classify(&[frame(A, B), frame(C, B)], port, &switch.table, &switch.ports, NOW, &mut outcomes[..1]);
    assert_eq!(switch.port_of(C), None);
    classify(&[], port, &switch.table, &switch.ports, NOW, &mut outcomes);
}

#[test]
fn a_source_that_is_not_a_port_is_switched_and_not_learned() {
    let switch = Switch::new();
    switch.send_from(1, &[frame(A, B)]);
    for index in [254, 255] {
        assert_eq!(switch.send_from(index, &[frame(B, A)]), [Outcome::Port(PortIndex(1))]);
        assert_eq!(switch.port_of(B), None);
    }
}
