//! Designs: what the firmware of a card can do. A card has one at a time, and booting it loads another.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::settings::MAX_CHANNELS;

/// A design that cards can boot.
#[derive(Debug, PartialEq, Eq)]
pub struct CardDesign {
    /// Name of the firmware.
    pub name: &'static str,
    /// Version of the firmware, where the source states one.
    pub version: Option<&'static str>,
    /// Greatest number of channels of a direction.
    pub channels: u16,
    /// Whether it has a filter, which `filterctl` sets on cards.
    pub has_filter: bool,
    /// Whether the distribution over channels can be set, by `hanicctl` on cards. Without that, channels take turns.
    pub has_distribution: bool,
}

/// Names of [`DESIGNS`], in the same order.
pub const DESIGN_NAMES: [&str; 3] = ["RINGROAD", "NIC_100G1_LR4", "HANIC_100G1_LR4"];

/// All designs. The first has everything that a card in software can do. The others are the firmware of the published
/// measurements: of the paper and of the thesis "DPDK nad síťovými kartami COMBO" (table 5.1), without what has no
/// meaning in software.
pub static DESIGNS: [CardDesign; 3] = [
    CardDesign {
        name: DESIGN_NAMES[0],
        version: Some(env!("CARGO_PKG_VERSION")),
        channels: MAX_CHANNELS,
        has_filter: true,
        has_distribution: true,
    },
    CardDesign {
        name: DESIGN_NAMES[1],
        version: None,
        channels: 8,
        has_filter: false,
        has_distribution: false,
    },
    CardDesign {
        name: DESIGN_NAMES[2],
        version: Some("4.1"),
        channels: 8,
        has_filter: true,
        has_distribution: true,
    },
];

impl CardDesign {
    /// The design of this name.
    ///
    /// # Errors
    /// There is none, in words for the user.
    pub fn of_name(name: &str) -> Result<&'static Self, String> {
        DESIGNS
            .iter()
            .find(|design| design.name == name)
            .ok_or_else(|| format!("design {name:?}: choose {}", DESIGN_NAMES.join(", ")))
    }

    /// Fails if the design does not have what a request sets.
    ///
    /// # Errors
    /// Text for the user: the missing property.
    pub fn expect(&self, has: bool, what: &str) -> Result<(), String> {
        if has {
            return Ok(());
        }
        Err(format!("the card's design {} has no {what}: boot another one (`ringroad sze2 boot`)", self.name))
    }

    /// The design, for messages.
    #[must_use]
    pub fn info(&self) -> DesignInfo {
        DesignInfo {
            name: self.name.to_owned(),
            version: self.version.map(str::to_owned),
            channels: self.channels,
            filter: self.has_filter,
            distribution: self.has_distribution,
        }
    }
}

/// The design of a card, in messages and reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesignInfo {
    /// Name of the firmware.
    pub name: String,
    /// Version of the firmware, if it is known.
    pub version: Option<String>,
    /// Greatest number of channels of a direction.
    pub channels: u16,
    /// Whether it has a filter.
    pub filter: bool,
    /// Whether the distribution over channels can be set.
    pub distribution: bool,
}

impl fmt::Display for DesignInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        self.version.as_ref().map_or(Ok(()), |version| write!(f, " {version}"))
    }
}
