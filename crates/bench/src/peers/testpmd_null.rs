//! testpmd between two ports that make up what they receive and drop what they send: the framework's own cost.

use std::path::Path;

use super::testpmd::{Launch, Setup};
use crate::contestant::CorePair;
use crate::plan::{FramePath, Point};

/// Two `net_null` ports on one core.
#[derive(Debug)]
pub(super) struct Null {
    /// Whether the ports copy a frame's bytes on each side, as a real device would.
    pub copy: bool,
}

impl Setup for Null {
    fn name(&self) -> &'static str {
        if self.copy { "DPDK null, copying" } else { "DPDK null" }
    }

    fn path(&self) -> FramePath {
        FramePath::Null
    }

    fn work_per_frame(&self) -> &'static str {
        if self.copy {
            "buffer allocated, frame copied in, frame copied out, buffer freed: 2 copies"
        } else {
            "buffer allocated and freed: no byte of the frame written or read"
        }
    }

    fn launches(&self, _folder: &Path, point: &Point, cores: CorePair) -> Vec<Launch> {
        let copy = u8::from(self.copy);
        vec![Launch {
            role: "null",
            cpu: cores.second,
            devices: (0..2)
                .map(|port| format!("net_null{port},size={},copy={copy}", point.slot_bytes()))
                .collect(),
            burst_frames: point.burst_frames,
            mode: vec!["--forward-mode=io".into()],
        }]
    }

    fn counted_ports(&self) -> u16 {
        2
    }

    fn first_process_counts(&self) -> bool {
        true
    }
}
