//! The veth pair between a container and the daemon.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use ringroad_control::Connection;
use ringroad_control::report::StartedBy;
use ringroad_netdev::link_change::{VethEnd, add_address, create_veth, delete_link, set_up};
use ringroad_netdev::link_monitor::wait_running;
use ringroad_netdev::{Namespace, NetdevError, in_namespace};

use crate::commands::namespaces::name_after;
use crate::failure::Failure;

/// Namespaces whose names begin alike.
const NAMESAKES_MAX: u32 = 99;

/// Where the daemon is.
pub(super) struct Outside {
    /// Its network namespace, as this process names it.
    pub(super) namespace: Namespace,
    /// Its process, as it sees itself: so it takes its own namespace by `@netns=`.
    pub(super) process: u32,
}

/// Looks where the daemon is.
pub(super) fn outside(daemon: &mut Connection) -> Result<Outside, Failure> {
    let status = daemon.status()?;
    // The kernel's word is in the numbers of this PID namespace; but a service manager made its daemon's socket itself.
    let process = match status.started {
        StartedBy::ServiceManager => Some(status.pid),
        _ => daemon.daemon().pid,
    };
    match process {
        Some(process) => Ok(Outside { namespace: Namespace::OfProcess(process), process: status.pid }),
        None => Err(Failure::new(
            "the daemon's network namespace cannot be seen: it runs in another PID namespace",
            "run this command beside the daemon",
        )),
    }
}

/// A veth pair: `inner` in the namespace, `outer` in the daemon's.
#[derive(Debug, Clone)]
pub(super) struct VethPair {
    pub(super) namespace: Namespace,
    pub(super) inner: String,
    pub(super) outer: String,
}

impl VethPair {
    /// Makes the pair, with the outer end up and the inner end ready to be set up. The host stack has nothing to say on
    /// the outer end.
    pub(super) fn make(outside: &Namespace, namespace: &Namespace, inner: &str) -> Result<Self, Failure> {
        let target = namespace.open()?;
        let create = || {
            let mut number = 1;
            loop {
                let outer = name_after(namespace, number);
                match create_veth(VethEnd::here(&outer), VethEnd::within(inner, target.as_fd())) {
                    Ok(()) => return Ok(outer),
                    Err(NetdevError::Refused { source: rustix::io::Errno::EXIST, .. })
                        if number < NAMESAKES_MAX =>
                    {
                        number += 1;
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        let outer = in_namespace(outside, create)??;
        let pair = Self { namespace: namespace.clone(), inner: inner.to_owned(), outer };
        match pair.prepare(outside) {
            Ok(()) => Ok(pair),
            Err(failure) => {
                // The reason counts, not that nothing more could be done.
                let _ = pair.remove(outside);
                Err(failure)
            }
        }
    }

    fn prepare(&self, outside: &Namespace) -> Result<(), Failure> {
        in_namespace(outside, || -> Result<(), Failure> {
            silence(&self.outer)?;
            Ok(set_up(&self.outer, true)?)
        })?
    }

    /// Sets the inner end up, with an address if it gets one.
    pub(super) fn set_inner_up(&self, address: Option<IpAddr>, bits: u8) -> Result<(), Failure> {
        in_namespace(&self.namespace, || {
            address.map_or(Ok(()), |address| add_address(&self.inner, address, bits))?;
            set_up(&self.inner, true)
        })??;
        Ok(())
    }

    /// Waits until both ends carry frames.
    pub(super) fn await_carrier(&self, outside: &Namespace, limit: Duration) -> Result<(), Failure> {
        in_namespace(outside, || wait_running(&self.outer, limit))??;
        in_namespace(&self.namespace, || wait_running(&self.inner, limit))??;
        Ok(())
    }

    /// Removes the pair.
    pub(super) fn remove(&self, outside: &Namespace) -> Result<(), Failure> {
        match in_namespace(outside, || delete_link(&self.outer))? {
            // It went with its namespace.
            Err(error) if error.is_no_interface() => Ok(()),
            result => Ok(result?),
        }
    }
}

/// Keeps the host's IPv6 stack from announcing itself on an interface, in the calling thread's namespace.
fn silence(interface: &str) -> Result<(), Failure> {
    let setting = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
    match std::fs::write(&setting, "1") {
        // A kernel without IPv6.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result.map_err(|error| {
            Failure::new(format!("writing {setting}: {error}"), "run it where /proc/sys can be written")
        }),
    }
}
