//! The peers: other projects' programs, on the same two cores, configured as their users would.

mod foreign;
pub(crate) mod telemetry;
pub mod testpmd;
mod testpmd_set_ups;

use std::rc::Rc;

use crate::contestants::Contestants;
use crate::ours::{Programs, enter_libpcap};
use foreign::FOREIGN_PROGRAMS;
use testpmd::Installation;

/// Adds every installed peer to the contestants, and records the other peers as absent.
///
/// On interfaces all peers receive frames from Ringroad's sender; without `programs` no peer runs there.
pub fn enter_installed(contestants: &mut Contestants, programs: Option<&Programs>) {
    if let Some(programs) = programs {
        enter_libpcap(contestants, programs, None);
        for program in &FOREIGN_PROGRAMS {
            match program.contestant(programs) {
                Ok(contestant) => contestants.enter(false, contestant),
                Err(error) => contestants.leave_out(program.name, error.with_causes()),
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
            contestants.leave_out(name, error.with_causes());
        }
    }
}
