//! Counters of a DPDK process, over its telemetry socket (DPDK guide "Telemetry library", protocol version 2).
//!
//! A SOCK_SEQPACKET UNIX socket carries a JSON greeting with the version, then a command per packet and its JSON reply.
//! Counters queried at a known time are more exact than testpmd's periodic output, whose period depends on a main
//! thread that shares a core with forwarding. The time between query and reply bounds the error.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send,
    socket_with,
};
use serde::Deserialize;

use crate::error::BenchError;
use crate::reading::Reading;

/// Longest reply of DPDK, bytes (`max_output_len` of the greeting in DPDK 20.05 to 22.11).
const ANSWER_BYTES: usize = 16384;

/// Command that returns the counts of calls.
const CALL_TIMER: &str = "/call_timer";

/// Time limit for a reply. A process that does not reply by then has stopped.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Deserialize)]
struct Greeting {
    version: String,
}

/// Counts of `ringroad_call_timer`, a device of the `net_szedata2` plugin that times the calls into a port's driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct CallCounts {
    /// Receive calls that returned frames.
    pub rx_calls: u64,
    /// Frames of these calls.
    pub rx_frames: u64,
    /// Median ticks of the time-stamp counter for each of these frames since the previous query, times 2.
    pub rx_half_cycles: u64,
    /// Transmit calls that took all offered frames.
    pub tx_calls: u64,
    /// Frames of these calls.
    pub tx_frames: u64,
    /// Median ticks for each of these frames since the previous query, times 2.
    pub tx_half_cycles: u64,
    /// Frames offered in all transmit calls.
    pub tx_offered: u64,
    /// Offered frames that the driver did not take.
    pub tx_refused: u64,
}

impl CallCounts {
    /// Counts between the query that gave `start` and the next, which gave these.
    pub(crate) fn since(&self, start: &Self) -> Self {
        let difference = |count: fn(&Self) -> u64| count(self).saturating_sub(count(start));
        Self {
            rx_calls: difference(|counts| counts.rx_calls),
            rx_frames: difference(|counts| counts.rx_frames),
            tx_calls: difference(|counts| counts.tx_calls),
            tx_frames: difference(|counts| counts.tx_frames),
            tx_offered: difference(|counts| counts.tx_offered),
            tx_refused: difference(|counts| counts.tx_refused),
            ..*self
        }
    }
}

#[derive(Deserialize)]
struct EthdevStats {
    ipackets: u64,
    opackets: u64,
}

/// The requested counter of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortCounter {
    /// Frames received.
    Received,
    /// Frames sent.
    Sent,
}

/// A connection to one DPDK process.
#[derive(Debug)]
pub(crate) struct Telemetry {
    program: String,
    socket: OwnedFd,
    version: String,
    answer: Vec<u8>,
}

impl Telemetry {
    /// Connects to the socket at `path` and reads the greeting.
    pub(super) fn connect(program: &str, path: &Path) -> Result<Self, BenchError> {
        let failed = |errno| failed(program, "connect to", errno);
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(failed)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT)).map_err(failed)?;
        connect(&socket, &SocketAddrUnix::new(path).map_err(failed)?).map_err(failed)?;
        let mut telemetry =
            Self { program: program.into(), socket, version: String::new(), answer: vec![0; ANSWER_BYTES] };
        telemetry.version =
            parse_greeting(telemetry.hear()?).ok_or_else(|| telemetry.unreadable("a greeting"))?;
        Ok(telemetry)
    }

    /// Returns the version of the process, as "DPDK 22.11.11".
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Returns the number of frames that `port` has received or sent since its start.
    pub(super) fn frames(&mut self, port: u16, counter: PortCounter) -> Result<Reading, BenchError> {
        let command = format!("/ethdev/stats,{port}");
        Reading::of(|| {
            let answer = self.ask(&command)?;
            parse_stats(answer, counter).ok_or_else(|| self.unreadable("port counters"))
        })
    }

    /// Returns the counts of the process' call timer since its start.
    pub(crate) fn calls(&mut self) -> Result<CallCounts, BenchError> {
        let answer = self.ask(CALL_TIMER)?;
        parse_calls(answer).ok_or_else(|| self.unreadable("counts of calls"))
    }

    fn ask(&mut self, command: &str) -> Result<&[u8], BenchError> {
        send(&self.socket, command.as_bytes(), SendFlags::NOSIGNAL)
            .map_err(|errno| failed(&self.program, "ask", errno))?;
        self.hear()
    }

    fn hear(&mut self) -> Result<&[u8], BenchError> {
        let failed = |errno| failed(&self.program, "read from", errno);
        let (_, length) =
            recv(&self.socket, self.answer.as_mut_slice(), RecvFlags::empty()).map_err(failed)?;
        // A packet without bytes is the end of the connection.
        self.answer.get(..length).filter(|answer| !answer.is_empty()).ok_or_else(|| failed(Errno::CONNRESET))
    }

    fn unreadable(&self, what: &'static str) -> BenchError {
        let answer = self.answer.get(..120).unwrap_or_default();
        let answer = String::from_utf8_lossy(answer).trim_end_matches('\0').to_owned();
        BenchError::Answer { program: self.program.clone(), what, answer }
    }
}

fn failed(program: &str, action: &'static str, errno: Errno) -> BenchError {
    BenchError::Telemetry { program: program.into(), action, source: errno.into() }
}

fn parse_greeting(text: &[u8]) -> Option<String> {
    serde_json::from_slice::<Greeting>(text).ok().map(|greeting| greeting.version)
}

fn parse_stats(text: &[u8], counter: PortCounter) -> Option<u64> {
    let answer: HashMap<String, EthdevStats> = serde_json::from_slice(text).ok()?;
    answer.get("/ethdev/stats").map(|stats| match counter {
        PortCounter::Received => stats.ipackets,
        PortCounter::Sent => stats.opackets,
    })
}

fn parse_calls(text: &[u8]) -> Option<CallCounts> {
    serde_json::from_slice::<HashMap<String, CallCounts>>(text).ok()?.remove(CALL_TIMER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greeting_gives_the_version() {
        let text = br#"{"version":"DPDK 22.11.11","pid":7326,"max_output_len":16384}"#;
        assert_eq!(parse_greeting(text).as_deref(), Some("DPDK 22.11.11"));
    }

    #[test]
    fn counters_are_found_under_their_command() {
        let text = br#"{"/ethdev/stats":{"ipackets":18446744073709551615,"opackets":7,"q_ipackets":[1,2]}}"#;
        assert_eq!(parse_stats(text, PortCounter::Received), Some(u64::MAX));
        assert_eq!(parse_stats(text, PortCounter::Sent), Some(7));
    }

    #[test]
    fn counts_of_calls_are_found_and_subtracted() {
        let text = br#"{"/call_timer":{"rx_calls":1,"rx_frames":2,"rx_half_cycles":60,"tx_calls":4,"tx_frames":5,"tx_half_cycles":51,"tx_offered":8,"tx_refused":3}}"#;
        let counts = parse_calls(text).unwrap();
        assert_eq!((counts.rx_frames, counts.tx_refused), (2, 3));
        let between = counts.since(&CallCounts { tx_frames: 4, tx_half_cycles: 99, ..counts });
        assert_eq!((between.rx_frames, between.tx_frames, between.tx_half_cycles), (0, 1, 51));
        assert_eq!(parse_calls(b"{\"/call_timer\":null}"), None);
    }

    #[test]
    fn an_answer_without_counters_is_refused() {
        for text in [&b"{\"/ethdev/stats\":null}"[..], b"{}", b"", b"{\"/ethdev/stats\":{\"ipackets\":-1}}"] {
            assert_eq!(parse_stats(text, PortCounter::Received), None);
        }
    }
}
