//! The datapath between two vhost-user ports of a switch. Their guests are virtio-user cards in this process, whose
//! work is not counted.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ringroad::{Embedded, Port};
use ringroad_datapath::fabric::QueueParts;
use ringroad_drivers::device::DeviceRole;
use ringroad_drivers::peer::watch::PeerWatch;

use crate::paths::ProgramTurn;
use crate::testbed::{Testbed, frame, receive, send};
use crate::{Failure, counted};

/// Time limit for guests and ports to connect.
const PATIENCE: Duration = Duration::from_secs(20);

/// Attaches a port to the switch. Returns the guest at its other side, and the port's state.
fn attach(
    site: &mut Testbed,
    port: &str,
    folder: &tempfile::TempDir,
) -> Result<(Port, Arc<PeerWatch>), Failure> {
    let socket = folder.path().join(port);
    let mut device = site.device(&format!("vhost-user:{}", socket.display()), DeviceRole::SwitchPort)?;
    let watch = device.peer.take().ok_or("a vhost-user port has a peer")?;
    for queue in device.queues {
        site.attach(port, QueueParts::new(queue))?;
    }
    let guest = Embedded::new().open(&format!("virtio-user:{}", socket.display()))?;
    Ok((guest, watch))
}

pub(crate) fn switch(burst: u32) -> Result<ProgramTurn, Failure> {
    let folder = tempfile::Builder::new().prefix("rr-").tempdir()?;
    let mut site = Testbed::new();
    let (mut a, watch_a) = attach(&mut site, "a", &folder)?;
    let (mut b, watch_b) = attach(&mut site, "b", &folder)?;
    let began = Instant::now();
    // Negotiation needs steps of both datapaths. It is complete when a frame has arrived from each end.
    let mut known = [false; 2];
    while known != [true; 2] || [&watch_a, &watch_b].iter().any(|watch| watch.status().active_queues == 0) {
        if began.elapsed() > PATIENCE {
            return Err(format!(
                "the guests did not connect: {:?}, {:?}",
                watch_a.status(),
                watch_b.status()
            )
            .into());
        }
        send(&mut a, &frame(1, 2), 1)?;
        send(&mut b, &frame(2, 1), 1)?;
        site.step();
        known = [receive(&mut a, u32::MAX)? > 0 || known[0], receive(&mut b, u32::MAX)? > 0 || known[1]];
        thread::yield_now();
    }
    let to_b = frame(1, 2);
    Ok(Box::new(move |moved| {
        send(&mut a, &to_b, burst)?;
        counted(|| site.step());
        *moved += receive(&mut b, burst)?;
        let _ = &folder;
        Ok(())
    }))
}
