//! Who may do what. Who may connect is the socket's mode; what is left is decided here, by the kernel's word on who
//! the peer is.

use globset::{Glob, GlobMatcher};
use ringroad_control::peer::PeerCredentials;

use crate::config::Allow;

/// The rules in force.
#[derive(Debug, Default)]
pub struct Permissions {
    own_uid: u32,
    rules: Vec<(GlobMatcher, Allow)>,
}

impl Permissions {
    /// The rules of a checked configuration, for a daemon that runs as `own_uid`.
    #[must_use]
    pub fn new(own_uid: u32, allow: &[Allow]) -> Self {
        let rules = allow
            .iter()
            .filter_map(|rule| Some((Glob::new(&rule.port).ok()?.compile_matcher(), rule.clone())))
            .collect();
        Self { own_uid, rules }
    }

    /// Whether `peer` may change the daemon itself: attach, detach, reload, stop. The daemon's own user and root may.
    #[must_use]
    pub fn may_administer(&self, peer: PeerCredentials) -> bool {
        peer.uid == 0 || peer.uid == self.own_uid
    }

    /// Whether `peer` may open `port`: where rules name the port one of them must name the peer; where none does,
    /// whoever may connect may open it, unless it is a device: these are the machine's.
    #[must_use]
    pub fn may_open(&self, peer: PeerCredentials, port: &str, device: bool) -> bool {
        if self.may_administer(peer) {
            return true;
        }
        let mut named = false;
        for (pattern, rule) in &self.rules {
            if pattern.is_match(port) {
                if rule.uids.contains(&peer.uid) || rule.gids.contains(&peer.gid) {
                    return true;
                }
                named = true;
            }
        }
        !named && !device
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(uid: u32, gid: u32) -> PeerCredentials {
        PeerCredentials { pid: Some(1), uid, gid }
    }

    #[test]
    fn a_named_port_is_for_those_named_and_the_daemons_user() {
        let rule = Allow { port: "vale0:*".into(), uids: vec![1000], gids: vec![50] };
        let permissions = Permissions::new(900, &[rule]);
        assert!(permissions.may_open(peer(1000, 1), "vale0:a", false));
        assert!(permissions.may_open(peer(1001, 50), "vale0:a", false));
        assert!(!permissions.may_open(peer(1001, 1), "vale0:a", false));
        assert!(permissions.may_open(peer(1001, 1), "vale1:a", false), "no rule names it");
        assert!(!permissions.may_open(peer(1001, 1), "eth0", true), "a device is for those named only");
        assert!(permissions.may_open(peer(900, 1), "vale0:a", false));
        assert!(permissions.may_open(peer(0, 0), "vale0:a", false));
        assert!(!permissions.may_administer(peer(1000, 50)));
    }
}
