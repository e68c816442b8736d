//! The daemon's reply to a program that opens a port.

use ringroad_control::Reply;
use ringroad_control::message::{OpenedPort, PortBackend};
use ringroad_ring::geometry::{PortPlacement, RegionGeometry};

/// Reply with a port of `queue_count` queues; `mode` is its text for people.
pub fn opened(queue_count: u16, mode: &str) -> Reply {
    let rings = |first: u32| (0..u32::from(queue_count)).map(|queue| 2 * queue + first).collect();
    Reply::Opened(OpenedPort {
        name: "vale0:a".to_owned(),
        kind: PortBackend::SwitchPort,
        mode: mode.to_owned(),
        driver: None,
        max_frame_bytes: None,
        notes: Vec::new(),
        geometry: RegionGeometry::for_ports(1, queue_count, 64, 2048, 0).unwrap(),
        placement: PortPlacement {
            interface: 0,
            tx_rings: rings(0),
            rx_rings: rings(1),
            slots: 64,
            extra_buffers: 0,
        },
        peer_placement: None,
        queue_count,
        switch: None,
        switch_index: None,
    })
}
