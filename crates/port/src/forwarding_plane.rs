//! Outcomes of a batch's frames: the contract between the forwarding plane and the datapath, which executes the plan.
//!
//! A [`ForwardingPlane`] writes a [`Outcome`] for each frame of a batch into a [`BatchPlan`]. The datapath copies the
//! frames to their destinations, accounts for all of them, and does not know the reasons. A learning switch, a table of
//! flows and a mirror differ only in their `ForwardingPlane`.
//!
//! A frame that must leave with other headers gets a *header rewrite*: bytes that replace the frame's first bytes, as
//! many as the forwarding plane chooses. So a forwarding plane can add or remove a tag, or change an address or a whole
//! stack of headers, without a copy of the payload.
//!
//! ```
//! use ringroad_port::batch::Batch;
//! use ringroad_port::forwarding_plane::{BatchPlan, Decision, Destination, ForwardingPlane, FrameCopy};
//! use ringroad_port::port_index::PortIndex;
//!
//! /// Floods all frames, and gives port 7 a copy that has a VLAN tag.
//! #[derive(Debug)]
//! struct TaggedMirror;
//!
//! impl ForwardingPlane for TaggedMirror {
//!     fn decide(
//!         &mut self,
//!         _from: PortIndex,
//!         batch: &Batch,
//!         first: usize,
//!         _budget: u64,
//!         plan: &mut BatchPlan,
//!     ) -> Decision {
//!         for frame in first..batch.frames() {
//!             let mut headers = [0; 16];
//!             batch.frame(frame).first().map(|fragment| fragment.bytes().read(&mut headers[..12]));
//!             headers[12..].copy_from_slice(&[0x81, 0x00, 0, 42]);
//!             let tagged = plan.rewrite(12, &headers);
//!             plan.copy(frame, &[
//!                 FrameCopy { to: Destination::Others, rewrite: None },
//!                 FrameCopy { to: Destination::Port(PortIndex(7)), rewrite: tagged },
//!             ]);
//!         }
//!         Decision::all(batch)
//!     }
//! }
//! ```

use std::fmt::Debug;
use std::ops::Range;

use crate::batch::{BATCH_FRAMES, Batch};
use crate::drop_cause::DropCause;
use crate::port_index::{PortIndex, PortMask};

/// Longest header rewrite, bytes: Ethernet, tags, and the headers of two network and transport layers.
pub const MAX_REWRITE_BYTES: usize = 256;
/// Maximum number of copies of one frame.
pub const MAX_COPIES: usize = BATCH_FRAMES;

/// Number of steps of a decision ([`Decision::steps`]) that cost as much as the copy of a short frame. Measured in the
/// profile `dev`: a search of a hash table takes 30 ns, an action on headers 40 to 90 ns, the copy of a short frame 50
/// to 100 ns.
pub const STEPS_PER_COST: u64 = 2;

/// Progress of a decision, and its cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// First frame that has no outcome yet.
    pub end: usize,
    /// Steps beyond a read of each frame's header, charged to the owner of the frames: searches of tables and entries,
    /// actions.
    pub steps: u64,
}

impl Decision {
    /// Decision on all frames of the batch, without steps beyond the reads of their headers.
    #[inline]
    #[must_use]
    pub fn all(batch: &Batch) -> Self {
        Self { end: batch.frames(), steps: 0 }
    }
}

/// Forwarding plane: decides the outcomes of frames. Each worker has a forwarding plane of its own for a switch, so it
/// may keep state.
pub trait ForwardingPlane: Debug + Send {
    /// Writes into `plan` the outcomes of the frames of `batch` from number `first` on, which came from the port
    /// `from`. A frame without an outcome is dropped as [`DropCause::NoDestination`].
    ///
    /// The decision ends after the frame with which its steps reach `budget`; it includes at least one frame. The steps
    /// for one frame are bounded.
    ///
    /// The bytes of the frames may change at any time: bytes on which the decision depends have to be read only once.
    /// The datapath may execute a part of the plan, and request the rest again: a decision counts once
    /// [`ForwardingPlane::executed`] is called.
    fn decide(
        &mut self,
        from: PortIndex,
        batch: &Batch,
        first: usize,
        budget: u64,
        plan: &mut BatchPlan,
    ) -> Decision;

    /// Called when the frames `range` of `batch` have been sent as `plan` describes. Counters of the forwarding plane
    /// belong here.
    fn executed(&mut self, _from: PortIndex, _batch: &Batch, _range: Range<usize>, _plan: &BatchPlan) {}

    /// Port of the switch that serves only this forwarding plane: frames from and to it are not users' frames, and
    /// begin with a header that only the forwarding plane knows.
    fn own_port(&self) -> Option<PortIndex> {
        None
    }
}

/// Outcome of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The frame goes to this port.
    Port(PortIndex),
    /// The frame goes to all ports except its source.
    Flood,
    /// The frame goes to the ports of a set ([`BatchPlan::set`]).
    Ports(SetId),
    /// Copies of the frame leave, or the frame leaves with a header rewrite ([`BatchPlan::copy`]).
    Copies(CopiesId),
    /// The frame goes to no port, and is counted.
    Drop(DropCause),
}

/// Destination of one copy of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Destination {
    /// This port, even if it is the frame's source.
    Port(PortIndex),
    /// All ports except the frame's source.
    Others,
    /// The ports of a set, even the frame's source.
    Ports(SetId),
}

impl From<Destination> for Outcome {
    fn from(destination: Destination) -> Self {
        match destination {
            Destination::Port(port) => Self::Port(port),
            Destination::Others => Self::Flood,
            Destination::Ports(set) => Self::Ports(set),
        }
    }
}

/// A copy of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FrameCopy {
    /// Destination of the copy.
    pub to: Destination,
    /// Header rewrite of the copy, if any.
    pub rewrite: Option<RewriteId>,
}

/// Number of a set of ports in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SetId(u16);

/// Number of one frame's list of copies in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CopiesId(u16);

/// Number of a header rewrite in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RewriteId(u32);

/// Header rewrite: bytes that replace the first bytes of a copy of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderRewrite<'plan> {
    /// Number of leading bytes replaced.
    pub replaces: usize,
    /// Bytes that replace the leading bytes.
    pub bytes: &'plan [u8],
}

/// Batch plan: outcomes of the frames of a batch. Allocated once, reused for ever.
#[derive(Debug)]
pub struct BatchPlan {
    outcomes: Box<[Outcome; BATCH_FRAMES]>,
    /// Frames that have one common outcome, and the outcome.
    common: Option<(Range<usize>, Outcome)>,
    sets: Vec<PortMask>,
    copies: Vec<FrameCopy>,
    /// Range of the copies of each frame that leaves as copies.
    frames_with_copies: Vec<Range<u32>>,
    rewrites: Vec<PlannedRewrite>,
    rewrite_bytes: Vec<u8>,
}

#[derive(Debug)]
struct PlannedRewrite {
    replaces: u32,
    bytes: Range<u32>,
}

impl Default for BatchPlan {
    fn default() -> Self {
        Self::new()
    }
}

impl BatchPlan {
    /// A plan without outcomes.
    #[must_use]
    pub fn new() -> Self {
        Self {
            outcomes: Box::new([Outcome::Drop(DropCause::NoDestination); BATCH_FRAMES]),
            common: None,
            sets: Vec::new(),
            copies: Vec::new(),
            frames_with_copies: Vec::new(),
            rewrites: Vec::new(),
            rewrite_bytes: Vec::new(),
        }
    }

    /// Clears the plan: the frames `frames` have no outcome.
    #[inline]
    pub fn reset(&mut self, frames: Range<usize>) {
        self.outcomes_mut(frames).fill(Outcome::Drop(DropCause::NoDestination));
        if !(self.copies.is_empty() && self.sets.is_empty() && self.rewrites.is_empty()) {
            self.sets.clear();
            self.copies.clear();
            self.frames_with_copies.clear();
            self.rewrites.clear();
            self.rewrite_bytes.clear();
        }
    }

    /// Outcomes of frames, to be written.
    #[inline]
    pub fn outcomes_mut(&mut self, frames: Range<usize>) -> &mut [Outcome] {
        self.common = None;
        self.outcomes.get_mut(frames).unwrap_or(&mut [])
    }

    /// Writes the same outcome for several frames, which the datapath then executes together.
    #[inline]
    pub fn set_common(&mut self, frames: Range<usize>, outcome: Outcome) {
        self.outcomes_mut(frames.clone()).fill(outcome);
        self.common = Some((frames, outcome));
    }

    /// Common outcome of these frames; `None` if they were not given one together.
    #[inline]
    #[must_use]
    pub fn common(&self, frames: Range<usize>) -> Option<Outcome> {
        self.common.as_ref().filter(|(range, _)| *range == frames).map(|&(_, outcome)| outcome)
    }

    /// Outcomes of frames.
    #[inline]
    #[must_use]
    pub fn outcomes(&self, frames: Range<usize>) -> &[Outcome] {
        self.outcomes.get(frames).unwrap_or(&[])
    }

    /// Outcome of one frame.
    #[inline]
    #[must_use]
    pub fn outcome(&self, frame: usize) -> Outcome {
        self.outcomes.get(frame).copied().unwrap_or(Outcome::Drop(DropCause::NoDestination))
    }

    /// Writes the outcome of one frame.
    #[inline]
    pub fn set_outcome(&mut self, frame: usize, outcome: Outcome) {
        self.common = None;
        if let Some(entry) = self.outcomes.get_mut(frame) {
            *entry = outcome;
        }
    }

    /// Adds a set of ports, which any number of frames and copies may name. `None` beyond 65,536 sets.
    pub fn set(&mut self, ports: PortMask) -> Option<SetId> {
        let id = SetId(u16::try_from(self.sets.len()).ok()?);
        self.sets.push(ports);
        Some(id)
    }

    /// The ports of a set.
    #[inline]
    #[must_use]
    pub fn ports(&self, set: SetId) -> PortMask {
        self.sets.get(usize::from(set.0)).copied().unwrap_or_default()
    }

    /// Adds a header rewrite, which any number of copies may have: `bytes` replace the first `replaces` bytes of a
    /// frame. `None` if `bytes` is longer than [`MAX_REWRITE_BYTES`].
    pub fn rewrite(&mut self, replaces: usize, bytes: &[u8]) -> Option<RewriteId> {
        if bytes.len() > MAX_REWRITE_BYTES {
            return None;
        }
        let id = RewriteId(u32::try_from(self.rewrites.len()).ok()?);
        let begin = self.rewrite_bytes.len() as u32;
        self.rewrite_bytes.extend_from_slice(bytes);
        let bytes = begin..self.rewrite_bytes.len() as u32;
        self.rewrites.push(PlannedRewrite { replaces: u32::try_from(replaces).ok()?, bytes });
        Some(id)
    }

    /// Parts of a header rewrite.
    #[must_use]
    pub fn rewrite_of(&self, rewrite: RewriteId) -> Option<HeaderRewrite<'_>> {
        let PlannedRewrite { replaces, bytes } = self.rewrites.get(rewrite.0 as usize)?;
        let bytes = self.rewrite_bytes.get(bytes.start as usize..bytes.end as usize)?;
        Some(HeaderRewrite { replaces: *replaces as usize, bytes })
    }

    /// Lets a frame leave as these copies, in this order, at most [`MAX_COPIES`]; without copies it is dropped.
    pub fn copy(&mut self, frame: usize, copies: &[FrameCopy]) {
        let copies = copies.get(..MAX_COPIES).unwrap_or(copies);
        let outcome = match copies {
            [] => Outcome::Drop(DropCause::NoDestination),
            &[FrameCopy { to, rewrite: None }] => to.into(),
            _ => {
                let begin = self.copies.len() as u32;
                self.copies.extend_from_slice(copies);
                self.frames_with_copies.push(begin..self.copies.len() as u32);
                Outcome::Copies(CopiesId((self.frames_with_copies.len() - 1) as u16))
            }
        };
        self.set_outcome(frame, outcome);
    }

    /// Lets a frame leave unchanged, and also a copy of it in which `rewrite` replaces as many leading bytes.
    pub fn copy_both(&mut self, frame: usize, to: Destination, rewrite: &[u8]) {
        let as_it_came = FrameCopy { to, rewrite: None };
        match self.rewrite(rewrite.len(), rewrite) {
            rewrite @ Some(_) => self.copy(frame, &[as_it_came, FrameCopy { to, rewrite }]),
            None => self.copy(frame, &[as_it_came]),
        }
    }

    /// The copies of a frame.
    #[must_use]
    pub fn copies_of(&self, copies: CopiesId) -> &[FrameCopy] {
        let range = self.frames_with_copies.get(usize::from(copies.0));
        range.and_then(|range| self.copies.get(range.start as usize..range.end as usize)).unwrap_or(&[])
    }

    /// Whether every frame leaves unchanged, and once to each of its ports.
    #[inline]
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.frames_with_copies.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: PortIndex = PortIndex(3);

    #[test]
    fn a_frame_without_an_outcome_is_dropped() {
        let mut plan = BatchPlan::new();
        plan.outcomes_mut(0..2).fill(Outcome::Flood);
        assert_eq!(plan.outcomes(1..3), [Outcome::Flood, Outcome::Drop(DropCause::NoDestination)]);
        plan.reset(1..3);
        assert_eq!(plan.outcome(0), Outcome::Flood);
        assert_eq!(plan.outcome(1), Outcome::Drop(DropCause::NoDestination));
        assert_eq!(plan.outcome(BATCH_FRAMES), Outcome::Drop(DropCause::NoDestination));
    }

    #[test]
    fn one_copy_with_a_rewrite_is_a_plain_outcome() {
        let mut plan = BatchPlan::new();
        plan.copy(0, &[FrameCopy { to: Destination::Port(PORT), rewrite: None }]);
        plan.copy(1, &[]);
        assert!(plan.is_plain());
        assert_eq!(plan.outcomes(0..2), [Outcome::Port(PORT), Outcome::Drop(DropCause::NoDestination)]);
    }

    #[test]
    fn copies_sets_and_rewrites_are_found_until_the_plan_is_reset() {
        let mut plan = BatchPlan::new();
        let set = plan.set([PORT].into_iter().collect()).unwrap();
        let rewrite = plan.rewrite(12, b"new head").unwrap();
        assert_eq!(plan.rewrite(0, &[0; MAX_REWRITE_BYTES + 1]), None);
        let copies = [
            FrameCopy { to: Destination::Others, rewrite: None },
            FrameCopy { to: Destination::Ports(set), rewrite: Some(rewrite) },
        ];
        plan.copy(5, &copies);
        let Outcome::Copies(id) = plan.outcome(5) else { panic!("{:?}", plan.outcome(5)) };
        assert_eq!(plan.copies_of(id), copies);
        assert!(plan.ports(set).contains(PORT));
        assert_eq!(plan.rewrite_of(rewrite), Some(HeaderRewrite { replaces: 12, bytes: b"new head" }));
        plan.reset(0..6);
        assert!(plan.is_plain() && plan.copies_of(id).is_empty() && plan.ports(set).is_empty());
        assert_eq!(plan.rewrite_of(rewrite), None);
    }
}
