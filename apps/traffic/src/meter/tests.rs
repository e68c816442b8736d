use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::signature::{Signature, SignatureForm, Signer};

const HEADER_BYTES: usize = 42;

fn meter(streams: Option<Vec<u16>>) -> Meter {
    Meter::new(ExpectedStreams { streams, latency: true, start_ns: 0 }).unwrap()
}

fn frame(form: SignatureForm, stream: u16, number: u64, departure_ns: u64) -> Vec<u8> {
    let mut frame = vec![0; HEADER_BYTES + form.bytes()];
    Signer::new(form, stream, &[]).unwrap().sign(number, departure_ns, &mut frame[HEADER_BYTES..]);
    frame
}

/// Digest of a frame that arrived.
fn digest(form: SignatureForm, stream: u16, number: u64, departure_ns: u64, arrival_ns: u64) -> Digest {
    Digest::new(&frame(form, stream, number, departure_ns), FormSet::from_iter([form]), arrival_ns)
}

/// Summary of frames of stream 0 that arrived: number, departure and arrival in ms.
fn received(frames: &[(u64, u64, u64)]) -> StreamSummary {
    let mut meter = meter(Some(vec![0]));
    for &(number, departure_ms, arrival_ms) in frames {
        let (departure_ns, arrival_ns) = (departure_ms * 1_000_000, arrival_ms * 1_000_000);
        meter.record(&[digest(SignatureForm::Compact, 0, number, departure_ns, arrival_ns)]);
    }
    meter.report().streams[0].summary()
}

#[test]
fn one_frame_reordered_as_in_rfc_4737_section_7_1() {
    // Number, departure, arrival in ms. Frames are sent every 20 ms, and numbered here from 0.
    let frames = [
        (0, 0, 68),
        (1, 20, 88),
        (2, 40, 108),
        (4, 80, 148),
        (5, 100, 168),
        (6, 120, 188),
        (7, 140, 208),
        (3, 60, 210),
        (8, 160, 228),
        (9, 180, 248),
    ];
    let summary = received(&frames);
    assert_eq!((summary.received, summary.lost, summary.reordered), (10, 0, 1));
    let reordering = summary.reordering;
    assert_eq!(reordering.ratio, Some(0.1));
    let extent = reordering.extent_frames.unwrap();
    assert_eq!((extent.count, extent.min, extent.max), (1, 4, 4));
    assert_eq!(reordering.late_time_ns.unwrap().max, 62_000_000);
    assert_eq!(reordering.n_reordered, [1, 1, 1]);
    let runs = reordering.free_run_frames.unwrap();
    assert_eq!((runs.count, runs.max, reordering.longest_free_run_frames), (1, 7, 7));
    let latency = summary.delay.latency_ns.unwrap();
    assert_eq!((latency.min, latency.max, latency.mean), (68_000_000, 150_000_000, 76_200_000.0));
    // Pairs that were sent and arrived one after the other are in 0 1 2, 4 5 6 7, 8 9.
    let ipdv = summary.delay.ipdv.unwrap();
    assert_eq!((ipdv.count, ipdv.min_ns, ipdv.max_ns), (6, 0, 0));
    assert_eq!(summary.delay.mean_difference_ns, Some(2.0 * 82_000_000.0 / 9.0));
}

#[test]
fn two_frames_reordered_as_in_rfc_4737_section_7_2() {
    let numbers = [0, 1, 2, 3, 6, 4, 5, 7, 8, 9];
    let summary = received(&numbers.map(|number| (number, number * 20, number * 20 + 68)));
    let extent = summary.reordering.extent_frames.unwrap();
    assert_eq!((extent.count, extent.min, extent.max, extent.mean), (2, 1, 2, 1.5));
    // The second reordered frame arrived right after the first, whose number is lower.
    assert_eq!(summary.reordering.n_reordered, [1, 0, 0]);
    let runs = summary.reordering.free_run_frames.unwrap();
    assert_eq!((runs.min, runs.max, summary.reordering.longest_free_run_frames), (0, 5, 5));
}

#[test]
fn frames_before_a_forgotten_gap_have_unknown_extent() {
    // Every second number arrives, then all the others: there is one gap more than is stored.
    let gaps = 8193;
    let even = (0..=gaps).map(|number| (2 * number, 0, 1));
    let odd = (0..gaps).map(|number| (2 * number + 1, 0, 1));
    let summary = received(&even.chain(odd).collect::<Vec<_>>());
    assert_eq!((summary.reordered, summary.lost), (gaps, 0));
    // The first arrival is stored like a gap, so that two entries are forgotten.
    assert_eq!(summary.reordering.extent_unknown, 1);
    assert_eq!(summary.reordering.extent_frames.unwrap().count, gaps - 1);
}

#[test]
fn foreign_frames_are_counted_by_cause() {
    let mut meter = meter(Some(vec![7, 3]));
    let frame = |stream| digest(SignatureForm::Compact, stream, 0, 0, 0);
    let corrupted = |stream| Digest { reading: SignatureReading::Corrupted { stream }, ..frame(0) };
    let foreign = Digest::new(&[0; 77], FormSet::ALL, 0);
    meter.record(&[frame(3), frame(8), corrupted(7), corrupted(8), corrupted(60_000), foreign]);
    let summary = meter.report().summary();
    let expected = PortCounts {
        frames: 6,
        bytes: 5 * 60 + 77,
        foreign_frames: 1,
        foreign_bytes: 77,
        corrupted_unattributed: 2,
        unknown_stream_frames: 1,
        earlier_frames: 0,
    };
    assert_eq!(summary.port, expected);
    let counts: Vec<_> =
        summary.streams.iter().map(|s| (s.wire_streams[0], s.received, s.corrupted)).collect();
    assert_eq!(counts, [(7, 0, 1), (3, 1, 0)]);
    assert_eq!(summary.streams[0].loss_ratio, None);
    let error = Meter::new(ExpectedStreams { streams: Some(vec![1, 2, 1]), latency: false, start_ns: 0 });
    assert_eq!(error.unwrap_err(), MeterConfigError::RepeatedStream(1));
}

#[test]
fn new_streams_are_accepted_up_to_a_limit() {
    let mut meter = meter(None);
    for stream in (0..=MAX_APPEARING_STREAMS as u16).rev() {
        // The stream is in progress: numbers below 5 are not missing.
        meter.record(&[digest(SignatureForm::Full, stream, 5, 0, 0)]);
    }
    let report = meter.report();
    assert_eq!((report.streams.len(), report.port.unknown_stream_frames), (MAX_APPEARING_STREAMS, 1));
    let total = report.total().unwrap().summary();
    assert_eq!((total.received, total.lost, total.wire_streams[0]), (MAX_APPEARING_STREAMS as u64, 0, 1024));
}

#[test]
fn every_stream_number_on_the_wire_is_accepted() {
    let mut meter = meter(Some(vec![u16::MAX, 0]));
    meter.record(&[digest(SignatureForm::Full, u16::MAX, 0, 0, 0), digest(SignatureForm::Tiny, 0, 0, 0, 0)]);
    let received: Vec<u64> = meter.report().streams.iter().map(|stream| stream.summary().received).collect();
    assert_eq!(received, [1, 1]);
}

#[test]
fn sequence_numbers_wrap_in_short_fields() {
    for form in [SignatureForm::Short, SignatureForm::Tiny] {
        let mut meter = meter(Some(vec![0]));
        let range = 1 << form.sequence_bits();
        // Steps are below half the range, and one step crosses its end. The first and the last number are exactly at
        // ends.
        let numbers = [range / 3, range - 1, range, range + 1, 3 * range / 2 - 1];
        for number in numbers {
            meter.record(&[digest(form, 0, number, 0, 0)]);
        }
        let mut report = meter.report().streams.remove(0);
        report.complete(3 * range / 2);
        let lost = 3 * range / 2 - numbers.len() as u64;
        assert_eq!((report.summary().lost, report.summary().excess), (lost, 0), "{form:?}");
        assert_eq!(report.summary().reordered, 0);
    }
}

#[test]
fn timestamps_wrap_in_short_fields() {
    for form in [SignatureForm::Compact, SignatureForm::Short] {
        let mut meter = meter(None);
        let range = 1 << form.timestamp_bits();
        for (number, departure_ns, latency_ns) in [
            (0, range - 10, 1000),
            (1, range - 10, 0),
            (2, 5 * range - 1, 1),
            (3, 5 * range, range / 16 * 15 - 1),
        ] {
            meter.record(&[digest(form, 0, number, departure_ns, departure_ns + latency_ns)]);
        }
        let latency = meter.report().streams[0].summary().delay.latency_ns.unwrap();
        assert_eq!((latency.count, latency.min, latency.max), (4, 0, range / 16 * 15 - 1));
        assert_eq!(latency.mean, (1001 + range / 16 * 15 - 1) as f64 / 4.0);
    }
}

#[test]
fn impossible_latencies_are_counted_separately() {
    let mut meter = meter(None);
    meter.record(&[
        digest(SignatureForm::Compact, 0, 0, 1000, 400),
        digest(SignatureForm::Compact, 0, 1, 1000, 1500),
        digest(SignatureForm::Tiny, 0, 2, 0, 1500),
        // Times and numbers that our sender never writes.
        digest(SignatureForm::Full, 0, 3, u64::MAX, 0),
        digest(SignatureForm::Full, 0, u64::MAX, 1 << 63, 0),
        digest(SignatureForm::Full, 0, u64::MAX - 1, 0, i64::MAX as u64),
    ]);
    let delay = meter.report().streams[0].summary().delay;
    let latency = delay.latency_ns.unwrap();
    assert_eq!((latency.count, latency.min, latency.saturated), (3, 1, 1));
    assert_eq!((delay.negative, delay.lowest_negative_ns), (2, i64::MIN));

    let mut unmeasured = Meter::new(ExpectedStreams { streams: None, latency: false, start_ns: 0 }).unwrap();
    unmeasured.record(&[digest(SignatureForm::Full, 0, 0, 0, 500)]);
    assert_eq!(unmeasured.report().streams[0].summary().delay.latency_ns, None);
}

#[test]
fn jitter_of_alternating_latency_approaches_its_difference() {
    let mut meter = meter(None);
    for number in 0..1000 {
        let latency_ns = 10_000 + number % 2 * 160;
        meter.record(&[digest(SignatureForm::Compact, 0, number, number * 1000, number * 1000 + latency_ns)]);
    }
    let delay = meter.report().streams[0].summary().delay;
    // RFC 3550: J grows by (|D| - J)/16, in whole numbers as in its appendix A.8.
    assert!((delay.jitter_ns.unwrap() - 160.0).abs() < 1.0, "{delay:?}");
    assert_eq!(delay.mean_difference_ns, Some(160.0));
    let ipdv = delay.ipdv.unwrap();
    assert_eq!((ipdv.count, ipdv.min_ns, ipdv.max_ns, ipdv.mean_absolute_ns), (999, -160, 160, 160.0));
    let pdv = delay.pdv_ns.unwrap();
    assert_eq!((pdv.min, pdv.p50, pdv.mean), (0, 7, 80.0), "10,007 is counted as 10,000");
}

#[test]
fn a_duplicate_makes_up_for_no_loss() {
    let mut report = {
        let mut meter = meter(Some(vec![0]));
        for number in [0, 1, 1, 1, 2] {
            meter.record(&[digest(SignatureForm::Compact, 0, number, 0, 0)]);
        }
        meter.report().streams.remove(0)
    };
    assert_eq!(report.summary().lost, 0);
    report.complete(5);
    let summary = report.summary();
    assert_eq!((summary.received, summary.distinct, summary.lost, summary.excess), (5, 3, 2, 0));
    assert_eq!(summary.loss_ratio, Some(0.4));
    let mut merged = report.clone();
    merged.merge(&report);
    assert_eq!((merged.summary().sent, merged.summary().lost), (Some(10), 4));
    report.complete(2);
    assert_eq!((report.summary().lost, report.summary().excess), (0, 1));
}

#[test]
fn intervals_add_up() {
    let mut meter = meter(None);
    let frame = |number, latency_ns: u64| digest(SignatureForm::Compact, 1, number, 100, 100 + latency_ns);
    meter.record(&[frame(0, 10), frame(5, 30), frame(5, 30)]);
    let first = meter.interval(1000);
    meter.record(&[frame(3, 50), frame(4, 70), Digest::new(&[], FormSet::ALL, 0)]);
    let second = meter.interval(2500);
    let third = meter.interval(3000);

    let times = [&first, &second, &third].map(|report| (report.from_ns, report.until_ns));
    assert_eq!(times, [(0, 1000), (1000, 2500), (2500, 3000)]);
    let counts =
        IntervalCounts { frames: 3, bytes: 180, lost: 4, duplicates: 1, ..IntervalCounts::default() };
    let latency = IntervalLatency { count: 2, min_ns: 10, mean_ns: 20.0, p99_ns: 30, max_ns: 30 };
    assert_eq!(first.total, IntervalCounts { latency: Some(latency), ..counts });
    assert_eq!(first.streams, [StreamInterval { wire_stream: 1, counts: first.total }]);
    let counts =
        IntervalCounts { frames: 2, bytes: 120, lost: -2, reordered: 2, ..IntervalCounts::default() };
    let latency = IntervalLatency { count: 2, min_ns: 50, mean_ns: 60.0, p99_ns: 70, max_ns: 70 };
    assert_eq!(second.total, IntervalCounts { latency: Some(latency), ..counts });
    assert_eq!((first.foreign_frames, second.foreign_frames, third.foreign_frames), (0, 1, 0));
    assert_eq!(third.total, IntervalCounts::default());

    let latency = meter.report().streams[0].summary().delay.latency_ns.unwrap();
    assert_eq!((latency.count, latency.mean), (4, 40.0), "the whole is not only the last interval");
}

/// Outcome of a frame.
#[derive(Debug, Clone, Copy)]
enum FrameOutcome {
    Passed,
    Lost,
    Corrupted,
    Twice,
    /// The frame is overtaken by this number of frames.
    Late(usize),
}

fn outcomes() -> impl Strategy<Value = Vec<(u16, FrameOutcome, u64)>> {
    let outcome = prop_oneof![
        12 => Just(FrameOutcome::Passed),
        1 => Just(FrameOutcome::Lost),
        1 => Just(FrameOutcome::Corrupted),
        1 => Just(FrameOutcome::Twice),
        2 => (1..40_usize).prop_map(FrameOutcome::Late),
    ];
    prop::collection::vec((0..3_u16, outcome, 0..1_000_000_u64), 1..300)
}

/// The definitions of RFC 4737 word by word, applied to numbers at their first arrival and their times.
fn model_reordering(came: &[(u64, u64)]) -> (Vec<u64>, Vec<u64>, [u64; 3], Vec<u64>) {
    let (mut extents, mut late, mut n_reordered, mut runs, mut run) = (vec![], vec![], [0; 3], vec![], 0);
    for (i, &(number, arrival_ns)) in came.iter().enumerate() {
        let Some(j) = came[..i].iter().position(|&(before, _)| before > number) else {
            run += 1;
            continue;
        };
        extents.push((i - j) as u64);
        late.push(arrival_ns - came[j].1);
        for n in 1..=3 {
            let is = i >= n && came[i - n..i].iter().all(|&(before, _)| before > number);
            n_reordered[n - 1] += u64::from(is);
        }
        runs.push(std::mem::take(&mut run));
    }
    (extents, late, n_reordered, runs)
}

fn extremes(values: &[u64]) -> Option<(u64, u64, u64, u64)> {
    let (min, max) = (values.iter().min()?, values.iter().max()?);
    Some((values.len() as u64, *min, *max, (values.iter().sum::<u64>() as f64 / values.len() as f64) as u64))
}

fn extremes_of(summary: Option<DistributionSummary>) -> Option<(u64, u64, u64, u64)> {
    summary.map(|summary| (summary.count, summary.min, summary.max, summary.mean as u64))
}

proptest! {
    #[test]
    fn known_impairments_are_found_exactly(
        outcomes in outcomes(), batch in 1..50_usize, form in prop::sample::select(&SignatureForm::ALL[..2]),
    ) {
        // Arrivals in order: position, stream, number, departure, latency, and whether the frame is intact.
        let mut arrivals = Vec::new();
        let mut sent = [0; 3];
        for (position, &(stream, outcome, latency_ns)) in outcomes.iter().enumerate() {
            let number = sent[usize::from(stream)];
            sent[usize::from(stream)] += 1;
            let departure_ns = position as u64 * 1000;
            let frame = (position, stream, number, departure_ns, latency_ns, true);
            match outcome {
                FrameOutcome::Passed => arrivals.push(frame),
                FrameOutcome::Lost => {}
                FrameOutcome::Corrupted => arrivals.push((frame.0, stream, number, departure_ns, latency_ns, false)),
                FrameOutcome::Twice => arrivals.extend([frame, frame]),
                FrameOutcome::Late(distance) => arrivals.push((position + distance, stream, number, departure_ns, latency_ns, true)),
            }
        }
        arrivals.sort_by_key(|arrival| arrival.0);

        let mut meter = meter(Some(vec![0, 1, 2]));
        let mut came: [Vec<(u64, u64)>; 3] = Default::default();
        let mut latencies: [Vec<u64>; 3] = Default::default();
        let mut duplicates = [0; 3];
        let mut corrupted = [0; 3];
        let mut digests = Vec::new();
        for (position, stream, number, departure_ns, latency_ns, whole) in arrivals {
            let index = usize::from(stream);
            // Arrival times follow the positions; the latency follows from them.
            let arrival_ns = position as u64 * 1_000_000 + latency_ns;
            let mut frame = frame(form, stream, number, departure_ns);
            let signature = &mut frame[HEADER_BYTES..];
            // Damage is at any position except the stream's number, which selects the stream that counts the frame.
            let damaged_byte = [0, 8, signature.len() - 1][position % 3];
            signature[damaged_byte] ^= if whole { 0 } else { 0x40 };
            digests.push(Digest::new(&frame, FormSet::ALL, arrival_ns));
            if !whole {
                corrupted[index] += 1;
                continue;
            }
            if came[index].iter().any(|&(before, _)| before == number) {
                duplicates[index] += 1;
            } else {
                came[index].push((number, arrival_ns));
                latencies[index].push(arrival_ns - departure_ns);
            }
        }
        for (index, batch) in digests.chunks(batch).enumerate() {
            meter.record(batch);
            if index % 3 == 0 {
                meter.interval(index as u64);
            }
        }

        let report = meter.report();
        for (index, stream) in report.streams.iter().enumerate() {
            let mut stream = stream.clone();
            let missing_below_highest = stream.summary().lost;
            stream.complete(sent[index]);
            let summary = stream.summary();
            let numbers: BTreeSet<u64> = came[index].iter().map(|&(number, _)| number).collect();
            let distinct = numbers.len() as u64;
            prop_assert_eq!(missing_below_highest, numbers.last().map_or(0, |highest| highest + 1 - distinct));
            prop_assert_eq!(
                (summary.received, summary.distinct, summary.lost, summary.duplicates, summary.stale),
                (distinct + duplicates[index], distinct, sent[index] - distinct, duplicates[index], 0)
            );
            prop_assert_eq!((summary.corrupted, summary.excess), (corrupted[index], 0));

            let (extents, late, n_reordered, runs) = model_reordering(&came[index]);
            let found = &summary.reordering;
            prop_assert_eq!(summary.reordered, extents.len() as u64);
            prop_assert_eq!(extremes_of(found.extent_frames), extremes(&extents));
            prop_assert_eq!(extremes_of(found.late_time_ns), extremes(&late));
            prop_assert_eq!(extremes_of(found.free_run_frames), extremes(&runs));
            prop_assert_eq!((found.n_reordered, found.extent_unknown), (n_reordered, 0));

            prop_assert_eq!(extremes_of(summary.delay.latency_ns), extremes(&latencies[index]));
            let differences: Vec<u64> = latencies[index].windows(2).map(|pair| pair[0].abs_diff(pair[1])).collect();
            prop_assert_eq!(
                summary.delay.mean_difference_ns.map(|mean| mean as u64),
                extremes(&differences).map(|(_, _, _, mean)| mean)
            );
            let jitter = differences.iter().fold(0.0, |jitter, &d| jitter + (d as f64 - jitter) / 16.0);
            let found = summary.delay.jitter_ns.unwrap_or(0.0);
            prop_assert!((found - jitter).abs() <= 16.0, "jitter {found}, not {jitter}");
            let steps: Vec<i64> = (came[index].windows(2).zip(latencies[index].windows(2)))
                .filter(|(numbers, _)| numbers[0].0 + 1 == numbers[1].0)
                .map(|(_, latencies)| latencies[1] as i64 - latencies[0] as i64)
                .collect();
            prop_assert_eq!(
                summary.delay.ipdv.map(|ipdv| (ipdv.count, Some(ipdv.min_ns), Some(ipdv.max_ns))),
                (!steps.is_empty()).then_some((steps.len() as u64, steps.iter().min().copied(), steps.iter().max().copied()))
            );
        }
        let total = report.summary().total.unwrap();
        let all: Vec<u64> = latencies.concat();
        prop_assert_eq!(extremes_of(total.delay.latency_ns), extremes(&all));
        prop_assert_eq!(total.received + total.corrupted, report.port.frames);
    }

    #[test]
    fn random_digests_are_all_counted(
        fields in prop::collection::vec((0..4_u16, any::<u64>(), any::<u64>(), any::<u64>(), 0..4_usize), 0..60),
    ) {
        let mut meter = meter(None);
        for (index, &(stream, sequence_low, timestamp_low, arrival_ns, form)) in fields.iter().enumerate() {
            let form = SignatureForm::ALL[form];
            let reading = SignatureReading::Intact(Signature { form, stream, sequence_low, timestamp_low });
            meter.record(&[Digest { reading, len: 60, arrival_ns }]);
            if index % 16 == 0 {
                meter.interval(arrival_ns);
            }
        }
        let summary = meter.report().summary();
        prop_assert_eq!(summary.total.as_ref().map_or(0, |total| total.received), fields.len() as u64);
        prop_assert!(serde_json::to_string(&summary).is_ok());
    }
}

#[test]
fn frames_of_an_earlier_run_are_counted_separately() {
    let signer = Signer::new(SignatureForm::Full, 3, &[]).unwrap();
    let digest = |sequence, timestamp_ns| {
        let mut frame = [0; 60];
        signer.sign(sequence, timestamp_ns, &mut frame[32..]);
        Digest::new(&frame, FormSet::ALL, 10_000)
    };
    let config = ExpectedStreams { streams: Some(vec![3]), latency: true, start_ns: 5000 };
    let mut meter = Meter::new(config.clone()).unwrap();
    meter.record(&[digest(17, 4999), digest(0, 5000), digest(1, 6000)]);
    let report = meter.report();
    assert_eq!((report.port.frames, report.port.earlier_frames), (3, 1));
    assert_eq!((report.streams[0].summary().received, report.streams[0].summary().lost), (2, 0));
    // A meter that accepts streams as they appear has no start time.
    let mut meter = Meter::new(ExpectedStreams { streams: None, ..config }).unwrap();
    meter.record(&[digest(17, 4999)]);
    assert_eq!(meter.report().port.earlier_frames, 0);
}
