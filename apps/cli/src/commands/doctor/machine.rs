//! Checks of kernel, processors and memory. Read from /proc and /sys; missing files are skipped.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

use super::Check;
use crate::output::rates::size;

/// Oldest kernel that has all required features, such as I/O of sealed memfds, and epoll with ns timeouts (5.11).
const OLDEST_KERNEL: (u32, u32) = (5, 11);
/// Number of descriptors that a daemon with a few dozen ports needs.
const ENOUGH_DESCRIPTORS: u64 = 1024;

/// Runs the checks of this module.
pub(super) fn checks() -> Vec<Check> {
    let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
    let command_line = read("/proc/cmdline").unwrap_or_default();
    let mut checks = vec![kernel(), processors(), isolation(&command_line)];
    checks.extend(governor());
    checks.extend(smt());
    checks.push(hypervisor(&cpuinfo));
    checks.extend(steal(&read("/proc/stat").unwrap_or_default()));
    checks.push(clock_source());
    checks.push(huge_pages(&read("/proc/meminfo").unwrap_or_default()));
    checks.extend(shared_memory_pages());
    checks.push(descriptors());
    checks.push(locked_memory());
    checks.push(tun());
    checks
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim_end().to_owned())
}

fn kernel() -> Check {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    match version(&release) {
        Some(found) if found < OLDEST_KERNEL => Check::fail(
            "kernel",
            format!("Linux {release}"),
            format!("use Linux {}.{} or newer", OLDEST_KERNEL.0, OLDEST_KERNEL.1),
        ),
        _ => Check::ok("kernel", format!("Linux {release}")),
    }
}

pub(super) fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn processors() -> Check {
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    match allowed {
        1 => Check::warn(
            "processors",
            "1 usable",
            "sender, switch and receiver take turns on it; rates say little, and --busy must not be used",
        ),
        _ => Check::ok("processors", format!("{allowed} usable")),
    }
}

fn isolation(command_line: &str) -> Check {
    const CHECK: &str = "isolated processors";
    match command_line.split(' ').find_map(|word| word.strip_prefix("isolcpus=")) {
        Some(list) => Check::ok(CHECK, format!("isolcpus={list}")),
        None => Check::warn(
            CHECK,
            "none: other programs may interrupt the workers",
            "for steady rates boot with isolcpus=, and give those CPUs to workers and --cpu",
        ),
    }
}

fn governor() -> Option<Check> {
    let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")?;
    Some(match governor.as_str() {
        "performance" => Check::ok("frequency governor", governor),
        _ => Check::warn(
            "frequency governor",
            governor,
            "for steady rates: echo performance | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
        ),
    })
}

fn smt() -> Option<Check> {
    Some(match read("/sys/devices/system/cpu/smt/active")?.as_str() {
        "1" => Check::warn(
            "hardware threads",
            "two per core are in use",
            "place workers and programs on different cores (lscpu -e), not on two threads of one",
        ),
        _ => Check::ok("hardware threads", "one per core"),
    })
}

fn hypervisor(cpuinfo: &str) -> Check {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    if flags.is_some_and(|line| line.split(' ').any(|flag| flag == "hypervisor")) {
        return Check::warn(
            "hypervisor",
            "this is a virtual machine: sleeping and waking cost more, and rates vary",
            "compare only figures taken side by side in one run; set workers.busy = true in the configuration if a CPU can be spared",
        );
    }
    Check::ok("hypervisor", "none seen")
}

/// Checks the share of time that the hypervisor gave to other guests since the start (proc(5), /proc/stat, eighth
/// value).
fn steal(stat: &str) -> Option<Check> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let times: Vec<u64> = line.split_whitespace().filter_map(|time| time.parse().ok()).collect();
    let stolen = *times.get(7)?;
    // The first eight values are added. The guest times after them are contained in the user times.
    let total: u64 = times.iter().take(8).sum();
    let percent = stolen as f64 * 100.0 / total.max(1) as f64;
    let finding = format!("{percent:.2} % of the time since the start");
    Some(if percent > 1.0 {
        Check::warn("stolen time", finding, "other guests use this machine's CPUs: request dedicated ones")
    } else {
        Check::ok("stolen time", finding)
    })
}

fn clock_source() -> Check {
    const CHECK: &str = "clock source";
    match read("/sys/devices/system/clocksource/clocksource0/current_clocksource") {
        Some(source) if matches!(source.as_str(), "tsc" | "kvm-clock" | "arch_sys_counter") => {
            Check::ok(CHECK, source)
        }
        Some(source) => Check::warn(
            CHECK,
            format!("{source}: reading the time may need a system call"),
            "pacing and rates cost more; if the processor's counter is sound, boot with tsc=reliable clocksource=tsc",
        ),
        None => Check::ok(CHECK, "unknown"),
    }
}

fn huge_pages(meminfo: &str) -> Check {
    const CHECK: &str = "huge pages";
    let number = |name: &str| -> Option<u64> {
        meminfo.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
    };
    let (total, free) = (number("HugePages_Total:").unwrap_or(0), number("HugePages_Free:").unwrap_or(0));
    let page = size(number("Hugepagesize:").unwrap_or(0) * 1024);
    match (total, free) {
        (0, _) => Check::warn(
            CHECK,
            "none reserved; they are optional and save some address translation",
            "reserve some: sysctl vm.nr_hugepages=64",
        ),
        (_, 0) => Check::warn(
            CHECK,
            format!("all {total} of {page} are in use; new ports take ordinary pages"),
            format!("reserve more: sysctl vm.nr_hugepages={}", total + 64),
        ),
        _ => Check::ok(CHECK, format!("{free} of {total} free, {page} each")),
    }
}

fn shared_memory_pages() -> Option<Check> {
    let setting = read("/sys/kernel/mm/transparent_hugepage/shmem_enabled")?;
    let chosen = setting.split(['[', ']']).nth(1).unwrap_or(&setting).to_owned();
    Some(match chosen.as_str() {
        "never" | "deny" => Check::warn(
            "transparent huge pages for shared memory",
            format!("{chosen}: regions that get no reserved huge pages use small ones"),
            "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled",
        ),
        _ => Check::ok("transparent huge pages for shared memory", chosen),
    })
}

fn descriptors() -> Check {
    let limit = getrlimit(Resource::Nofile).current;
    let finding = limit.map_or_else(|| "unlimited".to_owned(), |limit| format!("limit {limit}"));
    match limit {
        Some(limit) if limit < ENOUGH_DESCRIPTORS => Check::warn(
            "open files",
            finding,
            format!("a port takes 2 and a queue 2 more: ulimit -n {ENOUGH_DESCRIPTORS}"),
        ),
        _ => Check::ok("open files", finding),
    }
}

fn locked_memory() -> Check {
    let limit = getrlimit(Resource::Memlock).current;
    // Regions are not locked today. Drivers of network cards will need locked memory.
    let finding = limit.map_or_else(|| "unlimited".to_owned(), |limit| format!("limit {}", size(limit)));
    Check::ok("locked memory", format!("{finding}; the ports of this version need none"))
}

fn tun() -> Check {
    if Path::new("/dev/net/tun").exists() {
        Check::ok("/dev/net/tun", "present")
    } else {
        Check::warn(
            "/dev/net/tun",
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
        assert_eq!(huge_pages(&meminfo(0, 0)).verdict, Verdict::Warn);
        assert_eq!(huge_pages(&meminfo(8, 0)).verdict, Verdict::Warn);
        assert_eq!(huge_pages(&meminfo(8, 3)), Check::ok("huge pages", "3 of 8 free, 2.0 MiB each"));
    }

    #[test]
    fn stolen_time_is_a_share_of_all_time() {
        assert_eq!(steal("cpu  50 0 0 40 0 0 0 10 0 0\n").unwrap().verdict, Verdict::Warn);
        let quiet = steal("cpu  50 0 0 50 0 0 0 0 70 0\n").unwrap();
        assert_eq!(
            (quiet.verdict, quiet.finding.as_str()),
            (Verdict::Ok, "0.00 % of the time since the start")
        );
        assert_eq!(steal("cpu0 1 2\n"), None);
    }

    #[test]
    fn isolated_processors_and_virtual_machines_are_detected() {
        assert_eq!(isolation("quiet isolcpus=2-3 nosplash").finding, "isolcpus=2-3");
        assert_eq!(hypervisor("flags\t\t: fpu vme hypervisor sse").verdict, Verdict::Warn);
        assert_eq!(hypervisor("flags\t\t: fpu vme").verdict, Verdict::Ok);
    }
}
