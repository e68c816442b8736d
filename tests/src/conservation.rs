//! Frames in = frames out + drops by cause.

use ringroad::control::report::StatusReport;

/// Asserts that every frame that any switch received is accounted for, ports that left included.
///
/// # Panics
/// Where it is not.
pub fn assert_conserved(status: &StatusReport) {
    for switch in &status.switches {
        let totals = &switch.totals;
        let dropped: u64 = totals.drops.values().sum();
        assert_eq!(
            totals.received_frames + switch.replicated_frames,
            totals.delivered_frames + dropped,
            "{switch:?}"
        );
    }
}
