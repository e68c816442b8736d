//! Pings that must all be answered, however late.
//!
//! After its last packet, ping waits for missing replies for two round trips only, if any reply has come (`-W` of
//! ping(8)). Beside load a reply can take longer. With `-w` ping waits for the replies, and sends more packets
//! meanwhile. busybox's ping has no such option: one packet and `-W` do the same there.

use crate::network::patience_s;

/// Command for `count` pings of iputils' ping, `interval_s` seconds apart. [`assert_all_answered`] checks its output.
#[must_use]
pub fn ping_command(options: &[&str], count: u32, interval_s: &str, address: &str) -> Vec<String> {
    let (count, patience_s) = (count.to_string(), patience_s());
    let fixed = ["-n", "-c", &count, "-i", interval_s, "-w", &patience_s, address];
    ["ping"].iter().chain(options).chain(&fixed).map(|&argument| argument.to_owned()).collect()
}

/// Checks in ping's output that the first `count` packets were answered.
///
/// # Panics
/// If one was not.
pub fn assert_all_answered(printed: &str, count: u32) {
    let is_answered = |number| printed.contains(&format!("icmp_seq={number} "));
    assert!((1..=count).all(is_answered), "{printed}");
}
