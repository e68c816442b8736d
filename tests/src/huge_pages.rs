//! Pages of 2 MiB, reserved while a test needs them.

use std::fs;

const RESERVED: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";

/// A reservation. Ends with the value.
#[derive(Debug)]
pub struct HugePages {
    before: u64,
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

impl HugePages {
    /// Makes sure that `pages` are free; says so where they cannot be had, for want of memory in one piece or of root.
    #[must_use]
    pub fn reserve(pages: u64) -> Option<Self> {
        let reserved = number(RESERVED).and_then(|before| {
            let this = Self { before };
            let missing = pages.saturating_sub(number(FREE)?);
            fs::write(RESERVED, (before + missing).to_string()).ok()?;
            (number(FREE)? >= pages).then_some(this)
        });
        if reserved.is_none() {
            eprintln!("skipped on huge pages: {pages} of 2 MiB cannot be reserved");
        }
        reserved
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = fs::write(RESERVED, self.before.to_string());
    }
}
