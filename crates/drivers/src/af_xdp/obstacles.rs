//! Reasons against the modes of AF_XDP on an interface, from the reports of its driver, without opening it.

use ringroad_netdev::link::LinkInfo;
use ringroad_netdev::xdp_features::XdpFeatures;
use ringroad_ring::geometry::CHUNK_HEADROOM_BYTES;

use super::{
    AfXdpMode, Attach, Attempt, COPY_CHUNK_BYTES, FRAME_OVERHEAD_BYTES, ZERO_COPY_CHUNK_BYTES, most_uncut_mtu,
};

/// Reason why a mechanism cannot serve an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// The reason, as text for users.
    pub reason: String,
    /// Advice to the user, who can remove the obstacle by it.
    pub remedy: String,
}

/// Defect of native mode on the interface of `link`, although its driver has the mode. The matrix of
/// `docs/interfaces.md` found it.
pub(crate) fn native_defect(link: &LinkInfo) -> Option<&'static str> {
    // The program runs at the members, whose frames the kernel gives to no socket of the bond (xsk_rcv_check of
    // net/xdp/xsk.c).
    (link.kind.as_deref() == Some("bond")).then_some("a bond's sockets get no frames of its members")
}

/// Names of the modes, best first, each with the obstacle on the interface of `link`, if one is known. A driver can
/// refuse a mode for further reasons.
pub(crate) fn obstacles(
    link: &LinkInfo,
    features: Option<XdpFeatures>,
) -> impl Iterator<Item = (&'static str, Option<Obstacle>)> {
    let attempts = Attempt::all(AfXdpMode::Auto, false, false, false).into_iter();
    attempts.map(move |attempt| (attempt.name(), obstacle(attempt, link, features)))
}

fn obstacle(attempt: Attempt, link: &LinkInfo, features: Option<XdpFeatures>) -> Option<Obstacle> {
    let against =
        |reason: &str, remedy: &str| Some(Obstacle { reason: reason.to_owned(), remedy: remedy.to_owned() });
    let defect = native_defect(link);
    let one_buffer = |most: u32| {
        let LinkInfo { name, mtu, .. } = link;
        (*mtu > most).then(|| Obstacle {
            reason: format!(
                "its driver puts each frame into one buffer, so the MTU can be {most}, not {mtu}"
            ),
            remedy: format!("`ip link set dev {name} mtu {most}`"),
        })
    };
    match (attempt.attach, attempt.zero_copy, features) {
        (Attach::Native, true, None) if link.kind.is_some() => {
            against("before Linux 6.3 virtual interfaces have no zero copy", "use a newer kernel")
        }
        (Attach::Native, true, Some(features)) if !features.has_zero_copy() => against(
            "its driver has no zero copy",
            "drivers that have it: i40e, ice, ixgbe, mlx5_core, igc; from Linux 6.14 igb and virtio_net",
        ),
        (Attach::Native, true, Some(features)) if features.zero_copy_buffers() == 1 => {
            one_buffer(most_uncut_mtu(ZERO_COPY_CHUNK_BYTES))
        }
        (Attach::Native, false, Some(features)) if !features.has_native() => {
            against("its driver has no native XDP", "for more speed take an interface whose driver has it")
        }
        (Attach::Native, false, _) if defect.is_some() => against(
            defect.unwrap_or_default(),
            "for more speed take an interface whose native mode gives whole frames",
        ),
        (Attach::Native, false, Some(features)) if !features.has_several_buffers() => {
            let chunk = if features.has_zero_copy() { ZERO_COPY_CHUNK_BYTES } else { COPY_CHUNK_BYTES };
            one_buffer(chunk - CHUNK_HEADROOM_BYTES - FRAME_OVERHEAD_BYTES)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_mode_is_refused_where_it_gives_no_whole_frames() {
        let mut bond = LinkInfo::default();
        bond.kind = Some("bond".to_owned());
        let named = obstacles(&bond, None).find_map(|(mode, obstacle)| {
            obstacle.filter(|_| mode == "copy, native").map(|obstacle| obstacle.reason)
        });
        assert_eq!(named.as_deref(), native_defect(&bond));
        assert!(named.is_some());
        assert_eq!(native_defect(&LinkInfo::default()), None);
    }
}
