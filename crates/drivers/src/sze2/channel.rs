//! A channel, shared by its program's session and the queue that serves it.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ringroad_sze2::ChannelState;
use ringroad_sze2::card::counters::SharedChannelCounters;
use ringroad_sze2::fault::ChannelFault;
use ringroad_sze2::memory::ChannelMemory;
use ringroad_sze2::message::{ChannelStatus, Subscriber};
use ringroad_sze2::reader::SegmentReader;
use ringroad_sze2::writer::{ChannelSide, SegmentWriter};

use super::card::lock;

/// The subscription of a channel, and its counters.
#[derive(Debug, Default)]
pub(super) struct ChannelRecord {
    subscription: Mutex<Subscription>,
    pub(super) counters: SharedChannelCounters,
}

/// The state of a channel's subscribers.
#[derive(Debug, Default)]
struct Subscription {
    /// The session that has the channel now, and its memory.
    present: Option<(Subscriber, Arc<ChannelMemory>, Arc<Progress>)>,
    fault: Option<String>,
    faults: u64,
}

/// Progress of a subscription.
#[derive(Debug, Default)]
pub(super) struct Progress {
    is_started: AtomicBool,
    is_ended: AtomicBool,
}

impl Progress {
    #[inline]
    pub(super) fn is_started(&self) -> bool {
        self.is_started.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }
}

impl ChannelRecord {
    pub(super) fn is_free(&self) -> bool {
        lock(&self.subscription).present.is_none()
    }

    pub(super) fn status(&self, is_receive: bool) -> ChannelStatus {
        let subscription = lock(&self.subscription);
        let present = subscription.present.as_ref();
        ChannelStatus {
            subscriber: present.map(|(subscriber, ..)| subscriber.clone()),
            running: present.is_some_and(|(.., progress)| progress.is_started()),
            counters: self.counters.read(),
            used_bytes: present.map_or(0, |(_, memory, _)| memory.used_bytes(is_receive)),
            fault: subscription.fault.clone(),
            faults: subscription.faults,
        }
    }

    fn subscribe(&self, subscriber: Subscriber, memory: &Arc<ChannelMemory>) -> Arc<Progress> {
        let progress: Arc<Progress> = Arc::default();
        let mut subscription = lock(&self.subscription);
        subscription.present = Some((subscriber, Arc::clone(memory), Arc::clone(&progress)));
        subscription.fault = None;
        progress
    }

    /// Records the new memory of the subscription.
    fn renew(&self, memory: &Arc<ChannelMemory>) {
        if let Some((_, present, _)) = &mut lock(&self.subscription).present {
            *present = Arc::clone(memory);
        }
    }

    fn start(&self) {
        if let Some((_, memory, progress)) = &lock(&self.subscription).present
            && !progress.is_started.swap(true, Ordering::AcqRel)
        {
            memory.set_state(ChannelState::Running);
        }
    }

    fn end(&self) {
        if let Some((.., progress)) = lock(&self.subscription).present.take() {
            progress.is_ended.store(true, Ordering::Release);
        }
    }

    /// Records that the program broke a rule.
    fn fail(&self, memory: &ChannelMemory, fault: ChannelFault) {
        memory.set_state(ChannelState::Faulty);
        let mut subscription = lock(&self.subscription);
        subscription.fault = Some(fault.to_string());
        subscription.faults += 1;
    }
}

/// A receive channel. Any worker may put frames into it.
#[derive(Debug, Default)]
pub(super) struct ReceiveChannel {
    /// End with the memory for frames; `None` until a program has started the channel. It is locked once per batch.
    end: Mutex<Option<ReceiveEnd>>,
    waiting: Mutex<Option<ReceiveEnd>>,
    pub(super) record: ChannelRecord,
}

/// The card's end of a receive channel.
#[derive(Debug)]
pub(super) struct ReceiveEnd {
    pub(super) writer: SegmentWriter,
    /// Eventfd that wakes the program.
    pub(super) event: Arc<OwnedFd>,
    /// Whether the program broke a rule.
    pub(super) is_faulty: bool,
}

impl ReceiveChannel {
    /// Locks the end, for a batch.
    #[inline]
    pub(super) fn lock(&self) -> std::sync::MutexGuard<'_, Option<ReceiveEnd>> {
        lock(&self.end)
    }

    /// Records that a program has subscribed to the channel and will start it.
    pub(super) fn subscribe(&self, subscriber: Subscriber, writer: SegmentWriter, event: Arc<OwnedFd>) {
        self.record.subscribe(subscriber, writer.memory());
        *lock(&self.waiting) = Some(ReceiveEnd { writer, event, is_faulty: false });
    }

    pub(super) fn start(&self) {
        self.record.start();
        if let Some(end) = lock(&self.waiting).take() {
            *self.lock() = Some(end);
        }
    }

    /// Lets the next frames come into a new memory, and returns the old one. `None` if the channel is not running.
    pub(super) fn renew(&self, memory: &Arc<ChannelMemory>) -> Option<Arc<ChannelMemory>> {
        let mut end = self.lock();
        let end = end.as_mut().filter(|end| !end.is_faulty)?;
        memory.set_state(ChannelState::Running);
        self.record.renew(memory);
        // Between two batches all frames of the old memory are published.
        let old =
            std::mem::replace(&mut end.writer, SegmentWriter::new(Arc::clone(memory), ChannelSide::Card));
        old.memory().set_state(ChannelState::Stopped);
        Some(Arc::clone(old.memory()))
    }

    pub(super) fn end(&self) {
        *lock(&self.waiting) = None;
        *self.lock() = None;
        self.record.end();
    }

    /// Records that the program broke a rule.
    #[cold]
    pub(super) fn fail(&self, end: &mut ReceiveEnd, fault: ChannelFault) {
        end.is_faulty = true;
        self.record.fail(end.writer.memory(), fault);
    }
}

/// A transmit channel. One queue takes frames from it.
#[derive(Debug, Default)]
pub(super) struct TransmitChannel {
    /// Ends that the queue has not taken over yet, in their order.
    offered: Mutex<VecDeque<TransmitEnd>>,
    /// Number of changes that the queue must process.
    version: AtomicU64,
    pub(super) record: ChannelRecord,
}

/// The card's end of a transmit channel.
#[derive(Debug)]
pub(super) struct TransmitEnd {
    pub(super) reader: SegmentReader,
    /// Eventfd that wakes the program.
    pub(super) event: Arc<OwnedFd>,
    pub(super) progress: Arc<Progress>,
}

impl TransmitChannel {
    /// Records that a program has subscribed to the channel and will start it.
    pub(super) fn subscribe(&self, subscriber: Subscriber, reader: SegmentReader, event: Arc<OwnedFd>) {
        let progress = self.record.subscribe(subscriber, reader.memory());
        lock(&self.offered).push_back(TransmitEnd { reader, event, progress });
    }

    pub(super) fn start(&self) {
        self.record.start();
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Records that the program has gone. The queue takes the frames that it had published, and releases the channel.
    pub(super) fn end(&self) {
        self.record.end();
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Version that differs after each change for which the queue must read [`Self::offered`].
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Next end for the queue: one that was started, or that ended before its start.
    pub(super) fn offered(&self) -> Option<TransmitEnd> {
        lock(&self.offered).pop_front_if(|end| end.progress.is_started() || end.progress.is_ended())
    }

    /// Records that the program broke a rule.
    #[cold]
    pub(super) fn fail(&self, end: &TransmitEnd, fault: ChannelFault) {
        self.record.fail(end.reader.memory(), fault);
        ringroad_ring::eventfd::ring(&*end.event);
    }
}
