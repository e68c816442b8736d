//! Frames in = frames out + drops by cause + frames that wait for a driver.

use ringroad::control::report::{StatusReport, SwitchReport};

use crate::daemon::Daemon;

/// Whether the counters cover every frame that any switch received, ports that left included.
#[must_use]
pub fn is_conserved(status: &StatusReport) -> bool {
    status.switches.iter().all(|switch| unaccounted(switch) == 0)
}

/// Waits until the counters cover every frame that any switch received. Stations in namespaces send at any time, and a
/// report may be made while a worker still handles a frame.
///
/// # Panics
/// If the counters do not balance within the time limit.
pub fn await_conserved(daemon: &Daemon) -> StatusReport {
    daemon.await_status("an account that balances", is_conserved)
}

fn unaccounted(switch: &SwitchReport) -> i128 {
    let totals = &switch.totals;
    let dropped: u64 = totals.drops.values().sum();
    i128::from(totals.received_frames) + i128::from(switch.replicated_frames)
        - i128::from(totals.delivered_frames)
        - i128::from(dropped)
        - i128::from(totals.waiting_frames)
}
