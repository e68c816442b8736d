//! Settings that limit what a port may send into its switch and get from it: VLANs, isolation, storm limit.

use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::vlan_set::VlanSet;

/// Valid storm limits, frames/s.
pub const STORM_LIMITS: RangeInclusive<u32> = 1..=10_000_000;

/// The settings of a port of a switch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct PortSettings {
    /// VLANs of the port.
    pub vlans: PortVlans,
    /// Whether the port exchanges frames only with ports that are not isolated.
    pub isolated: bool,
    /// Limit of the frames/s from this port that go to several ports: broadcast, multicast, unknown addresses.
    pub storm: Option<u32>,
}

/// The VLANs of a port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PortVlans {
    /// No VLANs are configured. A tagged frame belongs to the VLAN in its tag. A frame without a tag belongs to no
    /// VLAN, and only ports of this kind exchange such frames.
    #[default]
    Unset,
    /// The port's frames have no tags, and belong to this VLAN.
    Access(u16),
    /// The port's frames have the tags of these VLANs.
    Trunk {
        /// VLANs whose frames have tags.
        tagged: VlanSet,
        /// VLAN whose frames have no tags.
        native: Option<u16>,
    },
}

impl PortSettings {
    /// Whether these settings include all that `asked` sets.
    #[must_use]
    pub fn has_all_of(&self, asked: &Self) -> bool {
        (asked.vlans == PortVlans::Unset || asked.vlans == self.vlans)
            && (!asked.isolated || self.isolated)
            && (asked.storm.is_none() || asked.storm == self.storm)
    }

    /// Whether no setting is set.
    #[must_use]
    pub fn is_unset(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for PortVlans {
    /// Formats the settings as the options of a port's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unset => f.write_str("no VLAN"),
            Self::Access(vlan) => write!(f, "vlan={vlan}"),
            Self::Trunk { tagged, native: None } => write!(f, "trunk={tagged}"),
            Self::Trunk { tagged, native: Some(native) } => write!(f, "trunk={tagged},native={native}"),
        }
    }
}

impl fmt::Display for PortSettings {
    /// Formats the VLANs as the options of a port's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let vlans = (self.vlans != PortVlans::Unset).then(|| self.vlans.to_string());
        let isolated = self.isolated.then(|| "isolated".to_owned());
        let storm = self.storm.map(|limit| format!("storm={limit}"));
        let all: Vec<_> = [vlans, isolated, storm].into_iter().flatten().collect();
        f.write_str(&all.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_shown_as_options() {
        let trunk = PortVlans::Trunk { tagged: "10,20-29".parse().unwrap(), native: Some(5) };
        let all = PortSettings { vlans: trunk, isolated: true, storm: Some(100) };
        assert_eq!(all.to_string(), "trunk=10,20-29,native=5,isolated,storm=100");
        assert!(!all.is_unset());
        assert_eq!(PortSettings::default().to_string(), "");
        assert!(PortSettings::default().is_unset());
    }
}
