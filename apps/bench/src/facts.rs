//! Properties of the machine that affect the figures (RFC 8204, section 3.3). Peers' reports without these properties
//! could not be reproduced.

use std::fs;
use std::time::Duration;

use ringroad_generator::clock::ticks_and_ns;
use serde::Serialize;

/// Machine on which a report was made. Properties that the system does not report are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MachineFacts {
    /// Processor model, of the first CPU.
    pub cpu_model: Option<String>,
    /// Microcode revision, of the first CPU.
    pub microcode: Option<String>,
    pub online_cpus: usize,
    /// Whether two threads of a core are in use (SMT).
    pub smt_active: Option<bool>,
    /// Ticks of the time-stamp counter per second, calibrated against the monotonic clock.
    pub tsc_hz: Option<f64>,
    /// Frequency governor of CPU 0; absent on most virtual machines.
    pub governor: Option<String>,
    /// Whether the processor reports that it is virtual.
    pub hypervisor: bool,
    /// Kernel release.
    pub kernel: String,
    pub kernel_command_line: Option<String>,
    /// Processor vulnerabilities with the kernel's mitigations, except those that do not affect the processor.
    pub mitigations: Vec<String>,
    pub memory_bytes: Option<u64>,
    /// Number of huge pages of the default size before the run.
    pub hugepages_total: Option<u64>,
    /// Number of free huge pages of the default size before the run.
    pub hugepages_free: Option<u64>,
    /// Load averages over 1, 5 and 15 minutes before the run.
    pub load_average: Option<[f64; 3]>,
}

impl MachineFacts {
    /// Examines the machine. Calibration of the counter takes about 50 ms.
    #[must_use]
    pub fn gather() -> Self {
        let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
        let meminfo = read("/proc/meminfo").unwrap_or_default();
        Self {
            cpu_model: field(&cpuinfo, "model name").map(str::to_owned),
            microcode: field(&cpuinfo, "microcode").map(str::to_owned),
            online_cpus: online_cpus(&cpuinfo),
            smt_active: read("/sys/devices/system/cpu/smt/active").map(|text| text == "1"),
            tsc_hz: calibrate_hz(Duration::from_millis(50)),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            hypervisor: field(&cpuinfo, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            kernel_command_line: read("/proc/cmdline"),
            mitigations: mitigations(),
            memory_bytes: kibibytes(&meminfo, "MemTotal"),
            hugepages_total: field(&meminfo, "HugePages_Total").and_then(|text| text.parse().ok()),
            hugepages_free: field(&meminfo, "HugePages_Free").and_then(|text| text.parse().ok()),
            load_average: read("/proc/loadavg").and_then(|text| load_average(&text)),
        }
    }
}

/// Returns the ticks per second, from a comparison with the monotonic clock over `interval`; `None`
/// on other architectures than x86-64. On every processor of the last decade the counter ticks at a constant rate,
/// independent of the core's clock rate.
fn calibrate_hz(interval: Duration) -> Option<f64> {
    let (first_ticks, first_ns) = ticks_and_ns()?;
    std::thread::sleep(interval);
    let (last_ticks, last_ns) = ticks_and_ns()?;
    let ns = last_ns.checked_sub(first_ns).filter(|ns| *ns > 0)?;
    Some(last_ticks.wrapping_sub(first_ticks) as f64 * 1e9 / ns as f64)
}

/// Returns the CPUs that this process may run on, in ascending order.
#[must_use]
pub fn allowed_cpus() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return vec![0] };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// Returns the CPUs that this process may run on, grouped by core, in ascending order of each core's first CPU. A CPU
/// whose core the system does not report is a core of its own.
#[must_use]
pub fn allowed_cores() -> Vec<Vec<usize>> {
    cores_of(&allowed_cpus(), |cpu| {
        read(&format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"))
    })
}

/// Groups `cpus` by core. `siblings` returns the list of a CPU's core, as "0,20" or "0-1".
fn cores_of(cpus: &[usize], siblings: impl Fn(usize) -> Option<String>) -> Vec<Vec<usize>> {
    let mut cores: Vec<Vec<usize>> = Vec::new();
    for &cpu in cpus {
        if cores.iter().any(|core| core.contains(&cpu)) {
            continue;
        }
        let list = siblings(cpu).unwrap_or_default();
        let is_sibling = |other: usize| {
            list.split(',').any(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                let is_within = |first: usize, last: usize| (first..=last).contains(&other);
                first.parse().is_ok_and(|first| last.parse().is_ok_and(|last| is_within(first, last)))
            })
        };
        cores.push(cpus.iter().copied().filter(|&other| other == cpu || is_sibling(other)).collect());
    }
    cores
}

/// Clock of the processor time that the hypervisor gives to other guests during a run.
#[derive(Clone, Copy, Debug)]
pub struct StealClock {
    start: Option<CpuTime>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CpuTime {
    stolen: u64,
    all: u64,
}

impl StealClock {
    #[must_use]
    pub fn start() -> Self {
        Self { start: cpu_time() }
    }

    /// Returns the share of all CPUs' time that was stolen since the start, in percent.
    #[must_use]
    pub fn percent(&self) -> Option<f64> {
        let (start, now) = (self.start?, cpu_time()?);
        let all = now.all.checked_sub(start.all).filter(|all| *all > 0)?;
        Some(now.stolen.saturating_sub(start.stolen) as f64 / all as f64 * 100.0)
    }
}

fn cpu_time() -> Option<CpuTime> {
    parse_cpu_time(&read("/proc/stat")?)
}

/// Parses the first line of /proc/stat: user nice system idle iowait irq softirq steal guest guest_nice (proc(5)).
/// Guest times are contained in user and nice.
fn parse_cpu_time(stat: &str) -> Option<CpuTime> {
    let fields: Vec<u64> = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        .map(|n| n.parse().ok())
        .collect::<Option<_>>()?;
    Some(CpuTime { stolen: *fields.get(7)?, all: fields.iter().take(8).sum() })
}

fn read(file: &str) -> Option<String> {
    Some(fs::read_to_string(file).ok()?.trim().to_owned())
}

/// Returns the value of the first `name : value` line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn online_cpus(cpuinfo: &str) -> usize {
    cpuinfo.lines().filter(|line| line.starts_with("processor")).count()
}

fn kibibytes(meminfo: &str, name: &str) -> Option<u64> {
    field(meminfo, name)?.strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

fn load_average(text: &str) -> Option<[f64; 3]> {
    let mut numbers = text.split_whitespace().map_while(|word| word.parse().ok());
    Some([numbers.next()?, numbers.next()?, numbers.next()?])
}

fn mitigations() -> Vec<String> {
    let Ok(folder) = fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else { return Vec::new() };
    let mut found: Vec<String> = folder
        .flatten()
        .filter_map(|entry| {
            let state = fs::read_to_string(entry.path()).ok()?;
            let state = state.trim();
            (state != "Not affected").then(|| format!("{}: {state}", entry.file_name().to_string_lossy()))
        })
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_counter_advances_and_has_the_frequency_of_a_processor() {
        let hz = calibrate_hz(Duration::from_millis(20)).unwrap();
        assert!((1e8..1e11).contains(&hz), "{hz}");
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "model\t\t: 1\nmodel name\t: A Fast One\nflags : a hypervisor b";
        assert_eq!(field(text, "model name"), Some("A Fast One"));
        assert_eq!(field(text, "name"), None);
    }

    #[test]
    fn memory_is_given_in_bytes() {
        assert_eq!(kibibytes("MemTotal:       24683 kB", "MemTotal"), Some(24683 * 1024));
        assert_eq!(kibibytes("MemTotal: many kB", "MemTotal"), None);
    }

    #[test]
    fn steal_is_the_eighth_column_and_guest_time_is_not_counted_twice() {
        let time = parse_cpu_time("cpu  1 2 3 4 5 6 7 8 100 100\ncpu0 9 9").unwrap();
        assert_eq!(time, CpuTime { stolen: 8, all: 36 });
        assert_eq!(parse_cpu_time("cpu 1 2 three"), None);
        assert_eq!(parse_cpu_time(""), None);
    }

    #[test]
    fn processors_of_one_core_are_grouped_and_forbidden_ones_are_left_out() {
        let by_twenties = |cpu| Some(format!("{},{}", cpu % 20, cpu % 20 + 20));
        assert_eq!(cores_of(&[0, 1, 20, 22], by_twenties), [vec![0, 20], vec![1], vec![22]]);
        assert_eq!(cores_of(&[0, 1, 2], |cpu| (cpu < 2).then(|| "0-1".into())), [vec![0, 1], vec![2]]);
        assert_eq!(cores_of(&[3], |_| Some("not a list".into())), [vec![3]]);
    }

    #[test]
    fn load_averages_need_three_numbers() {
        assert_eq!(load_average("0.10 0.20 0.30 1/87 6946"), Some([0.10, 0.20, 0.30]));
        assert_eq!(load_average("0.10 soon"), None);
    }

    #[test]
    fn this_machine_has_a_kernel_and_a_cpu_to_run_on() {
        let facts = MachineFacts::gather();
        assert!(!facts.kernel.is_empty());
        assert!(!allowed_cpus().is_empty());
        assert!(facts.online_cpus >= 1);
    }
}
