//! One queue of a card. It moves frames from the network into receive channels, and from its transmit channels to the
//! network.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::SystemTime;

use ringroad_port::batch::{BATCH_FRAMES, Batch};
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::{Fragment, Gather};
use ringroad_port::port_queue::{Delivery, Diagnose, PortQueue, Sleep};
use ringroad_ring::eventfd;
use ringroad_ring::wakeup::Sleeper;
use ringroad_sze2::card::counters::{ChannelCounters, IbufCounters, ObufCounters};
use ringroad_sze2::card::flow_key::KEY_BYTES;
use ringroad_sze2::card::input::Rejection;
use ringroad_sze2::card::metadata::FrameInfo;
use ringroad_sze2::card::settings::CardSettings;
use ringroad_sze2::client::channels_of;
use ringroad_sze2::fault::ChannelFault;
use ringroad_sze2::segment::SegmentHeader;

use super::card::Card;
use super::channel::{ReceiveEnd, TransmitChannel, TransmitEnd};
use crate::peer::wake_set::WakeSet;

/// Maximum number of borrowed segments, those in batches that wait for other workers included.
const MAX_BORROWED: usize = 16 * BATCH_FRAMES;
/// Length of an Ethernet frame of MTU 1500 with a VLAN tag, bytes.
const USUAL_FRAME_BYTES: usize = 1518;
/// Channel of a rejected frame.
const REJECTED: u8 = u8::MAX;

/// A transmit channel of this queue.
#[derive(Debug)]
struct ChannelEnd {
    channel: usize,
    seen_version: u64,
    end: Option<TransmitEnd>,
    is_faulty: bool,
    /// Number of segments borrowed from the end.
    borrowed: usize,
}

#[derive(Debug)]
pub(super) struct CardQueue {
    card: Arc<Card>,
    settings: Arc<CardSettings>,
    settings_version: u64,
    wake: Arc<WakeSet>,
    sleeper: Sleeper,
    is_asleep: bool,
    /// Number of frames that were spread over the channels in turn.
    turn: u32,
    /// Channel of each frame of a batch.
    verdicts: Vec<u8>,
    /// Mask of the receive channels whose programs must be woken.
    to_wake: u32,
    channel_ends: Vec<ChannelEnd>,
    /// Channel end with which the next batch begins. It changes so that no channel end always comes first.
    next_lane: usize,
    /// Channel end and bytes of each borrowed segment, in their order.
    borrowed: VecDeque<(u16, u32)>,
    violations: u64,
    longest_bytes: usize,
}

impl CardQueue {
    pub(super) fn new(card: Arc<Card>, number: u16, queues: u16, wake: Arc<WakeSet>) -> Self {
        let own = (usize::from(number)..card.transmit.len()).step_by(usize::from(queues.max(1)));
        let channel_ends = own
            .map(|channel| ChannelEnd { channel, seen_version: 0, end: None, is_faulty: false, borrowed: 0 })
            .collect();
        Self {
            settings: card.settings(),
            settings_version: card.settings_version(),
            card,
            wake,
            sleeper: Sleeper::default(),
            is_asleep: false,
            turn: u32::from(number),
            verdicts: Vec::with_capacity(BATCH_FRAMES),
            to_wake: 0,
            channel_ends,
            next_lane: 0,
            borrowed: VecDeque::with_capacity(MAX_BORROWED),
            violations: 0,
            longest_bytes: USUAL_FRAME_BYTES,
        }
    }

    #[inline]
    fn check_settings(&mut self) {
        let version = self.card.settings_version();
        if version != self.settings_version {
            (self.settings, self.settings_version) = (self.card.settings(), version);
        }
    }

    /// Selects the channel of each frame, and counts frames without a channel.
    fn judge(
        &mut self,
        batch: &Batch,
        frames: &[u16],
        counters: &mut IbufCounters,
        delivery: &mut Delivery,
    ) -> u32 {
        let Self { settings, verdicts, turn, .. } = self;
        let needed_bytes = settings.needed_bytes();
        let mut channels = 0;
        verdicts.clear();
        for &frame in frames {
            let frame = usize::from(frame);
            let mut start = [0; KEY_BYTES];
            let known = needed_bytes.min(batch.frame_bytes(frame));
            let start = start.get_mut(..known).unwrap_or_default();
            batch.read(frame, start);
            match settings.channel_of(start, batch.frame_bytes(frame), turn) {
                Ok(channel) => {
                    channels |= 1 << channel;
                    verdicts.push(channel);
                }
                Err(rejection) => {
                    counters.reject(rejection);
                    delivery.dropped.add(cause_of(rejection), 1);
                    verdicts.push(REJECTED);
                }
            }
        }
        channels
    }

    /// Puts the frames for `channel` into its buffer.
    fn fill(
        &mut self,
        channel: u16,
        batch: &Batch,
        frames: &[u16],
        info: Option<FrameInfo>,
        counters: &mut IbufCounters,
        delivery: &mut Delivery,
    ) {
        let Some(shared) = self.card.receive.get(usize::from(channel)) else { return };
        let own = || {
            let verdicts = frames.iter().zip(&self.verdicts);
            verdicts
                .filter(|&(_, &verdict)| u16::from(verdict) == channel)
                .map(|(&frame, _)| usize::from(frame))
        };
        let mut end = shared.lock();
        let Some(end) = end.as_mut() else {
            let count = own().count() as u32;
            counters.unclaimed += u64::from(count);
            return delivery.dropped.add(DropCause::NotBound, count);
        };
        let mut tally = ChannelCounters::default();
        for frame in own() {
            let bytes = batch.frame_bytes(frame);
            let info = info.map(|info| {
                let known = batch.meta(frame).timestamp_ns;
                FrameInfo { timestamp_ns: if known == 0 { info.timestamp_ns } else { known }, ..info }
                    .to_bytes()
            });
            let metadata = info.as_ref().map_or(&[][..], |info| info);
            if end.is_faulty {
                counters.unclaimed += 1;
                delivery.dropped.add(DropCause::RingStopped, 1);
                continue;
            }
            match end.writer.reserve(metadata, bytes) {
                Ok(Some(segment)) => {
                    Gather::new(batch.frame(frame).iter()).fill(segment);
                    tally.frames += 1;
                    tally.bytes += bytes as u64;
                }
                Ok(None) if SegmentHeader::new(metadata.len(), bytes).is_none() => {
                    counters.long += 1;
                    delivery.dropped.add(DropCause::TooLong, 1);
                }
                Ok(None) => {
                    tally.overflow += 1;
                    delivery.dropped.add(DropCause::NoSpace, 1);
                }
                Err(fault) => {
                    self.violations += 1;
                    counters.unclaimed += 1;
                    delivery.dropped.add(DropCause::RingStopped, 1);
                    shared.fail(end, fault);
                }
            }
        }
        if end.writer.publish() || end.is_faulty {
            self.to_wake |= 1 << channel;
        }
        counters.frames += tally.frames;
        counters.bytes += tally.bytes;
        counters.overflow += tally.overflow;
        delivery.frames += tally.frames as u32;
        delivery.bytes += tally.bytes;
        shared.record.counters.add(&tally);
    }

    /// Takes new ends for the channel ends, and releases finished ones.
    #[inline]
    fn check_channels(&mut self) {
        let Self { card, channel_ends, sleeper, is_asleep, .. } = self;
        for channel_end in channel_ends {
            let Some(channel) = card.transmit.get(channel_end.channel) else { return };
            if channel.version() != channel_end.seen_version {
                channel_end.turn_over(channel, is_asleep.then_some(&mut *sleeper));
            }
        }
    }
}

impl ChannelEnd {
    /// Releases a finished end, and takes new ones. `sleeper` is the queue's while it sleeps.
    #[cold]
    fn turn_over(&mut self, channel: &TransmitChannel, mut sleeper: Option<&mut Sleeper>) {
        let version = channel.version();
        loop {
            if let Some(end) = &mut self.end {
                let is_done = end.progress.is_ended()
                    && (self.is_faulty
                        || !end.progress.is_started()
                        || end.reader.available().is_ok_and(|there| there == 0));
                if !is_done || self.borrowed > 0 {
                    // An ended channel end must be checked again.
                    self.seen_version =
                        if end.progress.is_ended() { version.wrapping_sub(1) } else { version };
                    return;
                }
                self.end = None;
            }
            let Some(end) = channel.offered() else {
                self.seen_version = version;
                return;
            };
            if let Some(sleeper) = &mut sleeper {
                sleeper.announce([end.reader.sleep_flag()]);
            }
            (self.end, self.is_faulty) = (Some(end), false);
        }
    }
}

fn cause_of(rejection: Rejection) -> DropCause {
    match rejection {
        Rejection::Disabled => DropCause::LinkDown,
        Rejection::Short => DropCause::TooShort,
        Rejection::Long => DropCause::TooLong,
        Rejection::Address | Rejection::Filter => DropCause::Filtered,
    }
}

/// The result of taking frames from a channel end.
#[derive(Debug, Default)]
struct Taken {
    tally: ChannelCounters,
    longest_bytes: usize,
    fault: Option<ChannelFault>,
}

/// Borrows whole segments of a channel end. While the output buffer is switched off, segments are taken and not sent.
#[inline]
fn take_from(
    channel_end: &mut ChannelEnd,
    number: u16,
    is_enabled: bool,
    batch: &mut Batch,
    borrowed: &mut VecDeque<(u16, u32)>,
) -> Taken {
    let mut taken = Taken::default();
    let Some(TransmitEnd { reader, .. }) = &mut channel_end.end else { return taken };
    while batch.has_room(1) && borrowed.len() < MAX_BORROWED {
        let segment = match reader.take() {
            Ok(Some(segment)) => segment,
            Ok(None) => break,
            Err(fault) => {
                taken.fault = Some(fault);
                break;
            }
        };
        let frame = segment.frame();
        if is_enabled {
            // SAFETY: the memory stays mapped while the channel end has this end, and the channel end releases the end
            // only when no segment is borrowed.
            batch.push(unsafe { Fragment::new(&frame, 0) }, true);
            taken.longest_bytes = taken.longest_bytes.max(frame.len());
        } else {
            batch.skip_slot();
        }
        taken.tally.frames += 1;
        taken.tally.bytes += frame.len() as u64;
        borrowed.push_back((number, segment.occupied_bytes() as u32));
        channel_end.borrowed += 1;
    }
    taken
}

impl PortQueue for CardQueue {
    fn receive(&mut self, batch: &mut Batch) {
        self.check_settings();
        self.check_channels();
        let Self { card, channel_ends, borrowed, settings, .. } = self;
        let count = channel_ends.len();
        let mut counters = ObufCounters::default();
        for step in 0..count {
            let number = (self.next_lane + step) % count;
            let Some(channel_end) = channel_ends
                .get_mut(number)
                .filter(|channel_end| channel_end.end.is_some() && !channel_end.is_faulty)
            else {
                continue;
            };
            let Some(channel) = card.transmit.get(channel_end.channel) else { continue };
            let taken = take_from(channel_end, number as u16, settings.obuf_enabled, batch, borrowed);
            channel.record.counters.add(&taken.tally);
            self.longest_bytes = self.longest_bytes.max(taken.longest_bytes);
            if settings.obuf_enabled {
                counters.frames += taken.tally.frames;
                counters.bytes += taken.tally.bytes;
            } else {
                counters.disabled += taken.tally.frames;
            }
            if let Some(fault) = taken.fault {
                channel_end.is_faulty = true;
                self.violations += 1;
                if let Some(end) = &channel_end.end {
                    channel.fail(end, fault);
                }
            }
        }
        self.next_lane = (self.next_lane + 1).checked_rem(count).unwrap_or(0);
        card.obuf.add(&counters);
    }

    fn release(&mut self, slots: usize) {
        for (number, bytes) in self.borrowed.drain(..slots.min(self.borrowed.len())) {
            if let Some(channel_end) = self.channel_ends.get_mut(usize::from(number)) {
                channel_end.borrowed -= 1;
                if let Some(end) = &mut channel_end.end {
                    end.reader.release(bytes as usize);
                }
            }
        }
    }

    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery {
        self.check_settings();
        let (mut counters, mut delivery) = (IbufCounters::default(), Delivery::default());
        let channels = self.judge(batch, frames, &mut counters, &mut delivery);
        let info = self.settings.timestamps.then(|| {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            FrameInfo { timestamp_ns: now.as_nanos() as u64, interface: 0 }
        });
        for channel in channels_of(channels) {
            self.fill(channel, batch, frames, info, &mut counters, &mut delivery);
        }
        self.card.ibuf.add(&counters);
        delivery
    }

    fn flush(&mut self) -> u32 {
        let mut wakes = 0;
        for channel_end in &mut self.channel_ends {
            if let Some(end) = &mut channel_end.end
                && end.reader.publish()
            {
                eventfd::ring(&*end.event);
                wakes += 1;
            }
        }
        for channel in channels_of(std::mem::take(&mut self.to_wake)) {
            let end = self.card.receive.get(usize::from(channel)).map(|channel| channel.lock());
            if let Some(ReceiveEnd { event, .. }) = end.as_ref().and_then(|end| end.as_ref()) {
                eventfd::ring(&**event);
                wakes += 1;
            }
        }
        wakes
    }

    fn longest_frame_bytes(&mut self) -> usize {
        self.longest_bytes
    }

    fn sleeper(&mut self) -> Option<&mut dyn Sleep> {
        Some(self)
    }

    fn diagnosis(&mut self) -> Option<&mut dyn Diagnose> {
        Some(self)
    }
}

impl Sleep for CardQueue {
    fn has_waiting(&mut self) -> bool {
        self.check_channels();
        self.channel_ends.iter_mut().filter(|channel_end| !channel_end.is_faulty).any(|channel_end| {
            // An invalid pointer is detected when the segment is taken.
            channel_end.end.as_mut().is_some_and(|end| end.reader.available().is_ok_and(|there| there > 0))
        })
    }

    fn prepare_sleep(&mut self, sleeping: bool) {
        self.is_asleep = sleeping;
        let flags = self
            .channel_ends
            .iter()
            .filter_map(|channel_end| Some(channel_end.end.as_ref()?.reader.sleep_flag()));
        if sleeping {
            self.sleeper.announce(flags);
        } else {
            flags.for_each(Sleeper::awake);
        }
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.wake.descriptor())
    }

    fn drain_wake(&mut self) {
        self.wake.drain();
        self.check_channels();
    }
}

impl Diagnose for CardQueue {
    fn violations(&mut self) -> u64 {
        std::mem::take(&mut self.violations)
    }
}
