//! What a comparison of switches found: as JSON, and as a table.

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};
use serde::Serialize;

use super::plan::{VmCores, VmPlan};
use super::turn::{GuestFacts, SizeOutcome, TurnOutcome};
use crate::contestant::CPU_WAIT_LIMIT;
use crate::facts::MachineFacts;
use crate::peers::Absent;
use crate::ratio::{PairedRatio, Summary};

/// What the JSON is.
pub const SCHEMA: &str = "ringroad-bench-vm/1";
/// What the project wants of itself: a peer's name as it begins, and the ratio of throughputs at 64 bytes.
const GOALS: [(&str, f64); 2] = [("OVS-DPDK", 2.0), ("DPDK testpmd", 1.5)];
/// Percent of a core that Ringroad may cost without traffic.
const IDLE_GOAL_PERCENT: f64 = 1.0;

/// A switch at one frame size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SwitchAtSize {
    /// The switch.
    pub switch: String,
    /// Frames per second without loss, both directions together.
    pub throughput_fps: Option<Summary>,
    /// Frames per second at overload.
    pub overload_fps: Option<Summary>,
    /// Ringroad's throughput over this one's, by round; absent for Ringroad itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ringroad_ratio: Option<PairedRatio>,
    /// Turns in which the generator was the limit at overload.
    pub turns_limited_by_generator: usize,
    /// Percentiles at half of the throughput, microseconds.
    pub latency_p50_us: Option<Summary>,
    /// The 99th.
    pub latency_p99_us: Option<Summary>,
    /// The 99.9th.
    pub latency_p999_us: Option<Summary>,
    /// Processor time of the switch for a frame, ns.
    pub cpu_ns_per_frame: Option<Summary>,
    /// Share of the time in which other programs had the switch's processor.
    pub cpu_wait: Option<Summary>,
}

/// All switches at one frame size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SizeReport {
    /// Frame size in bytes, FCS included.
    pub frame_bytes: u32,
    /// The switches, Ringroad first.
    pub switches: Vec<SwitchAtSize>,
}

/// A switch and all of its turns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SwitchReport {
    /// Its name.
    pub name: String,
    /// What it does with a frame.
    pub about: String,
    /// Percent of a core without traffic.
    pub idle_cpu_percent: Option<Summary>,
    /// The turns, in the order of the rounds; what kept one from being measured instead of what it found.
    pub turns: Vec<Turn>,
}

/// A turn that was measured, or not.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Turn {
    /// Measured.
    Valid(TurnOutcome),
    /// Not measured.
    Invalid {
        /// Why.
        reason: String,
    },
}

/// What the project wants, beside what was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// The goal, for people.
    pub goal: String,
    /// What was found.
    pub found: f64,
    /// Whether that is enough; absent where the guest shared the generator's core, or other programs had too much of a switch's processor to say.
    pub is_met: Option<bool>,
}

/// The whole comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VmReport {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The machine.
    pub machine: MachineFacts,
    /// Who had which CPU.
    pub cores: VmCores,
    /// Share of processor time that the hypervisor gave to others during the run, percent.
    pub steal_percent: Option<f64>,
    /// What was measured.
    pub plan: VmPlan,
    /// Whether it was stopped before its end.
    pub stopped: bool,
    /// Peers that could not take part, and why.
    pub absent: Vec<Absent>,
    /// By frame size.
    pub sizes: Vec<SizeReport>,
    /// By switch.
    pub switches: Vec<SwitchReport>,
    /// The project's goals.
    pub goals: Vec<Goal>,
}

/// A turn for a log.
pub(super) fn in_a_line(outcome: &Result<TurnOutcome, String>) -> String {
    let turn = match outcome {
        Ok(turn) => turn,
        Err(reason) => return format!("invalid: {reason}"),
    };
    let size = |size: &SizeOutcome| {
        let rate = size.throughput_fps.map_or("none".into(), |rate| format!("{:.2} Mpps", rate / 1e6));
        format!("{} B {rate} (overload {:.2})", size.frame_bytes, size.overload_fps / 1e6)
    };
    turn.sizes.iter().map(size).collect::<Vec<_>>().join(", ")
}

type Turns = Vec<Result<TurnOutcome, String>>;

/// The value of each turn at a size, in the order of the rounds.
fn series(turns: &Turns, frame_bytes: u32, value: impl Fn(&SizeOutcome) -> Option<f64>) -> Vec<Option<f64>> {
    let at_size =
        |turn: &TurnOutcome| turn.sizes.iter().find(|size| size.frame_bytes == frame_bytes).and_then(&value);
    turns.iter().map(|turn| turn.as_ref().ok().and_then(at_size)).collect()
}

fn summary(turns: &Turns, frame_bytes: u32, value: impl Fn(&SizeOutcome) -> Option<f64>) -> Option<Summary> {
    Summary::of(series(turns, frame_bytes, value).into_iter().flatten())
}

impl VmReport {
    pub(super) fn new(
        plan: VmPlan,
        machine: MachineFacts,
        steal_percent: Option<f64>,
        cores: VmCores,
        stopped: bool,
        absent: Vec<Absent>,
        contestants: impl IntoIterator<Item = (&'static str, &'static str, Turns)>,
    ) -> Self {
        let contestants: Vec<_> = contestants.into_iter().collect();
        let ours = contestants.iter().find(|(name, ..)| *name == "Ringroad").map(|(.., turns)| turns);
        let at_size = |frame_bytes: u32| {
            let switch = |(name, _, turns): &(&'static str, &'static str, Turns)| {
                let throughput = |size: &SizeOutcome| size.throughput_fps;
                let ratio = ours.filter(|_| *name != "Ringroad").and_then(|ours| {
                    let (first, second) =
                        (series(ours, frame_bytes, throughput), series(turns, frame_bytes, throughput));
                    PairedRatio::of(&first, &second)
                });
                let limited = |size: &SizeOutcome| size.generator_was_the_limit.then_some(1.0);
                SwitchAtSize {
                    switch: (*name).into(),
                    throughput_fps: summary(turns, frame_bytes, throughput),
                    overload_fps: summary(turns, frame_bytes, |size| Some(size.overload_fps)),
                    ringroad_ratio: ratio,
                    turns_limited_by_generator: series(turns, frame_bytes, limited).iter().flatten().count(),
                    latency_p50_us: summary(turns, frame_bytes, |size| size.latency.map(|of| of.p50_us)),
                    latency_p99_us: summary(turns, frame_bytes, |size| size.latency.map(|of| of.p99_us)),
                    latency_p999_us: summary(turns, frame_bytes, |size| size.latency.map(|of| of.p999_us)),
                    cpu_ns_per_frame: summary(turns, frame_bytes, |size| size.cpu_ns_per_frame),
                    cpu_wait: summary(turns, frame_bytes, |size| size.cpu_wait),
                }
            };
            SizeReport { frame_bytes, switches: contestants.iter().map(switch).collect() }
        };
        let sizes: Vec<SizeReport> = plan.sizes_bytes.iter().map(|bytes| at_size(*bytes)).collect();
        let switches: Vec<SwitchReport> = contestants
            .iter()
            .map(|(name, about, turns)| SwitchReport {
                name: (*name).into(),
                about: (*about).into(),
                idle_cpu_percent: Summary::of(
                    turns.iter().flatten().filter_map(|turn| turn.idle_cpu_percent),
                ),
                turns: turns
                    .iter()
                    .map(|turn| match turn {
                        Ok(outcome) => Turn::Valid(outcome.clone()),
                        Err(reason) => Turn::Invalid { reason: reason.clone() },
                    })
                    .collect(),
            })
            .collect();
        let goals = goals(&sizes, &switches, cores);
        Self { schema: SCHEMA, machine, cores, steal_percent, plan, stopped, absent, sizes, switches, goals }
    }

    /// As JSON.
    ///
    /// # Errors
    /// None that a report can cause.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }

    /// For people.
    #[must_use]
    pub fn to_table(&self) -> String {
        let mut parts = vec![format!(
            "{}; both ways at once, rates are sums of both. Medians (smallest to largest). \
             CPU taken: by other programs from the switch; where it is much, the figures are about those.",
            self.plan.topology.in_words()
        )];
        let VmCores { generator, switch, guest, guest_shares_core } = self.cores;
        let guest = guest.map(|guest| format!(", guest {guest}")).unwrap_or_default();
        parts.push(format!("Cores: generator {generator}, switch {switch}{guest}."));
        if guest_shares_core {
            parts.push(
                "Guest and generator share a core: each waits for the other, and the figures are those of the \
                 kernel's time slices as much as of the switch. No goal is judged."
                    .into(),
            );
        }
        for size in &self.sizes {
            parts.push(format!("{} B\n{}", size.frame_bytes, table(size)));
        }
        parts.push("Without traffic, percent of a core:".into());
        for switch in &self.switches {
            let idle = show(switch.idle_cpu_percent.as_ref(), 1.0, 2);
            parts.push(format!("  {}: {idle}", switch.name));
        }
        for switch in &self.switches {
            parts.push(format!("{}: {}", switch.name, switch.about));
            let guest = switch.turns.iter().find_map(|turn| match turn {
                Turn::Valid(outcome) => outcome.guest.as_ref(),
                Turn::Invalid { .. } => None,
            });
            if let Some(GuestFacts { version, memory, command, .. }) = guest {
                let version = version.as_deref().unwrap_or("version unknown");
                parts.push(format!("  guest: {version}, {memory}: {command}"));
            }
            for turn in &switch.turns {
                if let Turn::Invalid { reason } = turn {
                    parts.push(format!("  a turn was not measured: {reason}"));
                }
            }
        }
        for absent in &self.absent {
            parts.push(format!("{} took no part: {}", absent.name, absent.reason));
        }
        for goal in &self.goals {
            let verdict = match goal.is_met {
                Some(true) => "met",
                Some(false) => "not met",
                None if self.cores.guest_shares_core => {
                    "not judged, since the guest shares the generator's core"
                }
                None => "not judged, since other programs had the processor for too long",
            };
            parts.push(format!("goal: {}; found {:.2}: {verdict}", goal.goal, goal.found));
        }
        if self.stopped {
            parts.push("stopped before the end".into());
        }
        parts.join("\n")
    }
}

fn goals(sizes: &[SizeReport], switches: &[SwitchReport], cores: VmCores) -> Vec<Goal> {
    let mut goals = Vec::new();
    let judged = !cores.guest_shares_core;
    let denied = |switch: &SwitchAtSize| switch.cpu_wait.is_some_and(|wait| wait.median > CPU_WAIT_LIMIT);
    for size in sizes.iter().filter(|size| size.frame_bytes == 64) {
        let ours_denied = size.switches.iter().any(|switch| switch.switch == "Ringroad" && denied(switch));
        for switch in &size.switches {
            let goal = GOALS.iter().find(|(peer, _)| switch.switch.starts_with(peer));
            if let (Some((_, least)), Some(ratio)) = (goal, &switch.ringroad_ratio) {
                let found = ratio.summary.median;
                let goal = format!("{least} times the throughput of {} at 64 B", switch.switch);
                let is_met = (judged && !ours_denied && !denied(switch)).then_some(found >= *least);
                goals.push(Goal { goal, found, is_met });
            }
        }
    }
    let ours = switches.iter().find(|switch| switch.name == "Ringroad");
    if let Some(idle) = ours.and_then(|switch| switch.idle_cpu_percent) {
        let goal = format!("less than {IDLE_GOAL_PERCENT} % of a core without traffic");
        let is_met = judged.then_some(idle.median < IDLE_GOAL_PERCENT);
        goals.push(Goal { goal, found: idle.median, is_met });
    }
    goals
}

fn show(summary: Option<&Summary>, scale: f64, digits: usize) -> String {
    summary.map_or_else(
        || "–".into(),
        |of| {
            format!(
                "{:.digits$} ({:.digits$} to {:.digits$})",
                of.median / scale,
                of.min / scale,
                of.max / scale
            )
        },
    )
}

fn table(size: &SizeReport) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled).set_header([
        "switch",
        "Ringroad's ratio",
        "Mpps without loss",
        "Mpps at overload",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "CPU ns/frame",
        "CPU taken %",
    ]);
    for switch in &size.switches {
        let ratio = switch.ringroad_ratio.as_ref().map(|ratio| &ratio.summary);
        let overload = show(switch.overload_fps.as_ref(), 1e6, 2);
        let by_generator = if switch.turns_limited_by_generator > 0 { ", generator the limit" } else { "" };
        let cells = [
            show(ratio, 1.0, 2),
            show(switch.throughput_fps.as_ref(), 1e6, 2),
            format!("{overload}{by_generator}"),
            show(switch.latency_p50_us.as_ref(), 1.0, 1),
            show(switch.latency_p99_us.as_ref(), 1.0, 1),
            show(switch.latency_p999_us.as_ref(), 1.0, 1),
            show(switch.cpu_ns_per_frame.as_ref(), 1.0, 0),
            show(switch.cpu_wait.as_ref(), 0.01, 0),
        ];
        let cells = cells.into_iter().map(|cell| Cell::new(cell).set_alignment(CellAlignment::Right));
        table.add_row(std::iter::once(Cell::new(&switch.switch)).chain(cells));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::Topology;

    fn turn(fps: f64, idle: f64) -> Result<TurnOutcome, String> {
        let size = SizeOutcome {
            frame_bytes: 64,
            throughput_fps: Some(fps),
            overload_fps: fps * 1.1,
            generator_was_the_limit: false,
            generator_idle_share: 0.5,
            latency: None,
            cpu_ns_per_frame: Some(1e9 / fps),
            cpu_wait: Some(0.01),
            trials: 6,
        };
        let guest = GuestFacts {
            version: Some("DPDK 1".into()),
            memory: "huge".into(),
            command: "testpmd -m 1".into(),
            frames: 7,
        };
        Ok(TurnOutcome {
            sizes: vec![size],
            idle_cpu_percent: Some(idle),
            guest: Some(guest),
            commands: Vec::new(),
        })
    }

    fn report(guest_shares_core: bool) -> VmReport {
        let plan = VmPlan { topology: Topology::Pvp, sizes_bytes: vec![64], ..VmPlan::default() };
        let guest = Some(if guest_shares_core { 0 } else { 2 });
        let cores = VmCores { generator: 0, switch: 1, guest, guest_shares_core };
        let contestants = [
            ("Ringroad", "ours", vec![turn(6e6, 0.2), turn(9e6, 0.3), Err("ended".into())]),
            ("OVS-DPDK", "theirs", vec![turn(2e6, 100.0), turn(6e6, 100.0), turn(1e6, 100.0)]),
        ];
        VmReport::new(plan, MachineFacts::default(), None, cores, false, Vec::new(), contestants)
    }

    #[test]
    fn ratios_are_taken_within_a_round_that_both_have() {
        let report = report(false);
        let ratio = report.sizes[0].switches[1].ringroad_ratio.as_ref().unwrap();
        assert_eq!(ratio.rounds, [3.0, 1.5]);
        assert!(report.sizes[0].switches[0].ringroad_ratio.is_none());
    }

    #[test]
    fn goals_are_shown_with_what_was_found() {
        let report = report(false);
        let goals: Vec<_> = report.goals.iter().map(|goal| (goal.found, goal.is_met)).collect();
        assert_eq!(goals, [(2.25, Some(true)), (0.25, Some(true))]);
        let table = report.to_table();
        assert!(
            table.contains("2.25 (1.50 to 3.00)") && table.contains("a turn was not measured: ended"),
            "{table}"
        );
    }

    #[test]
    fn the_report_says_who_was_where_and_what_the_guest_was() {
        let table = report(false).to_table();
        assert!(table.contains("pvp: ") && table.contains("generator 0, switch 1, guest 2."), "{table}");
        assert!(table.contains("  guest: DPDK 1, huge: testpmd -m 1"), "{table}");
        assert!(!table.contains("share"), "{table}");
        let json: serde_json::Value = serde_json::from_str(&report(true).to_json().unwrap()).unwrap();
        assert_eq!(json["plan"]["topology"], "pvp");
        assert_eq!(
            json["cores"],
            serde_json::json!({
                "generator": 0, "switch": 1, "guest": 0, "guest_shares_core": true
            })
        );
        assert_eq!(json["switches"][1]["turns"][0]["guest"]["frames"], 7);
    }

    #[test]
    fn with_a_shared_core_goals_are_shown_and_not_judged() {
        let report = report(true);
        assert_eq!(report.goals.len(), 2);
        assert!(report.goals.iter().all(|goal| goal.is_met.is_none()));
        let table = report.to_table();
        assert!(table.contains("share a core") && table.contains("2.25: not judged"), "{table}");
    }
}
