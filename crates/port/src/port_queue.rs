//! The contract between a driver and the datapath.
//!
//! A driver implements [`PortQueue`] for its queues: the path of frames, with three required methods. Further abilities
//! are roles. Each role is a separate trait, which an accessor of the queue returns; a driver writes nothing for a role
//! that it does not play:
//!
//! | role | what the datapath does with it |
//! |---|---|
//! | [`Sleep`] | sleeps, and is woken, instead of looking all the time |
//! | [`Backpressure`] | holds a wire's source back instead of dropping its frames |
//! | [`Lend`] | passes buffers on instead of copying out of them |
//! | [`Diagnose`] | reports to users and programs what is wrong, and counts what was lost before it was received |
//! | [`ProgramQueue`] | ends a program's use of its rings in order |
//!
//! `crates/datapath/tests/whole_driver.rs` is a whole driver, with tests that run it on a switch and on a wire.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use ringroad_ring::region::RegionId;

use crate::batch::Batch;
use crate::counters::{BypassedFrames, RefusedFrames, Waiting};
use crate::drop_cause::{DropCause, DropTally};

/// What a queue leaves to the process that serves its port next.
#[derive(Debug, Default)]
pub struct HandOver {
    /// Its state, in a form that only its driver knows.
    pub numbers: Vec<u64>,
    /// What it holds in the kernel.
    pub descriptors: Vec<OwnedFd>,
}

/// A port's abilities and costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortCapabilities {
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
    /// Frames that the queue took over: it puts them into the port or drops them later, and accounts for them then
    /// itself.
    pub taken_over: u32,
}

impl Delivery {
    /// All `frames` frames were dropped for one cause.
    #[must_use]
    pub fn dropped(cause: DropCause, frames: usize) -> Self {
        let mut delivery = Self::default();
        delivery.dropped.add(cause, frames as u32);
        delivery
    }
}

/// What never changes while a queue lives. The datapath reads it once, before the queue is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueProperties {
    /// What it costs to deliver a frame here, beside copying its bytes: 1 for shared memory (50 to 100 ns), more where
    /// the kernel works for each, also if one call does for several.
    pub frame_cost: u16,
    /// What it costs to receive a frame here, in the same units.
    pub take_cost: u16,
    /// Whether frames can be delivered here at all: a switch sends none to a queue of which this is false.
    pub takes_frames: bool,
    /// Whether an announcement of sleep ([`Sleep::prepare_sleep`]) stays valid until it causes a wake-up, so that it
    /// need not be renewed at each sleep of the datapath.
    pub sleeps_alone: bool,
    /// The region that the queue's buffers lie in, where it can pass them on or take others' without a copy.
    pub region: Option<RegionId>,
}

impl Default for QueueProperties {
    fn default() -> Self {
        Self { frame_cost: 1, take_cost: 1, takes_frames: true, sleeps_alone: false, region: None }
    }
}

/// One queue of a port: a ring pair, served by exactly one worker. Nothing here blocks, allocates or logs. The test
/// `crates/datapath/tests/whole_driver.rs` is a whole driver to begin from.
///
/// The order of calls is: [`receive`](Self::receive) lends the datapath a batch, [`deliver`](Self::deliver) of other
/// queues copies out of it, [`release`](Self::release) gives it back, [`flush`](Self::flush) makes it all visible.
/// Any number of batches may be lent at a time; they come back in the order in which they were lent.
///
/// A queue that stands before another one and changes a part of what it does implements [`inner`](Self::inner): all
/// methods that it leaves out, and all roles, are then the inner queue's. So each default here calls the inner queue
/// first.
pub trait PortQueue: Send {
    /// The queue behind this one, where there is one.
    fn inner(&mut self) -> Option<&mut dyn PortQueue> {
        None
    }

    /// What never changes.
    fn properties(&mut self) -> QueueProperties {
        self.inner().map_or_else(QueueProperties::default, |inner| inner.properties())
    }

    /// Borrows whole frames into `batch`, as many as it has room for; they stay borrowed until [`PortQueue::release`].
    /// A queue whose other side broke a rule gives nothing any more and reports that in [`Diagnose::fault`].
    fn receive(&mut self, batch: &mut Batch);

    /// Whether surely nothing is there to [`receive`](Self::receive), by a check that costs a few instructions: the
    /// datapath calls it before it does anything else for the queue. `false` implies nothing. A queue before another
    /// one does not forward this call, since it may have something to do at each `receive`.
    fn is_empty(&mut self) -> bool {
        false
    }

    /// Gives the `slots` ([`Batch::slots`]) borrowed first back to the port.
    fn release(&mut self, slots: usize);

    /// Puts the frames of `batch` that `frames` names into the port, in that order, a frame as often as it is named:
    /// with one copy each, or, where the batch offers its buffers to this queue's region, by taking the buffers
    /// themselves. Every frame is in one of the returned counts or in the tally.
    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery;

    /// Makes everything delivered and released visible, once per batch, and wakes the other side where it sleeps.
    /// Returns the number of wake-ups.
    fn flush(&mut self) -> u32 {
        self.inner().map_or(0, |inner| inner.flush())
    }

    /// Longest frame that [`PortQueue::receive`] may give, bytes, as far as is known by now: a wire queries its
    /// destination's room for such frames.
    fn longest_frame_bytes(&mut self) -> usize {
        self.inner().map_or(usize::from(u16::MAX), |inner| inner.longest_frame_bytes())
    }

    /// Whether frames can be delivered here with something left to do ([`Batch::is_unfinished`]); others get them
    /// finished. Called right before each delivery of such frames; the answer holds for the delivery.
    fn takes_unfinished(&mut self) -> bool {
        self.inner().is_some_and(|inner| inner.takes_unfinished())
    }

    /// How long until it has work that no descriptor announces; a sleeping datapath looks again by then. `None` where
    /// there is no such thing. Not called if [`QueueProperties::sleeps_alone`] is set.
    fn due_in(&mut self) -> Option<Duration> {
        self.inner()?.due_in()
    }

    /// How the datapath can sleep. If it is `None` nothing announces arriving frames, so the datapath never sleeps
    /// while it has this queue.
    fn sleeper(&mut self) -> Option<&mut dyn Sleep> {
        self.inner()?.sleeper()
    }

    /// The role that holds a wire's source back; `None` if the queue takes or drops every frame, now and always.
    fn backpressure(&mut self) -> Option<&mut dyn Backpressure> {
        self.inner()?.backpressure()
    }

    /// How buffers of its region are passed on; `None` where they never are.
    fn lender(&mut self) -> Option<&mut dyn Lend> {
        self.inner()?.lender()
    }

    /// The role that reports faults; `None` if the queue has none.
    fn diagnosis(&mut self) -> Option<&mut dyn Diagnose> {
        self.inner()?.diagnosis()
    }

    /// Stops what its driver does beside the worker until [`Self::resume_messages`], and returns whether it stands
    /// still. Called repeatedly, while the queue lends nothing, before the port is handed over.
    fn prepare_hand_over(&mut self) -> bool {
        self.inner().is_none_or(|inner| inner.prepare_hand_over())
    }

    /// What another process needs to continue with the port where this one stops. Called while the queue lends nothing.
    /// `None`: the port has to be opened again.
    fn hand_over(&mut self) -> Option<HandOver> {
        self.inner()?.hand_over()
    }

    /// The port is this process's from now on, and no other's: the process that should take over does not, or the one
    /// that handed over has ended.
    fn resume_messages(&mut self) {
        if let Some(inner) = self.inner() {
            inner.resume_messages();
        }
    }

    /// The program at its other side; `None` where that is a device.
    fn program(&mut self) -> Option<&mut dyn ProgramQueue> {
        self.inner()?.program()
    }
}

/// A queue before which the datapath can sleep.
pub trait Sleep {
    /// Whether frames wait that were not received yet, without borrowing them.
    fn has_waiting(&mut self) -> bool;

    /// `true` announces that the datapath is about to sleep: it looks once more with [`Sleep::has_waiting`] and then
    /// waits for [`Sleep::wake_descriptor`]. `false` withdraws the announcement.
    fn prepare_sleep(&mut self, sleeping: bool) {
        let _ = sleeping;
    }

    /// The descriptor that becomes readable when a sleeping datapath is wanted. `None` where nothing comes that would
    /// wake it, and of a device that has ended: from then on its descriptor may be readable for ever.
    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Takes the signal off [`Sleep::wake_descriptor`].
    fn drain_wake(&mut self) {}
}

/// A queue that holds a source back rather than drop from it. Used by wires; a switch drops.
pub trait Backpressure {
    /// Frames of `frame_bytes` bytes that surely fit now.
    fn room(&mut self, frame_bytes: usize) -> usize;

    /// Requests that room made by the other side wakes a datapath which announces its sleep with the next
    /// [`Sleep::prepare_sleep`]: a wire's source waits for it. Returns whether that is announced already; it never is
    /// where nothing would wake the datapath, which must not sleep then.
    fn await_room(&mut self) -> bool;
}

/// A queue that passes buffers of its region on, and takes others' ([`QueueProperties::region`],
/// [`crate::batch::Custody`]).
pub trait Lend {
    /// Takes up the buffers of a batch that the queue gave ([`crate::batch::Custody::Give`]): those that came with the
    /// last [`PortQueue::receive`], or others for those that destinations kept. Comes before the release.
    fn reclaim(&mut self, batch: &Batch);

    /// Fragments that were ever delivered to it by lending.
    fn lent(&self) -> u64;

    /// How many of those, in the order in which they were lent, it no longer uses. May read the kernel's rings.
    fn returned(&mut self) -> u64;
}

/// Which way frames go that a failure stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailedDirection {
    /// Out of the queue, or into it.
    Either,
    /// Into the queue: frames delivered to it are lost.
    In,
}

/// A queue with which something can be wrong.
pub trait Diagnose {
    /// Why the queue has stopped frames that go `way`, for people. `None` while it works, and in a state that passes by
    /// itself, such as a link that is down. A program that steps its own datapath calls this at each sync, so it makes
    /// no system call.
    fn failure(&self, way: FailedDirection) -> Option<String> {
        let _ = way;
        None
    }

    /// Why the queue has stopped or gives no more frames, for people; `None` while it works. Called for reports: the
    /// queue may query the kernel, and also names what passes by itself.
    fn fault(&self) -> Option<String> {
        self.failure(FailedDirection::Either)
    }

    /// Whether the device has ended for good, so that nothing will come from it or go to it any more.
    /// [`Diagnose::failure`] returns why.
    fn is_gone(&self) -> bool {
        false
    }

    /// Frames that the kernel dropped before they could be received, since the last call. May make a system call:
    /// called for reports, never per batch.
    fn missed_frames(&mut self) -> u64 {
        0
    }

    /// Frames since the last call that came in pieces without an end, so that they could not be received. Called for
    /// reports, never per batch.
    fn incomplete_frames(&mut self) -> u64 {
        0
    }

    /// Frames delivered to the queue that its device has dropped since the last call. Called for reports, never per
    /// batch, and when the queue is closed.
    fn refused(&mut self) -> RefusedFrames {
        RefusedFrames::default()
    }

    /// Frames delivered to the queue that its device has not taken yet. Called for reports, never per batch, and when
    /// the queue is closed: then they are lost.
    fn waiting(&mut self) -> Waiting {
        Waiting::default()
    }

    /// Frames since the last call that passed between this port and others of its switch within the kernel. Called for
    /// reports, never per batch, and when the queue is closed.
    fn take_passed(&mut self) -> BypassedFrames {
        BypassedFrames::default()
    }

    /// Rules that the other side broke since the last call, where the queue does not count them itself. Called for
    /// reports.
    fn violations(&mut self) -> u64 {
        0
    }
}

/// A queue of which a program has the other side.
pub trait ProgramQueue {
    /// Takes no frame any more that the program publishes from now on.
    fn close(&mut self);

    /// Notifies the program that the device behind its rings has ended.
    fn end(&mut self);
}
