//! Addresses of controllers, and addresses on which a switch listens for tools.

use std::fmt::{Display, Formatter};
use std::net::SocketAddr;
use std::str::FromStr;

use rustls::pki_types::ServerName;

/// Port number assigned to OpenFlow.
const OPENFLOW_PORT: &str = "6653";
const TLS_PREFIX: &str = "ssl:";

/// Transport of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// TCP without encryption: anybody on the path can read and change the messages.
    Tcp,
    /// TLS: both sides prove their identities.
    Tls,
}

/// Address of a controller: `tcp:HOST:PORT` or `ssl:HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ControllerAddress {
    /// Transport to the controller.
    pub transport: Transport,
    /// Name of the host, or IP address without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl FromStr for ControllerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not a controller: write tcp:HOST:PORT or ssl:HOST:PORT, as in tcp:127.0.0.1:6653"
            )
        };
        let (transport, rest) = match text.strip_prefix(TLS_PREFIX) {
            Some(rest) => (Transport::Tls, rest),
            None => (Transport::Tcp, text.strip_prefix("tcp:").ok_or_else(wrong)?),
        };
        // An IPv6 address has colons of its own, so it is in brackets.
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
                (host, port.strip_prefix(':').unwrap_or(if port.is_empty() { OPENFLOW_PORT } else { "" }))
            }
            None => rest.split_once(':').unwrap_or((rest, OPENFLOW_PORT)),
        };
        let port = port.parse().ok().filter(|&port| port != 0).ok_or_else(wrong)?;
        if host.is_empty() || host.chars().any(|letter| letter.is_whitespace() || letter.is_control()) {
            return Err(wrong());
        }
        // A TLS certificate cannot name such a host.
        if transport == Transport::Tls && ServerName::try_from(host).is_err() {
            return Err(wrong());
        }
        Ok(Self { transport, host: host.to_owned(), port })
    }
}

impl Display for ControllerAddress {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { transport, host, port } = self;
        let prefix = match transport {
            Transport::Tcp => "tcp:",
            Transport::Tls => TLS_PREFIX,
        };
        match host.contains(':') {
            true => write!(f, "{prefix}[{host}]:{port}"),
            false => write!(f, "{prefix}{host}:{port}"),
        }
    }
}

/// Address on which a switch listens for tools: `ADDRESS:PORT`, or `ssl:ADDRESS:PORT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenAddress {
    /// Transport that tools must use.
    pub transport: Transport,
    /// Address and port of this machine.
    pub address: SocketAddr,
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (transport, rest) = match text.strip_prefix(TLS_PREFIX) {
            Some(rest) => (Transport::Tls, rest),
            None => (Transport::Tcp, text),
        };
        let address = rest.parse::<SocketAddr>().ok().filter(|address| address.port() != 0);
        let address = address.ok_or_else(|| {
            format!("{text:?} is not an address to listen on: write 127.0.0.1:6654 or ssl:127.0.0.1:6654")
        })?;
        Ok(Self { transport, address })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_controllers_are_read_and_shown() {
        for (text, shown) in [
            ("tcp:127.0.0.1:6653", "tcp:127.0.0.1:6653"),
            ("tcp:lab.example", "tcp:lab.example:6653"),
            ("tcp:[::1]:6633", "tcp:[::1]:6633"),
            ("tcp:[::1]", "tcp:[::1]:6653"),
            ("ssl:lab.example", "ssl:lab.example:6653"),
            ("ssl:[::1]:6633", "ssl:[::1]:6633"),
        ] {
            assert_eq!(
                text.parse::<ControllerAddress>().map(|address| address.to_string()),
                Ok(shown.to_owned())
            );
        }
        for text in [
            "",
            "127.0.0.1:6653",
            "tcp:",
            "tcp::1",
            "tcp:a:0",
            "tcp:a:x",
            "tcp:a b:1",
            "tcp:[::1",
            "tcp:[::1]x",
            "tls:127.0.0.1:6653",
            "ssl:",
            "ssl:-:6653",
        ] {
            let refused = text.parse::<ControllerAddress>().unwrap_err();
            assert!(refused.contains("tcp:HOST:PORT"), "{text}: {refused}");
        }
    }

    #[test]
    fn addresses_to_listen_on_are_read() {
        let tls: ListenAddress = "ssl:[::1]:6654".parse().unwrap();
        assert_eq!((tls.transport, tls.address), (Transport::Tls, "[::1]:6654".parse().unwrap()));
        assert_eq!("127.0.0.1:6654".parse::<ListenAddress>().unwrap().transport, Transport::Tcp);
        for text in
            ["", "6654", "127.0.0.1", "127.0.0.1:0", "ssl:6654", "ssl:lab.example:6654", "tls:[::1]:6654"]
        {
            assert!(text.parse::<ListenAddress>().unwrap_err().contains("127.0.0.1:6654"), "{text}");
        }
    }
}
