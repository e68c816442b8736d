//! The veth pair between a container and the daemon.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use ringroad_control::report::StartedBy;
use ringroad_control::{Connection, ControlError};
use ringroad_netdev::link_change::{VethEnd, add_address, create_veth, delete_link, set_up};
use ringroad_netdev::link_monitor::wait_running;
use ringroad_netdev::{Namespace, NamespaceError, NetdevError, in_namespace};

/// Why a namespace cannot be joined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachmentError {
    /// The interfaces.
    #[error(transparent)]
    Interface(#[from] NetdevError),
    /// The namespaces.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The daemon.
    #[error(transparent)]
    Daemon(#[from] ControlError),
    /// The daemon is in another PID namespace.
    #[error(
        "the daemon's network namespace cannot be seen, for it runs in another PID namespace: run this beside the daemon"
    )]
    Unseen,
    /// A setting of an interface.
    #[error("writing {setting}: {source}; run it where /proc/sys can be written")]
    Setting {
        /// Its file.
        setting: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
}

/// The daemon's namespaces.
#[derive(Debug)]
pub struct DaemonNamespace {
    /// Its network namespace, as this process names it.
    pub namespace: Namespace,
    /// Its process, as it sees itself: so it takes its own namespace by `@netns=`.
    pub process: u32,
}

/// Finds the daemon's namespaces.
///
/// # Errors
/// [`AttachmentError`]: it cannot be queried, or is in another PID namespace.
pub fn outside(daemon: &mut Connection) -> Result<DaemonNamespace, AttachmentError> {
    let status = daemon.status()?;
    // The kernel's word is in the numbers of this PID namespace; but a service manager made its daemon's socket itself.
    let process = match status.started {
        StartedBy::ServiceManager => Some(status.pid),
        _ => daemon.daemon().pid,
    };
    match process {
        Some(process) => {
            Ok(DaemonNamespace { namespace: Namespace::OfProcess(process), process: status.pid })
        }
        None => Err(AttachmentError::Unseen),
    }
}

/// A veth pair: `inner` in the namespace, `outer` in the daemon's.
#[derive(Debug, Clone)]
pub struct VethPair {
    pub namespace: Namespace,
    pub inner: String,
    pub outer: String,
}

impl VethPair {
    /// Makes the pair, with the outer end up and the inner end ready to be set up. The outer end gets the first of
    /// `names` that is free. The host stack sends nothing on it.
    ///
    /// # Errors
    /// [`AttachmentError`]. Nothing is left behind then.
    pub fn make(
        outside: &Namespace,
        namespace: &Namespace,
        inner: &str,
        names: impl IntoIterator<Item = String, IntoIter: Send>,
    ) -> Result<Self, AttachmentError> {
        let target = namespace.open()?;
        let mut names = names.into_iter().peekable();
        let create = || {
            loop {
                let outer = names.next().unwrap_or_default();
                match create_veth(VethEnd::here(&outer), VethEnd::within(inner, target.as_fd())) {
                    Ok(()) => return Ok(outer),
                    Err(NetdevError::Refused { source: rustix::io::Errno::EXIST, .. })
                        if names.peek().is_some() => {}
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

    fn prepare(&self, outside: &Namespace) -> Result<(), AttachmentError> {
        in_namespace(outside, || -> Result<(), AttachmentError> {
            silence(&self.outer)?;
            Ok(set_up(&self.outer, true)?)
        })?
    }

    /// Sets the inner end up, with an address if given.
    ///
    /// # Errors
    /// [`AttachmentError`].
    pub fn set_inner_up(&self, address: Option<IpAddr>, bits: u8) -> Result<(), AttachmentError> {
        in_namespace(&self.namespace, || {
            address.map_or(Ok(()), |address| add_address(&self.inner, address, bits))?;
            set_up(&self.inner, true)
        })??;
        Ok(())
    }

    /// Waits until both ends carry frames.
    ///
    /// # Errors
    /// [`AttachmentError`]: not within `limit`, or an end is gone.
    pub fn await_carrier(&self, outside: &Namespace, limit: Duration) -> Result<(), AttachmentError> {
        in_namespace(outside, || wait_running(&self.outer, limit))??;
        in_namespace(&self.namespace, || wait_running(&self.inner, limit))??;
        Ok(())
    }

    /// Removes the pair.
    ///
    /// # Errors
    /// [`AttachmentError`]. A missing one is not an error.
    pub fn remove(&self, outside: &Namespace) -> Result<(), AttachmentError> {
        match in_namespace(outside, || delete_link(&self.outer))? {
            // It was removed with its namespace.
            Err(error) if error.is_no_interface() => Ok(()),
            result => Ok(result?),
        }
    }
}

/// Keeps the host's IPv6 stack from announcing itself on an interface, in the calling thread's namespace.
fn silence(interface: &str) -> Result<(), AttachmentError> {
    let setting = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
    match std::fs::write(&setting, "1") {
        // A kernel without IPv6.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result.map_err(|source| AttachmentError::Setting { setting, source }),
    }
}
