//! Client side of a connection: it shares its own region with the server.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use ringroad_ring::eventfd;

use super::channel::{Channel, End, unexpected};
use super::connection::Made;
use super::message::{AddRegion, AddRing, Init, MODE_ETHERNET, MemifMessage, VERSION};
use super::own_region::{OwnRegion, RingPlan};
use super::queue::Rings;
use super::receive_ring::ReceiveRing;
use super::transmit_ring::TransmitRing;
use crate::peer::socket::StopBell;

/// Properties of a client's connection.
#[derive(Debug, Clone)]
pub(super) struct ClientConfig {
    pub(super) id: u32,
    pub(super) secret: Vec<u8>,
    pub(super) queues: u16,
    pub(super) log2_ring_size: u8,
    pub(super) buffer_bytes: u32,
    /// The client's name, for the server.
    pub(super) interface: String,
}

/// Maximum number of rings that a client offers in each direction: the number of its queues, or fewer after the server
/// has refused a ring. DPDK announces its general limit in HELLO, and refuses rings beyond the interface's own queues
/// ("Invalid ring index").
#[derive(Debug, Clone, Copy)]
pub(super) struct RingLimits {
    to_server: u16,
    to_client: u16,
}

impl RingLimits {
    pub(super) fn new(config: &ClientConfig) -> Self {
        Self { to_server: config.queues, to_client: config.queues }
    }

    /// Offers only the rings before `index`. Without a first ring there is no connection.
    fn lower(&mut self, to_server: bool, index: u16) {
        let limit = if to_server { &mut self.to_server } else { &mut self.to_client };
        if index > 0 {
            *limit = index;
        }
    }
}

/// Sets up the connection, with as many and as large rings as both sides support. `limits` are lowered if the server
/// refuses a ring; the next connection then has fewer.
pub(super) fn make(
    channel: &Channel,
    config: &ClientConfig,
    limits: &mut RingLimits,
    stop: &StopBell,
) -> Result<Made, End> {
    let hello = match channel.next(stop)? {
        (MemifMessage::Hello(hello), _) => hello,
        (other, _) => return Err(unexpected(&other)),
    };
    if !(hello.min_version..=hello.max_version).contains(&VERSION) {
        let (from, to) = (hello.min_version >> 8, hello.max_version >> 8);
        return Err(End::Broken(format!("the server speaks versions {from} to {to} of memif, not 2.0")));
    }
    let sent = limits.to_server.min(hello.max_ring_to_server.saturating_add(1));
    let received = limits.to_client.min(hello.max_ring_to_client.saturating_add(1));
    let log2_size = config.log2_ring_size.min(hello.max_log2_ring_size);
    let plan = RingPlan { rings: sent + received, log2_size, buffer_bytes: config.buffer_bytes };
    let region = OwnRegion::new(plan).map_err(End::Broken)?;

    let init = Init {
        version: VERSION,
        id: config.id,
        mode: MODE_ETHERNET,
        secret: config.secret.clone(),
        name: super::program_name(),
    };
    say(channel, MemifMessage::Init(init), None, stop)?;
    let shown = AddRegion { index: 0, bytes: region.bytes() };
    say(channel, MemifMessage::AddRegion(shown), Some(region.file.as_fd()), stop)?;
    let mut rings: Vec<Rings> = (0..config.queues).map(|_| Rings::default()).collect();
    for number in 0..plan.rings {
        let to_server = number < sent;
        let index = if to_server { number } else { number - sent };
        let (ring, own) = region.ring(number).map_err(End::Broken)?;
        let event = eventfd::create().map_err(|error| End::Broken(format!("making an eventfd: {error}")))?;
        let event = Arc::new(event);
        let shown = AddRing {
            to_server,
            index,
            region: 0,
            offset: region.ring_offset(number),
            log2_size,
            private_header_bytes: 0,
        };
        if let Some(rings) = rings.get_mut(usize::from(index)) {
            let event = Arc::clone(&event);
            match to_server {
                true => rings.transmit = Some(TransmitRing::new(ring, Some(own), event)),
                false => rings.receive = Some(ReceiveRing::new(ring, Some(own), event)),
            }
        }
        say(channel, MemifMessage::AddRing(shown), Some(event.as_fd()), stop).inspect_err(|end| {
            if let End::Disconnected(_) = end {
                limits.lower(to_server, index);
            }
        })?;
    }
    channel.send(&MemifMessage::Connect(config.interface.clone()), None)?;
    let name = match channel.next(stop)? {
        (MemifMessage::Connected(name), _) => name,
        (other, _) => return Err(unexpected(&other)),
    };
    // The rings start only here, because servers set them to zero while they connect.
    for receive in rings.iter_mut().filter_map(|rings| rings.receive.as_mut()) {
        receive.start();
    }
    let (peer, size) = (&hello.name, 1u32 << log2_size);
    let agreed = format!("{peer}, interface {name}: {received} ring(s) from it and {sent} to it, of {size}");
    Ok(Made { rings, agreed })
}

/// Sends a message that the server acknowledges.
fn say(
    channel: &Channel,
    message: MemifMessage,
    descriptor: Option<BorrowedFd<'_>>,
    stop: &StopBell,
) -> Result<(), End> {
    channel.send(&message, descriptor)?;
    channel.await_ack(stop)
}
