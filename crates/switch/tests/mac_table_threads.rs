//! Tests of several threads on one table.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread;

use ringroad_port::forwarding_plane::Outcome;
use ringroad_port::port_index::PortIndex;
use ringroad_switch::{FrameHeader, MacTable, MacTableConfig, PortSet, Tick, classify};
use ringroad_wire::mac::Mac;

const ROUNDS: u32 = 300_000;
const MACS: u8 = 24;

fn address(number: u8) -> Mac {
    Mac::from([2, 0, 0, 0, 0, number])
}

/// Ports identify addresses: number n is only ever on ports n and n + 100.
fn may_be_on(number: u8, port: PortIndex) -> bool {
    port.0 == number || port.0 == number + 100
}

/// Table with one set of four entries for six times as many addresses: all threads always use the same words.
fn crowded_table() -> MacTable {
    MacTable::new(MacTableConfig { entries: 4, ageing_ticks: 2, hash_key: 5 }).unwrap()
}

#[test]
fn a_lookup_under_contention_gives_a_port_of_the_address_or_none() {
    let table = crowded_table();
    let clock = AtomicU8::new(0);
    let hits: Vec<u32> = thread::scope(|scope| {
        let workers: Vec<_> = (0..2u8)
            .map(|worker| {
                let (table, clock) = (&table, &clock);
                scope.spawn(move || {
                    let mut hits = 0;
                    for round in 0..ROUNDS {
                        let now = Tick(clock.load(Ordering::Relaxed));
                        // Both threads run through the addresses, one of them upwards; each learns its own port.
                        let position = if worker == 0 { round } else { ROUNDS - round };
                        let number = (position % u32::from(MACS)) as u8;
                        table.learn(address(number), PortIndex(number + worker * 100), now);
                        for offset in 0..3 {
                            let other = (number + offset) % MACS;
                            if let Some(port) = table.lookup(address(other), now) {
                                assert!(may_be_on(other, port), "{other} on {port}");
                                hits += 1;
                            }
                        }
                        if round % 64 == 0 {
                            clock.fetch_add(1, Ordering::Relaxed);
                            table.sweep(Tick(clock.load(Ordering::Relaxed)));
                        }
                        if round % 1000 == 0 {
                            table.forget_port(PortIndex(number));
                        }
                    }
                    hits
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    assert!(hits.iter().all(|&hits| hits > ROUNDS / 10), "{hits:?}");
    for entry in table.entries(Tick(clock.load(Ordering::Relaxed))) {
        assert!(may_be_on(entry.mac.octets()[5], entry.port), "{entry:?}");
    }
}

#[test]
fn after_contention_each_address_has_one_entry_with_its_port() {
    let table = crowded_table();
    for round in 0..200u8 {
        thread::scope(|scope| {
            for worker in 0..2u8 {
                let table = &table;
                scope.spawn(move || {
                    for step in 0..200u8 {
                        let number = step % MACS;
                        table.learn(address(number), PortIndex(number + worker * 100), Tick(round));
                        if step % 16 == 0 {
                            table.forget_learned(None);
                        }
                    }
                });
            }
        });
        // A tick later four of the addresses are seen once more.
        for number in 0..4 {
            table.learn(address(number), PortIndex(number), Tick(round + 1));
        }
        let mut seen: Vec<_> = table.entries(Tick(round + 1)).map(|entry| (entry.mac, entry.port)).collect();
        seen.sort();
        let expected: Vec<_> = (0..4).map(|number| (address(number), PortIndex(number))).collect();
        assert_eq!(seen, expected);
    }
}

#[test]
fn workers_send_only_to_an_addresss_ports_while_a_port_comes_and_goes() {
    let table = crowded_table();
    let ports = PortSet::new();
    for index in 0..=253 {
        ports.insert(PortIndex(index));
    }
    let running = AtomicBool::new(true);
    thread::scope(|scope| {
        let control = scope.spawn(|| {
            let mut changes = 0u32;
            while running.load(Ordering::Relaxed) {
                ports.remove(PortIndex(3));
                table.forget_port(PortIndex(3));
                ports.insert(PortIndex(3));
                changes += 1;
            }
            changes
        });
        let workers: Vec<_> = (0..2u8)
            .map(|worker| {
                let (table, ports) = (&table, &ports);
                scope.spawn(move || {
                    let sources: Vec<_> = (0..MACS).map(|number| PortIndex(number + worker * 100)).collect();
                    let mut outcomes = [Outcome::Flood; 4];
                    let mut direct = 0u32;
                    for round in 0..ROUNDS / 4 {
                        let number = (round * (1 + u32::from(worker)) % u32::from(MACS)) as u8;
                        let destinations: [u8; 4] =
                            std::array::from_fn(|step| (number + 1 + step as u8) % MACS);
                        let frames = destinations.map(|destination| FrameHeader {
                            destination: address(destination),
                            source: address(number),
                            flags: 0,
                        });
                        let source = sources[usize::from(number)];
                        classify(&frames, source, table, ports, Tick((round / 4096) as u8), &mut outcomes);
                        for (destination, outcome) in destinations.into_iter().zip(outcomes) {
                            if let Outcome::Port(port) = outcome {
                                assert!(may_be_on(destination, port), "{destination} on {port}");
                                direct += 1;
                            }
                        }
                    }
                    direct
                })
            })
            .collect();
        let direct: Vec<u32> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        running.store(false, Ordering::Relaxed);
        assert!(direct.iter().all(|&direct| direct > 0), "{direct:?}");
        assert!(control.join().unwrap() > 0);
    });
}

#[test]
fn an_address_just_seen_survives_a_sweep_that_found_it_too_old() {
    let table = crowded_table();
    let clock = AtomicU8::new(0);
    let sweeps = AtomicU64::new(0);
    let running = AtomicBool::new(true);
    thread::scope(|scope| {
        let sweeper = scope.spawn(|| {
            let mut cleared = 0;
            while running.load(Ordering::SeqCst) {
                cleared += table.sweep(Tick(clock.load(Ordering::SeqCst)));
                sweeps.fetch_add(1, Ordering::SeqCst);
            }
            cleared
        });
        let mut lost = 0u32;
        for step in 1..=ROUNDS / 20 {
            // With each step, all learned addresses expire, so that learner and sweeper contend for the same entry.
            let now = Tick((step * 3) as u8);
            clock.store(now.0, Ordering::SeqCst);
            table.learn(address(1), PortIndex(1), now);
            // The second sweep from here on began with this step's clock.
            let awaited = sweeps.load(Ordering::SeqCst) + 2;
            while sweeps.load(Ordering::SeqCst) < awaited {
                thread::yield_now();
            }
            lost += u32::from(table.lookup(address(1), now) != Some(PortIndex(1)));
        }
        running.store(false, Ordering::SeqCst);
        let cleared = sweeper.join().unwrap();
        assert_eq!(lost, 0);
        assert!(cleared > 0, "the sweeper came first at least once");
    });
}
