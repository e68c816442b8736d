//! Options that ports behind sockets share.

use crate::catalogue::port_option::{OptionValues, PortOption, ValueKind};

/// Role of a port at its socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketRole {
    /// The port listens, and creates the socket's file.
    Server,
    /// The port connects, and retries until a server listens.
    Client,
}

/// Values of `role=`, in the order of [`ROLES`].
const ROLE_WORDS: ValueKind = ValueKind::Word(&["server", "client"]);
const ROLES: [SocketRole; 2] = [SocketRole::Server, SocketRole::Client];
const ROLE_HELP: &str = "make the socket and listen; or connect to it, and retry until a peer listens";

/// Option `role=` of kinds that listen by default.
pub(crate) const ROLE_SERVER: PortOption = PortOption::new("role", ROLE_WORDS, "server", ROLE_HELP);
/// Option `role=` of kinds that connect by default.
pub(crate) const ROLE_CLIENT: PortOption = PortOption::new("role", ROLE_WORDS, "client", ROLE_HELP);
pub(crate) const SOCKET_MODE: PortOption = PortOption::new(
    "socket-mode",
    ValueKind::Permissions,
    "600",
    "permissions of the file of a socket that it makes",
);

/// Role in a name's options.
pub(crate) fn role(options: &OptionValues) -> Option<SocketRole> {
    options.word(&ROLE_SERVER, &ROLES)
}

/// Permissions of the socket's file in a name's options.
pub(crate) fn socket_mode(options: &OptionValues) -> Option<u32> {
    options.number(&SOCKET_MODE)
}
