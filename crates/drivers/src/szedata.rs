//! `szedata:` ports: channels of a capture card, which the port uses as any program does. Queue n is receive and
//! transmit channel `channel` + n of the card.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::path::Path;

use ringroad_port::batch::{BATCH_FRAMES, Batch, FrameMeta};
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::{Fragment, Gather};
use ringroad_port::port_queue::{
    Backpressure, Delivery, Diagnose, FailedDirection, PortCapabilities, PortQueue, QueueProperties, Sleep,
};
use ringroad_ring::wakeup::Sleeper;
use ringroad_sze2::ChannelState;
use ringroad_sze2::card::metadata::{FRAME_INFO_BYTES, FrameInfo};
use ringroad_sze2::client::{CardClient, CardError};
use ringroad_sze2::segment::{MAX_FRAME_BYTES, SegmentHeader};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::catalogue::port_kind::{NameTarget, OpenContext, OpenedBy, PortKind, Spelling};
use crate::catalogue::port_option::{PortOption, ValueKind};
use crate::device::{Device, DeviceError, DriverError};
use crate::peer::wake_set::WakeSet;

/// Maximum number of borrowed segments, those in batches that wait for other workers included.
const MAX_BORROWED: usize = 16 * BATCH_FRAMES;
/// Length of an Ethernet frame of MTU 1500 with a VLAN tag, bytes.
const USUAL_FRAME_BYTES: usize = 1518;

const CHANNEL: PortOption = PortOption::new(
    "channel",
    ValueKind::Number { least: 0, most: u16::MAX as u64 },
    "0",
    "first channel: queue n has the receive and the transmit channel `channel` + n",
);

/// Ports of capture cards' channels.
pub(crate) const KINDS: &[PortKind] = &[PortKind {
    driver: "szedata",
    spelling: Spelling::Scheme("szedata"),
    form: "szedata:SOCKET",
    about: "channels of an SZE2 capture card, as a program has them",
    page: None,
    target: NameTarget::Socket,
    options: &[&CHANNEL],
    access: OpenedBy::Program,
    plan: |planning| planning.any_queues(),
    open,
}];

impl DriverError for CardError {}

fn open(context: OpenContext<'_>) -> Result<Device, DeviceError> {
    let OpenContext { target, options, plan, .. } = context;
    let (path, queues) = (Path::new(target), plan.queues);
    let failed = |source: std::io::Error| DeviceError::Connection {
        name: format!("szedata:{}", path.display()),
        source,
    };
    let first = options.device.number(&CHANNEL).unwrap_or(0_u16);
    let mut device_queues: Vec<Box<dyn PortQueue>> = Vec::new();
    for number in 0..queues {
        let channel = first.saturating_add(number);
        let taken = || {
            DeviceError::Refused(format!(
                "channel {channel} of the card at {target} is another program's, or the card has none of that number"
            ))
        };
        let mut card = CardClient::open(path, "ringroad")?;
        let mask = 1u32.checked_shl(channel.into()).ok_or_else(taken)?;
        let (receive, transmit) = card.subscribe(mask, mask)?;
        if receive == 0 && transmit == 0 {
            return Err(taken());
        }
        card.start()?;
        let wake = WakeSet::new().map_err(|error| failed(error.into()))?;
        wake.add(card.event()).map_err(|error| failed(error.into()))?;
        wake.add(card.socket()).map_err(|error| failed(error.into()))?;
        device_queues.push(Box::new(ChannelQueue::new(card, channel, wake)));
    }
    let last = first.saturating_add(queues.saturating_sub(1));
    let mode = format!("channel(s) {first} to {last} of the SZE2 card at {}", path.display());
    let capabilities = PortCapabilities { driver: "szedata", mode, max_frame_bytes: MAX_FRAME_BYTES as u32 };
    Ok(Device::new(device_queues, capabilities))
}

/// The receive channel and the transmit channel with one number.
#[derive(Debug)]
struct ChannelQueue {
    card: CardClient,
    channel: u16,
    wake: WakeSet,
    sleeper: Sleeper,
    /// Bytes of each borrowed segment, in their order.
    borrowed: VecDeque<u32>,
    longest_bytes: usize,
    is_room_awaited: bool,
    is_room_announced: bool,
    fault: Option<String>,
    violations: u64,
    is_gone: bool,
}

impl ChannelQueue {
    fn new(card: CardClient, channel: u16, wake: WakeSet) -> Self {
        Self {
            card,
            channel,
            wake,
            sleeper: Sleeper::default(),
            borrowed: VecDeque::with_capacity(MAX_BORROWED),
            longest_bytes: USUAL_FRAME_BYTES,
            is_room_awaited: false,
            is_room_announced: false,
            fault: None,
            violations: 0,
            is_gone: false,
        }
    }

    #[cold]
    fn stop(&mut self, fault: impl std::fmt::Display) {
        self.violations += 1;
        self.fault = Some(format!("channel {}: {fault}", self.channel));
    }

    /// Checks whether the card still exists and reports no violation.
    fn check_card(&mut self) {
        let mut waits = [PollFd::from_borrowed_fd(self.card.socket(), PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.is_gone |= poll(&mut waits, Some(&at_once)).is_ok_and(|ready| ready > 0);
        if self.fault.is_none() && self.card.transmit_state(self.channel) == Some(ChannelState::Faulty) {
            self.stop("the card has stopped it, for what was transmitted");
        }
    }
}

impl PortQueue for ChannelQueue {
    fn properties(&mut self) -> QueueProperties {
        QueueProperties { takes_frames: self.card.subscribed().1 != 0, ..QueueProperties::default() }
    }

    fn receive(&mut self, batch: &mut Batch) {
        if self.fault.is_some() {
            return;
        }
        let Self { card, channel, borrowed, longest_bytes, .. } = self;
        let Some(reader) = card.reader(*channel) else { return };
        let fault = loop {
            if !batch.has_room(1) || borrowed.len() == MAX_BORROWED {
                return;
            }
            let segment = match reader.take() {
                Ok(Some(segment)) => segment,
                Ok(None) => return,
                Err(fault) => break fault,
            };
            let frame = segment.frame();
            *longest_bytes = frame.len().max(*longest_bytes);
            // SAFETY: the memory stays mapped while the card is open, which is for the lifetime of this queue.
            batch.push(unsafe { Fragment::new(&frame, 0) }, true);
            let metadata = segment.metadata();
            if metadata.len() == FRAME_INFO_BYTES {
                let mut bytes = [0; FRAME_INFO_BYTES];
                let read = metadata.read(&mut bytes);
                let info = FrameInfo::from_bytes(bytes.get(..read).unwrap_or_default()).unwrap_or_default();
                batch.describe(FrameMeta { timestamp_ns: info.timestamp_ns, ..FrameMeta::default() });
            }
            borrowed.push_back(segment.occupied_bytes() as u32);
        };
        self.stop(fault);
    }

    fn release(&mut self, slots: usize) {
        let slots = slots.min(self.borrowed.len());
        let bytes: u32 = self.borrowed.drain(..slots).sum();
        if let Some(reader) = self.card.reader(self.channel) {
            reader.release(bytes as usize);
        }
    }

    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery {
        let mut delivery = Delivery::default();
        let mut fault = None;
        let is_stopped = self.fault.is_some();
        for &frame in frames {
            let frame = usize::from(frame);
            let bytes = batch.frame_bytes(frame);
            let Some(writer) = self.card.writer(self.channel).filter(|_| !is_stopped && fault.is_none())
            else {
                let cause =
                    if is_stopped || fault.is_some() { DropCause::RingStopped } else { DropCause::NotBound };
                delivery.dropped.add(cause, 1);
                continue;
            };
            match writer.reserve(&[], bytes) {
                Ok(Some(segment)) => {
                    Gather::new(batch.frame(frame).iter()).fill(segment);
                    delivery.frames += 1;
                    delivery.bytes += bytes as u64;
                }
                Ok(None) if bytes > MAX_FRAME_BYTES => delivery.dropped.add(DropCause::TooLong, 1),
                Ok(None) => delivery.dropped.add(DropCause::NoSpace, 1),
                Err(found) => {
                    delivery.dropped.add(DropCause::RingStopped, 1);
                    fault = Some(found);
                }
            }
        }
        if let Some(fault) = fault {
            self.stop(fault);
        }
        delivery
    }

    fn flush(&mut self) -> u32 {
        self.card.publish_received(self.channel);
        u32::from(self.card.publish_transmitted(self.channel))
    }

    fn longest_frame_bytes(&mut self) -> usize {
        self.longest_bytes
    }

    fn sleeper(&mut self) -> Option<&mut dyn Sleep> {
        Some(self)
    }

    fn backpressure(&mut self) -> Option<&mut dyn Backpressure> {
        Some(self)
    }

    fn diagnosis(&mut self) -> Option<&mut dyn Diagnose> {
        Some(self)
    }
}

impl Sleep for ChannelQueue {
    fn has_waiting(&mut self) -> bool {
        if self.fault.is_some() {
            return false;
        }
        // An invalid segment is detected when it is taken.
        self.card.reader(self.channel).is_some_and(|reader| !matches!(reader.available(), Ok(0)))
    }

    fn prepare_sleep(&mut self, sleeping: bool) {
        self.is_room_announced = sleeping && self.is_room_awaited;
        if !sleeping {
            self.is_room_awaited = false;
        }
        let is_room_announced = self.is_room_announced;
        let Self { card, channel, sleeper, .. } = self;
        let (reader, writer) = card.ends(*channel);
        let (reader, writer) =
            (reader.map(|reader| reader.sleep_flag()), writer.map(|writer| writer.sleep_flag()));
        if sleeping {
            sleeper.announce(reader.into_iter().chain(writer.filter(|_| is_room_announced)));
        } else {
            reader.into_iter().chain(writer).for_each(Sleeper::awake);
        }
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        (!self.is_gone).then(|| self.wake.descriptor())
    }

    fn drain_wake(&mut self) {
        self.wake.drain();
        self.check_card();
    }
}

impl Backpressure for ChannelQueue {
    fn room(&mut self, frame_bytes: usize) -> usize {
        let Some(writer) = self.card.writer(self.channel) else { return BATCH_FRAMES };
        let Some(header) = SegmentHeader::new(0, frame_bytes) else { return BATCH_FRAMES };
        let occupied = header.occupied_bytes();
        match writer.room(occupied * BATCH_FRAMES) {
            Ok(room) => room / occupied,
            Err(fault) => {
                self.stop(fault);
                BATCH_FRAMES
            }
        }
    }

    fn await_room(&mut self) -> bool {
        self.is_room_awaited = true;
        self.is_room_announced
    }
}

impl Diagnose for ChannelQueue {
    fn failure(&self, _way: FailedDirection) -> Option<String> {
        let gone = || {
            let channel = self.channel;
            format!(
                "channel {channel}: the program that serves the card has ended; start it, and open the port again"
            )
        };
        self.fault.clone().or_else(|| self.is_gone.then(gone))
    }

    fn is_gone(&self) -> bool {
        self.is_gone
    }

    fn violations(&mut self) -> u64 {
        std::mem::take(&mut self.violations)
    }
}
