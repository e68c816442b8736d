//! Checks of kernel, processors and memory. Read from /proc and /sys; missing files are skipped.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

use super::{Outcome, fail, ok, warn};
use crate::output::rates::size;

/// Oldest kernel that has all required features, such as I/O of sealed memfds, and epoll with ns timeouts (5.11).
const OLDEST_KERNEL: (u32, u32) = (5, 11);
/// Number of descriptors that a daemon with a few dozen ports needs.
const ENOUGH_DESCRIPTORS: u64 = 1024;

/// Runs the checks of this module.
pub(super) fn checks() -> Vec<(&'static str, Outcome)> {
    let text = |path: &str| read(path).unwrap_or_default();
    let outcomes = [
        ("kernel", Some(kernel())),
        ("processors", Some(processors())),
        ("isolated processors", Some(isolation(&text("/proc/cmdline")))),
        ("frequency governor", governor()),
        ("hardware threads", smt()),
        ("hypervisor", Some(hypervisor(&text("/proc/cpuinfo")))),
        ("stolen time", steal(&text("/proc/stat"))),
        ("clock source", Some(clock_source())),
        ("huge pages", Some(huge_pages(&text("/proc/meminfo")))),
        ("transparent huge pages for shared memory", shared_memory_pages()),
        ("open files", Some(descriptors())),
        ("locked memory", Some(locked_memory())),
        ("/dev/net/tun", Some(tun())),
    ];
    outcomes.into_iter().filter_map(|(check, outcome)| Some((check, outcome?))).collect()
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim_end().to_owned())
}

pub(super) fn kernel() -> Outcome {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    match version(&release) {
        Some(found) if found < OLDEST_KERNEL => fail(
            format!("Linux {release}"),
            format!("use Linux {}.{} or newer", OLDEST_KERNEL.0, OLDEST_KERNEL.1),
        ),
        _ => ok(format!("Linux {release}")),
    }
}

pub(super) fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn processors() -> Outcome {
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    match allowed {
        1 => warn(
            "1 usable",
            "sender, switch and receiver take turns on it; rates say little, and --busy must not be used",
        ),
        _ => ok(format!("{allowed} usable")),
    }
}

fn isolation(command_line: &str) -> Outcome {
    match command_line.split(' ').find_map(|word| word.strip_prefix("isolcpus=")) {
        Some(list) => ok(format!("isolcpus={list}")),
        None => warn(
            "none: other programs may interrupt the workers",
            "for steady rates boot with isolcpus=, and give those CPUs to workers and --cpu",
        ),
    }
}

fn governor() -> Option<Outcome> {
    let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")?;
    Some(match governor.as_str() {
        "performance" => ok(governor),
        _ => warn(
            governor,
            "for steady rates: echo performance | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
        ),
    })
}

fn smt() -> Option<Outcome> {
    Some(match read("/sys/devices/system/cpu/smt/active")?.as_str() {
        "1" => warn(
            "two per core are in use",
            "place workers and programs on different cores (lscpu -e), not on two threads of one",
        ),
        _ => ok("one per core"),
    })
}

fn hypervisor(cpuinfo: &str) -> Outcome {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    if flags.is_some_and(|line| line.split(' ').any(|flag| flag == "hypervisor")) {
        return warn(
            "this is a virtual machine: sleeping and waking cost more, and rates vary",
            "compare only figures taken side by side in one run; set workers.busy = true in the configuration if a CPU can be spared",
        );
    }
    ok("none seen")
}

/// Checks the share of time that the hypervisor gave to other guests since the start (proc(5), /proc/stat, eighth
/// value).
fn steal(stat: &str) -> Option<Outcome> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let times: Vec<u64> = line.split_whitespace().filter_map(|time| time.parse().ok()).collect();
    let stolen = *times.get(7)?;
    // The first eight values are added. The guest times after them are contained in the user times.
    let total: u64 = times.iter().take(8).sum();
    let percent = stolen as f64 * 100.0 / total.max(1) as f64;
    let finding = format!("{percent:.2} % of the time since the start");
    Some(if percent > 1.0 {
        warn(finding, "other guests use this machine's CPUs: request dedicated ones")
    } else {
        ok(finding)
    })
}

fn clock_source() -> Outcome {
    match read("/sys/devices/system/clocksource/clocksource0/current_clocksource") {
        Some(source) if matches!(source.as_str(), "tsc" | "kvm-clock" | "arch_sys_counter") => ok(source),
        Some(source) => warn(
            format!("{source}: reading the time may need a system call"),
            "pacing and rates cost more; if the processor's counter is sound, boot with tsc=reliable clocksource=tsc",
        ),
        None => ok("unknown"),
    }
}

fn huge_pages(meminfo: &str) -> Outcome {
    let number = |name: &str| -> Option<u64> {
        meminfo.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
    };
    let (total, free) = (number("HugePages_Total:").unwrap_or(0), number("HugePages_Free:").unwrap_or(0));
    let page = size(number("Hugepagesize:").unwrap_or(0) * 1024);
    match (total, free) {
        (0, _) => warn(
            "none reserved; they are optional and save some address translation",
            "reserve some: sysctl vm.nr_hugepages=64",
        ),
        (_, 0) => warn(
            format!("all {total} of {page} are in use; new ports take ordinary pages"),
            format!("reserve more: sysctl vm.nr_hugepages={}", total + 64),
        ),
        _ => ok(format!("{free} of {total} free, {page} each")),
    }
}

fn shared_memory_pages() -> Option<Outcome> {
    let setting = read("/sys/kernel/mm/transparent_hugepage/shmem_enabled")?;
    let chosen = setting.split(['[', ']']).nth(1).unwrap_or(&setting).to_owned();
    Some(match chosen.as_str() {
        "never" | "deny" => warn(
            format!("{chosen}: regions that get no reserved huge pages use small ones"),
            "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled",
        ),
        _ => ok(chosen),
    })
}

fn descriptors() -> Outcome {
    let limit = getrlimit(Resource::Nofile).current;
    let finding = limit.map_or_else(|| "unlimited".to_owned(), |limit| format!("limit {limit}"));
    match limit {
        Some(limit) if limit < ENOUGH_DESCRIPTORS => {
            warn(finding, format!("a port takes 2 and a queue 2 more: ulimit -n {ENOUGH_DESCRIPTORS}"))
        }
        _ => ok(finding),
    }
}

fn locked_memory() -> Outcome {
    let limit = getrlimit(Resource::Memlock).current;
    // Regions are not locked today. Drivers of network cards will need locked memory.
    let finding = limit.map_or_else(|| "unlimited".to_owned(), |limit| format!("limit {}", size(limit)));
    ok(format!("{finding}; the ports of this version need none"))
}

fn tun() -> Outcome {
    if Path::new("/dev/net/tun").exists() {
        ok("present")
    } else {
        warn(
            "absent; the ports of this version do not need it, peers of the benchmark may",
            "modprobe tun, or give the device to the container",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn kernel_releases_of_all_distributions_are_read() {
        for (release, found) in [("6.1.0-18-amd64", (6, 1)), ("5.4", (5, 4)), ("6.18.5+", (6, 18))] {
            assert_eq!(version(release), Some(found));
        }
        assert_eq!(version("unknown"), None);
    }

    #[test]
    fn huge_pages_are_reported_as_total_and_free() {
        let meminfo = |total: u64, free: u64| {
            format!("HugePages_Total: {total}\nHugePages_Free: {free}\nHugepagesize: 2048 kB")
        };
        assert_eq!(huge_pages(&meminfo(0, 0)).0, Verdict::Warn);
        assert_eq!(huge_pages(&meminfo(8, 0)).0, Verdict::Warn);
        assert_eq!(huge_pages(&meminfo(8, 3)), ok("3 of 8 free, 2.0 MiB each"));
    }

    #[test]
    fn stolen_time_is_a_share_of_all_time() {
        assert_eq!(steal("cpu  50 0 0 40 0 0 0 10 0 0\n").unwrap().0, Verdict::Warn);
        let quiet = steal("cpu  50 0 0 50 0 0 0 0 70 0\n").unwrap();
        assert_eq!(quiet, ok("0.00 % of the time since the start"));
        assert_eq!(steal("cpu0 1 2\n"), None);
    }

    #[test]
    fn isolated_processors_and_virtual_machines_are_detected() {
        assert_eq!(isolation("quiet isolcpus=2-3 nosplash").1, "isolcpus=2-3");
        assert_eq!(hypervisor("flags\t\t: fpu vme hypervisor sse").0, Verdict::Warn);
        assert_eq!(hypervisor("flags\t\t: fpu vme").0, Verdict::Ok);
    }
}
