//! Pinning of threads to processors.

use std::io;

/// Pins the calling thread to processor `cpu`.
///
/// # Errors
/// The kernel's error if there is no such processor, or this process is not allowed to use it.
pub fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("there is no CPU {cpu}")));
    }
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_processor_is_named() {
        assert!(pin(100_000).unwrap_err().to_string().contains("100000"));
    }
}
