//! Test of the table against its model, a plain map.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use proptest::prelude::*;
use ringroad_port::port_index::PortIndex;
use ringroad_switch::{MacTable, MacTableConfig, Tick};
use ringroad_wire::mac::Mac;

#[derive(Debug, Clone)]
enum Step {
    Learn { mac: u8, port: u8 },
    Lookup { mac: u8 },
    Pass { ticks: u16 },
    ForgetPort { port: u8 },
    ForgetAll,
}

fn step(macs: u8) -> impl Strategy<Value = Step> {
    let port = || prop_oneof![0..4u8, Just(253)];
    prop_oneof![
        8 => (0..macs, port()).prop_map(|(mac, port)| Step::Learn { mac, port }),
        8 => (0..macs).prop_map(|mac| Step::Lookup { mac }),
        3 => (1..30u16).prop_map(|ticks| Step::Pass { ticks }),
        1 => (200..600u16).prop_map(|ticks| Step::Pass { ticks }),
        1 => port().prop_map(|port| Step::ForgetPort { port }),
        1 => Just(Step::ForgetAll),
    ]
}

/// The table and its model: address to port and moment of learning, in ticks that do not wrap.
struct Pair {
    table: MacTable,
    model: HashMap<Mac, (PortIndex, u64)>,
    ageing_ticks: u8,
    now: u64,
}

impl Pair {
    fn new(entries: usize, ageing_ticks: u8, hash_key: u64) -> Self {
        let table = MacTable::new(MacTableConfig { entries, ageing_ticks, hash_key }).unwrap();
        Self { table, model: HashMap::new(), ageing_ticks, now: 0 }
    }

    fn tick(&self) -> Tick {
        Tick(self.now as u8)
    }

    fn lookup(&self, mac: u8) -> (Option<PortIndex>, Option<PortIndex>) {
        (self.table.lookup(address(mac), self.tick()), self.model.get(&address(mac)).map(|known| known.0))
    }

    /// Applies one step to both, except lookups.
    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Learn { mac, port } => {
                self.table.learn(address(mac), PortIndex(port), self.tick());
                self.model.insert(address(mac), (PortIndex(port), self.now));
            }
            Step::Lookup { .. } => {}
            Step::Pass { ticks } => {
                for _ in 0..ticks {
                    self.now += 1;
                    self.table.sweep(self.tick());
                }
                self.model.retain(|_, known| self.now - known.1 <= u64::from(self.ageing_ticks));
            }
            Step::ForgetPort { port } => {
                self.table.forget_port(PortIndex(port));
                self.model.retain(|_, known| known.0 != PortIndex(port));
            }
            Step::ForgetAll => {
                self.table.forget_learned(None);
                self.model.clear();
            }
        }
    }
}

/// One of the addresses is all-zero.
fn address(number: u8) -> Mac {
    Mac::from([0, 0, number, 0, 0, number])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_table_matches_the_model_while_every_address_fits(
        entries_log2 in 2..8u32,
        ageing_ticks in 1..=200u8,
        hash_key: u64,
        steps in prop::collection::vec(step(4), 1..120),
    ) {
        // There are as many addresses as a set has entries: none is ever displaced, for any hash.
        let mut pair = Pair::new(1 << entries_log2, ageing_ticks, hash_key);
        for step in &steps {
            pair.apply(step);
            if let Step::Lookup { mac } = *step {
                let (found, expected) = pair.lookup(mac);
                prop_assert_eq!(found, expected);
            }
            prop_assert_eq!(pair.table.len(), pair.model.len());
        }
        let listed: HashMap<_, _> = pair
            .table
            .entries(pair.tick())
            .map(|entry| (entry.mac, (entry.port, pair.now - u64::from(entry.age_ticks))))
            .collect();
        prop_assert_eq!(&listed, &pair.model);
        prop_assert_eq!(pair.table.evictions(), 0);
    }

    #[test]
    fn a_displaced_address_gives_its_latest_port_or_none(
        ageing_ticks in 1..=200u8,
        hash_key: u64,
        steps in prop::collection::vec(step(40), 1..200),
    ) {
        let mut pair = Pair::new(8, ageing_ticks, hash_key);
        for step in &steps {
            pair.apply(step);
            match *step {
                Step::Lookup { mac } => {
                    let (found, expected) = pair.lookup(mac);
                    prop_assert!(found.is_none() || found == expected, "{:?}, latest {:?}", found, expected);
                }
                Step::Learn { mac, .. } => {
                    let (found, expected) = pair.lookup(mac);
                    prop_assert_eq!(found, expected, "just learned");
                }
                _ => {}
            }
            prop_assert!(pair.table.len() <= pair.model.len());
        }
    }
}
