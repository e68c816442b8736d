//! Fuzz target: any bytes as frames that a meter receives. Reading their signatures ends and stays within bounds, an
//! intact signature equals one that a sender would have written, and the meter accounts for every frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringroad_traffic::meter::{Digest, ExpectedStreams, Meter};
use ringroad_traffic::signature::{FormSet, SignatureForm, SignatureReading, Signer, read_signature};

/// The first byte of each frame is its length.
fn frames(mut data: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while let Some((&len, rest)) = data.split_first() {
        let (frame, rest) = rest.split_at(usize::from(len).min(rest.len()));
        frames.push(frame);
        data = rest;
    }
    frames
}

/// Signed fields of `frame`, whose end is room for the signature.
fn split(frame: &[u8], form: SignatureForm) -> Option<Fields<'_>> {
    let front = &frame[..frame.len().checked_sub(form.bytes())?];
    let (before, fields) = front.split_last_chunk::<17>()?;
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    Some(Fields {
        front,
        covered: &front[before.len() / 2..],
        number: number(&fields[..8]),
        departure_ns: number(&fields[8..16]),
        stream: fields[16].into(),
    })
}

struct Fields<'a> {
    front: &'a [u8],
    covered: &'a [u8],
    number: u64,
    departure_ns: u64,
    stream: u16,
}

fuzz_target!(|data: &[u8]| {
    let mut meter = Meter::new(ExpectedStreams { streams: None, latency: true, start_ns: 0 }).unwrap();
    let mut count = 0;
    let mut record = |frame: &[u8], arrival_ns| {
        count += 1;
        meter.record(&[Digest::new(frame, FormSet::ALL, arrival_ns)]);
    };
    for (index, frame) in frames(data).into_iter().enumerate() {
        record(frame, index as u64);
        // The frames are signed, too, because a fuzzer does not guess a correct checksum.
        for form in SignatureForm::ALL {
            let Some(fields) = split(frame, form) else { continue };
            let mut signed = frame.to_vec();
            Signer::new(form, fields.stream, fields.covered).unwrap().sign(
                fields.number,
                fields.departure_ns,
                &mut signed[fields.front.len()..],
            );
            let SignatureReading::Intact(read) = read_signature(&signed, FormSet::from_iter([form])) else {
                panic!("{form:?} is not read as it was written")
            };
            assert_eq!((read.stream, read.sequence(fields.number)), (fields.stream, fields.number));
            record(&signed, fields.departure_ns.wrapping_add(index as u64));
        }
    }
    meter.interval(0);
    let report = meter.report().summary();
    let streams = report.total.map_or(0, |total| {
        assert_eq!(total.received, total.distinct + total.duplicates + total.stale);
        total.received + total.corrupted
    });
    let port = report.port;
    let others =
        port.foreign_frames + port.corrupted_unattributed + port.unknown_stream_frames + port.earlier_frames;
    assert_eq!((port.frames, streams + others), (count, count));
});
