//! Fuzz target: any bytes as a definition of streams in JSON, or else as a template frame. Reading and compiling them
//! ends. A compiled definition makes frames of the stated lengths, the same in place and in a slot, with signatures
//! that can be read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringroad_traffic::definition::{StreamDefinition, StreamList};
use ringroad_traffic::frame_source::{OneSize, WriteFrames};
use ringroad_traffic::signature::{FormSet, SignatureForm, SignatureReading, read_signature};

fn make(stream: &StreamDefinition) {
    let Ok(mut in_place) = stream.compile(3) else { return };
    let mut in_slot = in_place.clone();
    let mut slot = vec![0; in_place.longest_slot_bytes()];
    for sequence in 0..8 {
        let expected = in_place.next_size();
        let frame = in_place.next_frame(sequence);
        assert_eq!(frame.len(), expected);
        if let Some(mut frames) = in_slot.of_one_size().map(OneSize::variation) {
            assert_eq!(frames.write_next(sequence, &mut slot, sequence > 0), Some(expected));
            assert_eq!(&slot[..expected], frame);
        }
        if stream.signature {
            // Each form is checked alone, because any bytes may look like a short or tiny one.
            let signed = SignatureForm::ALL.into_iter().any(|form| {
                let reading = read_signature(frame, FormSet::NONE.with(form));
                matches!(reading, SignatureReading::Intact(found) if (found.stream, found.sequence_low) == (3, sequence))
            });
            assert!(signed, "not signed");
        }
    }
}

fuzz_target!(|data: &[u8]| {
    match StreamList::read(&mut serde_json::Deserializer::from_slice(data)) {
        Ok(list) => list.streams.iter().for_each(make),
        Err(_) => {
            let Some((flags, frame)) = data.split_first() else { return };
            let mut stream = StreamDefinition::default().with_template(frame.to_vec());
            stream.signature = flags & 1 == 1;
            stream.fix_checksums = Some(flags & 2 == 2);
            stream.flows = u64::from(flags >> 2) + 1;
            make(&stream);
        }
    }
});
