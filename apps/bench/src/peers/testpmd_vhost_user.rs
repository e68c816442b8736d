//! Two testpmds joined by vhost-user: a virtio-user port only sends, a vhost port only receives.

use std::path::Path;

use ringroad_guest::testpmd::virtio_user;

use super::testpmd::{Launch, Setup};
use crate::contestant::CorePair;
use crate::plan::{FramePath, Point};

/// Set-up of a vhost-user and a virtio-user port, with rings of 1024.
#[derive(Debug)]
pub(super) struct VhostUserPair;

impl Setup for VhostUserPair {
    fn name(&self) -> &'static str {
        "DPDK vhost-user"
    }

    fn path(&self) -> FramePath {
        FramePath::Pipe
    }

    fn work_per_frame(&self) -> &'static str {
        "sender: buffer allocated, 42 header bytes written, payload left as it was, buffer's address put into the \
         ring; receiver: vhost copies the frame out of the sender's memory: 1 copy; frame freed unread"
    }

    fn launches(&self, folder: &Path, point: &Point, cores: CorePair) -> Vec<Launch> {
        let socket = folder.join("vhost");
        vec![
            Launch {
                role: "receiver",
                cpu: cores.first,
                plugin: None,
                devices: vec![format!("net_vhost0,iface={},queues=1", socket.display()).into()],
                burst_frames: point.burst_frames,
                mode: vec!["--forward-mode=rxonly".into()],
            },
            Launch {
                role: "sender",
                cpu: cores.second,
                plugin: None,
                devices: vec![virtio_user(0, &socket, 1)],
                burst_frames: point.burst_frames,
                mode: vec![
                    "--forward-mode=txonly".into(),
                    format!("--txpkts={}", point.slot_bytes()),
                    "--txd=1024".into(),
                    "--rxd=1024".into(),
                ],
            },
        ]
    }
}
