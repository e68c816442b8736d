//! Options that ports behind sockets share.

use crate::catalogue::port_option::{OptionValues, PortOption, ValueKind};

/// Which side of a socket a port is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketRole {
    /// It listens, and makes the socket's file.
    Server,
    /// It connects, and tries again until a server listens.
    Client,
}

/// Words of `role=`, in the order of [`ROLES`].
const ROLE_WORDS: ValueKind = ValueKind::Word(&["server", "client"]);
const ROLES: [SocketRole; 2] = [SocketRole::Server, SocketRole::Client];
const ROLE_HELP: &str = "make the socket and listen; or connect to it, and retry until a peer listens";

/// `role=` of kinds that listen by default.
pub(crate) const ROLE_SERVER: PortOption = PortOption::new("role", ROLE_WORDS, "server", ROLE_HELP);
/// `role=` of kinds that connect by default.
pub(crate) const ROLE_CLIENT: PortOption = PortOption::new("role", ROLE_WORDS, "client", ROLE_HELP);
pub(crate) const SOCKET_MODE: PortOption = PortOption::new(
    "socket-mode",
    ValueKind::Permissions,
    "600",
    "permissions of the file of a socket that it makes",
);

/// The role that a name gives.
pub(crate) fn role(options: &OptionValues) -> Option<SocketRole> {
    options.word(&ROLE_SERVER, &ROLES)
}

/// The permissions that a name gives.
pub(crate) fn socket_mode(options: &OptionValues) -> Option<u32> {
    options.number(&SOCKET_MODE)
}
