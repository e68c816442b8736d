//! Network namespace of an interface's name. A name without one means the requesting process's namespace. The same name
//! means another interface in each namespace.

use std::fmt::Display;
use std::path::PathBuf;

use ringroad_control::ServerConnection;
use ringroad_control::message::ErrorKind;
use ringroad_drivers::catalogue::NETNS;
use ringroad_drivers::catalogue::port_name::PortName;
use ringroad_netdev::namespace::{HeldNamespace, Namespace};

use crate::refusal::{Refusal, refuse};

/// The origin of a name, and the namespaces that it may name.
#[derive(Debug, Clone, Copy)]
pub struct NamespaceScope<'a> {
    /// The requester; `None` for the daemon itself, for its configuration.
    asking: Option<&'a ServerConnection>,
    /// Whether names may lead to every namespace.
    administers: bool,
    /// Namespace of the interface, if it is known already.
    known: Option<&'a HeldNamespace>,
}

impl<'a> NamespaceScope<'a> {
    /// Scope of names in the daemon's own configuration.
    pub const OWN: Self = Self { asking: None, administers: true, known: None };

    /// Scope of names that the client at `connection` gives.
    #[must_use]
    pub fn of(connection: &'a ServerConnection, administers: bool) -> Self {
        Self { asking: Some(connection), administers, known: None }
    }

    /// Scope of names whose interfaces were in `known` when the ports were attached.
    #[must_use]
    pub fn within(known: Option<&'a HeldNamespace>) -> Self {
        Self { known, ..Self::OWN }
    }

    /// The known namespace, else the namespace of the requesting process's first thread.
    ///
    /// # Errors
    /// The refusal to send: the namespace cannot be seen.
    pub fn home(self) -> Result<HeldNamespace, Refusal> {
        if let Some(known) = self.known {
            return Ok(known.clone());
        }
        let Some(connection) = self.asking else {
            return Namespace::Current
                .hold()
                .map_err(|error| refuse(ErrorKind::Internal, error.to_string(), ""));
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
        if let Some(known) = self.known {
            return Ok(Some(known.clone()));
        }
        let Some(text) = name.options.device.text(&NETNS) else { return self.home().map(Some) };
        let bad = |why: &dyn Display| refuse(ErrorKind::BadName, why.to_string(), "");
        let namespace: Namespace = text.parse().map_err(|error| bad(&error))?;
        // Numbers and paths could show namespaces that the user cannot see, and a path can lead to a file system that
        // never answers.
        if !self.administers && !matches!(namespace, Namespace::Named(_)) {
            return Err(refuse(
                ErrorKind::PermissionDenied,
                format!("{:?} is not a name from ip netns list", PathBuf::from(text)),
                "users other than root and the daemon's name network namespaces by these names only",
            ));
        }
        namespace.hold().map(Some).map_err(|error| bad(&error))
    }
}
