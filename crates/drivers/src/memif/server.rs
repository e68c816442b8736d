//! Server side of a connection: it maps the client's regions and finds the rings in them.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ringroad_ring::foreign_memory::ForeignMemory;

use super::channel::{End, unexpected};
use super::connection::Made;
use super::listener::{MAX_REGION, NewClient};
use super::message::{AddRegion, AddRing, MemifMessage};
use super::queue::Rings;
use super::receive_ring::ReceiveRing;
use super::ring::{Regions, Ring};
use super::transmit_ring::TransmitRing;
use crate::peer::socket::StopBell;
use crate::peer::wake_set::check_eventfd;

/// The memory that a client has announced so far.
#[derive(Debug)]
struct Shown {
    regions: Vec<ForeignMemory>,
    to_server: Vec<Option<(AddRing, OwnedFd)>>,
    to_client: Vec<Option<(AddRing, OwnedFd)>>,
}

/// Sets up the connection that `new_client` requests, with at most `queues` rings in each direction. `interface` is the
/// name sent to the client.
pub(super) fn make(
    new_client: &NewClient,
    queues: u16,
    interface: &str,
    stop: &StopBell,
) -> Result<Made, End> {
    let channel = &new_client.channel;
    let none = || (0..queues).map(|_| None).collect();
    let mut shown = Shown { regions: Vec::new(), to_server: none(), to_client: none() };
    channel.send(&MemifMessage::Ack, None)?;
    let name = loop {
        match channel.next(stop)? {
            (MemifMessage::AddRegion(region), file) => shown.add_region(region, file)?,
            (MemifMessage::AddRing(ring), event) => shown.add_ring(ring, event)?,
            (MemifMessage::Connect(name), _) => break name,
            (other, _) => return Err(unexpected(&other)),
        }
        channel.send(&MemifMessage::Ack, None)?;
    };
    let made = shown.found(&format!("{}, interface {name}", new_client.name))?;
    channel.send(&MemifMessage::Connected(interface.to_owned()), None)?;
    Ok(made)
}

impl Shown {
    fn add_region(&mut self, region: AddRegion, file: Option<OwnedFd>) -> Result<(), End> {
        let AddRegion { index, bytes } = region;
        let file = file.ok_or_else(|| End::Broken(format!("region {index} came without a descriptor")))?;
        if usize::from(index) != self.regions.len() || index > MAX_REGION {
            return Err(End::Broken(format!("region {index} came where {} was due", self.regions.len())));
        }
        let memory = ForeignMemory::map(file.as_fd(), 0, bytes)
            .map_err(|error| End::Broken(format!("region {index}: {error}")))?;
        self.regions.push(memory);
        Ok(())
    }

    fn add_ring(&mut self, ring: AddRing, event: Option<OwnedFd>) -> Result<(), End> {
        let AddRing { index, .. } = ring;
        let event = event.ok_or_else(|| End::Broken(format!("ring {index} came without a descriptor")))?;
        check_eventfd(event.as_fd()).map_err(End::Broken)?;
        let rings = if ring.to_server { &mut self.to_server } else { &mut self.to_client };
        let queues = rings.len();
        match rings.get_mut(usize::from(index)) {
            Some(target @ None) => *target = Some((ring, event)),
            Some(_) => return Err(End::Broken(format!("ring {index} came twice"))),
            None => return Err(End::Broken(format!("ring {index} came where there are {queues} queue(s)"))),
        }
        Ok(())
    }

    /// The rings of all queues, and their report for users.
    fn found(self, peer: &str) -> Result<Made, End> {
        let count = |rings: &[Option<(AddRing, OwnedFd)>]| rings.iter().flatten().count();
        let (received, sent) = (count(&self.to_server), count(&self.to_client));
        let all = self.to_server.iter().chain(&self.to_client).flatten();
        let largest = all.map(|(ring, _)| ring.log2_size).max().unwrap_or(0);
        let region_count = self.regions.len();
        let regions = Regions::new(self.regions);
        let ring_of = |shown: AddRing| -> Result<Ring, End> {
            let ring =
                Ring::new(&regions, shown.region, shown.offset, shown.log2_size).map_err(End::Broken)?;
            match ring.has_cookie() {
                true => Ok(ring),
                false => Err(End::Broken(format!("ring {} does not begin as a ring does", shown.index))),
            }
        };
        let mut rings = Vec::new();
        for (receive, transmit) in self.to_server.into_iter().zip(self.to_client) {
            let receive = receive
                .map(|(shown, event)| Ok(ReceiveRing::new(ring_of(shown)?, None, Arc::new(event))))
                .transpose()?;
            let transmit = transmit
                .map(|(shown, event)| Ok(TransmitRing::new(ring_of(shown)?, None, Arc::new(event))))
                .transpose()?;
            rings.push(Rings { receive, transmit });
        }
        let agreed = format!(
            "{peer}: {received} ring(s) from it and {sent} to it, of up to {}, in {region_count} region(s)",
            1u32 << largest
        );
        Ok(Made { rings, agreed })
    }
}
