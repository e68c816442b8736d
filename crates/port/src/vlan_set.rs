//! Sets of VLANs, as users write them.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use ringroad_wire::serde_as_text;

/// Valid VLAN numbers (IEEE 802.1Q; 0 and 4095 have other meanings in a tag).
pub const VLAN_IDS: RangeInclusive<u16> = 1..=4094;

/// Text that stands for every VLAN, in place of a list.
const ALL: &str = "all";

/// Set of VLANs: `10,20-30`, or `all`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct VlanSet(
    /// First and last of each range: ascending, with a gap between ranges.
    Vec<(u16, u16)>,
);

impl VlanSet {
    /// Set of every VLAN.
    #[must_use]
    pub fn all() -> Self {
        Self(vec![(*VLAN_IDS.start(), *VLAN_IDS.end())])
    }

    /// The VLANs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().flat_map(|&(first, last)| first..=last)
    }

    /// Whether a VLAN is in the set.
    #[must_use]
    pub fn contains(&self, vlan: u16) -> bool {
        self.0.iter().any(|&(first, last)| (first..=last).contains(&vlan))
    }

    /// Whether the set contains every VLAN.
    #[must_use]
    pub fn is_all(&self) -> bool {
        *self == Self::all()
    }
}

fn vlan(text: &str) -> Result<u16, String> {
    // The number parser would accept a sign.
    let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let number = digits.and_then(|text| text.parse().ok()).filter(|number| VLAN_IDS.contains(number));
    number.ok_or_else(|| format!("{text:?} is not a VLAN: write a number from 1 to 4094"))
}

impl FromStr for VlanSet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == ALL {
            return Ok(Self::all());
        }
        let mut ranges = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = (vlan(first)?, vlan(last)?);
            if range.0 > range.1 {
                return Err(format!("{part:?} begins behind its end"));
            }
            ranges.push(range);
        }
        ranges.sort_unstable();
        let mut merged: Vec<(u16, u16)> = Vec::new();
        for (first, last) in ranges {
            match merged.last_mut() {
                Some((_, end)) if first <= *end + 1 => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        Ok(Self(merged))
    }
}

impl fmt::Display for VlanSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_all() {
            return f.write_str(ALL);
        }
        for (index, (first, last)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

serde_as_text!(VlanSet);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_list_without_sense_is_refused() {
        for text in ["", "0", "4095", "10,", "10,,20", "20-10", "10-", "-10", "a", "10 ", "+5", "all,10"] {
            assert!(text.parse::<VlanSet>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn ranges_that_touch_are_one() {
        for (text, shown) in [
            ("20,10", "10,20"),
            ("10-12,13,12", "10-13"),
            ("1-4094", "all"),
            ("all", "all"),
            ("5-9,1-20,30", "1-20,30"),
        ] {
            assert_eq!(text.parse::<VlanSet>().unwrap().to_string(), shown);
        }
        assert!(VlanSet::all().is_all() && !VlanSet::default().is_all());
    }

    proptest! {
        #[test]
        fn a_set_has_the_numbers_of_its_list(
            ranges in prop::collection::vec((1u16..=4094, 0u16..6), 1..6),
        ) {
            let ranges: Vec<_> = ranges.iter().map(|&(first, more)| (first, (first + more).min(4094))).collect();
            let text = ranges.iter().map(|(first, last)| format!("{first}-{last}")).collect::<Vec<_>>().join(",");
            let set: VlanSet = text.parse().unwrap();
            let expected: BTreeSet<u16> = ranges.iter().flat_map(|&(first, last)| first..=last).collect();
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), expected.iter().copied().collect::<Vec<_>>());
            prop_assert!((0..=4095).all(|vlan| set.contains(vlan) == expected.contains(&vlan)));
            prop_assert_eq!(set.to_string().parse::<VlanSet>().unwrap(), set);
        }
    }
}
