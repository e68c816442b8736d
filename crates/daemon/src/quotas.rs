//! Users' shares of common resources: memory, switches, ports, queues, pipes, devices.
//!
//! Each region, port, queue, pipe and device carries a reservation. Switches, and ports of one switch, are counted when
//! a user requests one. Only the total limits bind root and the daemon's own user, and a part of the total is reserved
//! for them.

use std::sync::Arc;

use ringroad_control::message::ErrorKind;
use ringroad_control::peer::PeerCredentials;
use ringroad_datapath::fabric::MAX_SWITCHES;
use ringroad_port::port_index::MAX_PORTS;
use ringroad_ring::ledger::{ChargedUser, Ledger, LedgerLimits, LimitError, Reservation};
use rustix::process::{Resource, getrlimit};

use crate::config;
use crate::port_entries::Client;
use crate::refusal::{Refusal, refuse};

/// Number of descriptors that a queue takes: two eventfds, each with a handle at the port and one at the datapath.
const DESCRIPTORS_PER_QUEUE: u64 = 4;

/// The part of its user's share that a port, pipe or device takes while it exists.
#[derive(Debug, Default)]
pub struct Holding {
    _reservations: Vec<Reservation>,
}

/// Demand for resources other than memory.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Demand {
    pub(crate) ports: u64,
    pub(crate) queues: u64,
    pub(crate) pipes: u64,
    pub(crate) devices: u64,
}

impl Demand {
    /// Demand of a port of a switch.
    pub(crate) fn of_port(queues: u16) -> Self {
        Self { ports: 1, queues: queues.into(), ..Self::default() }
    }

    /// The demand of a device.
    pub(crate) fn of_device(queues: u16) -> Self {
        Self { devices: 1, queues: queues.into(), ..Self::default() }
    }
}

/// The ledgers of all shared resources.
#[derive(Debug)]
pub struct Quotas {
    own_uid: u32,
    pub(crate) memory: Arc<Ledger>,
    ports: Arc<Ledger>,
    queues: Arc<Ledger>,
    pipes: Arc<Ledger>,
    devices: Arc<Ledger>,
    /// Maximum number of switches on which one user may have ports, and of switches that all ordinary users together
    /// may make.
    switches: [usize; 2],
    /// Maximum number of ports on one switch for one user, and for all ordinary users together.
    ports_of_switch: [usize; 2],
}

impl Quotas {
    /// Creates the quotas of a configuration, for a daemon that runs as `own_uid`. Nothing is held.
    #[must_use]
    pub fn new(limits: &config::LimitsConfig, own_uid: u32) -> Self {
        let part = |total: u64| (u128::from(total) * u128::from(limits.reserve_percent) / 100) as u64;
        let ledger = |total: u64, user: u64| Ledger::new(LedgerLimits { total, user, reserve: part(total) });
        let memory = match limits.shared_memory_mib {
            0 => config::memory_bytes() / 2,
            mib => mib << 20,
        };
        let of_user = match limits.user_shared_memory_mib {
            0 => memory / 2,
            mib => mib << 20,
        };
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        // Half of the descriptors is left for connections and memory, and for duplicates on their way to programs.
        let queues = descriptors / 2 / DESCRIPTORS_PER_QUEUE;
        let open_ended = |user: u32| ledger(u64::MAX, user.into());
        let (switches, ports) = (MAX_SWITCHES as u64, MAX_PORTS as u64);
        Self {
            own_uid,
            memory: ledger(memory, of_user),
            ports: open_ended(limits.user_ports),
            queues: ledger(queues, limits.user_queues.into()),
            pipes: open_ended(limits.user_pipes),
            devices: open_ended(limits.user_devices),
            switches: [limits.user_switches as usize, (switches - part(switches)) as usize],
            ports_of_switch: [limits.user_ports_of_switch as usize, (ports - part(ports)) as usize],
        }
    }

    fn is_privileged(&self, peer: PeerCredentials) -> bool {
        peer.uid == 0 || peer.uid == self.own_uid
    }

    /// The payer of a client's memory.
    pub(crate) fn memory_payer(&self, client: &Client) -> ChargedUser {
        ChargedUser::new(&self.memory, client.peer.uid, self.is_privileged(client.peer))
    }

    /// Payer of memory for the daemon's own devices: the daemon's own user.
    pub(crate) fn own_payer(&self) -> ChargedUser {
        ChargedUser::new(&self.memory, self.own_uid, true)
    }

    /// Reserves a part of the client's share.
    ///
    /// # Errors
    /// The refusal to send, which names the limit; nothing is held then.
    pub(crate) fn hold(&self, client: &Client, demand: Demand) -> Result<Holding, Refusal> {
        let Demand { ports, queues, pipes, devices } = demand;
        let mut holding = Holding::default();
        for (ledger, amount, what) in [
            (&self.ports, ports, "ports"),
            (&self.queues, queues, "queues"),
            (&self.pipes, pipes, "pipes"),
            (&self.devices, devices, "devices"),
        ] {
            if amount > 0 {
                let payer = ChargedUser::new(ledger, client.peer.uid, self.is_privileged(client.peer));
                let reservation =
                    payer.reserve(amount).map_err(|error| refuse_claim(what, ledger.limits(), error))?;
                holding._reservations.push(reservation);
            }
        }
        Ok(holding)
    }

    /// Checks that a client may have one more port on a switch. `owners` are the ports of all switches, each as its
    /// switch and its user; ports of one switch are consecutive.
    ///
    /// # Errors
    /// The refusal to send, which names the limit.
    pub(crate) fn check_switch<'a>(
        &self,
        client: &Client,
        switch: &str,
        owners: impl Iterator<Item = (&'a str, Option<u32>)>,
    ) -> Result<(), Refusal> {
        if self.is_privileged(client.peer) {
            return Ok(());
        }
        let uid = client.peer.uid;
        let (mut on_this, mut own_on_this, mut switches, mut own_switches) = (0, 0, 0, 0);
        let (mut last, mut last_own) = (None, None);
        for (name, owner) in owners {
            let own = owner == Some(uid);
            on_this += usize::from(name == switch);
            own_on_this += usize::from(own && name == switch);
            if last.replace(name) != Some(name) {
                switches += 1;
            }
            if own && last_own.replace(name) != Some(name) {
                own_switches += 1;
            }
        }
        let full = |message: String, advice: &str| Err(refuse(ErrorKind::TooManyPorts, message, advice));
        let [most_of_user, most] = self.ports_of_switch;
        if own_on_this >= most_of_user {
            return full(
                format!(
                    "user {uid} has {own_on_this} ports on switch {switch}, which is all a user may have"
                ),
                "close some, use another switch, or raise limits.user_ports_of_switch",
            );
        }
        if on_this >= most {
            return full(
                format!("switch {switch} has {on_this} ports; the rest is for administrators"),
                "close some, use another switch, or lower limits.reserve_percent",
            );
        }
        let [most_of_user, most] = self.switches;
        if own_on_this == 0 && own_switches >= most_of_user {
            return full(
                format!("user {uid} has ports on {own_switches} switches, which is all a user may have"),
                "use fewer switches, or raise limits.user_switches",
            );
        }
        if on_this == 0 && switches >= most {
            return full(
                format!("{switches} switches exist; the rest is for administrators"),
                "use one that exists, or lower limits.reserve_percent",
            );
        }
        Ok(())
    }
}

fn refuse_claim(what: &str, limits: LedgerLimits, error: LimitError) -> Refusal {
    match error {
        LimitError::User { asked, user, held, limit } => refuse(
            ErrorKind::TooManyPorts,
            format!("{asked} more {what} for user {user}, who has {held}: a user may have {limit}"),
            format!("end some of that user's programs, or raise limits.user_{what}"),
        ),
        LimitError::Total { asked, held, limit } => refuse(
            ErrorKind::TooManyPorts,
            format!("{asked} more {what} besides {held}: there can be {limit}"),
            match limit < limits.total {
                true => {
                    "end some programs, lower limits.reserve_percent, or give the daemon more descriptors (ulimit -n)"
                }
                false => "end some programs, or give the daemon more descriptors (ulimit -n)",
            },
        ),
        error => refuse(ErrorKind::TooManyPorts, error.to_string(), ""),
    }
}

/// The refusal of memory beyond a limit.
pub(crate) fn refuse_memory(bytes: u64, error: LimitError) -> Refusal {
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let region = format!("a region of {}", mib(bytes));
    let (message, key) = match error {
        LimitError::User { user, held, limit, .. } => (
            format!("{region} for user {user}, who has {}: a user may have {}", mib(held), mib(limit)),
            "limits.user_shared_memory_mib",
        ),
        LimitError::Total { held, limit, .. } => (
            format!("{region} besides {}: there may be {}", mib(held), mib(limit)),
            "limits.shared_memory_mib",
        ),
        error => (format!("{region}: {error}"), "limits.shared_memory_mib"),
    };
    let advice =
        format!("request fewer queues and slots or smaller buffers, end some programs, or raise {key}");
    refuse(ErrorKind::OutOfMemory, message, advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(uid: u32) -> Client {
        Client { id: 1, peer: PeerCredentials { pid: Some(1), uid, gid: 1 }, program: "test".into() }
    }

    fn quotas() -> Quotas {
        let limits = config::LimitsConfig {
            user_ports: 3,
            user_switches: 2,
            user_ports_of_switch: 2,
            ..config::LimitsConfig::default()
        };
        Quotas::new(&limits, 900)
    }

    #[test]
    fn a_users_full_share_is_refused_by_key_and_returned_on_release() {
        let quotas = quotas();
        let two = Demand { ports: 2, queues: 2, ..Demand::default() };
        let held = quotas.hold(&client(1), two).unwrap();
        let refusal = quotas.hold(&client(1), two).unwrap_err();
        assert!(refusal.advice.contains("limits.user_ports"), "{refusal:?}");
        assert!(quotas.hold(&client(2), two).is_ok(), "another user has a share of its own");
        assert_eq!(quotas.queues.by_user().get(&1), Some(&2), "nothing is held of what was refused");
        drop(held);
        assert!(quotas.hold(&client(1), two).is_ok());
    }

    #[test]
    fn root_and_the_daemons_user_have_no_share() {
        let quotas = quotas();
        let many = Demand { ports: 100, queues: 100, pipes: 1000, devices: 100 };
        assert!(quotas.hold(&client(0), many).is_ok() && quotas.hold(&client(900), many).is_ok());
        let full: Vec<_> = std::iter::repeat_n(("vale0", Some(0)), 250).collect();
        assert!(quotas.check_switch(&client(0), "vale0", full.into_iter()).is_ok());
    }

    #[test]
    fn one_user_takes_neither_a_switch_whole_nor_all_switches() {
        let quotas = quotas();
        let refused = |switch: &str, owners: &[(&'static str, Option<u32>)]| {
            quotas
                .check_switch(&client(1), switch, owners.iter().copied())
                .err()
                .map(|refusal| refusal.advice)
                .unwrap_or_default()
        };
        let own = [("vale0", Some(1)), ("vale0", Some(1)), ("vale1", Some(2)), ("vale2", Some(1))];
        assert!(refused("vale0", &own).contains("limits.user_ports_of_switch"));
        assert!(refused("vale1", &own).contains("limits.user_switches"));
        assert_eq!(refused("vale2", &own), "", "there the user is already");
        let others: Vec<_> = std::iter::repeat_n(("vale0", Some(2)), 250).collect();
        assert!(refused("vale0", &others).contains("limits.reserve_percent"));
        let names: Vec<String> = (0..60).map(|number| format!("vale{number}")).collect();
        let many = names.iter().map(|name| (name.as_str(), Some(2)));
        let refusal = quotas.check_switch(&client(1), "vale99", many).unwrap_err();
        assert!(refusal.advice.contains("limits.reserve_percent"), "{refusal:?}");
    }
}
