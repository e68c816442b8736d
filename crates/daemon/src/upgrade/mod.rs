//! Handover of a daemon's whole state to a new daemon, which continues where the old one stops: `ringroad upgrade`.
//!
//! 1. The old daemon starts the program that is installed now, with one end of a socket pair as its standard input. The
//!    new process reads the configuration and sends [`UpgradeMessage::Ready`].
//! 2. Flow tables are sent ([`UpgradeMessage::FlowTables`]) while they are still in use, and do not change from then
//!    on.
//! 3. The old daemon stops its workers between two batches. It sends its state ([`state::UpgradeState`]) and all
//!    descriptors.
//! 4. The new process maps the regions, takes over the queues, checks that it can open the other devices once they are
//!    free, and sends [`UpgradeMessage::Prepared`]. Its workers wait. If a port would be lost, it sends
//!    [`UpgradeMessage::WouldLose`], unless the administrator accepted that.
//! 5. The old daemon sends [`UpgradeMessage::Go`] and exits at once. The new workers begin. Once the old process has
//!    ended, the new one opens the devices that could not be handed over.
//!
//! Until step 5 the new process changes nothing that the old one uses. If it fails or is late, the old daemon
//! continues.

mod channel;
pub(crate) mod export;
pub(crate) mod flow_tables;
pub(crate) mod import;
pub(crate) mod state;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use channel::{ChannelError, UpgradeChannel};
pub use state::UpgradeState;

/// Version of the state's form. A daemon hands over only to a daemon with the same form.
pub(crate) const FORM: u32 = 2;
/// Time that the new process may take to start.
pub(crate) const START_TIME: Duration = Duration::from_secs(10);
/// Maximum time that traffic may stand still before the old daemon continues by itself.
pub(crate) const STANDSTILL: Duration = Duration::from_secs(3);

/// A message between the two processes.
#[derive(Debug, Serialize, Deserialize)]
pub enum UpgradeMessage {
    /// The new process waits for the state.
    Ready {
        /// Version of the state's form that the process knows: `FORM`.
        form: u32,
        /// Version of the process's program.
        version: String,
        /// Whether the process takes flow tables.
        #[serde(default)]
        takes_flow_tables: bool,
    },
    /// The flow tables of the old daemon's switches.
    FlowTables(Vec<state::FlowTablesState>),
    /// The new process has the flow tables.
    FlowTablesReady,
    /// The old daemon's state.
    State(Box<UpgradeState>),
    /// The new process can take over.
    Prepared,
    /// The new process cannot take over, for this reason.
    Failed(String),
    /// Names of ports that would be lost, each with the reason.
    WouldLose(BTreeMap<String, String>),
    /// The old daemon has stopped all its work, so the new process may begin.
    Go,
}

/// Descriptors that came with the state; each is taken once.
#[derive(Debug)]
pub struct ReceivedDescriptors(Vec<Option<OwnedFd>>);

impl ReceivedDescriptors {
    /// Takes the descriptors, in the order in which the state numbers them.
    #[must_use]
    pub fn new(descriptors: Vec<OwnedFd>) -> Self {
        Self(descriptors.into_iter().map(Some).collect())
    }

    /// Takes the descriptor with that number.
    pub(crate) fn take(&mut self, number: usize) -> Result<OwnedFd, String> {
        let taken = self.0.get_mut(number).and_then(Option::take);
        taken.ok_or_else(|| format!("descriptor {number} was not handed over"))
    }
}
