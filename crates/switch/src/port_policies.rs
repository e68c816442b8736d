//! Settings of a switch's ports, in the form that its forwarding planes need.

use std::sync::Arc;

use ringroad_port::port_index::{MAX_PORTS, PortIndex, PortMask};
use ringroad_port::port_settings::{PortSettings, PortVlans};
use ringroad_port::token_bucket::TokenBucket;
use ringroad_port::vlan_set::VLAN_IDS;

use crate::port_set::PortSet;
use crate::vlan_tag::TaggedHeader;

/// VLAN number that stands for no VLAN.
pub(crate) const NO_VLAN: u16 = 0;

/// Settings of one port, with the state of its storm limit, which all workers share.
#[derive(Debug, Clone)]
pub struct PortPolicy {
    settings: PortSettings,
    storm: Option<Arc<TokenBucket>>,
}

impl PortPolicy {
    /// Policy with these settings, and with an unused storm limit.
    #[must_use]
    pub fn new(settings: PortSettings) -> Self {
        let storm = settings.storm.map(|limit| Arc::new(TokenBucket::new(limit.into(), None)));
        Self { settings, storm }
    }

    /// Settings of the port.
    #[must_use]
    pub fn settings(&self) -> &PortSettings {
        &self.settings
    }
}

/// The ports of a VLAN.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Members {
    /// Ports whose frames of this VLAN have its tag.
    pub(crate) tagged: PortMask,
    /// Ports whose frames of this VLAN have no tag.
    pub(crate) untagged: PortMask,
}

impl Members {
    pub(crate) fn contains(&self, port: PortIndex) -> bool {
        self.tagged.contains(port) || self.untagged.contains(port)
    }

    pub(crate) fn but(self, ports: PortMask) -> Self {
        Self { tagged: self.tagged.but(ports), untagged: self.untagged.but(ports) }
    }
}

/// VLAN of a port's frames without a tag, and whether the port has frames with a tag.
#[derive(Debug, Clone, Copy)]
struct Entrance {
    untagged: Option<u16>,
    takes_tags: bool,
}

/// Settings of all ports of a switch. The value is never changed: new settings make a new value.
#[derive(Debug)]
pub struct PortPolicies {
    entrances: Box<[Entrance; MAX_PORTS]>,
    /// Index of each VLAN in `members`.
    indexes: Box<[u16]>,
    members: Vec<Members>,
    /// Ports whose VLANs are set.
    in_vlans: PortMask,
    isolated: PortMask,
    storms: Vec<(PortIndex, Arc<TokenBucket>)>,
}

/// Adds a port to the members of a VLAN.
type Add<'a> = &'a mut dyn FnMut(u16, fn(&mut Members) -> &mut PortMask);

fn each_membership(vlans: &PortVlans, add: Add<'_>) {
    match vlans {
        PortVlans::Unset => {}
        PortVlans::Access(vlan) => add(*vlan, |members| &mut members.untagged),
        PortVlans::Trunk { tagged, native } => {
            tagged
                .iter()
                .filter(|vlan| Some(*vlan) != *native)
                .for_each(|vlan| add(vlan, |members| &mut members.tagged));
            if let Some(native) = native {
                add(*native, |members| &mut members.untagged);
            }
        }
    }
}

impl PortPolicies {
    /// Policies of these ports.
    #[must_use]
    pub fn new<'a>(ports: impl Iterator<Item = (PortIndex, &'a PortPolicy)>) -> Self {
        let unset = Entrance { untagged: Some(NO_VLAN), takes_tags: true };
        let mut entrances = Box::new([unset; MAX_PORTS]);
        let mut of_vlans = vec![Members::default(); usize::from(*VLAN_IDS.end()) + 1];
        let (mut in_vlans, mut isolated) = (PortMask::EMPTY, PortMask::EMPTY);
        let mut storms = Vec::new();
        for (port, policy) in ports {
            let PortSettings { vlans, isolated: is_isolated, storm: _ } = &policy.settings;
            let entrance = match vlans {
                PortVlans::Unset => unset,
                PortVlans::Access(vlan) => Entrance { untagged: Some(*vlan), takes_tags: false },
                PortVlans::Trunk { native, .. } => Entrance { untagged: *native, takes_tags: true },
            };
            if let Some(entry) = entrances.get_mut(usize::from(port.0)) {
                *entry = entrance;
            }
            each_membership(vlans, &mut |vlan, mask| {
                if let Some(members) = of_vlans.get_mut(usize::from(vlan)) {
                    mask(members).insert(port);
                }
            });
            if *vlans != PortVlans::Unset {
                in_vlans.insert(port);
            }
            if *is_isolated {
                isolated.insert(port);
            }
            storms.extend(policy.storm.clone().map(|limit| (port, limit)));
        }
        // Most VLANs share their members with other VLANs.
        let mut members: Vec<Members> = Vec::new();
        let indexes = of_vlans.into_iter().map(|of_vlan| {
            let known = members.iter().position(|members| *members == of_vlan);
            known.unwrap_or_else(|| {
                members.push(of_vlan);
                members.len() - 1
            }) as u16
        });
        let indexes = indexes.collect();
        Self { entrances, indexes, members, in_vlans, isolated, storms }
    }

    /// Whether some port's VLANs are set: if not, tags are part of a frame's content.
    #[inline]
    #[must_use]
    pub fn has_vlans(&self) -> bool {
        !self.in_vlans.is_empty()
    }

    /// Whether some setting applies to frames of the port `from`.
    #[inline]
    pub(crate) fn concern(&self, from: PortIndex) -> bool {
        self.has_vlans() || self.isolated.contains(from) || self.storm_limit(from).is_some()
    }

    /// Ports of a VLAN among `ports`, which are the switch's ports.
    pub(crate) fn members(&self, vlan: u16, ports: &PortSet) -> Members {
        let Some(set) = self.set(vlan) else { return Members::default() };
        let ports = ports.mask();
        let unset = ports.but(self.in_vlans);
        let (tagged, untagged) = match vlan {
            NO_VLAN => (set.tagged, set.untagged.or(unset)),
            _ => (set.tagged.or(unset), set.untagged),
        };
        Members { tagged: tagged.and(ports), untagged: untagged.and(ports) }
    }

    /// VLAN of a frame from a port; `None` if the port has no such frames.
    pub(crate) fn vlan_of(&self, frame: &TaggedHeader, from: PortIndex) -> Option<u16> {
        let entrance = self.entrances.get(usize::from(from.0))?;
        match frame.vlan() {
            None => entrance.untagged,
            Some(vlan) => Some(vlan).filter(|&vlan| entrance.takes_tags && self.is_in(vlan, from)),
        }
    }

    fn is_in(&self, vlan: u16, port: PortIndex) -> bool {
        let members = self.set(vlan);
        members.is_some_and(|members| members.contains(port) || !self.in_vlans.contains(port))
    }

    /// Ports of a VLAN whose settings name it; `None`: there is no such VLAN.
    fn set(&self, vlan: u16) -> Option<&Members> {
        self.members.get(usize::from(*self.indexes.get(usize::from(vlan))?))
    }

    /// Ports that get no frames from `from`, because both ports are isolated.
    #[inline]
    pub(crate) fn kept_from(&self, from: PortIndex) -> PortMask {
        if self.isolated.contains(from) { self.isolated } else { PortMask::EMPTY }
    }

    /// Storm limit of a port.
    #[inline]
    pub(crate) fn storm_limit(&self, port: PortIndex) -> Option<&TokenBucket> {
        self.storms.iter().find(|(of, _)| *of == port).map(|(_, limit)| &**limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(ports: &[u8]) -> PortMask {
        ports.iter().copied().map(PortIndex).collect()
    }

    #[test]
    fn ports_are_in_the_vlans_that_their_settings_name() {
        let trunk = |tagged: &str, native| PortVlans::Trunk { tagged: tagged.parse().unwrap(), native };
        let policies: Vec<_> =
            [PortVlans::Access(10), trunk("10,20", None), trunk("all", Some(10)), PortVlans::Unset]
                .map(|vlans| PortPolicy::new(PortSettings { vlans, ..PortSettings::default() }))
                .into();
        let policies = PortPolicies::new((0..).map(PortIndex).zip(&policies));
        let ports = PortSet::new();
        (0..6).for_each(|port| assert!(ports.insert(PortIndex(port))));
        for (vlan, tagged, untagged) in [
            (0, &[][..], &[3, 4, 5][..]),
            (10, &[1, 3, 4, 5], &[0, 2]),
            (20, &[1, 2, 3, 4, 5], &[]),
            (30, &[2, 3, 4, 5], &[]),
            (4095, &[], &[]),
        ] {
            let members = policies.members(vlan, &ports);
            assert_eq!(members, Members { tagged: mask(tagged), untagged: mask(untagged) }, "{vlan}");
        }
        assert!(ports.remove(PortIndex(0)));
        assert_eq!(policies.members(10, &ports).untagged, mask(&[2]), "a port that has left is not a member");
        assert!(policies.has_vlans());
    }

    #[test]
    fn isolated_ports_are_kept_from_each_other() {
        let isolated = PortPolicy::new(PortSettings { isolated: true, ..PortSettings::default() });
        let policies = PortPolicies::new([1, 3].into_iter().map(|port| (PortIndex(port), &isolated)));
        assert_eq!(policies.kept_from(PortIndex(1)), mask(&[1, 3]));
        assert_eq!(policies.kept_from(PortIndex(2)), PortMask::EMPTY);
        assert!(!policies.has_vlans());
    }
}
