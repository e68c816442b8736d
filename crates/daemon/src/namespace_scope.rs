//! Network namespace of an interface's name. A name without one means the requesting process's namespace. The same name
//! means another interface in each namespace.

use std::fmt::Display;
use std::path::PathBuf;

use ringroad_control::ServerConnection;
use ringroad_control::message::ErrorKind;
use ringroad_drivers::catalogue::NETNS;
use ringroad_drivers::catalogue::port_name::PortName;
use ringroad_drivers::device::DeviceError;
use ringroad_netdev::namespace::{HeldNamespace, Namespace, NamespaceError};

use crate::refusal::{Refusal, refuse};

/// The origin of a name, and the namespaces that it may name.
#[derive(Debug, Clone, Copy)]
pub enum NamespaceScope<'a> {
    /// The daemon's own configuration.
    Own,
    /// The client at this connection; names of an administrator may lead to every namespace.
    Client { connection: &'a ServerConnection, administers: bool },
    /// The port was attached before, with its interface in this namespace.
    Within(&'a HeldNamespace),
}

impl NamespaceScope<'_> {
    /// The known namespace, else the namespace of the requesting process's first thread.
    ///
    /// # Errors
    /// The refusal to send: the namespace cannot be seen.
    pub fn home(self) -> Result<HeldNamespace, Refusal> {
        let connection = match self {
            Self::Within(known) => return Ok(known.clone()),
            Self::Own => {
                let own = Namespace::Current.hold();
                return own.map_err(|error| refuse(ErrorKind::Internal, error.to_string(), ""));
            }
            Self::Client { connection, .. } => connection,
        };
        let unknown = |why: &dyn Display| {
            refuse(
                ErrorKind::PermissionDenied,
                format!("the network namespace in which the program runs cannot be seen: {why}"),
                "name the one in which the interface is: @netns=NAME, or --netns NAME",
            )
        };
        let Some(process) = connection.peer().pid else {
            return Err(unknown(&"it is in another PID namespace"));
        };
        let pidfd = connection.peer_process().map_err(|error| unknown(&error))?;
        HeldNamespace::of_process(process, pidfd).map_err(|error| unknown(&error))
    }

    /// Namespace of the interface that `name` means; `None` for names that mean no interface.
    ///
    /// # Errors
    /// The refusal to send: there is no such namespace, it cannot be seen, or may not be named like this.
    pub fn find(self, name: &PortName) -> Result<Option<HeldNamespace>, Refusal> {
        if !name.base.device().is_some_and(|device| device.kind.target.is_of_a_namespace()) {
            return Ok(None);
        }
        if let Self::Within(known) = self {
            return Ok(Some(known.clone()));
        }
        let Some(text) = name.options.device.text(&NETNS) else { return self.home().map(Some) };
        let namespace: Namespace = text
            .parse()
            .map_err(|error: NamespaceError| refuse(ErrorKind::BadName, error.to_string(), ""))?;
        // Numbers and paths could show namespaces that the user cannot see, and a path can lead to a file system that
        // never answers.
        if matches!(self, Self::Client { administers: false, .. })
            && !matches!(namespace, Namespace::Named(_))
        {
            return Err(refuse(
                ErrorKind::PermissionDenied,
                format!("{:?} is not a name from ip netns list", PathBuf::from(text)),
                "users other than root and the daemon's name network namespaces by these names only",
            ));
        }
        namespace.hold().map(Some).map_err(|error| {
            let error = DeviceError::from(error);
            let kind = if error.is_absence() { ErrorKind::NoSuchPort } else { ErrorKind::BadProperties };
            refuse(kind, error.to_string(), "")
        })
    }
}
