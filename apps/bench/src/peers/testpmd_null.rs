//! testpmd between two ports that invent received frames and drop sent frames: the cost of the framework itself.

use std::path::Path;

use super::telemetry::PortCounter;
use super::testpmd::{Generator, Launch, Setup};
use crate::contestant::CorePair;
use crate::plan::{FramePath, Point};

/// Two `net_null` ports on one core.
#[derive(Debug)]
pub(super) struct Null {
    /// Whether the ports copy the bytes of a frame on each side, like a real device.
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
            plugin: None,
            devices: (0..2)
                .map(|port| format!("net_null{port},size={},copy={copy}", point.slot_bytes()).into())
                .collect(),
            burst_frames: point.burst_frames,
            mode: vec!["--forward-mode=io".into()],
        }]
    }

    fn counted_ports(&self) -> u16 {
        2
    }
}

/// A generator that sends to a `net_null` port which receives nothing.
#[derive(Debug)]
pub(super) struct NullGenerator(pub Generator);

impl Setup for NullGenerator {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn path(&self) -> FramePath {
        FramePath::GenNull
    }

    fn work_per_frame(&self) -> &'static str {
        self.0.work_per_frame()
    }

    fn launches(&self, _folder: &Path, point: &Point, cores: CorePair) -> Vec<Launch> {
        vec![Launch {
            role: "generator",
            cpu: cores.second,
            plugin: None,
            devices: vec![format!("net_null0,size={},copy=0,no-rx=1", point.slot_bytes()).into()],
            burst_frames: point.burst_frames,
            mode: self.0.mode(point),
        }]
    }

    fn counter(&self) -> PortCounter {
        PortCounter::Sent
    }
}
