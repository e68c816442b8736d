//! Two testpmds joined by memif: one only sends, the other only receives.

use std::path::Path;

use super::testpmd::{Launch, Setup};
use crate::contestant::CorePair;
use crate::plan::{FramePath, Point};

/// The memif pair, with the driver's default rings of 1024 and buffers of 2048 bytes.
#[derive(Debug)]
pub(super) struct MemifPair {
    /// Whether the sender shares its packet memory instead of copying into the ring's memory. Sharing needs huge pages,
    /// and the driver supports it only for the client.
    pub zero_copy: bool,
}

impl Setup for MemifPair {
    fn name(&self) -> &'static str {
        if self.zero_copy { "DPDK memif, zero copy" } else { "DPDK memif" }
    }

    fn path(&self) -> FramePath {
        FramePath::Pipe
    }

    fn work_per_frame(&self) -> &'static str {
        if self.zero_copy {
            "sender: buffer allocated, 42 header bytes written, payload left as it was, buffer's address put into the \
             ring; receiver: memif copies the frame out of the sender's memory: 1 copy; frame freed unread"
        } else {
            "sender: buffer allocated, 42 header bytes written, payload left as it was; memif copies the frame into the \
             shared ring and, at the receiver, out of it: 2 copies; frame freed unread"
        }
    }

    fn launches(&self, folder: &Path, point: &Point, cores: CorePair) -> Vec<Launch> {
        let device = |role| {
            format!("net_memif0,role={role},id=0,socket={}/memif,socket-abstract=no", folder.display())
        };
        let zero_copy = if self.zero_copy { ",zero-copy=yes" } else { "" };
        vec![
            Launch {
                role: "receiver",
                cpu: cores.first,
                plugin: None,
                devices: vec![device("server").into()],
                burst_frames: point.burst_frames,
                mode: vec!["--forward-mode=rxonly".into()],
            },
            Launch {
                role: "sender",
                cpu: cores.second,
                plugin: None,
                devices: vec![(device("client") + zero_copy).into()],
                burst_frames: point.burst_frames,
                mode: vec!["--forward-mode=txonly".into(), format!("--txpkts={}", point.slot_bytes())],
            },
        ]
    }
}
