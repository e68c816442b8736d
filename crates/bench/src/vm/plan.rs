//! What a comparison of switches between guests measures.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::contestant::CorePair;
use crate::error::BenchError;
use crate::plan::FRAME_SIZES_BYTES;

/// The sizes that decide, FCS included: where the cost of a frame shows, and where that of its bytes does.
const DECISIVE_SIZES_BYTES: [u32; 2] = [64, 1518];

/// What stands between the generator's two ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Topology {
    /// Guest, switch, guest: the generator is both guests.
    V2v,
    /// Generator, switch, guest, switch, generator: the guest sends what comes at one of its ports out at the other.
    Pvp,
}

impl Topology {
    /// The ports of the switch. The two of a pair reach each other and nobody else.
    pub(super) const fn port_pairs(self) -> &'static [[SwitchPort; 2]] {
        use SwitchPort::{Generator, Guest};
        match self {
            Self::V2v => &[[Generator(0), Generator(1)]],
            Self::Pvp => &[[Generator(0), Guest(0)], [Generator(1), Guest(1)]],
        }
    }

    /// For people.
    pub(super) const fn in_words(self) -> &'static str {
        match self {
            Self::V2v => "v2v: guest, switch, guest",
            Self::Pvp => "pvp: generator, switch, guest, switch, generator",
        }
    }
}

/// A port of the switch, by who is behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SwitchPort {
    /// A port of the generator.
    Generator(usize),
    /// A port of the guest that forwards.
    Guest(usize),
}

impl fmt::Display for SwitchPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Generator(number) => write!(f, "outer{number}"),
            Self::Guest(number) => write!(f, "guest{number}"),
        }
    }
}

/// Which CPU everybody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct VmCores {
    /// The generator's.
    pub generator: usize,
    /// The switch's.
    pub switch: usize,
    /// The forwarding guest's, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest: Option<usize>,
    /// Whether that is the generator's too: then each waits for the other, and no goal is judged.
    pub guest_shares_core: bool,
}

impl VmCores {
    /// The lowest of `cpus`; `shared` puts the guest on the generator's.
    ///
    /// # Errors
    /// [`BenchError::TooFewCpus`], or [`BenchError::NoCpuForGuest`] where sharing would help.
    pub fn lowest_of(cpus: &[usize], topology: Topology, shared: bool) -> Result<Self, BenchError> {
        let pair = CorePair::lowest_of(cpus)?;
        let guest = match (topology, cpus.get(2)) {
            (Topology::V2v, _) => None,
            (Topology::Pvp, _) if shared => Some(pair.first),
            (Topology::Pvp, Some(third)) => Some(*third),
            (Topology::Pvp, None) => return Err(BenchError::NoCpuForGuest { allowed: cpus.len() }),
        };
        let guest_shares_core = guest == Some(pair.first);
        Ok(Self { generator: pair.first, switch: pair.second, guest, guest_shares_core })
    }
}

/// What is measured, and how.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VmPlan {
    /// What stands between the generator's ports.
    pub topology: Topology,
    /// Frame sizes, FCS included.
    pub sizes_bytes: Vec<u32>,
    /// Turns of each switch.
    pub repeat: u32,
    /// Length of a trial.
    #[serde(rename = "trial_seconds", serialize_with = "crate::plan::as_seconds")]
    pub trial: Duration,
    /// Length of the look at a switch without traffic.
    #[serde(rename = "idle_seconds", serialize_with = "crate::plan::as_seconds")]
    pub idle: Duration,
    /// Share of the frames that a trial may lose.
    pub loss_ratio: f64,
    /// Width of the throughput found, as a share of it.
    pub precision: f64,
    /// Whether Open vSwitch is measured with action NORMAL too.
    pub ovs_normal: bool,
}

impl Default for VmPlan {
    fn default() -> Self {
        Self {
            topology: Topology::V2v,
            sizes_bytes: DECISIVE_SIZES_BYTES.to_vec(),
            repeat: 3,
            trial: Duration::from_millis(500),
            idle: Duration::from_secs(1),
            loss_ratio: 0.0,
            precision: 0.05,
            ovs_normal: false,
        }
    }
}

impl VmPlan {
    /// With every size of RFC 2544.
    #[must_use]
    pub fn full() -> Self {
        Self { sizes_bytes: FRAME_SIZES_BYTES.to_vec(), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forwarding_guest_takes_a_third_cpu_or_shares_the_generators_where_that_is_wanted() {
        let cores = |cpus: &[usize], topology, shared| VmCores::lowest_of(cpus, topology, shared);
        let three = cores(&[1, 4, 6, 7], Topology::Pvp, false).unwrap();
        assert_eq!((three.generator, three.switch, three.guest), (1, 4, Some(6)));
        assert!(!three.guest_shares_core);
        let shared = cores(&[1, 4], Topology::Pvp, true).unwrap();
        assert_eq!((shared.switch, shared.guest, shared.guest_shares_core), (4, Some(1), true));
        assert_eq!(cores(&[1, 4, 6], Topology::Pvp, true).unwrap(), shared);
        let error = cores(&[1, 4], Topology::Pvp, false).unwrap_err();
        assert!(matches!(error, BenchError::NoCpuForGuest { allowed: 2 }), "{error}");
        assert!(matches!(cores(&[1], Topology::Pvp, true), Err(BenchError::TooFewCpus { .. })));
        let v2v = cores(&[1, 4], Topology::V2v, false).unwrap();
        assert_eq!((v2v.guest, v2v.guest_shares_core), (None, false));
    }

    #[test]
    fn frames_of_the_generator_reach_its_other_port_only_through_the_guest() {
        for pair in Topology::Pvp.port_pairs() {
            assert!(
                matches!(pair, [SwitchPort::Generator(outer), SwitchPort::Guest(inner)] if outer == inner)
            );
        }
    }
}
