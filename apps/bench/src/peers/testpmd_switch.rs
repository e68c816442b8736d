//! testpmd as a switch between two vhost-user ports, loaded both ways by another testpmd.
//!
//! The generator's mode is flowgen: for each port in turn it receives and drops a burst, then sends a burst. So one
//! core loads both directions and counts them. The switch forwards in `io` mode: frames received at one port leave at
//! the other, without checking addresses.

use std::path::Path;

use ringroad_guest::testpmd::virtio_user;

use super::testpmd::{Launch, Setup};
use crate::contestant::CorePair;
use crate::plan::{FramePath, Point};

/// Largest burst of the generator, frames. The virtio driver returns at most 64 frames per receive call
/// (VIRTIO_MBUF_BURST_SZ, DPDK 22.11), and flowgen receives once per burst sent. With a burst of 256 it would send four
/// frames for each frame that it can receive, and the switch would be charged with the loss. The switch keeps the
/// configured burst.
const GENERATOR_BURST_FRAMES: u32 = 64;

/// Set-up with the generator on the first core and the switch on the second.
#[derive(Debug)]
pub(super) struct VhostUserSwitch;

impl Setup for VhostUserSwitch {
    fn name(&self) -> &'static str {
        "DPDK io, 2 vhost-user"
    }

    fn path(&self) -> FramePath {
        FramePath::Switch
    }

    fn work_per_frame(&self) -> &'static str {
        "generator (bursts of 64 at most): buffer allocated, 42 header bytes written, payload left as it was; switch: vhost copies the frame in \
         and out again: 2 copies, no address looked up, nothing learnt; generator: frame freed unread"
    }

    fn launches(&self, folder: &Path, point: &Point, cores: CorePair) -> Vec<Launch> {
        let socket = |port: usize| folder.join(format!("vhost{port}"));
        vec![
            Launch {
                role: "switch",
                cpu: cores.second,
                plugin: None,
                devices: (0..2)
                    .map(|port| format!("net_vhost{port},iface={},queues=1", socket(port).display()).into())
                    .collect(),
                burst_frames: point.burst_frames,
                mode: vec!["--forward-mode=io".into()],
            },
            Launch {
                role: "generator",
                cpu: cores.first,
                plugin: None,
                devices: (0..2).map(|port| virtio_user(port, &socket(port), 1)).collect(),
                burst_frames: point.burst_frames.min(GENERATOR_BURST_FRAMES),
                mode: vec![
                    "--forward-mode=flowgen".into(),
                    "--flowgen-flows=1".into(),
                    format!("--txpkts={}", point.slot_bytes()),
                    "--txd=1024".into(),
                    "--rxd=1024".into(),
                ],
            },
        ]
    }

    fn counted_ports(&self) -> u16 {
        2
    }

    fn first_process_counts(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_sends_no_more_at_a_time_than_it_can_receive_and_the_switch_keeps_its_burst() {
        let point = Point { path: FramePath::Switch, frame_bytes: 64, burst_frames: 256 };
        let launches = VhostUserSwitch.launches(Path::new("/x"), &point, CorePair { first: 0, second: 1 });
        let bursts: Vec<_> = launches.iter().map(|launch| (launch.role, launch.burst_frames)).collect();
        assert_eq!(bursts, [("switch", 256), ("generator", 64)]);
    }
}
