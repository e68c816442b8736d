//! Captures in memory, and sources that return their bytes in few or many pieces.

use std::io::{self, Cursor, Read, Write};
use std::sync::{Arc, Mutex};

use ringroad_capture::{CaptureError, CaptureFormat, CaptureReader, CaptureWriter, MAX_FRAME_BYTES};

/// A frame that outlives its reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub timestamp_ns: u64,
    pub bytes: Vec<u8>,
    pub original_len: u32,
}

/// A sink whose bytes can be read while a writer owns it.
#[derive(Clone, Default)]
pub struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A source that returns at most `piece` bytes at a time.
pub struct Pieces {
    pub bytes: Cursor<Vec<u8>>,
    pub piece: usize,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = into.len().min(self.piece);
        self.bytes.read(&mut into[..len])
    }
}

/// A capture file with `frames`, made by our writer.
pub fn capture_of(format: CaptureFormat, snaplen_bytes: u32, frames: &[Frame]) -> Vec<u8> {
    let sink = Sink::default();
    let mut writer = CaptureWriter::from_write(sink.clone(), format, snaplen_bytes).unwrap();
    for frame in frames {
        writer.write_frame(frame.timestamp_ns, &frame.bytes, frame.original_len).unwrap();
    }
    let summary = writer.finish().unwrap();
    let bytes = sink.bytes();
    assert_eq!((summary.frames, summary.bytes), (frames.len() as u64, bytes.len() as u64));
    bytes
}

/// All frames of a reader, and the error that ended them, if any. Checks what holds for any input.
pub fn drain(mut reader: CaptureReader) -> (Vec<Frame>, Option<CaptureError>) {
    let mut frames = Vec::new();
    let error = loop {
        match reader.next_frame() {
            Ok(Some(frame)) => {
                assert!(frame.bytes.len() <= MAX_FRAME_BYTES as usize);
                assert!(frame.original_len as usize >= frame.bytes.len());
                let bytes = frame.bytes.to_vec();
                frames.push(Frame {
                    timestamp_ns: frame.timestamp_ns,
                    bytes,
                    original_len: frame.original_len,
                });
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    assert!(matches!(reader.next_frame(), Ok(None)), "nothing follows the end");
    (frames, error)
}

/// Reads a capture in pieces of `piece` bytes.
pub fn read(bytes: &[u8], piece: usize) -> (Vec<Frame>, Option<CaptureError>) {
    match CaptureReader::from_read(Pieces { bytes: Cursor::new(bytes.to_vec()), piece }) {
        Ok(reader) => drain(reader),
        Err(error) => (Vec::new(), Some(error)),
    }
}
