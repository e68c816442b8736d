//! Limits on the connections of tools, and causes for which tools were refused.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::agent::SessionId;
use crate::session::SessionEnd;

/// Maximum number of connections of tools, separately for this machine and for TCP: peers who can reach a TCP address
/// cannot keep a local administrator out.
pub(crate) const MAX_TOOLS: usize = 64;
/// Maximum number of TCP connections from one address.
const MAX_OF_ADDRESS: usize = 16;

/// Reason why a tool's connection was refused, or ended by the switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalCause {
    /// The TLS handshake failed.
    Tls,
    /// The tool sent no hello in time.
    Greeting,
    /// The tool does not speak OpenFlow 1.3.
    Protocol,
    /// The tool sent nothing for a long time, and did not answer a probe.
    Silence,
    /// The tool did not read the replies that it had requested.
    Unread,
    /// There were too many connections from the tool's address.
    Address,
    /// There were too many connections from all addresses.
    TooMany,
}

impl RefusalCause {
    /// Name of the cause, for reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tls => "tls",
            Self::Greeting => "greeting",
            Self::Protocol => "protocol",
            Self::Silence => "silence",
            Self::Unread => "unread",
            Self::Address => "address",
            Self::TooMany => "crowd",
        }
    }

    pub(crate) fn of(ended: &SessionEnd) -> Self {
        match ended {
            SessionEnd::NotOpenFlow | SessionEnd::OtherVersion => Self::Protocol,
            SessionEnd::TooSlow => Self::Unread,
        }
    }
}

/// Refused tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RefusedTools {
    /// Number of refused tools, by cause.
    pub counts: BTreeMap<RefusalCause, u64>,
    /// Address of the last refused tool, and the reason.
    pub last: Option<String>,
}

impl RefusedTools {
    pub(crate) fn note(&mut self, cause: RefusalCause, from: Option<SocketAddr>, problem: &str) {
        *self.counts.entry(cause).or_default() += 1;
        let from = from.map_or_else(|| "this machine".to_owned(), |from| from.to_string());
        self.last = Some(format!("{from}: {problem}"));
    }
}

/// Description of the limit that a new connection would exceed.
pub(crate) fn limit_in_words(cause: RefusalCause) -> &'static str {
    match cause {
        RefusalCause::Address => "there are too many connections from this address",
        _ => "there are too many connections",
    }
}

/// Decision on a new client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AdmissionResult {
    /// The client is accepted: there is room.
    Free,
    /// The client replaces this connection, which ends for the cause.
    Of(SessionId, RefusalCause),
    /// The client is refused for the cause.
    None(RefusalCause),
}

/// Party of an address. All addresses in an IPv6 network of 64 bits count as one, since one party can have all of them.
fn party(from: SocketAddr) -> IpAddr {
    match from.ip().to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
        address => address,
    }
}

/// Decides on a new connection from an address. `links` has the existing connections in the order of their arrival:
/// their addresses, and whether they have sent a hello.
///
/// At a limit, a new connection replaces one from the same address without a hello. If the limit is the one for all
/// addresses, a connection of the address with the most connections may give way to one of an address with fewer.
pub(crate) fn admit(
    links: impl Iterator<Item = (SessionId, SocketAddr, bool)>,
    from: SocketAddr,
) -> AdmissionResult {
    let mut parties: BTreeMap<IpAddr, Vec<(bool, SessionId)>> = BTreeMap::new();
    let mut taken = 0;
    for (id, from, is_greeted) in links {
        parties.entry(party(from)).or_default().push((is_greeted, id));
        taken += 1;
    }
    let own = parties.get(&party(from)).map_or(&[][..], Vec::as_slice);
    let not_greeted = own.iter().find(|(is_greeted, _)| !is_greeted).map(|&(_, id)| id);
    let cause = match (own.len() >= MAX_OF_ADDRESS, taken >= MAX_TOOLS) {
        (true, _) => RefusalCause::Address,
        (_, true) => RefusalCause::TooMany,
        _ => return AdmissionResult::Free,
    };
    let of_most = || {
        let most = parties.values().max_by_key(|party| party.len())?;
        let gives_way = cause == RefusalCause::TooMany && most.len() > own.len() + 1;
        most.iter().min().filter(|_| gives_way).map(|&(_, id)| id)
    };
    not_greeted.or_else(of_most).map_or(AdmissionResult::None(cause), |id| AdmissionResult::Of(id, cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes numbered connections from these hosts; those with even numbers have sent a hello.
    fn links(hosts: impl IntoIterator<Item = IpAddr>) -> Vec<(SessionId, SocketAddr, bool)> {
        (0..)
            .zip(hosts)
            .map(|(id, host)| (id, SocketAddr::new(host, 1000 + id as u16), id % 2 == 0))
            .collect()
    }

    fn of(links: &[(SessionId, SocketAddr, bool)], from: &str) -> AdmissionResult {
        admit(links.iter().copied(), SocketAddr::new(from.parse().unwrap(), 9))
    }

    fn hosts(host: &str, number: usize) -> Vec<IpAddr> {
        vec![host.parse().unwrap(); number]
    }

    #[test]
    fn an_address_has_some_connections_and_who_has_not_greeted_gives_way() {
        assert_eq!(of(&links(hosts("10.0.0.1", 15)), "10.0.0.1"), AdmissionResult::Free);
        let full = links(hosts("10.0.0.1", 16));
        assert_eq!(of(&full, "10.0.0.1"), AdmissionResult::Of(1, RefusalCause::Address));
        assert_eq!(of(&full, "::ffff:10.0.0.1"), AdmissionResult::Of(1, RefusalCause::Address));
        assert_eq!(of(&full, "10.0.0.2"), AdmissionResult::Free);
        let greeted: Vec<_> = full.iter().map(|&(id, from, _)| (id, from, true)).collect();
        assert_eq!(of(&greeted, "10.0.0.1"), AdmissionResult::None(RefusalCause::Address));
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let many = links((0..16u16).map(|host| IpAddr::V6([0x2001, 0xdb8, 0, 7, host, 0, 0, 1].into())));
        assert_eq!(of(&many, "2001:db8:0:7::9"), AdmissionResult::Of(1, RefusalCause::Address));
        assert_eq!(of(&many, "2001:db8:0:8::9"), AdmissionResult::Free);
    }

    #[test]
    fn where_all_connections_are_taken_who_has_the_most_gives_way_to_who_has_fewer() {
        let four = links((1..=4).flat_map(|host| hosts(&format!("10.0.0.{host}"), 16)));
        assert!(matches!(of(&four, "10.0.0.9"), AdmissionResult::Of(_, RefusalCause::TooMany)));
        let each = links((1..=64).flat_map(|host| hosts(&format!("10.0.0.{host}"), 1)));
        assert_eq!(of(&each, "10.0.0.99"), AdmissionResult::None(RefusalCause::TooMany));
        let pairs = links((1..=32).flat_map(|host| hosts(&format!("10.0.0.{host}"), 2)));
        assert!(matches!(of(&pairs, "10.0.0.99"), AdmissionResult::Of(_, RefusalCause::TooMany)));
        assert_eq!(
            of(&pairs, "10.0.0.1"),
            AdmissionResult::Of(1, RefusalCause::TooMany),
            "its own that has not greeted"
        );
        let greeted: Vec<_> = pairs.iter().map(|&(id, from, _)| (id, from, true)).collect();
        assert_eq!(of(&greeted, "10.0.0.1"), AdmissionResult::None(RefusalCause::TooMany));
    }
}
