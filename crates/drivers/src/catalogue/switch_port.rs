//! Options that only ports of a switch have. They are the values of [`PortSettings`].

use ringroad_port::port_settings::{PortSettings, PortVlans, STORM_LIMITS};
use ringroad_port::vlan_set::VLAN_IDS;

use super::port_option::{OptionValues, PortOption, ValueKind};

const VLAN_ID: ValueKind =
    ValueKind::Number { least: *VLAN_IDS.start() as u64, most: *VLAN_IDS.end() as u64 };
const VLAN: PortOption = PortOption::new(
    "vlan",
    VLAN_ID,
    "none",
    "access port: its frames have no tags, and are of this VLAN; frames with tags are dropped",
);
const TRUNK: PortOption = PortOption::new(
    "trunk",
    ValueKind::Vlans,
    "none",
    "its frames have the tags of these VLANs; all others are dropped",
);
const NATIVE: PortOption =
    PortOption::new("native", VLAN_ID, "none", "of a trunk: the VLAN whose frames have no tags");
const ISOLATED: PortOption = PortOption::new(
    "isolated",
    ValueKind::Flag,
    "0",
    "it exchanges frames only with ports that are not isolated",
);
const STORM: PortOption = PortOption::new(
    "storm",
    ValueKind::Number { least: *STORM_LIMITS.start() as u64, most: *STORM_LIMITS.end() as u64 },
    "no limit",
    "how many frames/s it may send that go to several ports: broadcast, multicast, unknown addresses",
);

/// Options of every port of a switch beside those of all ports.
pub const SWITCH_PORT_OPTIONS: [&PortOption; 5] = [&VLAN, &TRUNK, &NATIVE, &ISOLATED, &STORM];

/// Settings that follow from these options.
///
/// # Errors
/// The given options contradict each other.
pub(crate) fn settings(given: &OptionValues) -> Result<PortSettings, String> {
    let tagged = given.text(&TRUNK).map(str::parse).transpose()?;
    let vlans = match (given.number(&VLAN), tagged, given.number(&NATIVE)) {
        (Some(_), Some(_), _) => {
            return Err("vlan makes an access port and trunk a trunk: choose one of them".into());
        }
        (_, None, Some(_)) => {
            return Err("native is the VLAN of a trunk's frames without tags: give trunk, too".into());
        }
        (Some(vlan), None, None) => PortVlans::Access(vlan),
        (None, Some(tagged), native) => PortVlans::Trunk { tagged, native },
        (None, None, None) => PortVlans::Unset,
    };
    let isolated = given.flag(&ISOLATED).unwrap_or_default();
    Ok(PortSettings { vlans, isolated, storm: given.number(&STORM) })
}
