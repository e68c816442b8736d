//! Cost of classifying a frame: one sender's batches, all sources and destinations known, in random order.

#![allow(clippy::expect_used)]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use ringroad_port::forwarding_plane::Outcome;
use ringroad_port::port_index::PortIndex;
use ringroad_switch::{FrameHeader, MacTable, MacTableConfig, PortSet, Tick, classify};
use ringroad_wire::mac::Mac;

const NOW: Tick = Tick(1);
/// Number of frames in the stream from which batches are cut, a multiple of every batch: too many for a branch
/// predictor to remember.
const STREAM_FRAMES: usize = 16384;

fn address(side: u8, number: u32) -> Mac {
    let [_, b, c, d] = number.to_be_bytes();
    Mac::from([2, side, 0, b, c, d])
}

/// Frames from `sources` stations on one port to `destinations` stations on another.
fn stream(sources: u32, destinations: u32) -> Vec<FrameHeader> {
    let mut state = 1u64;
    let mut pick = |below: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32 % below
    };
    (0..STREAM_FRAMES)
        .map(|_| FrameHeader {
            destination: address(2, pick(destinations)),
            source: address(1, pick(sources)),
            flags: 0,
        })
        .collect()
}

fn known(sources: u32, destinations: u32) -> (MacTable, PortSet, PortIndex) {
    let table = MacTable::new(MacTableConfig::new(0x5eed)).expect("valid");
    let ports = PortSet::new();
    ports.insert(PortIndex(1));
    ports.insert(PortIndex(2));
    (0..sources).for_each(|number| table.learn(address(1, number), PortIndex(1), NOW));
    (0..destinations).for_each(|number| table.learn(address(2, number), PortIndex(2), NOW));
    (table, ports, PortIndex(1))
}

fn bench(criterion: &mut Criterion) {
    for (name, sources, destinations) in [
        ("1 MAC to 1", 1, 1),
        ("1 MAC to 64", 1, 64),
        ("64 MACs to 64", 64, 64),
        ("1 MAC to 4096", 1, 4096),
        ("4096 MACs to 4096", 4096, 4096),
    ] {
        let mut group = criterion.benchmark_group(name);
        for batch in [32, 256] {
            let (table, ports, source) = known(sources, destinations);
            let frames = stream(sources, destinations);
            let mut outcomes = vec![Outcome::Flood; batch];
            let mut batches = frames.chunks_exact(batch).cycle();
            group.throughput(Throughput::Elements(batch as u64));
            group.bench_function(format!("batch {batch}"), |bencher| {
                bencher.iter(|| {
                    let frames = batches.next().unwrap_or_default();
                    classify(black_box(frames), source, &table, &ports, NOW, &mut outcomes);
                    black_box(&mut outcomes);
                });
            });
        }
        group.finish();
    }

    // Worst case of a hostile sender: every frame has an invented source, so each source displaces another one.
    let mut group = criterion.benchmark_group("invented sources");
    let (table, ports, source) = known(1, 1);
    let mut outcomes = vec![Outcome::Flood; 256];
    let mut number = 0;
    group.throughput(Throughput::Elements(256));
    group.bench_function("batch 256", |bencher| {
        bencher.iter_batched(
            || {
                std::array::from_fn::<_, 256, _>(|_| {
                    number += 1;
                    FrameHeader { destination: address(2, 0), source: address(3, number), flags: 0 }
                })
            },
            |frames| classify(&frames, source, &table, &ports, NOW, &mut outcomes),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
