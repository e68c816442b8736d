//! Offloads of an interface, and their switches: checksums left to the card, segmentation and merging of segments, VLAN
//! tags taken out.
//!
//! A program that takes frames before the stack does sees the effects of offloads: partial checksums, frames longer
//! than the MTU, missing tags.

use std::collections::BTreeMap;

use crate::error::NetdevError;
use crate::ethtool_message::{ask, bit_changes, bits};

// Commands and attributes of linux/ethtool_netlink.h.
const FEATURES_GET: u8 = 11;
const FEATURES_SET: u8 = 12;
const FEATURES_HW: u16 = 2;
const FEATURES_WANTED: u16 = 3;
const FEATURES_ACTIVE: u16 = 4;
const FEATURES_NOCHANGE: u16 = 5;

/// A group of features that serve one purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Offload {
    /// Checksums of sent packets are left to the card. A veth leaves them out altogether.
    TxChecksum,
    /// TCP segments longer than the MTU are left to the card.
    Tso,
    /// Segmentation happens late, in software.
    Gso,
    /// Received segments are merged by the kernel.
    Gro,
    /// Received segments are merged by the card.
    Lro,
    /// VLAN tags are taken out of received frames.
    RxVlan,
    /// VLAN tags of sent frames are left to the card.
    TxVlan,
}

impl Offload {
    /// Features of the offload, by the kernel's names (net/ethtool/common.c).
    #[must_use]
    pub fn features(self) -> &'static [&'static str] {
        match self {
            Self::TxChecksum => &[
                "tx-checksum-ipv4",
                "tx-checksum-ip-generic",
                "tx-checksum-ipv6",
                "tx-checksum-fcoe-crc",
                "tx-checksum-sctp",
            ],
            Self::Tso => &[
                "tx-tcp-segmentation",
                "tx-tcp-ecn-segmentation",
                "tx-tcp-mangleid-segmentation",
                "tx-tcp6-segmentation",
            ],
            Self::Gso => &["tx-generic-segmentation"],
            Self::Gro => &["rx-gro"],
            Self::Lro => &["rx-lro", "rx-gro-hw"],
            Self::RxVlan => &["rx-vlan-hw-parse", "rx-vlan-stag-hw-parse"],
            Self::TxVlan => &["tx-vlan-hw-insert", "tx-vlan-stag-hw-insert"],
        }
    }
}

/// The state of one feature of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FeatureState {
    /// Whether the feature is in effect.
    pub on: bool,
    /// Whether the feature is requested. It can still be off because another feature that it needs is off.
    pub wanted: bool,
    /// Whether the state can be changed.
    pub changeable: bool,
}

/// A requested state of a feature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureSetting {
    /// The kernel's name, as in `ethtool -k`.
    pub feature: String,
    /// Whether the feature should be on.
    pub on: bool,
}

/// The features of an interface by the kernel's names. The map lacks features that the interface neither has nor can
/// have.
pub type NetdevFeatures = BTreeMap<String, FeatureState>;

/// The features of `interface`.
///
/// # Errors
/// [`NetdevError`], for example if there is no such interface.
pub fn features(interface: &str) -> Result<NetdevFeatures, NetdevError> {
    let operation = || format!("read the features of {interface}");
    let answer = ask(interface, FEATURES_GET, &[], "features", &operation)?;
    let mut features = NetdevFeatures::new();
    for name in bits(&answer, FEATURES_ACTIVE) {
        features.entry(name).or_default().on = true;
    }
    for name in bits(&answer, FEATURES_WANTED) {
        features.entry(name).or_default().wanted = true;
    }
    for name in bits(&answer, FEATURES_HW) {
        features.entry(name).or_default().changeable = true;
    }
    for name in bits(&answer, FEATURES_NOCHANGE) {
        features.entry(name).or_default().changeable = false;
    }
    Ok(features)
}

/// Whether any feature of `offload` is on.
///
/// # Errors
/// [`NetdevError`], for example if there is no such interface.
pub fn is_on(interface: &str, offload: Offload) -> Result<bool, NetdevError> {
    let features = features(interface)?;
    Ok(offload.features().iter().any(|&name| features.get(name).is_some_and(|feature| feature.on)))
}

/// Switches every feature of `offload` that the interface has, and returns what [`set_features`] needs to undo it. The
/// result is empty if no change was needed. An offload that the interface lacks is off already.
///
/// # Errors
/// [`NetdevError::FeatureFixed`] if a feature stays on, or none can be switched on. Needs `CAP_NET_ADMIN`.
pub fn set_offload(interface: &str, offload: Offload, on: bool) -> Result<Vec<FeatureSetting>, NetdevError> {
    let features = features(interface)?;
    let mut differing = Vec::new();
    let mut fixed = None;
    let mut any_as_asked = false;
    for &name in offload.features() {
        let state = features.get(name).copied().unwrap_or_default();
        any_as_asked |= state.on == on;
        if state.on != on && state.changeable {
            differing.push(name);
        } else if state.on != on {
            fixed = fixed.or(Some(name));
        }
    }
    // Off means that no feature is on. On means that all features that the interface can have are on.
    if let Some(name) = fixed
        && (!on || (differing.is_empty() && !any_as_asked))
    {
        return Err(NetdevError::FeatureFixed {
            interface: interface.to_owned(),
            feature: name.to_owned(),
            on: !on,
        });
    }
    let settings = |on| differing.iter().map(|&name| setting(name, on)).collect::<Vec<_>>();
    set_features(interface, &settings(on))?;
    Ok(settings(!on))
}

/// Sets features by the kernel's names and checks the result. It is not an error if a fixed feature already has the
/// requested state, or if a feature to be switched off does not exist.
///
/// # Errors
/// [`NetdevError::FeatureFixed`] if a feature does not have the requested state; other features may have changed.
/// [`NetdevError::NoFeature`] if a feature to be switched on does not exist; no feature has changed then. Needs
/// `CAP_NET_ADMIN`.
pub fn set_features(interface: &str, settings: &[FeatureSetting]) -> Result<(), NetdevError> {
    if settings.is_empty() {
        return Ok(());
    }
    let before = features(interface)?;
    if let Some(unknown) =
        settings.iter().find(|setting| setting.on && !before.contains_key(&setting.feature))
    {
        return Err(NetdevError::NoFeature {
            interface: interface.to_owned(),
            feature: unknown.feature.clone(),
        });
    }
    let known = settings.iter().filter(|setting| before.contains_key(&setting.feature));
    let wanted = bit_changes(FEATURES_WANTED, known.map(|setting| (setting.feature.as_str(), setting.on)));
    ask(interface, FEATURES_SET, &[wanted], "changeable features", &|| {
        format!("set the features of {interface}")
    })?;
    let after = features(interface)?;
    let state_of = |name: &str| after.get(name).copied().unwrap_or_default();
    match settings.iter().find(|setting| state_of(&setting.feature).on != setting.on) {
        None => Ok(()),
        Some(unmet) => Err(NetdevError::FeatureFixed {
            interface: interface.to_owned(),
            feature: unmet.feature.clone(),
            on: !unmet.on,
        }),
    }
}

fn setting(feature: &str, on: bool) -> FeatureSetting {
    FeatureSetting { feature: feature.to_owned(), on }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link_change::{VethEnd, create_veth};
    use crate::test_namespace::in_new_namespace;

    #[test]
    fn checksum_offload_switches_with_its_dependent_features() {
        in_new_namespace(|| {
            create_veth(VethEnd::here("va"), VethEnd::here("vb")).unwrap();
            assert!(is_on("va", Offload::TxChecksum).unwrap());
            let untouched = features("va").unwrap();

            let undo = set_offload("va", Offload::TxChecksum, false).unwrap();
            assert!(undo.contains(&setting("tx-checksum-ip-generic", true)), "{undo:?}");
            assert!(!is_on("va", Offload::TxChecksum).unwrap());
            let tso = features("va").unwrap()["tx-tcp-segmentation"];
            assert_eq!(tso, FeatureState { on: false, wanted: true, changeable: true }, "it needs checksums");
            assert!(is_on("vb", Offload::TxChecksum).unwrap(), "the other end is another interface");
            assert_eq!(
                set_offload("va", Offload::TxChecksum, false).unwrap(),
                [],
                "nothing is left to change"
            );

            let alone =
                set_offload("va", Offload::Tso, false).and_then(|_| set_offload("va", Offload::Tso, true));
            assert!(matches!(alone, Err(NetdevError::FeatureFixed { on: false, .. })), "{alone:?}");

            set_features("va", &undo).unwrap();
            assert_eq!(features("va").unwrap(), untouched);
        });
    }

    #[test]
    fn each_offload_a_veth_has_is_switched() {
        in_new_namespace(|| {
            create_veth(VethEnd::here("va"), VethEnd::here("vb")).unwrap();
            for offload in [
                Offload::Tso,
                Offload::Gso,
                Offload::Gro,
                Offload::RxVlan,
                Offload::TxVlan,
                Offload::TxChecksum,
            ] {
                for on in [true, false, true] {
                    set_offload("va", offload, on).unwrap();
                    assert_eq!(is_on("va", offload).unwrap(), on, "{offload:?}");
                }
            }
        });
    }

    #[test]
    fn an_unswitchable_offload_is_named() {
        in_new_namespace(|| {
            create_veth(VethEnd::here("va"), VethEnd::here("vb")).unwrap();
            assert_eq!(set_offload("va", Offload::Lro, false).unwrap(), [], "it has none");
            let lro = set_offload("va", Offload::Lro, true).unwrap_err().to_string();
            assert!(lro.starts_with("va keeps rx-lro off"), "{lro}");
            let fixed = set_offload("lo", Offload::TxChecksum, false).unwrap_err().to_string();
            assert!(fixed.starts_with("lo keeps tx-checksum-ip-generic on"), "{fixed}");
            let unknown = set_features("va", &[setting("rx-all-of-it", true)]).unwrap_err().to_string();
            assert!(unknown.starts_with("va has no feature rx-all-of-it"), "{unknown}");
            assert!(set_offload("vc", Offload::Gro, false).unwrap_err().is_no_interface());
        });
    }
}
