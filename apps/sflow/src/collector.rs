//! Sending to a collector: one UDP socket, which is never read.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// The port that IANA has assigned to sFlow (section 5).
pub const SFLOW_PORT: u16 = 6343;
/// Time between two attempts to find a route to the collector.
const RETRY: Duration = Duration::from_secs(5);
/// Shortest time between two messages about failures.
const QUIET: Duration = Duration::from_secs(600);

/// Address of a collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectorAddress {
    host: String,
    port: u16,
}

impl FromStr for CollectorAddress {
    type Err = String;

    /// Parses `HOST`, `HOST:PORT`, `ADDRESS`, `[IPV6]:PORT`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not a collector: give HOST or HOST:PORT, such as 192.0.2.1 or [2001:db8::1]:6343"
            )
        };
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, behind)) => (host, Some(behind.strip_prefix(':').ok_or_else(wrong)?)),
            None if text.parse::<Ipv6Addr>().is_ok() => (text, None),
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let port = port.map_or(Ok(SFLOW_PORT), |port| port.parse().map_err(|_| wrong()))?;
        if host.is_empty() || host.contains(['[', ']', '/', ' ']) || port == 0 {
            return Err(wrong());
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for CollectorAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Sender of datagrams to a collector, whether the collector is running or not.
#[derive(Debug)]
pub struct Collector {
    address: CollectorAddress,
    socket: Option<UdpSocket>,
    /// Time of the last failed attempt to open the socket.
    tried: Option<Instant>,
    /// Number of datagrams that were sent and not refused.
    sent: u64,
    /// Number of datagrams that could not be sent, or were refused.
    failed: u64,
    /// Text of the last failure, until it is reported.
    untold: Option<String>,
    told: Option<Instant>,
}

impl Collector {
    /// Makes a sender to an address; the socket is opened with the first datagram.
    #[must_use]
    pub fn new(address: CollectorAddress) -> Self {
        Self { address, socket: None, tried: None, sent: 0, failed: 0, untold: None, told: None }
    }

    /// Returns the number of datagrams that were sent, and the number that could not be sent or were refused.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.sent, self.failed)
    }

    /// Returns a line about unreported failures, if any: at most one line in [`QUIET`].
    pub fn trouble(&mut self, now: Instant) -> Option<String> {
        if self.told.is_some_and(|told| now.duration_since(told) < QUIET) {
            return None;
        }
        let problem = self.untold.take()?;
        self.told = Some(now);
        Some(format!("collector {}: {problem}; {} datagrams lost so far", self.address, self.failed))
    }

    /// Returns the source address of datagrams. Opens the socket if an attempt is due.
    pub fn local_address(&mut self, now: Instant) -> Option<IpAddr> {
        self.find_path(now);
        self.socket.as_ref()?.local_addr().ok().map(|address| address.ip())
    }

    fn find_path(&mut self, now: Instant) {
        if self.socket.is_none() && self.tried.is_none_or(|tried| now.duration_since(tried) >= RETRY) {
            match self.address.connect() {
                Ok(socket) => self.socket = Some(socket),
                Err(error) => {
                    self.tried = Some(now);
                    self.untold = Some(error.to_string());
                }
            }
        }
    }

    /// Sends a datagram. Failures are counted.
    pub fn send(&mut self, datagram: &[u8], now: Instant) {
        self.find_path(now);
        let Some(socket) = &self.socket else {
            self.failed += 1;
            return;
        };
        // A refusal is the reply to an earlier datagram, which was lost. This datagram has not been sent yet.
        let result = match socket.send(datagram) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                self.sent = self.sent.saturating_sub(1);
                self.failed += 1;
                self.untold = Some("no process listens there".to_owned());
                socket.send(datagram)
            }
            result => result,
        };
        match result {
            Ok(_) => self.sent += 1,
            Err(error) => {
                self.failed += 1;
                self.untold = Some(error.to_string());
                let keeps =
                    [io::ErrorKind::ConnectionRefused, io::ErrorKind::WouldBlock].contains(&error.kind());
                if !keeps {
                    // Other errors mean that an address or a route has changed.
                    self.socket = None;
                    self.tried = Some(now);
                }
            }
        }
    }
}

impl CollectorAddress {
    fn connect(&self) -> io::Result<UdpSocket> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (self.host.as_str(), self.port).to_socket_addrs()? {
            let any = match address {
                SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            };
            let connected = UdpSocket::bind((any, 0)).and_then(|socket| {
                socket.connect(address)?;
                // A non-blocking socket, since a full send buffer must not make the exporter wait.
                socket.set_nonblocking(true)?;
                Ok(socket)
            });
            match connected {
                Ok(socket) => return Ok(socket),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_a_host_and_perhaps_a_port() {
        for (text, told) in [
            ("192.0.2.1", "192.0.2.1:6343"),
            ("collector.example:7000", "collector.example:7000"),
            ("2001:db8::1", "[2001:db8::1]:6343"),
            ("[2001:db8::1]", "[2001:db8::1]:6343"),
            ("[2001:db8::1]:99", "[2001:db8::1]:99"),
        ] {
            assert_eq!(
                text.parse::<CollectorAddress>().map(|address| address.to_string()),
                Ok(told.to_owned())
            );
        }
        for text in ["", ":6343", "host:", "host:0", "host:70000", "[::1]6343", "a b", "udp://host"] {
            assert!(text.parse::<CollectorAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_missing_collector_is_counted_and_reported_once() {
        let free = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).unwrap();
        let mut collector = Collector::new(free.to_string().parse().unwrap());
        let now = Instant::now();
        let mut told = Vec::new();
        for _ in 0..10 {
            collector.send(&[0; 100], now);
            told.extend(collector.trouble(now));
        }
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("no process listens there"), "{told:?}");
        let (sent, failed) = collector.counts();
        assert!(failed > 0 && sent + failed == 10, "{sent} {failed}");
        // The collector starts here.
        let listener = UdpSocket::bind(free).unwrap();
        collector.send(b"at last", now);
        let mut bytes = [0; 100];
        assert_eq!(listener.recv(&mut bytes).unwrap(), 7);
    }

    #[test]
    fn a_name_without_an_address_is_resolved_again_at_intervals() {
        let mut collector = Collector::new("no\0host".parse().unwrap());
        let now = Instant::now();
        collector.send(&[0; 100], now);
        collector.send(&[0; 100], now);
        assert_eq!(collector.counts(), (0, 2));
        assert_eq!(collector.tried, Some(now));
        let later = now + RETRY;
        collector.send(&[0; 100], later);
        assert_eq!(collector.tried, Some(later));
        assert!(collector.trouble(later).is_some() && collector.trouble(later).is_none());
        assert!(collector.trouble(later + QUIET).is_none(), "nothing new");
    }
}
