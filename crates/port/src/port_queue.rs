//! Contract between a driver and the datapath.
//!
//! A driver implements [`PortQueue`] for its queues: the path of frames, with three required methods. Further abilities
//! are roles. Each role is a separate trait, which an accessor of the queue returns ([`roles`](crate::roles) writes it);
//! a driver has no code for roles that its queues do not have:
//!
//! | role | what the datapath does with it |
//! |---|---|
//! | [`Sleep`] | sleeps, and is woken, instead of polling all the time |
//! | [`Backpressure`] | holds a wire's source back instead of dropping its frames |
//! | [`Lend`] | passes buffers on instead of copying out of them |
//! | [`Diagnose`] | reports faults to users and programs, and counts frames that were lost before they were received |
//! | [`Upgrade`] | leaves the port to the next process of the daemon, without losing a frame |
//! | [`ProgramQueue`] | ends a program's use of its rings in order |
//!
//! `crates/datapath/tests/whole_driver.rs` is a complete driver, with tests that run it on a switch and on a wire.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use ringroad_ring::region::RegionId;

use crate::batch::Batch;
use crate::counters::{BypassedFrames, RefusedFrames, Waiting};
use crate::drop_cause::{DropCause, DropTally};

/// State that a queue leaves to the process that serves its port next.
#[derive(Debug, Default)]
pub struct HandOver {
    /// Numbers of the state, in a form that only the driver knows.
    pub numbers: Vec<u64>,
    /// Descriptors of the state's kernel objects.
    pub descriptors: Vec<OwnedFd>,
}

/// Abilities and costs of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortCapabilities {
    /// Name of the driver: `shm`, `pipe`, `af_xdp`, ...
    pub driver: &'static str,
    /// Mechanism in use, as a text for people.
    pub mode: String,
    /// Longest frame that the port takes, bytes without FCS.
    pub max_frame_bytes: u32,
}

/// Result of one delivery.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// Frames put into the port.
    pub frames: u32,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Number of those of these frames whose bytes were not copied.
    pub uncopied: u32,
    /// Frames that were not put into the port, by cause.
    pub dropped: DropTally,
    /// Frames that the queue took over: it puts them into the port or drops them later, and counts them itself at that
    /// time.
    pub taken_over: u32,
}

impl Delivery {
    /// Delivery whose `frames` frames were all dropped for one cause.
    #[must_use]
    pub fn dropped(cause: DropCause, frames: usize) -> Self {
        let mut delivery = Self::default();
        delivery.dropped.add(cause, frames as u32);
        delivery
    }

    /// Counts one more frame: its length in bytes if it was put into the port, else the cause of the drop.
    #[inline]
    pub fn count(&mut self, outcome: Result<u64, DropCause>) {
        match outcome {
            Ok(bytes) => {
                self.frames += 1;
                self.bytes += bytes;
            }
            Err(cause) => self.dropped.add(cause, 1),
        }
    }
}

/// Properties that never change while a queue lives. The datapath reads them once, before the queue is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueProperties {
    /// Cost of the delivery of a frame to this queue, beside the copy of its bytes: 1 for shared memory (50 to 100 ns).
    /// It is more if the kernel works for each frame, even if one call serves several frames.
    pub frame_cost: u16,
    /// Cost of receiving a frame from this queue, in the same units.
    pub take_cost: u16,
    /// Whether the queue takes frames at all: a switch sends no frames to a queue that does not.
    pub takes_frames: bool,
    /// Whether an announcement of sleep ([`Sleep::prepare_sleep`]) stays valid until it causes a wake-up, so that it
    /// need not be renewed at each sleep of the datapath.
    pub sleeps_alone: bool,
    /// Region of the queue's buffers, if the queue can pass them on or take the buffers of other queues without a copy.
    pub region: Option<RegionId>,
}

impl Default for QueueProperties {
    fn default() -> Self {
        Self { frame_cost: 1, take_cost: 1, takes_frames: true, sleeps_alone: false, region: None }
    }
}

/// One queue of a port: a ring pair, served by exactly one worker. No method blocks, allocates or logs. The test
/// `crates/datapath/tests/whole_driver.rs` has a complete driver as an example.
///
/// The order of calls is: [`receive`](Self::receive) lends the datapath a batch, [`deliver`](Self::deliver) of other
/// queues copies out of it, [`release`](Self::release) gives it back, [`flush`](Self::flush) makes all changes visible.
/// Any number of batches may be lent at a time; they come back in the order in which they were lent.
///
/// A queue in front of another one, of which it changes only some methods, implements [`inner`](Self::inner). The inner
/// queue then serves all other methods, and all roles. So each default here calls the inner queue first.
pub trait PortQueue: Send {
    /// The queue behind this one, if there is one.
    fn inner(&mut self) -> Option<&mut dyn PortQueue> {
        None
    }

    /// Properties of the queue, which never change.
    fn properties(&mut self) -> QueueProperties {
        self.inner().map_or_else(QueueProperties::default, |inner| inner.properties())
    }

    /// Borrows whole frames into `batch`, as many as it has room for; they stay borrowed until [`PortQueue::release`].
    /// A queue whose other side broke a rule gives no frames any more, and reports this in [`Diagnose::fault`].
    fn receive(&mut self, batch: &mut Batch);

    /// Whether certainly no frame waits to be [received](Self::receive), by a check of a few instructions: the datapath
    /// calls this before anything else. `false` implies nothing. A queue in front of another one does not forward this
    /// call, since it may have work at each `receive`.
    fn is_empty(&mut self) -> bool {
        false
    }

    /// Returns the oldest `slots` borrowed slots ([`Batch::slots`]) to the port.
    fn release(&mut self, slots: usize);

    /// Puts the frames of `batch` that `frames` names into the port, in that order, a frame as often as it is named.
    /// Copies each frame once or, if the batch offers its buffers to this queue's region, takes the buffers themselves.
    /// Every frame is in one of the returned counts or in the tally.
    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery;

    /// Makes all deliveries and releases visible, once per batch, and wakes the other side if it sleeps. Returns the
    /// number of wake-ups.
    fn flush(&mut self) -> u32 {
        self.inner().map_or(0, |inner| inner.flush())
    }

    /// Longest frame that [`PortQueue::receive`] may give, bytes, as far as is known now: a wire queries its
    /// destination's room for such frames.
    fn longest_frame_bytes(&mut self) -> usize {
        self.inner().map_or(usize::from(u16::MAX), |inner| inner.longest_frame_bytes())
    }

    /// Whether the queue takes unfinished frames ([`Batch::is_unfinished`]); for other queues, frames are finished
    /// first. Called directly before each delivery of such frames; the answer holds for the delivery.
    fn takes_unfinished(&mut self) -> bool {
        self.inner().is_some_and(|inner| inner.takes_unfinished())
    }

    /// Whether the queue takes frames whose only open task is an Internet checksum
    /// ([`Unfinished::is_internet_checksum`](crate::offload::Unfinished::is_internet_checksum)), if it does not take all
    /// unfinished frames. Called like [`PortQueue::takes_unfinished`].
    fn takes_open_checksums(&mut self) -> bool {
        self.inner().is_some_and(|inner| inner.takes_open_checksums())
    }

    /// Time until the queue has work that no descriptor announces; a sleeping datapath polls the queue by then. `None`
    /// if there is no such work. Not called if [`QueueProperties::sleeps_alone`] is set.
    fn due_in(&mut self) -> Option<Duration> {
        self.inner()?.due_in()
    }

    /// The role that lets the datapath sleep. `None`: no event announces arriving frames, so the datapath never sleeps
    /// while it has this queue.
    fn sleeper(&mut self) -> Option<&mut dyn Sleep> {
        self.inner()?.sleeper()
    }

    /// The role that holds a wire's source back; `None` if the queue always takes or drops every frame.
    fn backpressure(&mut self) -> Option<&mut dyn Backpressure> {
        self.inner()?.backpressure()
    }

    /// The role that passes on buffers of the queue's region; `None` if the queue never does.
    fn lender(&mut self) -> Option<&mut dyn Lend> {
        self.inner()?.lender()
    }

    /// The role that reports faults; `None` if the queue has none.
    fn diagnosis(&mut self) -> Option<&mut dyn Diagnose> {
        self.inner()?.diagnosis()
    }

    /// The role of a port with which another process can continue; `None` if the port has to be opened again there.
    fn upgrade(&mut self) -> Option<&mut dyn Upgrade> {
        self.inner()?.upgrade()
    }

    /// The role for the program at the other side; `None` if the other side is a device.
    fn program(&mut self) -> Option<&mut dyn ProgramQueue> {
        self.inner()?.program()
    }
}

/// Accessors of roles that a queue itself has, in its implementation of [`PortQueue`](crate::port_queue::PortQueue):
/// `roles! { sleeper: Sleep, diagnosis: Diagnose }`.
#[macro_export]
macro_rules! roles {
    ($($accessor:ident: $role:ident),+) => {
        $(fn $accessor(&mut self) -> Option<&mut dyn $crate::port_queue::$role> {
            Some(self)
        })+
    };
}

/// Queue whose port another process can continue with: the next process of the daemon, in a hot upgrade.
pub trait Upgrade {
    /// Stops the driver's work outside of the worker until [`Upgrade::resume`], and returns whether it has stopped.
    /// Called repeatedly, while the queue lends nothing, before the port is handed over.
    fn prepare(&mut self) -> bool {
        true
    }

    /// State that another process needs to continue with the port. Called while the queue lends nothing. `None`: the
    /// port has to be opened again.
    fn hand_over(&mut self) -> Option<HandOver>;

    /// Continues as the only owner of the port: the process that should take it over does not, or the process that
    /// handed it over has ended.
    fn resume(&mut self) {}
}

/// Queue with which the datapath can sleep.
pub trait Sleep {
    /// Whether frames wait that were not received yet; does not borrow them.
    fn has_waiting(&mut self) -> bool;

    /// `true` announces that the datapath is about to sleep: it checks once more with [`Sleep::has_waiting`] and then
    /// waits for [`Sleep::wake_descriptor`]. `false` withdraws the announcement.
    fn prepare_sleep(&mut self, sleeping: bool) {
        let _ = sleeping;
    }

    /// Descriptor that becomes readable when a sleeping datapath must wake. `None` if no event would wake it. Also
    /// `None` for a device that has ended, because its descriptor may then be readable for ever.
    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Clears the signal of [`Sleep::wake_descriptor`].
    fn drain_wake(&mut self) {}
}

/// Queue that holds a source back instead of dropping its frames. Used by wires; a switch drops.
pub trait Backpressure {
    /// Number of frames of `frame_bytes` bytes that certainly fit now.
    fn room(&mut self, frame_bytes: usize) -> usize;

    /// Requests a wake-up when the other side makes room, for a datapath that announces its sleep with the next
    /// [`Sleep::prepare_sleep`]: a wire's source waits for the room. Returns whether the wake-up is announced already.
    /// It never is if no event would wake the datapath, as by default: then the datapath must not sleep, but poll.
    fn await_room(&mut self) -> bool {
        false
    }
}

/// Queue that passes on buffers of its region, and takes buffers of other queues ([`QueueProperties::region`],
/// [`crate::batch::Custody`]).
pub trait Lend {
    /// Takes back the buffers of a batch that the queue gave ([`crate::batch::Custody::Give`]): the buffers of the last
    /// [`PortQueue::receive`], or replacements for those that destinations kept. Called before the release.
    fn reclaim(&mut self, batch: &Batch);

    /// Number of fragments ever delivered to the queue by lending.
    fn lent(&self) -> u64;

    /// Number of these fragments that the queue no longer uses, in the order in which they were lent. May read the
    /// kernel's rings.
    fn returned(&mut self) -> u64;
}

/// Direction of the frames that a failure stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailedDirection {
    /// Frames out of the queue or into it.
    Either,
    /// Frames into the queue: frames delivered to it are lost.
    In,
}

/// Queue that can have faults.
pub trait Diagnose {
    /// Reason why the queue has stopped frames in the direction `way`, for people. `None` while it works, and in a
    /// state that passes by itself, such as a link that is down. A program that steps its own datapath calls this at
    /// each sync, so it makes no system call.
    fn failure(&self, way: FailedDirection) -> Option<String> {
        let _ = way;
        None
    }

    /// Reason why the queue has stopped or gives no more frames, for people; `None` while it works. Called for reports:
    /// the queue may query the kernel, and also names states that pass by themselves.
    fn fault(&self) -> Option<String> {
        self.failure(FailedDirection::Either)
    }

    /// Whether the device has ended for good: no frame will come from it or go to it any more. [`Diagnose::failure`]
    /// returns the reason.
    fn is_gone(&self) -> bool {
        false
    }

    /// Number of frames that the kernel dropped before they could be received, since the last call. May make a system
    /// call: called for reports, never per batch.
    fn missed_frames(&mut self) -> u64 {
        0
    }

    /// Number of frames that could not be received, because they came in pieces without an end, since the last call.
    /// Called for reports, never per batch.
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

    /// Number of frames that the kernel has received for the queue and that [`PortQueue::receive`] has not returned: it
    /// returns them without further arrivals, sometimes later. Called for reports, never per batch.
    fn hidden_frames(&self) -> u64 {
        0
    }

    /// Frames since the last call that passed between this port and other ports of its switch within the kernel. Called
    /// for reports, never per batch, and when the queue is closed.
    fn take_passed(&mut self) -> BypassedFrames {
        BypassedFrames::default()
    }

    /// Number of rules that the other side broke since the last call, if the queue does not count them itself. Called
    /// for reports.
    fn violations(&mut self) -> u64 {
        0
    }
}

/// Queue whose other side is a program.
pub trait ProgramQueue {
    /// Stops taking frames that the program publishes from now on.
    fn close(&mut self);

    /// Notifies the program that the device behind its rings has ended.
    fn end(&mut self);
}
