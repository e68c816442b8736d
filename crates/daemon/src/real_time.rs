//! Real-time priority of the workers: that of the most urgent program which may ask for it.
//!
//! A program with real-time priority keeps its processor from the workers as long as it computes, and waits for them at
//! the same time. So the workers get the priority of the most urgent program, as the kernel has it: programs cannot
//! claim one. All switches share the workers, and at this priority all frames are ahead of ordinary programs. So only
//! programs of administrators count, and only up to `workers.real_time` of the configuration, which is 0 by default.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use ringroad_control::peer::PeerCredentials;
use ringroad_datapath::fabric::Fabric;
use ringroad_ring::real_time;
use rustix::process::{Resource, getrlimit};
use tracing::{info, warn};

/// Time between two looks at the programs.
const PERIOD: Duration = Duration::from_secs(1);
/// Maximum number of programs, and of threads of a program, that a look reads: it takes some milliseconds at most.
const PROGRAMS: usize = 64;
const THREADS: usize = 32;

/// The workers' priority.
#[derive(Debug)]
pub struct WorkerPriority {
    /// The highest priority that workers take; 0: workers are ordinary threads.
    limit: u8,
    in_force: u8,
    /// Time of the next look; `None` if the limit is 0.
    pub(crate) due: Option<Instant>,
}

impl WorkerPriority {
    /// Priority for `wanted` of the configuration, as far as this process may take it.
    #[must_use]
    pub fn new(wanted: u8) -> Self {
        let limit = permitted(wanted);
        if limit < wanted {
            warn!(
                wanted,
                limit,
                "workers.real_time: this process may not take this priority; give it CAP_SYS_NICE or RLIMIT_RTPRIO \
                 (systemd: LimitRTPRIO=, RestrictRealtime=no)"
            );
        }
        Self { limit, in_force: 0, due: (limit > 0).then(Instant::now) }
    }

    /// The highest priority that workers take for a program.
    pub(crate) fn limit_for(&self, is_administrator: bool) -> u8 {
        if is_administrator { self.limit } else { 0 }
    }

    /// Gives the workers the priority of the most urgent of `programs`, which belong to administrators.
    pub(crate) fn follow(&mut self, programs: impl Iterator<Item = PeerCredentials>, fabric: &Fabric) {
        self.due = Some(Instant::now() + PERIOD);
        let programs: BTreeSet<_> = programs.filter_map(|peer| Some((peer.pid?, peer.uid))).collect();
        let most = programs.into_iter().take(PROGRAMS).map(|(process, uid)| priority_of(process, uid)).max();
        let wanted = most.unwrap_or(0).min(self.limit);
        if wanted == 0 && self.in_force == 0 {
            return;
        }
        // A worker that has just started may have missed the last call.
        if let Err(errno) = fabric.set_priority(wanted) {
            warn!(wanted, %errno, "changing the priority of workers");
        }
        if wanted != self.in_force {
            info!(priority = wanted, "workers have the real-time priority of the most urgent program");
            self.in_force = wanted;
        }
    }
}

/// The highest priority up to `wanted` that a thread of this process may take.
fn permitted(wanted: u8) -> u8 {
    let of_limit = getrlimit(Resource::Rtprio).current.map_or(wanted, |most| most.min(wanted.into()) as u8);
    let may_take = |priority: u8| {
        let taken = priority > 0 && real_time::set_priority(None, priority).is_ok();
        taken && real_time::set_priority(None, 0).is_ok()
    };
    [wanted, of_limit].into_iter().find(|&priority| may_take(priority)).unwrap_or(0)
}

/// Highest real-time priority of a process's threads, 0 if none has one, or if the process id belongs to another user's
/// process by now.
fn priority_of(process: u32, uid: u32) -> u8 {
    let folder = format!("/proc/{process}/task");
    if !std::fs::metadata(&folder).is_ok_and(|found| found.uid() == uid) {
        return 0;
    }
    let Ok(threads) = std::fs::read_dir(folder) else { return 0 };
    let stats = threads.flatten().take(THREADS);
    let stats = stats.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
    stats.filter_map(|stat| priority_in(&stat)).max().unwrap_or(0)
}

/// Real-time priority in `/proc/PID/task/TID/stat` (proc(5)): the fields `rt_priority` and `policy`, 40 and 41.
fn priority_in(stat: &str) -> Option<u8> {
    // A thread's name can have any characters; the field behind it is the third.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().skip(40 - 3);
    let (priority, policy) = (fields.next()?.parse().ok()?, fields.next()?);
    // SCHED_FIFO and SCHED_RR.
    matches!(policy, "1" | "2").then_some(priority)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_priority_of_a_thread_is_read_whatever_its_name() {
        let stat = |name: &str, priority: &str, policy: &str| {
            let between = "0 ".repeat(36);
            format!("7 ({name}) R {between}{priority} {policy} 0 0 0")
        };
        assert_eq!(priority_in(&stat("tlem", "99", "2")), Some(99));
        assert_eq!(priority_in(&stat(") R 1 2 (3", "5", "1")), Some(5));
        assert_eq!(priority_in(&stat("x", "0", "0")), None);
        assert_eq!(priority_in(&stat("x", "300", "2")), None);
        assert_eq!(priority_in("7 (x"), None);
        assert_eq!(priority_in(""), None);
    }

    #[test]
    fn a_process_of_another_user_has_no_priority() {
        let (own, uid) = (std::process::id(), rustix::process::geteuid().as_raw());
        assert_eq!((priority_of(own, uid), priority_of(own, uid + 1)), (0, 0));
        assert_eq!(priority_of(u32::MAX, uid), 0);
    }

    #[test]
    fn only_administrators_get_a_priority() {
        let priority = WorkerPriority { limit: 50, in_force: 0, due: None };
        assert_eq!((priority.limit_for(true), priority.limit_for(false)), (50, 0));
        assert_eq!(WorkerPriority::new(0).due, None);
    }
}
