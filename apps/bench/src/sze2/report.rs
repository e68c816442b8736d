//! The results of a comparison of drivers: as JSON, and as a table.

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};
use serde::Serialize;

use super::Driver;
use super::plan::{ForwardMode, Sze2Plan, Sze2Point};
use super::turn::TurnOutcome;
use crate::contestant::{CPU_WAIT_LIMIT, CorePair};
use crate::error::BenchError;
use crate::facts::MachineFacts;
use crate::ratio::ValueSummary;

/// Schema of the JSON.
pub const SCHEMA: &str = "ringroad-bench-sze2/1";
/// Goals in cycles per frame of 64 bytes, with the copy, one queue, and bursts of 128. The goal is the published card's
/// value; half of it is the next goal.
const GOALS: [(ForwardMode, f64); 2] = [(ForwardMode::RxOnly, 52.0), (ForwardMode::Io, 109.0)];

/// Results of a driver at one point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DriverAtPoint {
    /// Measured driver.
    #[serde(flatten)]
    pub driver: Driver,
    /// Name of the driver in tables.
    pub name: &'static str,
    /// Frames per second.
    pub frames_per_s: Option<ValueSummary>,
    pub cycles_per_frame: Option<ValueSummary>,
    /// Share of 100 Gbit/s line rate at the median rate, percent.
    pub line_rate_percent: Option<f64>,
    /// Published cycles per frame of the driver on the card.
    pub published_cycles: Option<f64>,
    /// Largest share of a turn in which other programs used the forwarding processor.
    pub cpu_wait: Option<f64>,
    /// Results of the valid turns.
    pub turns: Vec<TurnOutcome>,
    /// Reasons of invalid turns.
    pub failures: Vec<String>,
}

/// Results of all drivers at one point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sze2Row {
    /// Conditions of the row.
    #[serde(flatten)]
    pub point: Sze2Point,
    /// Line rate at this frame size on 100 Gbit/s Ethernet, frames/s.
    pub line_rate_fps: f64,
    /// Results by driver.
    pub drivers: Vec<DriverAtPoint>,
}

/// A goal, and whether it was reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// Mode of testpmd.
    pub mode: ForwardMode,
    /// Desired cycles per frame.
    pub cycles: f64,
    /// Median of the measured cycles per frame.
    pub measured: Option<f64>,
    /// Whether the goal was reached. `None` without a valid value: not measured, or other programs used the processor
    /// too much.
    pub is_reached: Option<bool>,
}

/// Report of a whole comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Sze2Report {
    /// Name and version of the schema: [`SCHEMA`].
    pub schema: &'static str,
    /// The planned measurements.
    pub plan: Sze2Plan,
    /// Properties of the machine.
    pub machine: MachineFacts,
    /// Share of processor time that the hypervisor took, percent.
    pub steal_percent: Option<f64>,
    /// Cores: the card on the first, testpmd on the second.
    pub cores: CorePair,
    /// Rate of the time-stamp counter, whose ticks are the cycles, MHz.
    pub tsc_mhz: Option<u32>,
    /// Whether the run was stopped before its end.
    pub stopped: bool,
    /// Goals and whether they were reached.
    pub goals: Vec<Goal>,
    /// Results by point.
    pub rows: Vec<Sze2Row>,
}

/// Describes a point in words.
pub(super) fn name_of(point: &Sze2Point) -> String {
    let Sze2Point { mode, frame_bytes, burst_frames, queues } = point;
    format!("{} {frame_bytes} B, burst {burst_frames}, {queues} queue(s)", mode.name())
}

impl Sze2Row {
    /// Makes the row of a point without results.
    pub(super) fn new(point: Sze2Point) -> Self {
        let drivers = Driver::ALL.map(|driver| DriverAtPoint::new(driver, &point)).to_vec();
        Self { point, line_rate_fps: point.line_rate_fps(), drivers }
    }
}

impl DriverAtPoint {
    fn new(driver: Driver, point: &Sze2Point) -> Self {
        let (copying, not_copying) = point.published_cycles();
        let published_cycles = match driver {
            Driver::Szedata2 { copy: true } => copying,
            Driver::Szedata2 { copy: false } => not_copying,
            Driver::Null { .. } => None,
        };
        Self {
            driver,
            name: driver.name(),
            frames_per_s: None,
            cycles_per_frame: None,
            line_rate_percent: None,
            published_cycles,
            cpu_wait: None,
            turns: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Adds the outcome of a turn, and formats it in a line.
    pub(super) fn add(&mut self, outcome: Result<TurnOutcome, BenchError>) -> String {
        match outcome {
            Ok(turn) => {
                let (mpps, cycles) = (turn.frames_per_s / 1e6, turn.cycles_per_frame);
                self.turns.push(turn);
                format!("{mpps:.1} Mpps, {cycles:.1} cycles a frame")
            }
            Err(error) => {
                let reason = error.with_causes();
                self.failures.push(reason.clone());
                reason
            }
        }
    }

    fn summarise(&mut self, line_rate_fps: f64) {
        self.frames_per_s = ValueSummary::of(self.turns.iter().map(|turn| turn.frames_per_s));
        self.cycles_per_frame = ValueSummary::of(self.turns.iter().map(|turn| turn.cycles_per_frame));
        self.line_rate_percent = self.frames_per_s.map(|fps| fps.median / line_rate_fps * 100.0);
        self.cpu_wait =
            ValueSummary::of(self.turns.iter().filter_map(|turn| turn.cpu_wait)).map(|wait| wait.max);
    }
}

impl Sze2Report {
    pub(super) fn new(
        plan: Sze2Plan,
        machine: MachineFacts,
        steal_percent: Option<f64>,
        cores: CorePair,
        stopped: bool,
        mut rows: Vec<Sze2Row>,
    ) -> Self {
        for row in &mut rows {
            row.drivers.iter_mut().for_each(|driver| driver.summarise(row.line_rate_fps));
        }
        let mut turns = rows.iter().flat_map(|row| &row.drivers).flat_map(|driver| &driver.turns);
        let tsc_mhz = turns.next().map(|turn| turn.tsc_mhz);
        let goals = GOALS.map(|(mode, cycles)| goal(&rows, mode, cycles)).to_vec();
        Self { schema: SCHEMA, plan, machine, steal_percent, cores, tsc_mhz, stopped, goals, rows }
    }

    /// Formats the report as JSON.
    ///
    /// # Errors
    /// A number has no JSON form.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// Formats the report as tables for users.
    #[must_use]
    pub fn to_table(&self) -> String {
        let mut text = String::new();
        for &mode in &self.plan.modes {
            text += &format!("{}\n\n{}\n\n", heading(mode), self.table(mode));
        }
        for goal in &self.goals {
            text += &format!("{}\n", told(goal));
        }
        if let Some(mhz) = self.tsc_mhz {
            text += &format!(
                "\nCycles are ticks of the time-stamp counter ({mhz} MHz) in calls that had frames, testpmd's own count; published ones are of the card at 2600 MHz, one queue.\n"
            );
        }
        if self.stopped {
            text += "Stopped before its end.\n";
        }
        text
    }

    fn table(&self, mode: ForwardMode) -> Table {
        let mut table = Table::new();
        table.load_style(ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header([
            "frame, B",
            "burst",
            "queues",
            "driver",
            "Mpps",
            "of 100G",
            "cycles",
            "least to most",
            "published",
            "CPU taken",
        ]);
        for row in self.rows.iter().filter(|row| row.point.mode == mode) {
            for driver in &row.drivers {
                let Sze2Point { frame_bytes, burst_frames, queues, .. } = row.point;
                let number = |value: Option<f64>, decimals: usize| {
                    let text = value.map_or_else(|| "–".to_owned(), |value| format!("{value:.decimals$}"));
                    Cell::new(text).set_alignment(CellAlignment::Right)
                };
                let cycles = driver.cycles_per_frame;
                let range = cycles.map_or_else(
                    || driver.failures.first().cloned().unwrap_or_else(|| "–".to_owned()),
                    |cycles| format!("{:.1} to {:.1}", cycles.min, cycles.max),
                );
                table.add_row([
                    Cell::new(frame_bytes).set_alignment(CellAlignment::Right),
                    Cell::new(burst_frames).set_alignment(CellAlignment::Right),
                    Cell::new(queues).set_alignment(CellAlignment::Right),
                    Cell::new(driver.name),
                    number(driver.frames_per_s.map(|fps| fps.median / 1e6), 2),
                    percent(driver.line_rate_percent),
                    number(cycles.map(|cycles| cycles.median), 1),
                    Cell::new(range),
                    number(driver.published_cycles, 0),
                    percent(driver.cpu_wait.map(|wait| wait * 100.0)),
                ]);
            }
        }
        table
    }
}

fn percent(value: Option<f64>) -> Cell {
    let text = value.map_or_else(|| "–".to_owned(), |value| format!("{value:.1} %"));
    Cell::new(text).set_alignment(CellAlignment::Right)
}

fn heading(mode: ForwardMode) -> &'static str {
    match mode {
        ForwardMode::RxOnly => "rxonly: received and dropped",
        ForwardMode::TxOnly => "txonly: made and sent",
        ForwardMode::Io => "io: received and sent back",
    }
}

fn goal(rows: &[Sze2Row], mode: ForwardMode, cycles: f64) -> Goal {
    let is_decisive =
        |point: &Sze2Point| *point == Sze2Point { mode, frame_bytes: 64, burst_frames: 128, queues: 1 };
    let row = rows.iter().find(|row| is_decisive(&row.point));
    let driver = row.and_then(|row| row.drivers.first());
    let measured = driver.and_then(|driver| driver.cycles_per_frame).map(|cycles| cycles.median);
    let is_disturbed = driver.and_then(|driver| driver.cpu_wait).is_some_and(|wait| wait > CPU_WAIT_LIMIT);
    let is_reached = measured.filter(|_| !is_disturbed).map(|measured| measured <= cycles);
    Goal { mode, cycles, measured, is_reached }
}

fn told(goal: &Goal) -> String {
    let Goal { mode, cycles, measured, is_reached } = goal;
    let verdict = match (measured, is_reached) {
        (None, _) => "not measured".to_owned(),
        (Some(measured), None) => {
            format!("{measured:.1}, not judged: other programs had the processor too long")
        }
        (Some(measured), Some(true)) if *measured <= cycles / 2.0 => {
            format!("{measured:.1}: reached, and half of it")
        }
        (Some(measured), Some(true)) => format!("{measured:.1}: reached; half of it is not"),
        (Some(measured), Some(false)) => format!("{measured:.1}: not reached"),
    };
    format!(
        "Goal, {} of 64 B with the copy, burst 128, one queue, at most {cycles} cycles: {verdict}",
        mode.name()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(cycles_per_frame: f64, cpu_wait: f64) -> TurnOutcome {
        TurnOutcome {
            frames_per_s: 14_880_952.3,
            cycles_per_frame,
            tsc_mhz: 2450,
            cpu_wait: Some(cpu_wait),
            commands: Vec::new(),
        }
    }

    fn report(turns: &[TurnOutcome]) -> Sze2Report {
        let plan = Sze2Plan::default();
        let mut rows: Vec<_> = plan.points().into_iter().map(Sze2Row::new).collect();
        let mut add = |wanted, outcome| {
            let driver = rows[0].drivers.iter_mut().find(|entry| entry.driver == wanted);
            driver.unwrap().add(outcome)
        };
        for turn in turns {
            add(Driver::Szedata2 { copy: true }, Ok(turn.clone()));
        }
        add(Driver::Null { copy: true }, Err(BenchError::Implausible("testpmd ended".into())));
        let cores = CorePair { first: 0, second: 1 };
        Sze2Report::new(plan, MachineFacts::gather(), None, cores, false, rows)
    }

    #[test]
    fn a_row_has_the_median_the_share_of_line_rate_and_the_published_value() {
        let report = report(&[turn(50.0, 0.0), turn(60.0, 0.0), turn(40.0, 0.0)]);
        let driver = &report.rows[0].drivers[0];
        assert_eq!(driver.cycles_per_frame.unwrap().median, 50.0);
        assert!((driver.line_rate_percent.unwrap() - 10.0).abs() < 0.01);
        assert_eq!(driver.published_cycles, Some(52.0));
        assert_eq!(report.goals[0].is_reached, Some(true));
        assert_eq!(report.goals[1].measured, None);
        let table = report.to_table();
        assert!(table.contains("40.0 to 60.0") && table.contains("testpmd ended"), "{table}");
        assert!(
            table.contains("50.0: reached; half of it is not") && table.contains("not measured"),
            "{table}"
        );
        let json: serde_json::Value = serde_json::from_str(&report.to_json().unwrap()).unwrap();
        assert_eq!(json["rows"][0]["drivers"][0]["driver"], "szedata2");
        assert_eq!(json["rows"][0]["frame_bytes"], 64);
    }

    #[test]
    fn a_disturbed_turn_judges_no_goal() {
        let report = report(&[turn(50.0, 0.9)]);
        assert_eq!(report.goals[0].is_reached, None);
        assert!(report.to_table().contains("not judged"));
    }
}
