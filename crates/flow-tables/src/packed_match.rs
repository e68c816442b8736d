//! A match in a few bytes, since tables may have millions of entries.

use ringroad_openflow::oxm::{FieldMatch, Match, OxmField};

/// A packed match: the number of each field, its value, and its mask unless that has all bits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PackedMatch(Box<[u8]>);

/// Bit in a field's number: a mask follows.
const HAS_MASK: u8 = 0x80;

impl From<&Match> for PackedMatch {
    fn from(matching: &Match) -> Self {
        let mut bytes = Vec::new();
        for &FieldMatch { field, value, mask } in matching.fields() {
            let has_mask = mask != field.all_ones();
            bytes.push(field as u8 | if has_mask { HAS_MASK } else { 0 });
            for part in [Some(value), has_mask.then_some(mask)].into_iter().flatten() {
                bytes.extend(part.to_be_bytes().iter().skip(16 - field.bytes()));
            }
        }
        Self(bytes.into())
    }
}

impl PackedMatch {
    /// Fields by number.
    pub fn fields(&self) -> impl Iterator<Item = FieldMatch> {
        let mut rest = &*self.0;
        std::iter::from_fn(move || {
            let (&first, mut behind) = rest.split_first()?;
            let field = OxmField::from_number(first & !HAS_MASK)?;
            let mut part = || {
                let (bytes, others) = behind.split_at_checked(field.bytes())?;
                behind = others;
                Some(bytes.iter().fold(0, |value, &byte| value << 8 | u128::from(byte)))
            };
            let value = part()?;
            let mask = if first & HAS_MASK == 0 { field.all_ones() } else { part()? };
            rest = behind;
            Some(FieldMatch { field, value, mask })
        })
    }

    /// Match of one field; `None` if the field is not matched.
    #[must_use]
    pub fn get(&self, field: OxmField) -> Option<FieldMatch> {
        self.fields().find(|matched| matched.field == field)
    }

    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Whether the match fits all packets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Unpacks the match, to be read and sent.
    #[must_use]
    pub fn to_match(&self) -> Match {
        // The packed match was made from a valid one, so its fields have their prerequisites.
        Match::new(self.fields()).unwrap_or_default()
    }
}
