//! Cost of making the next frame of a stream in place, and of reading and tracking its number.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ringroad_traffic::line_rate::FrameSize;
use ringroad_traffic::sequence::SequenceTracker;
use ringroad_traffic::stream::{FrameFields, FrameStream, FrameTemplate, Variation, read_sequence};

fn stream(bytes_with_fcs: u32, variation: Variation) -> FrameStream {
    let template = FrameSize::new(bytes_with_fcs)
        .ok()
        .and_then(|size| FrameTemplate::new(&FrameFields::default(), size, variation).ok());
    match template {
        Some(template) => FrameStream::new(template, 0),
        None => unreachable!("size and variation are within their ranges"),
    }
}

fn frames(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("frame");
    group.throughput(Throughput::Elements(1));
    let one_flow = Variation::default();
    let flows = Variation { flows: 1000, flows_in_source_address: true, ..one_flow };
    for (name, size, variation) in
        [("64B", 64, one_flow), ("64B 1000 flows", 64, flows), ("1518B 1000 flows", 1518, flows)]
    {
        let mut stream = stream(size, variation);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                black_box(stream.frame());
            });
        });
    }
    let mut stream = stream(64, one_flow);
    let mut slot = [0; 2048];
    group.bench_function("64B written to a slot", |bencher| {
        bencher.iter(|| stream.write_next(black_box(&mut slot)));
    });
    group.bench_function("64B copied to a slot", |bencher| {
        bencher.iter(|| {
            let frame = stream.frame();
            black_box(&mut slot)[..frame.len()].copy_from_slice(frame);
        });
    });
    let mut tracker = SequenceTracker::new();
    group.bench_function("64B made, read and tracked", |bencher| {
        bencher.iter(|| {
            if let Some(number) = read_sequence(black_box(stream.frame())) {
                tracker.record(number);
            }
        });
    });
    group.finish();
}

criterion_group!(benches, frames);
criterion_main!(benches);
