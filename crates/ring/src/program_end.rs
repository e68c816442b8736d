//! The program's end of a ring whose other side is a datapath (or, for rx rings of a pipe, the peer's tx end).
//!
//! Contract: this end publishes `head` with release, and reads `tail` with acquire. The other side is not trusted to
//! keep the order: a tail outside `[old tail, head - 1]` is reported, and the ring stays unchanged.

use crate::control_block::ControlBlock;
use crate::cursor::{distance, previous, within};
use crate::layout::Direction;
use crate::program_window::ProgramWindow;
use crate::ring_view::RingView;
use crate::sync::{AtomicU32, Ordering};
use crate::violation::RingViolation;
use crate::wakeup::{Kicker, Sleeper, publish_fence};

/// Result of a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Synced {
    /// Number of slots that the program got with this sync.
    pub gained: u32,
    /// Whether the other side sleeps: the caller then signals its eventfd.
    pub kick: bool,
}

/// The program's end of one ring.
#[derive(Debug)]
pub struct ProgramEnd {
    window: ProgramWindow,
    published: u32,
    kicker: Kicker,
    sleeper: Sleeper,
}

impl ProgramEnd {
    /// Takes over a ring at the position in its control block: a new ring, or one that an earlier program left.
    #[must_use]
    pub fn take_up(view: RingView, direction: Direction) -> Self {
        let slots = view.slot_count();
        let control = view.control();
        let mut head = control.program.head.load(Ordering::Relaxed);
        let mut tail = control.datapath.tail.load(Ordering::Acquire);
        if head >= slots || tail >= slots {
            // Another writer left an invalid `head`. An empty window is safe, and the datapath's checks report the
            // fault.
            head = 0;
            tail = if direction == Direction::Tx { previous(0, slots) } else { 0 };
        }
        control.program.sleeping.store(0, Ordering::Relaxed);
        view.show_cursors(head, head, tail);
        Self {
            window: ProgramWindow {
                exchanged: view.control().program.exchanged.load(Ordering::Relaxed),
                view,
                head,
                tail,
            },
            published: head,
            kicker: Kicker::default(),
            sleeper: Sleeper::default(),
        }
    }

    /// Window onto the slots that the program owns.
    #[inline]
    #[must_use]
    pub fn window(&self) -> &ProgramWindow {
        &self.window
    }

    /// Window onto the slots that the program owns, to fill or release them.
    #[inline]
    pub fn window_mut(&mut self) -> &mut ProgramWindow {
        &mut self.window
    }

    /// Only publishes `head`: for a thread that does the other side's work itself and syncs afterwards. Returns whether
    /// `head` has moved.
    #[inline]
    pub fn publish(&mut self) -> bool {
        let Self { window, published, .. } = self;
        if window.head == *published {
            return false;
        }
        let program = &window.view.control().program;
        program.cur.store(window.head, Ordering::Relaxed);
        program.exchanged.store(window.exchanged, Ordering::Relaxed);
        program.head.store(window.head, Ordering::Release);
        *published = window.head;
        true
    }

    /// Publishes `head`, and takes the slots that the other side has published.
    ///
    /// # Errors
    /// The [`RingViolation`] for which the datapath stopped the ring, or [`RingViolation::Tail`] if the other side
    /// broke the order.
    #[inline]
    pub fn sync(&mut self) -> Result<Synced, RingViolation> {
        let is_published = self.publish();
        let window = &mut self.window;
        let control = window.view.control();
        let slots = window.view.slot_count();
        let mut kick = false;
        if is_published {
            publish_fence();
            kick = self.kicker.needs_kick(&control.datapath.sleeping);
        }
        let tail = control.datapath.tail.load(Ordering::Acquire);
        let gained = if tail == window.tail {
            0
        } else {
            // The program owns the slots up to `tail`; the datapath may extend them to the slot before `head`.
            if !within(window.tail, tail, previous(window.head, slots), slots) {
                return Err(stopped(control));
            }
            let gained = distance(window.tail, tail, slots);
            window.tail = tail;
            gained
        };
        if gained == 0
            && let Some(violation) =
                RingViolation::from_code(control.datapath.violation.load(Ordering::Relaxed))
        {
            return Err(violation);
        }
        window.view.show_cursors(window.head, window.head, window.tail);
        Ok(Synced { gained, kick })
    }

    /// Announces that the program is about to sleep on this ring. The caller syncs once more before it waits.
    pub fn announce_sleep(&mut self) {
        self.sleeper.announce([sleeping_flag(&self.window.view)]);
    }

    /// Withdraws the announcement.
    pub fn awake(&mut self) {
        Sleeper::awake(sleeping_flag(&self.window.view));
    }
}

fn sleeping_flag(view: &RingView) -> &AtomicU32 {
    &view.control().program.sleeping
}

/// Reason why a ring whose indexes are out of order was stopped.
#[cold]
pub(crate) fn stopped(control: &ControlBlock) -> RingViolation {
    let code = control.datapath.violation.load(Ordering::Relaxed);
    let violation = RingViolation::from_code(code).unwrap_or(RingViolation::Tail);
    if violation == RingViolation::OtherProcess {
        // This end may just have published an index, by which a pipe's other end in this process would go on.
        control.program.head.store(u32::MAX, Ordering::Relaxed);
        control.datapath.tail.store(u32::MAX, Ordering::Relaxed);
    }
    violation
}
