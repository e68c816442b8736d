//! Cost of making the next frame of a stream, in place or in a slot.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ringroad_traffic::definition::StreamList;
use ringroad_traffic::frame_source::{FrameSource, OneSize, WriteFrames};

fn source(fields: &str) -> FrameSource {
    let text = format!("[[stream]]\n{fields}");
    let list = toml::Deserializer::parse(&text).ok().and_then(|streams| StreamList::read(streams).ok());
    match list.and_then(|list| list.streams.first().and_then(|stream| stream.compile(1).ok())) {
        Some(source) => source,
        None => unreachable!("the definitions of this benchmark are right"),
    }
}

/// Measures the cost of signature, modifiers, sizes and headers.
fn frames(criterion: &mut Criterion) {
    const ADDRESS: &str = "{field = 'ipv4.source', increment = {count = 1000}}";
    const PORT: &str = "{field = 'udp.source', random = {seed = 7, low = 1024}}";
    const TWO_OF_EACH: &str = "packet = [{ethernet = {}}, {ipv4 = {}}, {udp = {}}, {vxlan = {}}, {ethernet = {}}, \
                               {ipv4 = {}}, {tcp = {}}]";
    let modified = |modifiers: &[&str]| format!("modify = [{}]", modifiers.join(", "));
    let mut group = criterion.benchmark_group("frame");
    group.throughput(Throughput::Elements(1));
    for (name, fields) in [
        ("64B", String::new()),
        ("64B unsigned", "signature = false".to_owned()),
        ("64B unsigned, address", format!("signature = false\n{}", modified(&[ADDRESS]))),
        ("64B, address", modified(&[ADDRESS])),
        ("64B, address, random port", modified(&[ADDRESS, PORT])),
        ("64B, 10 M flows", "flows = 10000000".to_owned()),
        ("1518B, address", format!("size = 1518\n{}", modified(&[ADDRESS]))),
        ("IMIX, address", format!("size = 'imix'\n{}", modified(&[ADDRESS]))),
        ("64 to 1518B random", "size = {range = [64, 1518], random_seed = 1}".to_owned()),
        ("VXLAN 256B, 10 M flows", format!("size = 256\nflows = 10000000\n{TWO_OF_EACH}")),
    ] {
        let mut in_place = source(&fields);
        let mut timestamp_ns = 0;
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                timestamp_ns += 67;
                black_box(in_place.next_frame(black_box(timestamp_ns)));
            });
        });
        let mut in_slot = source(&fields);
        let Some(mut frames) = in_slot.of_one_size().map(OneSize::variation) else { continue };
        let mut slot = [0; 2048];
        group.bench_function(format!("{name}, in a slot that holds one"), |bencher| {
            bencher.iter(|| {
                timestamp_ns += 67;
                black_box(frames.write_next(black_box(timestamp_ns), black_box(&mut slot), true))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, frames);
criterion_main!(benches);
