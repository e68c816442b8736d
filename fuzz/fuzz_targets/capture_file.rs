//! Fuzz target: any bytes as a capture file. Reading them ends, stays within bounds, and finds the same frames however
//! the bytes arrive. Frames that were read are the same after they are written and read again.
#![no_main]

use std::io::{self, Cursor, Read, Write};
use std::sync::{Arc, Mutex};

use libfuzzer_sys::fuzz_target;
use ringroad_capture::{CaptureFormat, CaptureReader, CaptureWriter, MAX_FRAME_BYTES};

#[derive(PartialEq, Debug)]
struct Frame {
    timestamp_ns: u64,
    bytes: Vec<u8>,
    original_len: u32,
}

/// Source that returns its bytes in pieces of 1, 2, 3 ... 16, 1, 2 ... bytes.
struct Pieces {
    bytes: Cursor<Vec<u8>>,
    piece: usize,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.piece = self.piece % 16 + 1;
        let len = into.len().min(self.piece);
        self.bytes.read(&mut into[..len])
    }
}

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads all frames, and the text of the error that ended them.
fn read(source: impl Read + Send + 'static) -> (Vec<Frame>, Option<String>) {
    let mut frames = Vec::new();
    let mut reader = match CaptureReader::from_read(source) {
        Ok(reader) => reader,
        Err(error) => return (frames, Some(error.to_string())),
    };
    loop {
        match reader.next_frame() {
            Ok(Some(frame)) => {
                assert!(frame.bytes.len() <= MAX_FRAME_BYTES as usize);
                assert!(frame.original_len as usize >= frame.bytes.len());
                frames.push(Frame {
                    timestamp_ns: frame.timestamp_ns,
                    bytes: frame.bytes.to_vec(),
                    original_len: frame.original_len,
                });
            }
            end => {
                let error = end.err().map(|error| error.to_string());
                assert!(matches!(reader.next_frame(), Ok(None)), "nothing follows the end");
                return (frames, error);
            }
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let (frames, error) = read(Cursor::new(data.to_vec()));
    // No record is shorter than a Simple Packet Block without a frame.
    assert!(frames.len() <= data.len() / 16);
    let in_pieces = read(Pieces { bytes: Cursor::new(data.to_vec()), piece: 0 });
    assert_eq!((&frames, &error), (&in_pieces.0, &in_pieces.1));

    if frames.is_empty() {
        return;
    }
    let sink = Sink::default();
    let mut writer = CaptureWriter::from_write(sink.clone(), CaptureFormat::PcapNg, 0).unwrap();
    for frame in &frames {
        writer.write_frame(frame.timestamp_ns, &frame.bytes, frame.original_len).unwrap();
    }
    writer.finish().unwrap();
    let written = sink.0.lock().unwrap().clone();
    assert_eq!(read(Cursor::new(written)), (frames, None));
});
