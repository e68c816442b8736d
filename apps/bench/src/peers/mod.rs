//! The peers: other projects' programs, on the same two cores, configured as their users would.

mod foreign;
pub(crate) mod telemetry;
pub mod testpmd;
mod testpmd_set_ups;

use std::rc::Rc;

use serde::Serialize;

use crate::error::BenchError;
use crate::ours::{Programs, enter_libpcap};
use crate::runner::Contestants;
use foreign::FOREIGN_PROGRAMS;
use testpmd::Installation;

/// A peer that cannot take part, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Absent {
    pub name: String,
    /// Reason why it is missing, and how to add it.
    pub reason: String,
}

/// Adds every installed peer to the contestants, and records the other peers as absent.
///
/// On interfaces all peers receive frames from Ringroad's sender; without `programs` no peer runs there.
pub fn enter_installed(contestants: &mut Contestants, programs: Option<&Programs>) {
    if let Some(programs) = programs {
        enter_libpcap(contestants, programs, None);
        for program in &FOREIGN_PROGRAMS {
            match program.contestant(programs) {
                Ok(contestant) => contestants.enter(false, contestant),
                Err(error) => contestants.leave_out(program.name, reason(&error)),
            }
        }
    }
    match Installation::find() {
        Ok(installation) => {
            for contestant in testpmd_set_ups::contestants(&Rc::new(installation), programs) {
                contestants.enter(false, contestant);
            }
        }
        Err(error) => {
            let name = "DPDK testpmd (null, memif, vhost-user, switch, AF_XDP, AF_PACKET)";
            contestants.leave_out(name, reason(&error));
        }
    }
}

/// Formats an error with its causes, on one line.
pub(crate) fn reason(error: &BenchError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
