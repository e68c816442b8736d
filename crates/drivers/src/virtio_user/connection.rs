//! The thread of a virtio-user port. It connects to the back end and agrees with it on features and memory, as the
//! front end of the vhost-user protocol. It gives the rings to the workers, and takes them back when the connection
//! ends. Then it starts again.
#![allow(unsafe_code)]

use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringroad_control::listening_socket::ListeningSocket;
use ringroad_ring::eventfd;
use ringroad_virtqueue::layout::features::{
    EVENT_IDX, GUEST_OFFLOADS, HOST_OFFLOADS, NET_CSUM, NET_GUEST_CSUM, NET_HOST_TSO4, NET_MQ, NET_MRG_RXBUF,
    PROTOCOL_FEATURES, VERSION_1,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SocketType;
use vhost::vhost_user::message::VhostUserProtocolFeatures;
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

use super::memory::{CardMemory, GUEST_BASE};
use super::queue::QueueRings;
use super::receive_ring::ReceiveRing;
use super::send_ring::SendRing;
use crate::peer::handover::Mailbox;
use crate::peer::socket::StopBell;
use crate::peer::watch::PeerWatch;

/// Timeout for a reply of the back end.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which an ending port waits until the back end has taken the last frames.
const LINGER: Duration = Duration::from_millis(200);

/// Way in which port and back end connect.
#[derive(Debug)]
pub(super) enum ConnectResult {
    /// The back end connects to this port's socket.
    Listen(ListeningSocket),
    /// The port connects to the back end's socket at this path.
    Connect(PathBuf),
}

/// The state of the thread.
#[derive(Debug)]
pub(super) struct VirtioUserConnection {
    pub(super) meeting: ConnectResult,
    pub(super) mailboxes: Vec<Mailbox<QueueRings>>,
    pub(super) entries: u16,
    pub(super) offloads: bool,
    pub(super) watch: Arc<PeerWatch>,
    pub(super) stop: StopBell,
    pub(super) fault_bell: Arc<OwnedFd>,
}

/// Eventfds of one ring: the one that this side writes, and the one that the back end writes.
#[derive(Debug)]
struct RingEvents {
    kick: OwnedFd,
    call: OwnedFd,
}

impl VirtioUserConnection {
    /// Serves until the stop bell is rung.
    pub(super) fn run(mut self) {
        while let Some(socket) = self.meet() {
            self.watch.connected();
            match self.converse(socket) {
                Ok(ControlFlow::Break(())) => return,
                Ok(ControlFlow::Continue(())) => self.watch.disconnected(None),
                Err(why) => {
                    self.watch.disconnected(Some(why));
                    if self.stop.pause().is_none() {
                        return;
                    }
                }
            }
        }
    }

    fn meet(&self) -> Option<OwnedFd> {
        match &self.meeting {
            ConnectResult::Connect(path) => {
                let failed = |why| self.watch.unreachable(why);
                self.stop.await_server(path, SocketType::STREAM, failed)
            }
            ConnectResult::Listen(listener) => loop {
                self.stop.wait([listener.as_fd()], None)?;
                match listener.accept() {
                    Ok(Some(socket)) => return Some(socket),
                    Ok(None) => {}
                    Err(error) => {
                        self.watch.disconnected(Some(format!("accepting a back end: {error}")));
                        self.stop.pause()?;
                    }
                }
            },
        }
    }

    /// Handles one connection, from its first message to its end. Breaks off if the port ends.
    fn converse(&mut self, socket: OwnedFd) -> Result<ControlFlow<()>, String> {
        let stream = UnixStream::from(socket);
        let failed = |error: std::io::Error| format!("preparing the connection: {error}");
        stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(failed)?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT)).map_err(failed)?;
        eventfd::drain(&*self.fault_bell);

        let mut session = Session::agree(&stream, self.mailboxes.len(), self.offloads)?;
        let memory = CardMemory::new(2 * self.mailboxes.len(), self.entries).map_err(failed)?;
        // The rings are complete before the back end sees them.
        let (mut events, mut rings) = (Vec::new(), Vec::new());
        for queue in 0..self.mailboxes.len() {
            let pair = RingEvents::new().and_then(|receive| Ok([receive, RingEvents::new()?]));
            let pair = pair.map_err(|error| failed(error.into()))?;
            rings.push(self.make_rings(&memory, queue, &pair, session.features).map_err(failed)?);
            events.push(pair);
        }
        session.set_up(&memory, &events, self.entries)?;
        self.watch.agreed(session.in_words(), self.mailboxes.len() as u16);

        for ((mailbox, rings), events) in self.mailboxes.iter().zip(rings).zip(&events) {
            for events in events {
                mailbox.wake().add(events.call.as_fd()).map_err(|error| failed(error.into()))?;
            }
            mailbox.exchange(Some(rings));
        }
        let ended = self.stop.wait([stream.as_fd(), self.fault_bell.as_fd()], None);
        if ended.is_none() {
            self.linger(&events);
            return Ok(ControlFlow::Break(()));
        }
        let mut fault = None;
        for (mailbox, events) in self.mailboxes.iter().zip(&events) {
            let rings = mailbox.exchange(None);
            fault = fault.or(rings.and_then(|rings| rings.fault));
            for events in events {
                mailbox.wake().remove(events.call.as_fd());
            }
        }
        match (fault, ended) {
            (Some(fault), _) => Err(format!("the back end broke a rule of virtio: {fault}; reconnecting")),
            (None, Some([true, _])) if has_message(&stream) => {
                Err("the back end sent an unexpected message; reconnecting".to_owned())
            }
            _ => Ok(ControlFlow::Continue(())),
        }
    }

    fn make_rings(
        &self,
        memory: &Arc<CardMemory>,
        queue: usize,
        [receive, send]: &[RingEvents; 2],
        features: u64,
    ) -> std::io::Result<QueueRings> {
        let ring = |number: usize| {
            let missing = || std::io::Error::other("there are fewer rings than queues need");
            memory.ring(number).ok_or_else(missing)
        };
        let has_event_indexes = features & EVENT_IDX != 0;
        let mut rings = QueueRings {
            receive: ReceiveRing::new(
                ring(2 * queue)?,
                has_event_indexes,
                features & NET_MRG_RXBUF != 0,
                features & GUEST_OFFLOADS != 0,
            ),
            send: SendRing::new(ring(2 * queue + 1)?, has_event_indexes),
            receive_kick: receive.kick.try_clone()?,
            send_kick: send.kick.try_clone()?,
            takes_unfinished: features & HOST_OFFLOADS == HOST_OFFLOADS,
            fault: None,
            fault_bell: Arc::clone(&self.fault_bell),
        };
        // No wake-up is needed: the back end does not listen yet, and reads its rings when it receives their addresses.
        rings.receive.publish();
        Ok(rings)
    }

    /// Waits for a short time until the back end has taken the last sent frames, if the workers have left any.
    fn linger(&self, events: &[[RingEvents; 2]]) {
        let deadline = Instant::now() + LINGER;
        for (mailbox, [_, send]) in self.mailboxes.iter().zip(events) {
            let Some(mut rings) = mailbox.left_behind() else { continue };
            if rings.send.publish() {
                eventfd::ring(&rings.send_kick);
            }
            while rings.fault.is_none() && rings.send.arm_for_all() == Ok(false) {
                let left = deadline.saturating_duration_since(Instant::now());
                let left = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
                let mut wait = [PollFd::new(&send.call, PollFlags::IN)];
                if !matches!(poll(&mut wait, Some(&left)), Ok(1..)) {
                    break;
                }
                eventfd::drain(&send.call);
            }
        }
    }
}

/// Whether a readable socket has a message, and not the end of the connection.
fn has_message(stream: &UnixStream) -> bool {
    let mut byte = [0];
    let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
    matches!(rustix::net::recv(stream, &mut byte, flags), Ok((_, 1..)))
}

impl RingEvents {
    fn new() -> rustix::io::Result<Self> {
        Ok(Self { kick: eventfd::create()?, call: eventfd::create()? })
    }
}

/// Agreement with a back end.
struct Session {
    front_end: Frontend,
    features: u64,
    has_protocol_features: bool,
}

fn at(step: &'static str) -> impl Fn(vhost::Error) -> String {
    move |error| format!("{step}: {error}")
}

impl Session {
    /// Agrees with the back end on features.
    fn agree(stream: &UnixStream, queues: usize, offloads: bool) -> Result<Self, String> {
        let rings = 2 * queues as u64;
        let clone = || stream.try_clone().map_err(|error| format!("preparing the connection: {error}"));
        let mut front_end = Frontend::from_stream(clone()?, rings);
        front_end.set_owner().map_err(at("greeting the back end"))?;
        let offered = front_end.get_features().map_err(at("reading the back end's features"))?;
        if offered & VERSION_1 == 0 {
            return Err("the back end does not speak virtio 1.0 or later (VIRTIO_F_VERSION_1)".to_owned());
        }
        let mut wanted = VERSION_1 | EVENT_IDX | NET_MRG_RXBUF | PROTOCOL_FEATURES;
        if queues > 1 {
            wanted |= NET_MQ;
        }
        if offloads {
            wanted |= HOST_OFFLOADS | GUEST_OFFLOADS;
        }
        let mut features = wanted & offered;
        if features & NET_MRG_RXBUF == 0 {
            // Long frames do not fit into one buffer.
            features &= !(GUEST_OFFLOADS & !NET_GUEST_CSUM);
        }
        let has_protocol_features = features & PROTOCOL_FEATURES != 0;
        if has_protocol_features {
            let asked = at("agreeing on vhost-user's own features");
            let known = VhostUserProtocolFeatures::MQ | VhostUserProtocolFeatures::REPLY_ACK;
            let agreed = front_end.get_protocol_features().map_err(&asked)? & known;
            front_end.set_protocol_features(agreed).map_err(&asked)?;
            if queues > 1 && agreed.contains(VhostUserProtocolFeatures::MQ) {
                let most = front_end.get_queue_num().map_err(&asked)?;
                if most < queues as u64 {
                    return Err(too_few_queues(most, queues));
                }
                // The crate reads the reply as a number of rings, but for a network card it is a number of queue pairs.
                // So a second front end with the right number is brought into the same state by repeated queries.
                front_end = Frontend::from_stream(clone()?, rings);
                front_end.get_features().map_err(&asked)?;
                front_end.get_protocol_features().map_err(&asked)?;
                front_end.set_protocol_features(agreed).map_err(&asked)?;
            }
            if agreed.contains(VhostUserProtocolFeatures::REPLY_ACK) {
                front_end.set_hdr_flags(vhost::vhost_user::message::VhostUserHeaderFlag::NEED_REPLY);
            }
        }
        if queues > 1 && features & NET_MQ == 0 {
            return Err(too_few_queues(1, queues));
        }
        front_end.set_features(features).map_err(at("agreeing on features"))?;
        Ok(Self { front_end, features, has_protocol_features })
    }

    /// Sends the back end the memory and the rings, and starts it.
    fn set_up(
        &mut self,
        memory: &CardMemory,
        events: &[[RingEvents; 2]],
        entries: u16,
    ) -> Result<(), String> {
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: GUEST_BASE,
            memory_size: memory.bytes(),
            userspace_addr: GUEST_BASE,
            mmap_offset: 0,
            mmap_handle: memory.file.as_raw_fd(),
        };
        self.front_end.set_mem_table(&[region]).map_err(at("giving the back end the memory"))?;
        let failed = at("giving the back end the rings");
        for (ring, events) in events.iter().flatten().enumerate() {
            let Some(addresses) = memory.addresses(ring) else { break };
            let config = VringConfigData {
                queue_max_size: entries,
                queue_size: entries,
                flags: 0,
                desc_table_addr: addresses.descriptors,
                used_ring_addr: addresses.used,
                avail_ring_addr: addresses.avail,
                log_addr: None,
            };
            self.front_end.set_vring_num(ring, entries).map_err(&failed)?;
            self.front_end.set_vring_base(ring, 0).map_err(&failed)?;
            self.front_end.set_vring_addr(ring, &config).map_err(&failed)?;
            self.front_end.set_vring_call(ring, &crate_event(&events.call)?).map_err(&failed)?;
            self.front_end.set_vring_kick(ring, &crate_event(&events.kick)?).map_err(&failed)?;
        }
        if self.has_protocol_features {
            for ring in 0..2 * events.len() {
                self.front_end.set_vring_enable(ring, true).map_err(at("letting the back end begin"))?;
            }
        }
        Ok(())
    }

    fn in_words(&self) -> String {
        let named = [
            (NET_MRG_RXBUF, "mergeable"),
            (EVENT_IDX, "event-idx"),
            (NET_MQ, "multi-queue"),
            (NET_CSUM, "checksum offload"),
            (NET_HOST_TSO4, "segmentation offload"),
        ];
        let parts = named.iter().filter(|(bit, _)| self.features & bit != 0).map(|&(_, name)| name);
        std::iter::once("split rings").chain(parts).collect::<Vec<_>>().join(", ")
    }
}

fn too_few_queues(most: u64, queues: usize) -> String {
    format!("the back end has {most} queue(s), and the port {queues}: open it with @queues={most}")
}

/// A copy of an eventfd in the type that the `vhost` crate requires.
fn crate_event(event: &OwnedFd) -> Result<EventFd, String> {
    let clone = event.try_clone().map_err(|error| format!("copying an eventfd: {error}"))?;
    // SAFETY: the descriptor is an eventfd without another owner.
    Ok(unsafe { EventFd::from_raw_fd(clone.into_raw_fd()) })
}
