//! The veth pair between a container and the daemon.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use ringroad_control::report::StartedBy;
use ringroad_control::{Connection, ControlError};
use ringroad_netdev::link_change::{
    VethEnd, add_address, create_veth, delete_link, move_to_namespace, set_up,
};
use ringroad_netdev::link_monitor::wait_running;
use ringroad_netdev::{HeldNamespace, Namespace, NamespaceError, NetdevError, in_namespace};

/// Reason why a namespace cannot be joined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachmentError {
    /// An operation on an interface failed.
    #[error(transparent)]
    Interface(#[from] NetdevError),
    /// A namespace could not be entered or looked up.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// A request to the daemon failed.
    #[error(transparent)]
    Daemon(#[from] ControlError),
    /// The daemon is in another PID namespace.
    #[error(
        "the daemon's network namespace cannot be seen, for it runs in another PID namespace: run this beside the daemon"
    )]
    Unseen,
    /// A setting of an interface could not be written.
    #[error("writing {setting}: {source}; run it where /proc/sys can be written")]
    Setting {
        /// Path of the setting's file.
        setting: String,
        /// The kernel's error.
        source: std::io::Error,
    },
}

/// The daemon's namespaces.
#[derive(Debug)]
pub struct DaemonNamespace {
    /// Network namespace of the daemon, as this process names it.
    pub namespace: Namespace,
    /// Process id of the daemon as the daemon sees it, by which `@netns=` can name the daemon's own namespace.
    pub process: u32,
}

/// Finds the daemon's namespaces.
///
/// # Errors
/// [`AttachmentError`]: the daemon cannot be queried, or is in another PID namespace.
pub fn outside(daemon: &mut Connection) -> Result<DaemonNamespace, AttachmentError> {
    let status = daemon.status()?;
    // Process ids from the kernel are those of this PID namespace. A service manager makes its daemon's socket itself,
    // so there the kernel would name the service manager.
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

/// A veth pair: `inner` is in the container's namespace, `outer` in the daemon's.
#[derive(Debug, Clone)]
pub struct VethPair {
    pub namespace: HeldNamespace,
    pub inner: String,
    pub outer: String,
}

impl VethPair {
    /// Makes the pair, with the outer end up and the inner end ready to be set up. The outer end gets the first free
    /// one of `names`. The host stack sends nothing on the outer end.
    ///
    /// # Errors
    /// [`AttachmentError`]. No interface is left behind then.
    pub fn make(
        outside: &Namespace,
        namespace: HeldNamespace,
        inner: &str,
        names: impl IntoIterator<Item = String, IntoIter: Send>,
    ) -> Result<Self, AttachmentError> {
        let mut names = names.into_iter().peekable();
        let create = || {
            loop {
                let outer = names.next().unwrap_or_default();
                match create_veth(VethEnd::here(&outer), VethEnd::within(inner, namespace.as_fd())) {
                    Ok(()) => return Ok(outer),
                    Err(NetdevError::Refused { source: rustix::io::Errno::EXIST, .. })
                        if names.peek().is_some() => {}
                    Err(error) => return Err(error),
                }
            }
        };
        let outer = in_namespace(outside, create)??;
        let pair = Self { namespace, inner: inner.to_owned(), outer };
        match pair.prepare(outside) {
            Ok(()) => Ok(pair),
            Err(failure) => {
                // The first failure is reported, not that of the removal.
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

    /// Moves the inner end into another namespace.
    ///
    /// # Errors
    /// [`AttachmentError`], for example if that namespace has an interface of this name.
    pub fn move_inner(&mut self, namespace: HeldNamespace) -> Result<(), AttachmentError> {
        self.namespace.run(|| move_to_namespace(&self.inner, namespace.as_fd()))??;
        self.namespace = namespace;
        Ok(())
    }

    /// Sets the inner end up, with an address if given.
    ///
    /// # Errors
    /// [`AttachmentError`].
    pub fn set_inner_up(&self, address: Option<IpAddr>, bits: u8) -> Result<(), AttachmentError> {
        self.namespace.run(|| {
            address.map_or(Ok(()), |address| add_address(&self.inner, address, bits))?;
            set_up(&self.inner, true)
        })??;
        Ok(())
    }

    /// Waits until both ends carry frames.
    ///
    /// # Errors
    /// [`AttachmentError`]: they do not within `limit`, or an end is gone.
    pub fn await_carrier(&self, outside: &Namespace, limit: Duration) -> Result<(), AttachmentError> {
        in_namespace(outside, || wait_running(&self.outer, limit))??;
        self.namespace.run(|| wait_running(&self.inner, limit))??;
        Ok(())
    }

    /// Removes the pair. A missing pair is not an error.
    ///
    /// # Errors
    /// [`AttachmentError`].
    pub fn remove(&self, outside: &Namespace) -> Result<(), AttachmentError> {
        remove_interface(outside, &self.outer)
    }
}

/// Removes an interface, if it is still there.
///
/// # Errors
/// [`AttachmentError::Interface`], [`AttachmentError::Namespace`].
pub fn remove_interface(namespace: &Namespace, name: &str) -> Result<(), AttachmentError> {
    match in_namespace(namespace, || delete_link(name))? {
        Err(error) if error.is_no_interface() => Ok(()),
        result => Ok(result?),
    }
}

/// Keeps the host's IPv6 stack from sending announcements on an interface, in the calling thread's namespace.
fn silence(interface: &str) -> Result<(), AttachmentError> {
    let setting = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
    match std::fs::write(&setting, "1") {
        // The kernel has no IPv6.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result.map_err(|source| AttachmentError::Setting { setting, source }),
    }
}
