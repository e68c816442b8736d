//! Pinning of threads to processors.

use std::io;

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Pins the calling thread to processor `cpu`.
///
/// # Errors
/// The kernel's error. If there is no such processor, or this process is not allowed to use it, the text names those
/// that it can use.
pub fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    if cpu < CpuSet::MAX_CPU {
        set.set(cpu);
    }
    sched_setaffinity(None, &set).map_err(|error| match error {
        Errno::INVAL => {
            let usable =
                sched_getaffinity(None).map_or_else(|_| "not known".to_owned(), |set| in_words(&set));
            let why = format!("CPU {cpu} is not among those that this process can use: {usable}");
            io::Error::new(io::ErrorKind::InvalidInput, why)
        }
        error => io::Error::other(format!("running on CPU {cpu}: {error}")),
    })
}

/// The processors of a set: `0-3, 8`.
fn in_words(set: &CpuSet) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)) {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => runs.push((cpu, cpu)),
        }
    }
    let words = runs.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_processor_is_named_beside_the_usable_ones() {
        let usable = in_words(&sched_getaffinity(None).unwrap());
        assert!(!usable.is_empty());
        for missing in [CpuSet::MAX_CPU - 1, 100_000] {
            let expected = format!("CPU {missing} is not among those that this process can use: {usable}");
            assert_eq!(pin(missing).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn consecutive_processors_are_a_range() {
        let mut set = CpuSet::new();
        [0, 1, 2, 5, 7, 8].into_iter().for_each(|cpu| set.set(cpu));
        assert_eq!(in_words(&set), "0-2, 5, 7-8");
    }
}
