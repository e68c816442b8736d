//! The settings of a card.

use std::fmt;
use std::str::FromStr;

use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};
use serde::{Deserialize, Serialize};

use super::design::CardDesign;
use super::distribution::ChannelDistribution;
use super::filter::CardFilter;
use super::program_rule::ProgramRules;
use crate::segment::MAX_FRAME_BYTES;

/// Greatest number of channels of a direction: masks have 32 bits (libsze2).
pub const MAX_CHANNELS: u16 = 32;
/// Greatest number of station addresses of an input buffer.
pub const MAX_ADDRESSES: usize = 32;

/// Destination addresses that an input buffer accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressCheck {
    /// All addresses.
    #[default]
    Promiscuous,
    /// The addresses listed.
    Listed,
    /// The listed addresses and broadcast.
    Broadcast,
    /// The listed addresses, broadcast and multicast.
    Multicast,
}

impl AddressCheck {
    /// All checks, in the order of their numbers in the register.
    pub const ALL: [Self; 4] = [Self::Promiscuous, Self::Listed, Self::Broadcast, Self::Multicast];
}

impl fmt::Display for AddressCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for AddressCheck {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name: StrDeserializer<'_, Error> = text.into_deserializer();
        Self::deserialize(name)
            .map_err(|_| format!("{text:?}: choose promiscuous, listed, broadcast or multicast"))
    }
}

/// The settings of an input buffer (IBUF).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IbufSettings {
    /// Whether the input buffer lets in frames.
    pub enabled: bool,
    /// Check of the destination address.
    pub address_check: AddressCheck,
    /// Addresses that all checks except [`AddressCheck::Promiscuous`] accept. The first is the card's own.
    pub addresses: Vec<[u8; 6]>,
    /// Shortest frame, bytes without FCS.
    pub min_frame_bytes: u32,
    /// Longest frame, bytes without FCS.
    pub max_frame_bytes: u32,
}

impl IbufSettings {
    /// Settings that let in all frames. The card's own address is `address`.
    #[must_use]
    pub fn new(address: [u8; 6]) -> Self {
        Self {
            enabled: true,
            address_check: AddressCheck::default(),
            addresses: vec![address],
            min_frame_bytes: 0,
            max_frame_bytes: MAX_FRAME_BYTES as u32,
        }
    }

    /// Checks that the settings make sense.
    ///
    /// # Errors
    /// The wrong setting, in words for the user.
    pub fn check(&self) -> Result<(), String> {
        if self.addresses.len() > MAX_ADDRESSES {
            return Err(format!(
                "{} addresses: an input buffer lists {MAX_ADDRESSES} at most",
                self.addresses.len()
            ));
        }
        if self.addresses.iter().any(|address| address[0] & 1 == 1) {
            return Err("an address of a group cannot be listed: choose the check `multicast`".to_owned());
        }
        if self.max_frame_bytes as usize > MAX_FRAME_BYTES || self.min_frame_bytes > self.max_frame_bytes {
            return Err(format!(
                "frames from {} to {} bytes: choose lengths from 0 to {MAX_FRAME_BYTES}, the first no greater than the second",
                self.min_frame_bytes, self.max_frame_bytes
            ));
        }
        Ok(())
    }
}

/// All settings of a card.
#[derive(Debug, Clone)]
pub struct CardSettings {
    /// Design that the card has booted.
    pub design: &'static CardDesign,
    /// Settings of the input buffer.
    pub ibuf: IbufSettings,
    /// Whether the output buffer (OBUF) lets out frames.
    pub obuf_enabled: bool,
    /// Rules of programs, which come before the filter.
    pub rules: ProgramRules,
    /// Filter, which selects the channels that may get an accepted frame.
    pub filter: CardFilter,
    /// Distribution, which selects the frame's channel among them.
    pub distribution: ChannelDistribution,
    /// Whether frames come with [`super::metadata::FrameInfo`].
    pub timestamps: bool,
}

impl CardSettings {
    /// Settings of a card with `channels` channels that has just booted `design`. Its own address is `address`.
    #[must_use]
    pub fn new(design: &'static CardDesign, channels: u16, address: [u8; 6], timestamps: bool) -> Self {
        Self {
            design,
            ibuf: IbufSettings::new(address),
            obuf_enabled: true,
            rules: ProgramRules::default(),
            filter: CardFilter::all(channels.min(design.channels)),
            distribution: ChannelDistribution::default(),
            timestamps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_checks_have_one_name_for_users_and_messages() {
        for (check, name) in
            AddressCheck::ALL.into_iter().zip(["promiscuous", "listed", "broadcast", "multicast"])
        {
            assert_eq!((check.to_string().as_str(), name.parse()), (name, Ok(check)));
        }
        let refused = "all".parse::<AddressCheck>().unwrap_err();
        assert_eq!(refused, "\"all\": choose promiscuous, listed, broadcast or multicast");
    }
}
