//! Frames in = frames out + drops by cause.

use ringroad::control::report::{StatusReport, SwitchReport};

use crate::daemon::Daemon;

/// Asserts that every frame that any switch received is accounted for, ports that left included.
///
/// # Panics
/// If a frame is missing.
pub fn assert_conserved(status: &StatusReport) {
    for switch in &status.switches {
        assert_eq!(unaccounted(switch), 0, "{switch:?}");
    }
}

/// Waits until every frame that any switch received is accounted for: stations in namespaces send at any time.
///
/// # Panics
/// If the accounts do not balance within the time limit.
pub fn await_conserved(daemon: &Daemon) -> StatusReport {
    daemon.await_status("an account that balances", |status| {
        status.switches.iter().all(|switch| unaccounted(switch) == 0)
    })
}

fn unaccounted(switch: &SwitchReport) -> i128 {
    let totals = &switch.totals;
    let dropped: u64 = totals.drops.values().sum();
    i128::from(totals.received_frames) + i128::from(switch.replicated_frames)
        - i128::from(totals.delivered_frames)
        - i128::from(dropped)
}
