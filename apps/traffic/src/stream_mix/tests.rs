use super::*;
use crate::definition::StreamDefinition;
use crate::frame_size_mix::FrameSizeMix;
use crate::line_rate::FrameSize;
use crate::signature::{FormSet, SignatureReading, read_signature};

fn mix(streams: &[(u32, u32)]) -> StreamMix {
    let sources = streams.iter().enumerate().map(|(number, (bytes, weight))| {
        let size = Some(FrameSizeMix::Fixed(FrameSize::new(*bytes).unwrap()));
        let stream = StreamDefinition { size, ..StreamDefinition::default() };
        (stream.compile(number as u16).unwrap(), *weight)
    });
    StreamMix::new(sources.collect()).unwrap()
}

#[test]
fn streams_have_their_shares_and_their_own_sequence() {
    let mut mix = mix(&[(64, 7), (512, 4), (1518, 1)]);
    let mut sent = [0u64; 3];
    for number in 1..=1200u64 {
        let next = mix.next_size();
        let (frame, stream) = mix.next_frame(0);
        assert_eq!(frame.len(), next);
        let SignatureReading::Intact(signature) = read_signature(frame, FormSet::ALL) else {
            panic!("not signed")
        };
        assert_eq!((usize::from(signature.stream), signature.sequence_low), (stream, sent[stream]));
        sent[stream] += 1;
        for (sent, weight) in sent.iter().zip([7, 4, 1]) {
            assert!((sent * 12).abs_diff(number * weight) < 12, "after {number} frames: {sent}");
        }
    }
    assert_eq!(sent, [700, 400, 100]);
    assert_eq!(mix.sources().iter().map(FrameSource::next_sequence).collect::<Vec<_>>(), sent);
    assert_eq!(mix.longest_slot_bytes(), 1514);
    let mean = f64::from(7 * 64 + 4 * 512 + 1518) / 12.0 * 8.0;
    assert!((mix.mean_bits(BitLayer::L2) - mean).abs() < 1e-9);
}

#[test]
fn a_mix_of_several_streams_or_sizes_is_not_of_one_size() {
    assert!(mix(&[(64, 1)]).of_one_size().is_some());
    assert!(mix(&[(64, 1), (64, 1)]).of_one_size().is_none());
    let imix = StreamDefinition { size: Some(FrameSizeMix::Imix), ..StreamDefinition::default() };
    assert!(imix.compile(0).unwrap().of_one_size().is_none());
}

#[test]
fn streams_that_cannot_be_mixed_are_refused() {
    let source = || StreamDefinition::default().compile(0).unwrap();
    for weights in [vec![], vec![0], vec![1, 0], vec![65536, 1]] {
        let sum = weights.iter().map(|weight| u64::from(*weight)).sum();
        let streams: Vec<_> = weights.iter().map(|weight| (source(), *weight)).collect();
        let error = StreamMix::new(streams).unwrap_err();
        assert_eq!(error, MixError { streams: weights.len(), sum });
        assert!(error.to_string().contains("give 1 to 4096 streams"));
    }
}
