//! `pcap_stats`: the library counts frames that the program read, the daemon counts drops.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ringroad::control::report::CounterReport;
use ringroad::control::socket_path::default_socket_path;
use ringroad::control::{Connection, ControlError};
use ringroad::{DropCause, Port};

use crate::abi::Statistics;
use crate::device;
use crate::error::PcapError;
use crate::handle::Handle;

/// Maximum time until the daemon answers.
const PATIENCE: Duration = Duration::from_secs(2);

/// Connection to the daemon. Starts none.
pub(crate) fn daemon() -> Result<Connection, ControlError> {
    let mut connection = Connection::connect_within(default_socket_path(), PATIENCE)?;
    connection.hello("libpcap program")?;
    Ok(connection)
}

/// Source of a port's drop counters. The connection is made with the port, because programs give up privileges
/// afterwards.
#[derive(Debug)]
pub(crate) struct DropCounters {
    name: String,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// The daemon, and its count when the port was opened.
    Daemon(Mutex<Connection>, u64),
    /// The port is in the program, and drops nothing.
    Nowhere,
    /// The daemon could not be queried, for this reason.
    Failed(String),
}

impl DropCounters {
    /// Makes the counters of a port that was just opened under the device's name.
    pub(crate) fn of(device: &str, port: &Port) -> Self {
        let name = port.info().name.clone();
        let source = if device::is_without_daemon(device) {
            Source::Nowhere
        } else {
            let asked = daemon().and_then(|mut connection| {
                let drops = dropped(&mut connection, &name)?;
                Ok(Source::Daemon(Mutex::new(connection), drops))
            });
            asked.unwrap_or_else(|error| Source::Failed(error.to_string()))
        };
        Self { name, source }
    }

    /// Number of frames dropped for lack of room since the port was opened.
    fn since_open(&self) -> Result<u64, PcapError> {
        match &self.source {
            Source::Daemon(connection, at_open) => {
                let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
                let now =
                    dropped(&mut connection, &self.name).map_err(|error| unknown(&error.to_string()))?;
                Ok(now.saturating_sub(*at_open))
            }
            Source::Nowhere => Ok(0),
            Source::Failed(why) => Err(unknown(why)),
        }
    }
}

fn unknown(why: &str) -> PcapError {
    PcapError::new(format!("reading drops from the daemon: {why}"))
}

/// Number of frames that the port had no room for, by the daemon's counters.
fn dropped(connection: &mut Connection, name: &str) -> Result<u64, ControlError> {
    let list = connection.list()?;
    let port = list.ports.iter().find(|port| port.name == name);
    Ok(port.map_or(0, |port| for_want_of_room(&port.counters)))
}

/// Sum of the drops in the program's ring, and of those in the kernel because the ring was full.
fn for_want_of_room(counters: &CounterReport) -> u64 {
    [DropCause::NoSpace, DropCause::KernelDropped]
        .iter()
        .filter_map(|cause| counters.drops.get(cause.name()))
        .sum()
}

/// `pcap_stats`.
pub(crate) fn statistics(handle: &Handle) -> Result<Statistics, PcapError> {
    let active = handle.active()?;
    let dropped = active.drops.since_open()?;
    let session = active.session();
    // The counters wrap, as libpcap's do.
    Ok(Statistics {
        received: session.passed as u32,
        dropped: dropped as u32,
        interface_dropped: session.malformed as u32,
    })
}
