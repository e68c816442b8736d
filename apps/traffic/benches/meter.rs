//! Cost of signing a frame, of reading its signature, and of metering it.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ringroad_traffic::meter::{Digest, ExpectedStreams, Meter};
use ringroad_traffic::signature::{
    FormSet, Signature, SignatureForm, SignatureReading, Signer, read_signature,
};

/// Number of frames that a receiving thread hands to the meter at a time.
const BATCH: u64 = 256;

/// A signed frame of `len` bytes without FCS, with 42 bytes of headers.
fn signed(form: SignatureForm, len: usize) -> (Signer, Vec<u8>) {
    let mut frame = vec![0x55; len];
    let (before, signature) = frame.split_at_mut(len - form.bytes());
    let Ok(signer) = Signer::new(form, 1, before.get(42..).unwrap_or_default()) else {
        unreachable!("every form carries stream 1")
    };
    signer.sign(1, 1_000_000_007, signature);
    (signer, frame)
}

fn signatures(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("signature");
    group.throughput(Throughput::Elements(1));
    for (form, len) in [
        (SignatureForm::Full, 70),
        (SignatureForm::Full, 1514),
        (SignatureForm::Compact, 60),
        (SignatureForm::Short, 60),
        (SignatureForm::Tiny, 60),
    ] {
        let (signer, mut frame) = signed(form, len);
        group.bench_function(format!("{form:?} read from {len} bytes"), |bencher| {
            bencher.iter(|| read_signature(black_box(&frame), FormSet::ALL));
        });
        let mut sequence = 0_u64;
        group.bench_function(format!("{form:?} written to {len} bytes"), |bencher| {
            bencher.iter(|| {
                sequence += 1;
                let start = len - form.bytes();
                signer.sign(sequence, sequence * 67, &mut black_box(&mut frame[..])[start..]);
            });
        });
    }
    let foreign = [0x55; 1514];
    group.bench_function("none in 1514 bytes", |bencher| {
        bencher.iter(|| read_signature(black_box(&foreign), FormSet::ALL));
    });
    group.finish();
}

/// Records frames for the given number of iterations. `number` computes each frame's number from its position in the
/// stream.
fn record(criterion: &mut Criterion, name: &str, latency: bool, streams: u16, number: impl Fn(u64) -> u64) {
    let config = ExpectedStreams { streams: Some((0..streams).collect()), latency, start_ns: 0 };
    let Ok(mut meter) = Meter::new(config) else { unreachable!("the streams differ") };
    let mut digests: Vec<Digest> = (0..BATCH)
        .map(|index| {
            let stream = (index % u64::from(streams)) as u16;
            let form = SignatureForm::Compact;
            let signature = Signature { form, stream, sequence_low: 0, timestamp_low: 0 };
            Digest { reading: SignatureReading::Intact(signature), len: 60, arrival_ns: 0 }
        })
        .collect();
    let mut sent = 0;
    let mut group = criterion.benchmark_group("meter");
    group.throughput(Throughput::Elements(BATCH));
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            for (index, digest) in digests.iter_mut().enumerate() {
                let frame = sent + index as u64;
                let SignatureReading::Intact(signature) = &mut digest.reading else { continue };
                signature.sequence_low = number(frame / u64::from(streams)) & 0xff_ffff_ffff;
                signature.timestamp_low = (frame * 67) & 0xff_ffff_ffff;
                // Latencies of 5 to 13 us, without a pattern.
                digest.arrival_ns = frame * 67 + 5000 + (frame.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 51);
            }
            sent += BATCH;
            meter.record(black_box(&digests));
        });
    });
    group.finish();
}

fn meters(criterion: &mut Criterion) {
    record(criterion, "in order, without latency", false, 1, |index| index);
    record(criterion, "in order", true, 1, |index| index);
    record(criterion, "in order, 64 streams", true, 64, |index| index);
    record(criterion, "one of 128 lost", true, 1, |index| index + index / 127);
    // Every 16th number is exchanged with the next.
    record(criterion, "one of 16 reordered", true, 1, |index| match index % 16 {
        0 => index + 1,
        1 => index - 1,
        _ => index,
    });
}

criterion_group!(benches, signatures, meters);
criterion_main!(benches);
