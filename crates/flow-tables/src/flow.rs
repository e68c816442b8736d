//! Flow entries, and one table's way to find the right one.

use std::sync::Arc;

use ringroad_openflow::instruction::Instructions;
use ringroad_openflow::message::FlowFlags;
use ringroad_openflow::oxm::{FieldMatch, Match};

use crate::counters::CounterId;
use crate::key::{FlowKey, Words};
use crate::packed_match::PackedMatch;
use crate::shape::{Bucket, Seed, Shape, compiled};
use crate::trail::Step;

/// A flow entry. It does not change: a changed one takes its place.
#[derive(Debug)]
pub struct Flow {
    /// Of several entries that match, the one of the highest priority counts.
    pub priority: u16,
    /// Which packets.
    pub matching: PackedMatch,
    /// The controller's own number.
    pub cookie: u64,
    /// What is done with the packets. Entries that do the same share it.
    pub instructions: Arc<Instructions>,
    /// Seconds without a packet after which it ends; 0: never.
    pub idle_timeout_s: u16,
    /// Seconds after which it ends; 0: never.
    pub hard_timeout_s: u16,
    /// As the controller gave them.
    pub flags: FlowFlags,
    /// When it was added, ns of the caller's clock.
    pub added_ns: u64,
    pub(crate) counter: CounterId,
}

impl Flow {
    /// Whether it is the entry for all packets that no other entry of its table matches (OpenFlow 1.3.5, 5.4).
    #[must_use]
    pub fn is_table_miss(&self) -> bool {
        self.priority == 0 && self.matching.is_empty()
    }
}

/// Finds entries by the packets that they match. One hash table for each shape, those with the highest priorities first,
/// until none of the rest can win.
#[derive(Debug, Clone, Default)]
pub(crate) struct Classifier {
    shapes: Vec<Shape>,
    seed: Seed,
    len: usize,
}

/// Where an entry is, as long as its table does not change: from the left 8 bits of the table's number, 24 of the
/// shape's, and 32 of the place in that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place(u64);

impl Place {
    #[inline]
    pub fn new(table: u8, shape: usize, bucket: Bucket) -> Self {
        Self(u64::from(table) << 56 | (shape as u64) << 32 | u64::from(bucket))
    }

    #[inline]
    pub fn table(self) -> u8 {
        (self.0 >> 56) as u8
    }
}

impl Classifier {
    pub fn len(&self) -> usize {
        self.len
    }

    /// How many hash tables a packet may have to look into.
    pub fn shapes(&self) -> usize {
        self.shapes.len()
    }

    /// The words of a packet's key that count.
    pub fn words(&self) -> Words {
        self.shapes.iter().map(Shape::words).fold(0, |all, words| all | words)
    }

    /// The entry that counts for a packet, as the step of this table.
    #[inline]
    pub fn find(&self, table: u8, key: &FlowKey) -> Step {
        let mut best = Step::nothing(table);
        for (number, shape) in self.shapes.iter().enumerate() {
            if shape.top() <= best.brief.rank() {
                break;
            }
            let (bucket, brief) = shape.find(key);
            if brief.rank() > best.brief.rank() {
                best = Step { place: Place::new(table, number, bucket), brief };
            }
        }
        best
    }

    /// The entry at a place that a packet's look has found.
    #[inline]
    pub fn at(&self, Place(place): Place) -> Option<&Arc<Flow>> {
        self.shapes.get((place >> 32) as usize & 0xff_ffff)?.at(place as Bucket)
    }

    /// The entry with exactly this match and priority.
    pub fn get(&self, priority: u16, matching: &Match) -> Option<&Arc<Flow>> {
        let (mask, value) = compiled(matching.fields().iter().copied());
        self.shapes.iter().find(|shape| shape.is_of(&mask))?.get(&value, priority)
    }

    /// Adds an entry, in place of one with the same match and priority. Whether there is a new shape.
    pub fn insert(&mut self, flow: Arc<Flow>) -> bool {
        let (mask, value) = compiled(flow.matching.fields());
        let place = self.shapes.iter().position(|shape| shape.is_of(&mask));
        let number = place.unwrap_or_else(|| {
            self.shapes.push(Shape::new(mask, self.seed));
            self.shapes.len() - 1
        });
        let Some(shape) = self.shapes.get_mut(number) else { return false };
        if shape.get(&value, flow.priority).is_some() {
            shape.replace(&value, flow);
        } else {
            self.len += 1;
            shape.insert(&value, flow);
            self.order();
        }
        place.is_none()
    }

    /// Removes the entry with exactly this match and priority. Whether its shape goes with it.
    pub fn remove(&mut self, priority: u16, matching: &Match) -> bool {
        let (mask, value) = compiled(matching.fields().iter().copied());
        let Some(number) = self.shapes.iter().position(|shape| shape.is_of(&mask)) else { return false };
        let Some(shape) = self.shapes.get_mut(number) else { return false };
        if shape.remove(&value, priority).is_none() {
            return false;
        }
        self.len -= 1;
        let is_last = shape.is_empty();
        if is_last {
            self.shapes.remove(number);
        }
        self.order();
        is_last
    }

    fn order(&mut self) {
        if !self.shapes.is_sorted_by(|one, next| one.top() >= next.top()) {
            self.shapes.sort_by_key(|shape| std::cmp::Reverse(shape.top()));
        }
    }

    /// All entries, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Flow>> {
        self.shapes.iter().flat_map(Shape::flows)
    }
}

/// Whether every packet that `narrow` matches is matched by `wide` as well.
pub(crate) fn covers(wide: &Match, narrow: &PackedMatch) -> bool {
    wide.fields().iter().all(|wide| {
        narrow.get(wide.field).is_some_and(|narrow| {
            narrow.mask & wide.mask == wide.mask && narrow.value & wide.mask == wide.value
        })
    })
}

/// Whether one packet can be matched by both.
pub(crate) fn overlap(one: &PackedMatch, other: &Match) -> bool {
    let agrees =
        |one: &FieldMatch, other: &FieldMatch| (one.value ^ other.value) & one.mask & other.mask == 0;
    one.fields().all(|field| other.get(field.field).is_none_or(|other| agrees(&field, other)))
}
