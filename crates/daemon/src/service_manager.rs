//! Notifications to a service manager: sd_notify(3), a datagram of lines to the socket in `$NOTIFY_SOCKET`.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Environment variable with the service manager's socket: a path, or `@` and an abstract name.
const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";

/// Service manager that started the daemon, if one did.
#[derive(Debug)]
pub struct ServiceManager {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl ServiceManager {
    /// Connects to the service manager that the environment names.
    ///
    /// # Errors
    /// The environment names a socket that cannot be used.
    pub fn of_environment() -> io::Result<Option<Self>> {
        std::env::var_os(SOCKET_VARIABLE).filter(|name| !name.is_empty()).map(Self::at).transpose()
    }

    fn at(name: OsString) -> io::Result<Self> {
        let address = match name.as_bytes().strip_prefix(b"@") {
            Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name)?,
            None => SocketAddr::from_pathname(&name)?,
        };
        let socket = UnixDatagram::unbound()?;
        // A service manager that does not read must not stop the daemon.
        socket.set_nonblocking(true)?;
        Ok(Self { socket, address })
    }

    /// Notifies that the daemon serves now; `status` describes its state in a line.
    ///
    /// # Errors
    /// The socket's.
    pub fn ready(&self, status: &str) -> io::Result<()> {
        self.tell(&format!("READY=1\nSTATUS={}", status.replace('\n', " ")))
    }

    /// Notifies that another process has taken over the service.
    ///
    /// # Errors
    /// The socket's.
    pub fn succeeded_by(&self, pid: u32) -> io::Result<()> {
        self.tell(&format!("MAINPID={pid}"))
    }

    /// Notifies that the daemon has begun to end.
    ///
    /// # Errors
    /// The socket's.
    pub fn stopping(&self) -> io::Result<()> {
        self.tell("STOPPING=1")
    }

    fn tell(&self, lines: &str) -> io::Result<()> {
        self.socket.send_to_addr(lines.as_bytes(), &self.address).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begin_and_end_are_notified_at_a_path_or_an_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let abstract_name = format!("ringroad-test-{}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        for (manager, name) in [
            (UnixDatagram::bind(&path).unwrap(), path.clone().into_os_string()),
            (UnixDatagram::bind_addr(&abstract_address).unwrap(), format!("@{abstract_name}").into()),
        ] {
            let told = ServiceManager::at(name).unwrap();
            told.ready("2\nports").unwrap();
            told.succeeded_by(7).unwrap();
            told.stopping().unwrap();
            let mut bytes = [0; 64];
            let mut next = || {
                let len = manager.recv(&mut bytes).unwrap();
                String::from_utf8_lossy(&bytes[..len]).into_owned()
            };
            assert_eq!([next(), next(), next()], ["READY=1\nSTATUS=2 ports", "MAINPID=7", "STOPPING=1"]);
        }
    }
}
