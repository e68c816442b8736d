//! Settings that a program or its environment makes: the library's variables, with their original names.

use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// Time for which `szedata_read_next` waits for data, ms. A negative time is endless.
#[allow(unsafe_code, reason = "the name is the interface")]
#[unsafe(no_mangle)]
pub static SZE2_RX_POLL_TIMEOUT: AtomicI32 = AtomicI32::new(50);

/// Time for which a program may wait for room before it checks again, ms. The library does not wait for room; the
/// variable is for programs that read it.
#[allow(unsafe_code, reason = "the name is the interface")]
#[unsafe(no_mangle)]
pub static SZE2_TX_POLL_TIMEOUT: AtomicI32 = AtomicI32::new(25);

/// Number of bytes that `szedata_burst_write_next` collects before it shows them to the card.
#[allow(unsafe_code, reason = "the name is the interface")]
#[unsafe(no_mangle)]
pub static SZE2_BURST_WRITE_SIZE: AtomicU32 = AtomicU32::new(1 << 20);

/// Longest time that the environment can set, ms.
const MAX_TIMEOUT_MS: i32 = 120_000;

/// Reads the times from the environment, once in a process. An invalid value is reported on stderr and ignored.
pub fn read() {
    static READ: Once = Once::new();
    READ.call_once(|| {
        for (name, target) in
            [("SZE2_RX_POLL_TIMEOUT", &SZE2_RX_POLL_TIMEOUT), ("SZE2_TX_POLL_TIMEOUT", &SZE2_TX_POLL_TIMEOUT)]
        {
            let Some(text) = std::env::var_os(name) else { continue };
            match text.to_str().and_then(timeout_ms) {
                Some(timeout) => target.store(timeout, Ordering::Relaxed),
                None => eprintln!(
                    "libsze2: {name}={}: choose -1 to {MAX_TIMEOUT_MS} milliseconds; it is left out",
                    text.display()
                ),
            }
        }
    });
}

fn timeout_ms(text: &str) -> Option<i32> {
    text.parse().ok().filter(|timeout| (-1..=MAX_TIMEOUT_MS).contains(timeout))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_timeouts_are_accepted() {
        assert_eq!(timeout_ms("-1"), Some(-1));
        assert_eq!(timeout_ms("120000"), Some(120_000));
        for text in ["", "-2", "120001", "1s", "99999999999"] {
            assert_eq!(timeout_ms(text), None, "{text}");
        }
    }
}
