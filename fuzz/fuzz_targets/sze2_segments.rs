//! Fuzz target: any bytes in a program's transmit channel. The card reads whole segments of them or finds the fault,
//! and never reads beyond the data. The same bytes are also read as segments in a file, as descriptors, as a frame to
//! be distributed, and as a filter's rules.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use ringroad_sze2::card::filter::CardFilter;
use ringroad_sze2::card::flow_key::HashKey;
use ringroad_sze2::descriptors::{PAGE_BYTES, WORD_BYTES, walk};
use ringroad_sze2::fault::ChannelFault;
use ringroad_sze2::memory::{ChannelGeometry, ChannelMemory, MIN_BUFFER_BYTES};
use ringroad_sze2::reader::SegmentReader;
use ringroad_sze2::segment::{ALIGNMENT, parse};
use ringroad_sze2::writer::{ChannelSide, SegmentWriter};

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    let mut frames = Vec::new();
    let end = loop {
        match parse(&mut rest) {
            Ok(Some(segment)) => frames.push((segment.metadata.to_vec(), segment.frame.to_vec())),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };

    if let Ok(blocks) = walk(0, |at| {
        let at = usize::try_from(at).ok()?;
        Some(u64::from_le_bytes(*data.get(at..)?.first_chunk()?))
    }) {
        assert!(blocks.len() <= data.len() / WORD_BYTES as usize);
        assert!(blocks.iter().all(|block| block.bytes > 0 && block.address.is_multiple_of(PAGE_BYTES)));
    }
    let key = HashKey::parse(data);
    if let Ok(filter) = String::from_utf8_lossy(data).parse::<CardFilter>() {
        assert_eq!(filter.to_string().parse::<CardFilter>().as_ref(), Ok(&filter));
        let _ = filter.channels(key.as_ref());
    }

    // The same segments are also read in place, from an offset just before the end of the buffer.
    let geometry = ChannelGeometry { buffer_bytes: MIN_BUFFER_BYTES, block_bytes: PAGE_BYTES };
    let memory = Arc::new(ChannelMemory::create(geometry).expect("memory for a channel"));
    let mut writer = SegmentWriter::new(Arc::clone(&memory), ChannelSide::Program);
    let mut reader = SegmentReader::new(memory, ChannelSide::Card);
    let lead = MIN_BUFFER_BYTES as usize - 2 * ALIGNMENT;
    assert_eq!(writer.skip(lead), Ok(true));
    let _ = writer.publish();
    assert!(reader.available() == Ok(lead) && reader.skip(lead));
    reader.release_all();
    let _ = reader.publish();
    let whole = data.len() / ALIGNMENT * ALIGNMENT;
    let Some(data) = data.get(..whole.min(lead)) else { return };
    writer.memory().data(writer.position(), data.len()).write(data);
    assert_eq!(writer.skip(data.len()), Ok(true));
    let _ = writer.publish();
    let mut number = 0;
    loop {
        match reader.take() {
            Ok(Some(segment)) => {
                let mut frame = vec![0; segment.frame().len()];
                segment.frame().read(&mut frame);
                assert_eq!(Some(&frame), frames.get(number).map(|(_, frame)| frame));
                number += 1;
            }
            Ok(None) => break assert!(number <= frames.len()),
            Err(ChannelFault::Segment { .. }) => break assert!(end.is_some() || number < frames.len()),
            Err(fault) => panic!("{fault}"),
        }
    }
});
