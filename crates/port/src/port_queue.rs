//! The contract between a driver and the datapath.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use ringroad_ring::region::RegionId;

use crate::batch::{BATCH_FRAMES, Batch};
use crate::drop_cause::DropTally;

/// What a port can do, and in which way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// The driver's name: `shm`, `pipe`, `af_xdp`, ...
    pub driver: &'static str,
    /// The mechanism in use, in words for people.
    pub mode: String,
    /// Longest frame it takes, bytes without FCS.
    pub max_frame_bytes: u32,
}

/// What became of the frames of one delivery.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// Frames put into the port.
    pub frames: u32,
    /// Bytes of those frames.
    pub bytes: u64,
    /// Frames that were not, by cause.
    pub dropped: DropTally,
    /// Frames that the queue took over: it puts them into the port or drops them later, and accounts for them then itself.
    pub taken_over: u32,
}

/// One queue of a port: a ring pair, served by exactly one worker. Nothing here blocks, allocates or logs.
pub trait PortQueue: Send {
    /// What it costs to deliver a frame here or receive one, beside copying its bytes: 1 for shared memory (50 to 100 ns), more where the kernel
    /// is asked for each. Asked once for deliveries.
    fn frame_cost(&self) -> u16 {
        1
    }

    /// Borrows whole frames into `batch`, as many as it has room for; they stay borrowed until [`PortQueue::release`].
    /// A queue whose other side broke a rule gives nothing any more and says so in [`PortQueue::fault`].
    fn receive(&mut self, batch: &mut Batch);

    /// Takes no frame any more that the other side publishes from now on.
    fn close(&mut self) {}

    /// Longest frame that [`PortQueue::receive`] may give, bytes.
    fn longest_frame_bytes(&self) -> usize {
        usize::from(u16::MAX)
    }

    /// Whether frames can be delivered here at all. Asked once: a switch sends none to a queue of which this is false.
    fn takes_frames(&self) -> bool {
        true
    }

    /// Whether frames can be delivered here with something left to do ([`Batch::unfinished`]); others get them finished. Asked right
    /// before each delivery of such frames, which holds to the answer.
    fn takes_unfinished(&mut self) -> bool {
        false
    }

    /// Frames of `frame_bytes` bytes that surely fit now. Asked only where a source is held back rather than dropped from
    /// (a wire); devices that take everything keep the default.
    fn room(&mut self, frame_bytes: usize) -> usize {
        let _ = frame_bytes;
        BATCH_FRAMES
    }

    /// Asks that room made by the other side wakes a datapath which announces its sleep with the next
    /// [`PortQueue::prepare_sleep`]: a wire's source waits for it. Says whether that is announced already; it never is where
    /// nothing would wake the datapath, which must not sleep then.
    fn await_room(&mut self) -> bool {
        false
    }

    /// Gives the `slots` ([`Batch::slots`]) borrowed first back to the port.
    fn release(&mut self, slots: usize);

    /// Puts the frames of `batch` that `frames` names into the port, in that order: with one copy each, or, where the batch
    /// offers its buffers to this queue's region, by taking the buffers themselves.
    /// Every frame is in one of the returned counts or in the tally.
    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery;

    /// The region that the queue's buffers lie in, where it can pass them on or take others' without a copy.
    fn region(&self) -> Option<RegionId> {
        None
    }

    /// Takes up the buffers given for those of the last [`PortQueue::receive`] that destinations kept
    /// ([`Batch::exchanged`]). Comes before the release.
    fn reclaim(&mut self, batch: &Batch) {
        let _ = batch;
    }

    /// Fragments that were ever delivered to it by lending.
    fn lent(&self) -> u64 {
        0
    }

    /// How many of those, in the order in which they were lent, it has done with. May look at the kernel's rings.
    fn returned(&mut self) -> u64 {
        0
    }

    /// Frames that the kernel dropped before they could be received, since the last call. May make a system call: asked for
    /// reports, never per batch.
    fn missed_frames(&mut self) -> u64 {
        0
    }

    /// Rules that the other side broke since the last call, where the queue does not count them itself. Asked for reports.
    fn violations(&mut self) -> u64 {
        0
    }

    /// Makes everything delivered and released visible, once per batch, and wakes the other side where it sleeps.
    /// Returns the number of wake-ups.
    fn flush(&mut self) -> u32;

    /// `true` announces that the datapath is about to sleep: it looks once more with [`PortQueue::has_waiting`] and then
    /// waits for [`PortQueue::wake_descriptor`]. `false` withdraws the announcement.
    fn prepare_sleep(&mut self, sleeping: bool);

    /// Whether its announcement stands for as long as nobody was woken by it: such a queue is not told again of each sleep of its datapath.
    fn sleeps_alone(&self) -> bool {
        false
    }

    /// The descriptor that becomes readable when a sleeping datapath is wanted; `None` for ports that never wake it.
    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Takes the signal off [`PortQueue::wake_descriptor`].
    fn drain_wake(&mut self) {}

    /// Whether frames wait that were not received yet, without borrowing them.
    fn has_waiting(&mut self) -> bool;

    /// How long until it has something to do that no descriptor announces; a sleeping datapath looks again by then. `None` where
    /// there is no such thing.
    fn due_in(&self) -> Option<Duration> {
        None
    }

    /// Why the queue stands still or gives no more frames, for people; `None` while it works.
    fn fault(&self) -> Option<String> {
        None
    }

    /// Whether the device has ended for good, so that nothing will come from it or go to it any more.
    fn is_gone(&self) -> bool {
        false
    }

    /// Tells the program at the other side that the device to which its rings lead has ended.
    fn end(&mut self) {}

    /// Why frames delivered to it are lost, for people; `None` while they are not. Part of [`PortQueue::fault`].
    fn delivery_fault(&self) -> Option<String> {
        None
    }
}
