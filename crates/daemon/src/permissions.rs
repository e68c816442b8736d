//! Permissions. The socket's mode decides who may connect. This module decides everything else, by the kernel's report
//! of the peer's user.
//!
//! Every request that names a port is checked by [`Permissions::check`]: to open or bind it, to share its memory, to be
//! the other end of a pipe or attach a pipe to it, to read its state, to change or read data of its users.

use globset::{Glob, GlobMatcher};
use ringroad_control::message::ErrorKind;
use ringroad_control::peer::PeerCredentials;

use crate::config::Allow;
use crate::refusal::{Refusal, refuse};

/// The rules in force.
#[derive(Debug, Default)]
pub struct Permissions {
    own_uid: u32,
    rules: Vec<(GlobMatcher, Allow)>,
}

/// The state of a port when a request names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortAccess {
    /// The request makes the port, or the port waits for a program.
    Free {
        /// Whether the port is a device: devices belong to the machine.
        device: bool,
    },
    /// This user has made the port, and its memory with it.
    Of(u32),
}

impl Permissions {
    /// Compiles the rules of a checked configuration, for a daemon that runs as `own_uid`.
    #[must_use]
    pub fn new(own_uid: u32, allow: &[Allow]) -> Self {
        let rules = allow
            .iter()
            .filter_map(|rule| Some((Glob::new(&rule.port).ok()?.compile_matcher(), rule.clone())))
            .collect();
        Self { own_uid, rules }
    }

    /// Whether `peer` may change the daemon itself: attach, detach, reload, stop. The daemon's own user and root may do
    /// so.
    #[must_use]
    pub fn may_administer(&self, peer: PeerCredentials) -> bool {
        peer.uid == 0 || peer.uid == self.own_uid
    }

    /// Whether `peer` may have `port`.
    ///
    /// - A free port: if rules name the port, one of them must name the peer; if none does, every user who can connect
    ///   may have it, unless it is a device.
    /// - A port that a user has made: that user may have it, and users whom a rule names for exactly this port. A
    ///   pattern is not enough: permission to be on a switch must not give access to the memory of all its ports. Pipes
    ///   and monitors of a port follow the port's name too.
    #[must_use]
    pub fn may_have(&self, peer: PeerCredentials, port: &str, standing: PortAccess) -> bool {
        if self.may_administer(peer) {
            return true;
        }
        let names = |rule: &Allow| rule.uids.contains(&peer.uid) || rule.gids.contains(&peer.gid);
        match standing {
            PortAccess::Free { device } => {
                let mut of_port = self.rules.iter().filter(|(pattern, _)| pattern.is_match(port)).peekable();
                match of_port.peek() {
                    Some(_) => of_port.any(|(_, rule)| names(rule)),
                    None => !device,
                }
            }
            PortAccess::Of(uid) => uid == peer.uid || self.rules_of(port).any(names),
        }
    }

    /// Checks that [`Self::may_have`] grants the port.
    ///
    /// # Errors
    /// The refusal to send.
    pub fn check(&self, peer: PeerCredentials, port: &str, standing: PortAccess) -> Result<(), Refusal> {
        if self.may_have(peer, port, standing) {
            return Ok(());
        }
        let (message, advice) = match standing {
            PortAccess::Free { .. } => (
                format!("user {} may not open port {port:?}", peer.uid),
                "an [[allow]] rule of the daemon's configuration names who may",
            ),
            PortAccess::Of(_) => (
                format!("user {} may not have port {port:?}, which belongs to another user", peer.uid),
                "an [[allow]] rule with this very name and no pattern would let users share it and its memory",
            ),
        };
        Err(refuse(ErrorKind::PermissionDenied, message, advice))
    }

    /// Whether a rule lets others share exactly this port once `peer` has it.
    #[must_use]
    pub fn is_shared(&self, peer: PeerCredentials, port: &str) -> bool {
        self.rules_of(port).any(|rule| !rule.gids.is_empty() || rule.uids.iter().any(|&uid| uid != peer.uid))
    }

    /// The rules for exactly this port, or for the port to which it belongs.
    fn rules_of<'a>(&'a self, port: &'a str) -> impl Iterator<Item = &'a Allow> {
        let parent = port.split(['{', '}']).next().unwrap_or(port);
        self.rules.iter().map(|(_, rule)| rule).filter(move |rule| rule.port == port || rule.port == parent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: PortAccess = PortAccess::Free { device: false };
    const DEVICE: PortAccess = PortAccess::Free { device: true };

    fn peer(uid: u32, gid: u32) -> PeerCredentials {
        PeerCredentials { pid: Some(1), uid, gid }
    }

    fn allow(port: &str, uids: &[u32], gids: &[u32]) -> Allow {
        Allow { port: port.into(), uids: uids.into(), gids: gids.into() }
    }

    #[test]
    fn a_port_with_a_rule_is_for_the_rules_users_and_administrators() {
        let permissions = Permissions::new(900, &[allow("vale0:*", &[1000], &[50])]);
        assert!(permissions.may_have(peer(1000, 1), "vale0:a", FREE));
        assert!(permissions.may_have(peer(1001, 50), "vale0:a", FREE));
        assert!(!permissions.may_have(peer(1001, 1), "vale0:a", FREE));
        assert!(permissions.may_have(peer(1001, 1), "vale1:a", FREE), "no rule names it");
        assert!(!permissions.may_have(peer(1001, 1), "eth0", DEVICE), "a device is for those named only");
        assert!(permissions.may_have(peer(900, 1), "vale0:a", FREE));
        assert!(permissions.may_have(peer(0, 0), "vale0:a", FREE));
        assert!(!permissions.may_administer(peer(1000, 50)));
    }

    #[test]
    fn only_owner_and_administrators_may_have_an_open_port() {
        let permissions = Permissions::new(900, &[allow("vale0:*", &[1000, 1001], &[])]);
        let of = PortAccess::Of(1000);
        assert!(permissions.may_have(peer(1000, 1), "vale0:a", of));
        assert!(!permissions.may_have(peer(1001, 1), "vale0:a", of), "a pattern shares no memory");
        assert!(!permissions.may_have(peer(1002, 1), "vale1:a", of));
        assert!(permissions.may_have(peer(900, 1), "vale0:a", of));
        assert!(permissions.may_have(peer(0, 0), "vale0:a", of));
        let refusal = permissions.check(peer(1001, 1), "vale0:a", of).unwrap_err();
        assert_eq!(refusal.kind, ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_rule_for_an_exact_port_name_shares_the_port_and_its_pipes() {
        let permissions = Permissions::new(900, &[allow("vale0:a", &[1001], &[50])]);
        for port in ["vale0:a", "vale0:a{1", "vale0:a}1"] {
            assert!(permissions.may_have(peer(1001, 1), port, PortAccess::Of(1000)), "{port}");
            assert!(permissions.may_have(peer(1002, 50), port, PortAccess::Of(1000)), "{port}");
            assert!(!permissions.may_have(peer(1002, 1), port, PortAccess::Of(1000)), "{port}");
            assert!(permissions.is_shared(peer(1001, 1), port), "with a group");
        }
        assert!(!permissions.may_have(peer(1001, 1), "vale0:ab", PortAccess::Of(1000)));
        assert!(!permissions.is_shared(peer(0, 0), "vale0:ab"));
        let permissions = Permissions::new(900, &[allow("eth0", &[1001], &[])]);
        assert!(!permissions.is_shared(peer(1001, 1), "eth0"), "with no other user");
        assert!(permissions.is_shared(peer(0, 0), "eth0"));
    }
}
