//! The fates of a batch's frames: the contract between the decider and the datapath, which executes the plan.
//!
//! A [`Decide`] writes a [`Fate`] for each frame of a batch into a [`Plan`]. The datapath copies the frames to their
//! destinations, accounts for all of them, and does not know the reasons. A learning switch, a table of flows and a
//! mirror differ only in their `Decide`.
//!
//! A frame that must leave with other headers gets a new *head*, which replaces as many of the frame's first bytes as
//! the decider sets. So a decider can add or remove a tag, or change an address or a whole stack of headers, without a
//! copy of the payload.
//!
//! ```
//! use ringroad_port::batch::Batch;
//! use ringroad_port::plan::{Decide, Decided, Destination, FrameCopy, Plan};
//! use ringroad_port::port_index::PortIndex;
//!
//! /// Floods all frames, and gives port 7 a copy that has a VLAN tag.
//! #[derive(Debug)]
//! struct TaggedMirror;
//!
//! impl Decide for TaggedMirror {
//!     fn decide(
//!         &mut self,
//!         _from: PortIndex,
//!         batch: &Batch,
//!         first: usize,
//!         _budget: u64,
//!         plan: &mut Plan,
//!     ) -> Decided {
//!         for frame in first..batch.frames() {
//!             let mut head = [0; 16];
//!             batch.frame(frame).first().map(|fragment| fragment.bytes().read(&mut head[..12]));
//!             head[12..].copy_from_slice(&[0x81, 0x00, 0, 42]);
//!             let tagged = plan.head(12, &head);
//!             plan.copy(frame, &[
//!                 FrameCopy { to: Destination::Others, head: None },
//!                 FrameCopy { to: Destination::Port(PortIndex(7)), head: tagged },
//!             ]);
//!         }
//!         Decided::all(batch)
//!     }
//! }
//! ```

use std::fmt::Debug;
use std::ops::Range;

use crate::batch::{BATCH_FRAMES, Batch};
use crate::drop_cause::DropCause;
use crate::port_index::{PortIndex, PortMask};

/// Longest head that replaces a frame's, bytes: Ethernet, tags, and the headers of two network and transport layers.
pub const MAX_HEAD_BYTES: usize = 256;
/// Most copies of one frame.
pub const MAX_COPIES: usize = BATCH_FRAMES;

/// Steps of a decision ([`Decided::steps`]) that cost as much as the copy of a short frame. Measured in the profile `dev`: a
/// search of a hash table takes 30 ns, an action on headers 40 to 90 ns, such a copy 50 to 100 ns.
pub const STEPS_PER_COST: u64 = 2;

/// How far a decision went, and what it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decided {
    /// The first frame that has no fate yet.
    pub end: usize,
    /// Steps beyond a look at each frame's header, which the owner of the frames pays: tables and entries searched,
    /// actions done.
    pub steps: u64,
}

impl Decided {
    /// All frames of the batch are decided, with nothing but a look at their headers.
    #[inline]
    #[must_use]
    pub fn all(batch: &Batch) -> Self {
        Self { end: batch.frames(), steps: 0 }
    }
}

/// Decides the fates of frames. Each worker has a decider of its own for a switch, so a decider may keep state.
pub trait Decide: Debug + Send {
    /// Writes into `plan` what becomes of the frames of `batch` from number `first` on, which came from the port
    /// `from`. A frame without a fate is dropped as [`DropCause::NoDestination`].
    ///
    /// The decision ends behind the frame with which its steps reach `budget`; one frame is decided at least. What one
    /// frame can take is bounded.
    ///
    /// The bytes of the frames may change at any time: what matters has to be read once. The datapath may execute less
    /// than the whole plan, and request the rest again: a decision counts once [`Decide::executed`] is called.
    fn decide(
        &mut self,
        from: PortIndex,
        batch: &Batch,
        first: usize,
        budget: u64,
        plan: &mut Plan,
    ) -> Decided;

    /// Called when the frames `range` of `batch` have been sent as `plan` describes. Here a decider counts.
    fn executed(&mut self, _from: PortIndex, _batch: &Batch, _range: Range<usize>, _plan: &Plan) {}

    /// A port of the switch that serves this decider alone: frames from and to it are not users', and begin with a
    /// header that only the decider knows.
    fn own_port(&self) -> Option<PortIndex> {
        None
    }
}

/// What becomes of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It goes to this port.
    Port(PortIndex),
    /// It goes to all ports but the one it came from.
    Flood,
    /// It goes to the ports of a set ([`Plan::set`]).
    Ports(SetId),
    /// Copies of it leave, or it leaves with another head ([`Plan::copy`]).
    Copies(CopiesId),
    /// It goes nowhere, and is counted.
    Drop(DropCause),
}

/// Where one copy of a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Destination {
    /// To this port, even if the frame came from there.
    Port(PortIndex),
    /// To all ports but the one that the frame came from.
    Others,
    /// To the ports of a set, even the one that the frame came from.
    Ports(SetId),
}

impl From<Destination> for Fate {
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
    /// Where it goes.
    pub to: Destination,
    /// The head that it leaves with, if not its own.
    pub head: Option<HeadId>,
}

/// A set of ports in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SetId(u16);

/// The copies of one frame in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CopiesId(u16);

/// A head in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HeadId(u32);

/// The replacement for a frame's first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head<'plan> {
    /// How many bytes of the frame it replaces.
    pub replaces: usize,
    /// The bytes that the frame begins with instead.
    pub bytes: &'plan [u8],
}

/// What becomes of the frames of a batch. Allocated once, reused for ever.
#[derive(Debug)]
pub struct Plan {
    fates: Box<[Fate; BATCH_FRAMES]>,
    /// The frames that have one fate, and that.
    common: Option<(Range<usize>, Fate)>,
    sets: Vec<PortMask>,
    copies: Vec<FrameCopy>,
    /// Which copies each frame has that has some.
    frames_with_copies: Vec<Range<u32>>,
    heads: Vec<PlannedHead>,
    head_bytes: Vec<u8>,
}

#[derive(Debug)]
struct PlannedHead {
    replaces: u32,
    bytes: Range<u32>,
}

impl Default for Plan {
    fn default() -> Self {
        Self::new()
    }
}

impl Plan {
    /// A plan in which nothing is decided.
    #[must_use]
    pub fn new() -> Self {
        Self {
            fates: Box::new([Fate::Drop(DropCause::NoDestination); BATCH_FRAMES]),
            common: None,
            sets: Vec::new(),
            copies: Vec::new(),
            frames_with_copies: Vec::new(),
            heads: Vec::new(),
            head_bytes: Vec::new(),
        }
    }

    /// Forgets what was decided: `frames` frames from number `first` on are without a fate.
    #[inline]
    pub fn reset(&mut self, frames: Range<usize>) {
        self.fates_mut(frames).fill(Fate::Drop(DropCause::NoDestination));
        if !(self.copies.is_empty() && self.sets.is_empty() && self.heads.is_empty()) {
            self.sets.clear();
            self.copies.clear();
            self.frames_with_copies.clear();
            self.heads.clear();
            self.head_bytes.clear();
        }
    }

    /// The fates of frames, to be written.
    #[inline]
    pub fn fates_mut(&mut self, frames: Range<usize>) -> &mut [Fate] {
        self.common = None;
        self.fates.get_mut(frames).unwrap_or(&mut [])
    }

    /// Writes the same fate for several frames, which the datapath then executes together.
    #[inline]
    pub fn set_common(&mut self, frames: Range<usize>, fate: Fate) {
        self.fates_mut(frames.clone()).fill(fate);
        self.common = Some((frames, fate));
    }

    /// The fate that these frames were given together, if they were.
    #[inline]
    #[must_use]
    pub fn common(&self, frames: Range<usize>) -> Option<Fate> {
        self.common.as_ref().filter(|(range, _)| *range == frames).map(|&(_, fate)| fate)
    }

    /// The fates of frames.
    #[inline]
    #[must_use]
    pub fn fates(&self, frames: Range<usize>) -> &[Fate] {
        self.fates.get(frames).unwrap_or(&[])
    }

    /// The fate of one frame.
    #[inline]
    #[must_use]
    pub fn fate(&self, frame: usize) -> Fate {
        self.fates.get(frame).copied().unwrap_or(Fate::Drop(DropCause::NoDestination))
    }

    /// Writes the fate of one frame.
    #[inline]
    pub fn set_fate(&mut self, frame: usize, fate: Fate) {
        self.common = None;
        if let Some(entry) = self.fates.get_mut(frame) {
            *entry = fate;
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

    /// Adds a head, which any number of copies may have: a frame leaves with `bytes` instead of its first `replaces`
    /// ones. `None` where the head is longer than [`MAX_HEAD_BYTES`].
    pub fn head(&mut self, replaces: usize, bytes: &[u8]) -> Option<HeadId> {
        if bytes.len() > MAX_HEAD_BYTES {
            return None;
        }
        let id = HeadId(u32::try_from(self.heads.len()).ok()?);
        let begin = self.head_bytes.len() as u32;
        self.head_bytes.extend_from_slice(bytes);
        let bytes = begin..self.head_bytes.len() as u32;
        self.heads.push(PlannedHead { replaces: u32::try_from(replaces).ok()?, bytes });
        Some(id)
    }

    /// The parts of a head.
    #[must_use]
    pub fn head_of(&self, head: HeadId) -> Option<Head<'_>> {
        let PlannedHead { replaces, bytes } = self.heads.get(head.0 as usize)?;
        let bytes = self.head_bytes.get(bytes.start as usize..bytes.end as usize)?;
        Some(Head { replaces: *replaces as usize, bytes })
    }

    /// Lets a frame leave as these copies, in this order, at most [`MAX_COPIES`]; with none it is dropped.
    pub fn copy(&mut self, frame: usize, copies: &[FrameCopy]) {
        let copies = copies.get(..MAX_COPIES).unwrap_or(copies);
        let fate = match copies {
            [] => Fate::Drop(DropCause::NoDestination),
            &[FrameCopy { to, head: None }] => to.into(),
            _ => {
                let begin = self.copies.len() as u32;
                self.copies.extend_from_slice(copies);
                self.frames_with_copies.push(begin..self.copies.len() as u32);
                Fate::Copies(CopiesId((self.frames_with_copies.len() - 1) as u16))
            }
        };
        self.set_fate(frame, fate);
    }

    /// Lets a frame leave as it came, and a copy of it with `head` in place of as many first bytes.
    pub fn copy_both(&mut self, frame: usize, to: Destination, head: &[u8]) {
        let as_it_came = FrameCopy { to, head: None };
        match self.head(head.len(), head) {
            head @ Some(_) => self.copy(frame, &[as_it_came, FrameCopy { to, head }]),
            None => self.copy(frame, &[as_it_came]),
        }
    }

    /// The copies of a frame.
    #[must_use]
    pub fn copies_of(&self, copies: CopiesId) -> &[FrameCopy] {
        let range = self.frames_with_copies.get(usize::from(copies.0));
        range.and_then(|range| self.copies.get(range.start as usize..range.end as usize)).unwrap_or(&[])
    }

    /// Whether every frame leaves as it came, and once to each of its ports.
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
    fn a_frame_without_a_fate_is_dropped() {
        let mut plan = Plan::new();
        plan.fates_mut(0..2).fill(Fate::Flood);
        assert_eq!(plan.fates(1..3), [Fate::Flood, Fate::Drop(DropCause::NoDestination)]);
        plan.reset(1..3);
        assert_eq!(plan.fate(0), Fate::Flood);
        assert_eq!(plan.fate(1), Fate::Drop(DropCause::NoDestination));
        assert_eq!(plan.fate(BATCH_FRAMES), Fate::Drop(DropCause::NoDestination));
    }

    #[test]
    fn one_copy_with_its_own_head_is_a_plain_fate() {
        let mut plan = Plan::new();
        plan.copy(0, &[FrameCopy { to: Destination::Port(PORT), head: None }]);
        plan.copy(1, &[]);
        assert!(plan.is_plain());
        assert_eq!(plan.fates(0..2), [Fate::Port(PORT), Fate::Drop(DropCause::NoDestination)]);
    }

    #[test]
    fn copies_sets_and_heads_are_found_until_the_plan_is_reset() {
        let mut plan = Plan::new();
        let set = plan.set([PORT].into_iter().collect()).unwrap();
        let head = plan.head(12, b"new head").unwrap();
        assert_eq!(plan.head(0, &[0; MAX_HEAD_BYTES + 1]), None);
        let copies = [
            FrameCopy { to: Destination::Others, head: None },
            FrameCopy { to: Destination::Ports(set), head: Some(head) },
        ];
        plan.copy(5, &copies);
        let Fate::Copies(id) = plan.fate(5) else { panic!("{:?}", plan.fate(5)) };
        assert_eq!(plan.copies_of(id), copies);
        assert!(plan.ports(set).contains(PORT));
        assert_eq!(plan.head_of(head), Some(Head { replaces: 12, bytes: b"new head" }));
        plan.reset(0..6);
        assert!(plan.is_plain() && plan.copies_of(id).is_empty() && plan.ports(set).is_empty());
        assert_eq!(plan.head_of(head), None);
    }
}
