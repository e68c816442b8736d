//! How much of netmap each user may have at a time. What it takes of memory is counted with the regions.

use rustix::io::Errno;

use super::failure::{Failure, fail};
use super::name::PortKey;
use super::{Asker, Netmap};

/// What is counted by user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    Devices,
    Ports,
    Pipes,
    Monitors,
}

impl Counted {
    /// What it is called, and how many a user may have.
    fn limit(self) -> (&'static str, usize) {
        match self {
            Self::Devices => ("netmap devices", 1024),
            Self::Ports => ("netmap ports", 256),
            Self::Pipes => ("netmap pipes", 256),
            Self::Monitors => ("netmap monitors", 256),
        }
    }

    /// As what a port counts. The two ends of a pipe are one pipe.
    fn of(key: &PortKey) -> Option<Self> {
        match key {
            PortKey::Pipe { master, .. } => master.then_some(Self::Pipes),
            PortKey::Monitor { .. } => Some(Self::Monitors),
            _ => Some(Self::Ports),
        }
    }
}

impl Netmap {
    /// Refuses one more where the user has as many as allowed; administrators have no limit.
    pub(crate) fn check_quota(&self, asker: Asker<'_>, what: Counted) -> Result<(), Failure> {
        let peer = asker.client.peer;
        let has = match what {
            Counted::Devices => self.devices.values().filter(|device| device.uid == peer.uid).count(),
            _ => {
                let of_user = self.ports.iter().filter(|(_, port)| port.owner.peer.uid == peer.uid);
                of_user.filter(|(key, _)| Counted::of(key) == Some(what)).count()
            }
        };
        let (name, most) = what.limit();
        if has < most || asker.permissions.may_administer(peer) {
            return Ok(());
        }
        Err(fail(Errno::NOMEM, format!("user {} has {has} {name}, which is all that one may have", peer.uid)))
    }
}
