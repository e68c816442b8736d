//! Selects the channel of a frame.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};
use serde::{Deserialize, Serialize};

use super::flow_key::{HashKey, IpKey};

/// Rule by which frames are spread over channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DistributionMode {
    /// All channels take turns.
    #[default]
    RoundRobin,
    /// All frames of a flow go to one channel.
    Hash,
    /// All frames of both directions of a flow go to one channel.
    SymmetricHash,
}

impl fmt::Display for DistributionMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for DistributionMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name: StrDeserializer<'_, Error> = text.into_deserializer();
        Self::deserialize(name).map_err(|_| format!("{text:?}: choose round-robin, hash or symmetric-hash"))
    }
}

/// Distribution of frames over channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelDistribution {
    /// Rule by which frames are spread.
    pub spread: DistributionMode,
    /// Whether protocol and ports are part of a flow's identity, in addition to the addresses. If not, all frames
    /// between two hosts are one flow, fragments included.
    pub ports: bool,
}

impl Default for ChannelDistribution {
    fn default() -> Self {
        Self { spread: DistributionMode::default(), ports: true }
    }
}

impl ChannelDistribution {
    /// Selects a channel from the mask `channels`; `None` if the mask is empty. `turn` counts the frames spread in
    /// turn.
    #[inline]
    #[must_use]
    pub fn channel(&self, key: Option<&HashKey>, channels: u32, turn: &mut u32) -> Option<u8> {
        let count = channels.count_ones();
        let number = match (self.spread, count) {
            (_, 0) => return None,
            (_, 1) => 0,
            (DistributionMode::RoundRobin, _) => {
                *turn = turn.wrapping_add(1);
                *turn % count
            }
            (spread, _) => {
                let hash = key.map_or(0, |key| self.hash(key, spread == DistributionMode::SymmetricHash));
                // The upper half of the hash selects the channel, evenly for any number of channels.
                (((hash >> 32) * u64::from(count)) >> 32) as u32
            }
        };
        nth_channel(channels, number)
    }

    fn hash(&self, key: &HashKey, is_symmetric: bool) -> u64 {
        let Some(ip) = &key.ip else {
            let ends = [key.source, key.destination].map(station_number);
            return mix(
                mix(u64::from(key.ethertype), u64::from(key.vlan.unwrap_or(0))),
                of_ends(ends, is_symmetric),
            );
        };
        let IpKey { source, destination, protocol, ports } = *ip;
        let (source_port, destination_port) = ports.filter(|_| self.ports).unwrap_or_default();
        let ends = [(source, source_port), (destination, destination_port)]
            .map(|(address, port)| mix(address_number(address), u64::from(port)));
        let protocol = if self.ports { protocol } else { 0 };
        mix(u64::from(protocol), of_ends(ends, is_symmetric))
    }
}

fn of_ends([source, destination]: [u64; 2], is_symmetric: bool) -> u64 {
    if is_symmetric && source > destination { mix(destination, source) } else { mix(source, destination) }
}

fn station_number([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

fn address_number(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            mix((bits >> 64) as u64, bits as u64)
        }
    }
}

/// Mixes two numbers to one. Every bit of either changes about half of the bits of the result.
#[inline]
fn mix(one: u64, other: u64) -> u64 {
    // An odd number without a pattern: the fractional part of the golden ratio.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let product = u128::from(one ^ STEP) * u128::from(other.wrapping_add(STEP) | 1);
    let folded = (product as u64) ^ (product >> 64) as u64;
    (folded ^ folded >> 29).wrapping_mul(STEP)
}

/// Channel number `number` among those in the mask.
#[inline]
fn nth_channel(channels: u32, number: u32) -> Option<u8> {
    let mut rest = channels;
    for _ in 0..number {
        rest &= rest.wrapping_sub(1);
    }
    (rest != 0).then(|| rest.trailing_zeros() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(source: u32, destination: u32, ports: (u16, u16)) -> HashKey {
        let ip = IpKey {
            source: IpAddr::from(source.to_be_bytes()),
            destination: IpAddr::from(destination.to_be_bytes()),
            protocol: 17,
            ports: Some(ports),
        };
        HashKey { destination: [2; 6], source: [4; 6], vlan: None, tags: 0, ethertype: 0x0800, ip: Some(ip) }
    }

    #[test]
    fn modes_have_one_name_for_users_and_messages() {
        for (mode, name) in [
            (DistributionMode::RoundRobin, "round-robin"),
            (DistributionMode::Hash, "hash"),
            (DistributionMode::SymmetricHash, "symmetric-hash"),
        ] {
            assert_eq!((mode.to_string().as_str(), name.parse()), (name, Ok(mode)));
        }
        let refused = "Hash".parse::<DistributionMode>().unwrap_err();
        assert_eq!(refused, "\"Hash\": choose round-robin, hash or symmetric-hash");
    }

    #[test]
    fn round_robin_gives_each_channel_as_many_frames() {
        let (distribution, mut turn) = (ChannelDistribution::default(), 0);
        let mut counts = [0; 32];
        for _ in 0..300 {
            let channel = distribution.channel(None, 0b1000_0101, &mut turn).unwrap();
            counts[usize::from(channel)] += 1;
        }
        assert_eq!((counts[0], counts[2], counts[7]), (100, 100, 100));
        assert_eq!(distribution.channel(None, 0, &mut turn), None);
    }

    #[test]
    fn a_hash_keeps_flows_together_and_spreads_them() {
        let distribution = ChannelDistribution { spread: DistributionMode::Hash, ports: true };
        let mut counts = [0u32; 8];
        for flow in 0..8000u32 {
            let key = key(0x0a00_0001 + flow / 100, 0x0a00_0101, (1024 + (flow % 100) as u16, 80));
            let channel = distribution.channel(Some(&key), 0xff, &mut 0);
            assert_eq!(channel, distribution.channel(Some(&key), 0xff, &mut 9));
            counts[usize::from(channel.unwrap())] += 1;
        }
        // The bounds are ten standard deviations of an even spread (30 each).
        assert!(counts.iter().all(|count| (700..1300).contains(count)), "{counts:?}");
    }

    #[test]
    fn only_the_symmetric_hash_keeps_both_directions_together() {
        let both = |spread, flow: u16| {
            let distribution = ChannelDistribution { spread, ports: true };
            let there = key(0x0a00_0001, 0x0a00_0002, (flow, 80));
            let back = key(0x0a00_0002, 0x0a00_0001, (80, flow));
            [there, back].map(|key| distribution.channel(Some(&key), u32::MAX, &mut 0))
        };
        assert!((0..200).all(|flow| both(DistributionMode::SymmetricHash, flow)[0]
            == both(DistributionMode::SymmetricHash, flow)[1]));
        assert!(
            (0..200)
                .any(|flow| both(DistributionMode::Hash, flow)[0] != both(DistributionMode::Hash, flow)[1])
        );
    }

    #[test]
    fn without_ports_two_hosts_have_one_flow() {
        let distribution = ChannelDistribution { spread: DistributionMode::Hash, ports: false };
        let channels: Vec<_> = (0..50)
            .map(|port| distribution.channel(Some(&key(1, 2, (port, port))), u32::MAX, &mut 0))
            .collect();
        assert!(channels.iter().all(|channel| channel == &channels[0]));
    }

    #[test]
    fn frames_without_a_key_still_get_a_channel() {
        let distribution = ChannelDistribution { spread: DistributionMode::Hash, ports: true };
        assert!(distribution.channel(None, 0b1010, &mut 0).is_some());
    }
}
