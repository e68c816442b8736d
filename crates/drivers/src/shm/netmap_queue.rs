//! A queue of a netmap port. It adds what the port's bindings determine to the queue of a program: whether a program has
//! bound the rx ring, the header in front of frames, and the monitors.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ringroad_port::batch::Batch;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::offload::LONG_VIRTIO_HEADER_BYTES;
use ringroad_port::port_queue::{Delivery, PortQueue, QueueProperties, Upgrade};
use ringroad_ring::eventfd;
use ringroad_ring::layout::Direction;
use ringroad_ring::monitor_end::MonitorEnd;
use ringroad_ring::region::RegionId;
use ringroad_ring::ring_view::RingView;

use super::ShmQueue;
use super::queue::prefetch_slot;
use super::virtio_header::{put_frame_behind_header, take_frame_behind_header};

/// A monitor of one ring.
#[derive(Debug)]
pub struct RingMonitor {
    /// Direction of the monitored ring.
    pub direction: Direction,
    /// Filling end of the monitor's own ring.
    pub end: MonitorEnd,
    /// Eventfd that wakes the monitor's program.
    pub notify: OwnedFd,
}

/// State of a port's bindings and monitors for one of its queues. The control thread writes it, the worker reads it.
#[derive(Debug, Default)]
pub struct BindingUpdates {
    rx_users: AtomicU32,
    header_bytes: AtomicU32,
    /// Whether `news` must be read.
    changed: AtomicBool,
    news: Mutex<Option<Vec<RingMonitor>>>,
}

impl BindingUpdates {
    /// Sets the number of bindings that use the rx ring.
    pub fn set_rx_users(&self, users: u32) {
        self.rx_users.store(users, Ordering::Relaxed);
    }

    /// Sets the length of the virtio-net header in front of each frame in the rings: 10 or 12 bytes, or 0 for none.
    pub fn set_header_bytes(&self, bytes: u32) {
        self.header_bytes.store(bytes.min(LONG_VIRTIO_HEADER_BYTES as u32), Ordering::Relaxed);
    }

    /// Replaces the queue's monitors.
    pub fn set_monitors(&self, monitors: Vec<RingMonitor>) {
        *self.news.lock().unwrap_or_else(PoisonError::into_inner) = Some(monitors);
        self.changed.store(true, Ordering::Release);
    }
}

/// One queue of a netmap port. Slots keep their `ptr`, so they are not stamped.
#[derive(Debug)]
pub struct NetmapQueue {
    queue: ShmQueue,
    /// Region in which buffers can be exchanged; `None` if they must not be exchanged, for example because slots have
    /// offsets into their buffers.
    region: Option<RegionId>,
    updates: Arc<BindingUpdates>,
    monitors: Vec<RingMonitor>,
    /// Bytes of the virtio-net header in front of each frame, at most [`LONG_VIRTIO_HEADER_BYTES`], at the last read.
    header_bytes: usize,
}

impl NetmapQueue {
    /// A netmap port's queue with the rings of `queue`, without monitors at first. `exchanges`: buffers may be
    /// exchanged for others of the region.
    #[must_use]
    pub fn new(mut queue: ShmQueue, exchanges: bool, updates: Arc<BindingUpdates>) -> Self {
        let region = queue.properties().region.filter(|_| exchanges);
        Self { queue, region, updates, monitors: Vec::new(), header_bytes: 0 }
    }

    #[inline]
    fn learn_header(&mut self) {
        self.header_bytes = self.updates.header_bytes.load(Ordering::Relaxed) as usize;
    }

    /// Puts frames behind headers.
    fn put_behind_headers(&mut self, batch: &Batch, frames: &[u16]) -> Delivery {
        let header_bytes = self.header_bytes;
        self.queue.deliver_by(frames.len(), |put, free| {
            let (mut used, mut delivery) = (0, Delivery::default());
            for frame in frames.iter().map(|&frame| usize::from(frame)) {
                prefetch_slot(put, used, free);
                let slots = put_frame_behind_header(put, batch, frame, used, header_bytes);
                used += slots.unwrap_or(0);
                delivery.count(slots.map(|_| batch.frame_bytes(frame) as u64));
            }
            (used, delivery)
        })
    }

    /// Shows the monitors the slots of the ring of that direction from position `from` on.
    #[inline]
    fn show(&mut self, direction: Direction, from: u32) {
        if self.updates.changed.load(Ordering::Relaxed) {
            self.take_news();
        }
        let Some((ring, to)) = position(&self.queue, direction).filter(|&(_, to)| to != from) else { return };
        for monitor in self.monitors.iter_mut().filter(|monitor| monitor.direction == direction) {
            if monitor.end.copy(ring, from, to, direction == Direction::Tx) {
                eventfd::ring(&monitor.notify);
            }
        }
    }

    #[cold]
    fn take_news(&mut self) {
        self.updates.changed.store(false, Ordering::Relaxed);
        let mut news = self.updates.news.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(monitors) = news.take() {
            self.monitors = monitors;
        }
    }
}

/// The ring of that direction, and the position in it.
#[inline]
fn position(queue: &ShmQueue, direction: Direction) -> Option<(&RingView, u32)> {
    match direction {
        Direction::Tx => queue.take_position(),
        Direction::Rx => queue.put_position(),
    }
}

impl PortQueue for NetmapQueue {
    fn inner(&mut self) -> Option<&mut dyn PortQueue> {
        Some(&mut self.queue)
    }

    fn properties(&mut self) -> QueueProperties {
        QueueProperties { region: self.region, ..self.queue.properties() }
    }

    fn receive(&mut self, batch: &mut Batch) {
        self.learn_header();
        let from = position(&self.queue, Direction::Tx).map_or(0, |(_, from)| from);
        match self.header_bytes {
            0 => self.queue.receive_by(batch, self.region, ShmQueue::take_frames),
            header_bytes => self.queue.receive_by(batch, None, |take, batch| {
                while take_frame_behind_header(take, batch, header_bytes)? {}
                Ok(())
            }),
        }
        self.show(Direction::Tx, from);
    }

    #[inline]
    fn is_empty(&mut self) -> bool {
        self.queue.is_empty()
    }

    fn release(&mut self, slots: usize) {
        self.queue.release(slots);
    }

    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery {
        if !batch.is_unfinished() {
            self.learn_header();
        }
        if self.updates.rx_users.load(Ordering::Relaxed) == 0 {
            return Delivery::dropped(DropCause::NotBound, frames.len());
        }
        let from = position(&self.queue, Direction::Rx).map_or(0, |(_, from)| from);
        let delivery = match self.header_bytes {
            0 => self.queue.put_frames(batch, frames, self.region, false),
            _ => self.put_behind_headers(batch, frames),
        };
        self.show(Direction::Rx, from);
        delivery
    }

    fn flush(&mut self) -> u32 {
        self.queue.flush()
    }

    fn takes_unfinished(&mut self) -> bool {
        self.learn_header();
        self.header_bytes > 0
    }

    /// Returns `None`: only the netmap service knows the bindings, so another process cannot continue with the queue.
    fn upgrade(&mut self) -> Option<&mut dyn Upgrade> {
        None
    }
}
