//! The results of a comparison of drivers: as JSON, and as a table.

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};
use serde::Serialize;

use super::Driver;
use super::plan::{ForwardMode, QueueLayout, Sze2Plan, Sze2Point};
use super::turn::{CardRates, TurnOutcome};
use crate::contestant::{CPU_WAIT_LIMIT, CorePair};
use crate::error::BenchError;
use crate::facts::MachineFacts;
use crate::ratio::ValueSummary;

/// Schema of the JSON.
pub const SCHEMA: &str = "ringroad-bench-sze2/2";
/// Goals in cycles per frame of 64 bytes, with the copy, one queue, and bursts of 128. The goal is the published card's
/// value; half of it is the next goal.
const GOALS: [(ForwardMode, f64); 3] =
    [(ForwardMode::RxOnly, 52.0), (ForwardMode::TxOnly, 52.0), (ForwardMode::Io, 109.0)];

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
    /// Data rate at the median rate, with preamble and gap, Gbit/s.
    pub line_gbit_per_s: Option<f64>,
    /// Share of 100 Gbit/s line rate at the median rate, percent.
    pub line_rate_percent: Option<f64>,
    /// Published share of line rate of the driver on the card, percent; for `io` it was greater.
    pub published_line_percent: Option<f64>,
    /// Whether one thread did the work of all, because the machine has too few CPUs.
    pub is_projected: bool,
    /// Frames per second of a core that forwards all the time, by the median cycles of testpmd's loop.
    pub core_frames_per_s: Option<f64>,
    /// Frames per second of all cores of the layout at that cost, at most line rate. Threads of a core count as one.
    pub projected_frames_per_s: Option<f64>,
    /// Cores for line rate at that cost.
    pub cores_for_line_rate: Option<f64>,
    /// Cycles per frame in the driver's calls.
    pub cycles_per_frame: Option<ValueSummary>,
    /// Published cycles per frame of the driver on the card.
    pub published_cycles: Option<f64>,
    /// Mean number of frames in a call.
    pub frames_per_call: Option<f64>,
    /// Largest share of frames that the transmit call refused, percent.
    pub refused_percent: Option<f64>,
    /// Cycles per frame of testpmd's loop.
    pub loop_cycles_per_frame: Option<ValueSummary>,
    /// Medians of the card's own counts.
    pub card: Option<CardRates>,
    /// Largest share of a turn in which other programs used the forwarding processor.
    pub cpu_wait: Option<f64>,
    /// Results of the valid turns.
    pub turns: Vec<TurnOutcome>,
    /// Reasons of invalid turns.
    pub failures: Vec<String>,
}

/// A value of a turn, if the turn has it.
type Value = fn(&TurnOutcome) -> Option<f64>;

/// Results of all drivers at one point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sze2Row {
    /// Conditions of the row.
    #[serde(flatten)]
    pub point: Sze2Point,
    /// Line rate at this frame size on 100 Gbit/s Ethernet, frames/s.
    pub line_rate_fps: f64,
    /// Cost of the copy in the driver of the card, as a multiple of the copy alone: the difference between the cycles
    /// with the copy and without, over those of the copy alone.
    pub copy_to_copy_alone: Option<f64>,
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
    let Sze2Point { mode, frame_bytes, burst_frames, layout } = point;
    format!("{} {frame_bytes} B, burst {burst_frames}, {}", mode.name(), layout.name())
}

impl Sze2Row {
    /// Makes the row of a point without results.
    pub(super) fn new(point: Sze2Point, drivers: &[Driver]) -> Self {
        let drivers = drivers.iter().copied().filter(|driver| driver.is_measured_with(point.layout));
        Self {
            point,
            line_rate_fps: point.line_rate_fps(),
            copy_to_copy_alone: None,
            drivers: drivers.map(|driver| DriverAtPoint::new(driver, &point)).collect(),
        }
    }

    fn summarise(&mut self) {
        self.drivers.iter_mut().for_each(|driver| driver.summarise(&self.point));
        let cycles = |wanted: Driver| {
            let driver = self.drivers.iter().find(|driver| driver.driver == wanted)?;
            driver.cycles_per_frame.map(|cycles| cycles.median)
        };
        let szedata2 = |copy| cycles(Driver::Szedata2 { copy });
        let parts = szedata2(true).zip(szedata2(false)).zip(cycles(Driver::Memcpy));
        self.copy_to_copy_alone = parts.map(|((with, without), alone)| (with - without) / alone);
    }
}

impl DriverAtPoint {
    fn new(driver: Driver, point: &Sze2Point) -> Self {
        let (copying, not_copying) = point.published_cycles();
        let (published_cycles, published_line_percent) = match driver {
            Driver::Szedata2 { copy: true } => (copying, point.published_line_percent()),
            Driver::Szedata2 { copy: false } => (not_copying, None),
            Driver::Null { .. } | Driver::Memcpy => (None, None),
        };
        Self {
            driver,
            name: driver.name(),
            frames_per_s: None,
            line_gbit_per_s: None,
            line_rate_percent: None,
            published_line_percent,
            is_projected: false,
            core_frames_per_s: None,
            projected_frames_per_s: None,
            cores_for_line_rate: None,
            cycles_per_frame: None,
            published_cycles,
            frames_per_call: None,
            refused_percent: None,
            loop_cycles_per_frame: None,
            card: None,
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

    fn summarise(&mut self, point: &Sze2Point) {
        let turns = &self.turns;
        let summary = |value: Value| ValueSummary::of(turns.iter().filter_map(value));
        let median = |value: Value| summary(value).map(|value| value.median);
        let line_fps = point.line_rate_fps();
        self.frames_per_s = summary(|turn| Some(turn.frames_per_s));
        self.cycles_per_frame = summary(|turn| Some(turn.cycles_per_frame));
        self.loop_cycles_per_frame = summary(|turn| turn.loop_cycles_per_frame);
        self.frames_per_call = median(|turn| Some(turn.frames_per_call));
        self.refused_percent = summary(|turn| turn.refused_percent).map(|refused| refused.max);
        self.cpu_wait = summary(|turn| turn.cpu_wait).map(|wait| wait.max);
        self.line_gbit_per_s = self.frames_per_s.map(|fps| fps.median * point.line_bits() / 1e9);
        self.line_rate_percent = self.frames_per_s.map(|fps| fps.median / line_fps * 100.0);
        self.core_frames_per_s =
            median(|turn| Some(f64::from(turn.tsc_mhz?) * 1e6 / turn.loop_cycles_per_frame?));
        self.projected_frames_per_s =
            self.core_frames_per_s.map(|fps| (fps * f64::from(point.layout.cores)).min(line_fps));
        self.cores_for_line_rate = self.core_frames_per_s.map(|fps| (line_fps / fps).ceil());
        let card = median(|turn| Some(turn.card?.offered))
            .zip(median(|turn| Some(turn.card?.lost)))
            .zip(median(|turn| Some(turn.card?.sent)));
        self.card = card.map(|((offered, lost), sent)| CardRates { offered, lost, sent });
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
        rows.iter_mut().for_each(Sze2Row::summarise);
        let mut turns = rows.iter().flat_map(|row| &row.drivers).flat_map(|driver| &driver.turns);
        let tsc_mhz = turns.find_map(|turn| turn.tsc_mhz);
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
            let heading = heading(mode);
            text += &format!("{heading}: cycles for a frame\n\n{}\n\n", self.table(mode, &CYCLES, cycles_of));
            text += &format!("{heading}: rates, Mpps\n\n{}\n\n", self.table(mode, &RATES, rates_of));
        }
        for row in &self.rows {
            if let Some(ratio) = row.copy_to_copy_alone {
                text += &format!(
                    "{}: the driver's copy takes {ratio:.2} of the copy alone\n",
                    name_of(&row.point)
                );
            }
        }
        for goal in &self.goals {
            text += &format!("{}\n", told(goal));
        }
        if let Some(mhz) = self.tsc_mhz {
            text += &format!(
                "\nCycles are ticks of the time-stamp counter ({mhz} MHz) in the driver's calls, medians over the frames: of receive calls that returned frames and transmit calls that took all. The loop's are testpmd's own count. Published ones are of the card at 2600 MHz, one queue.\n\"A core\" is the rate of a core that forwards all the time at the loop's cycles. In rows with * the machine has too few processors: one thread did the work of all, and the rate of all cores is projected; threads of one core count as one.\n"
            );
        }
        if self.stopped {
            text += "Stopped before its end.\n";
        }
        text
    }

    fn table(
        &self,
        mode: ForwardMode,
        header: &[&str],
        cells: fn(&Sze2Row, &DriverAtPoint) -> Vec<Cell>,
    ) -> Table {
        let mut table = Table::new();
        table.load_style(ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(["frame, B", "burst", "processors", "driver"].iter().chain(header));
        for row in self.rows.iter().filter(|row| row.point.mode == mode) {
            for driver in &row.drivers {
                let Sze2Point { frame_bytes, burst_frames, layout, .. } = row.point;
                let projected = if driver.is_projected { " *" } else { "" };
                let conditions = [
                    Cell::new(frame_bytes).set_alignment(CellAlignment::Right),
                    Cell::new(burst_frames).set_alignment(CellAlignment::Right),
                    Cell::new(format!("{}{projected}", layout.name())),
                    Cell::new(driver.name),
                ];
                table.add_row(conditions.into_iter().chain(cells(row, driver)));
            }
        }
        table
    }
}

const CYCLES: [&str; 7] =
    ["cycles", "least to most", "published", "frames a call", "refused", "loop", "CPU taken"];

fn cycles_of(_: &Sze2Row, driver: &DriverAtPoint) -> Vec<Cell> {
    let cycles = driver.cycles_per_frame;
    let range = cycles.map_or_else(
        || driver.failures.first().cloned().unwrap_or_else(|| "–".to_owned()),
        |cycles| format!("{:.1} to {:.1}", cycles.min, cycles.max),
    );
    vec![
        number(cycles.map(|cycles| cycles.median), 1),
        Cell::new(range),
        number(driver.published_cycles, 0),
        number(driver.frames_per_call, 0),
        percent(driver.refused_percent),
        number(driver.loop_cycles_per_frame.map(|cycles| cycles.median), 1),
        percent(driver.cpu_wait.map(|wait| wait * 100.0)),
    ]
}

const RATES: [&str; 11] = [
    "rate",
    "Gbit/s",
    "of 100G",
    "published",
    "a core",
    "all cores",
    "100G",
    "cores for 100G",
    "offered",
    "lost in the card",
    "sent by the card",
];

fn rates_of(row: &Sze2Row, driver: &DriverAtPoint) -> Vec<Cell> {
    let millions = |fps: Option<f64>| number(fps.map(|fps| fps / 1e6), 2);
    let published = driver.published_line_percent.map_or_else(
        || "–".to_owned(),
        |percent| match row.point.mode {
            ForwardMode::Io => format!("> {percent:.0} %"),
            _ => format!("{percent:.0} %"),
        },
    );
    vec![
        millions(driver.frames_per_s.map(|fps| fps.median)),
        number(driver.line_gbit_per_s, 1),
        percent(driver.line_rate_percent),
        Cell::new(published).set_alignment(CellAlignment::Right),
        millions(driver.core_frames_per_s),
        millions(driver.projected_frames_per_s),
        millions(Some(row.line_rate_fps)),
        number(driver.cores_for_line_rate, 0),
        millions(driver.card.map(|card| card.offered)),
        millions(driver.card.map(|card| card.lost)),
        millions(driver.card.map(|card| card.sent)),
    ]
}

fn number(value: Option<f64>, decimals: usize) -> Cell {
    let text = value.map_or_else(|| "–".to_owned(), |value| format!("{value:.decimals$}"));
    Cell::new(text).set_alignment(CellAlignment::Right)
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
    let is_decisive = |point: &Sze2Point| {
        *point == Sze2Point { mode, frame_bytes: 64, burst_frames: 128, layout: QueueLayout::one_thread(1) }
    };
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
            frames_per_call: 128.0,
            refused_percent: None,
            loop_cycles_per_frame: Some(2.0 * cycles_per_frame),
            tsc_mhz: Some(2600),
            cpu_wait: Some(cpu_wait),
            card: Some(CardRates { offered: 20e6, lost: 5e6, sent: 0.0 }),
            commands: Vec::new(),
        }
    }

    fn report(turns: &[TurnOutcome]) -> Sze2Report {
        let plan = Sze2Plan::default();
        let mut rows: Vec<_> =
            plan.points().into_iter().map(|point| Sze2Row::new(point, &plan.drivers)).collect();
        let mut add = |wanted, outcome| {
            let driver = rows[0].drivers.iter_mut().find(|entry| entry.driver == wanted);
            driver.unwrap().add(outcome)
        };
        for turn in turns {
            add(Driver::Szedata2 { copy: true }, Ok(turn.clone()));
            add(Driver::Szedata2 { copy: false }, Ok(TurnOutcome { cycles_per_frame: 20.0, ..turn.clone() }));
            add(Driver::Memcpy, Ok(TurnOutcome { cycles_per_frame: 24.0, ..turn.clone() }));
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
        assert!((driver.line_gbit_per_s.unwrap() - 10.0).abs() < 0.01);
        assert_eq!((driver.core_frames_per_s, driver.cores_for_line_rate), (Some(26e6), Some(6.0)));
        assert_eq!(driver.card.unwrap().lost, 5e6);
        assert_eq!(report.rows[0].copy_to_copy_alone, Some(1.25));
        assert_eq!(report.rows[1].copy_to_copy_alone, None);
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
    fn cores_that_the_machine_lacks_are_projected_up_to_line_rate() {
        let layout = QueueLayout::PUBLISHED[6];
        let point = Sze2Point { mode: ForwardMode::RxOnly, frame_bytes: 64, burst_frames: 128, layout };
        let mut row = Sze2Row::new(point, &Driver::ALL);
        assert_eq!(row.drivers.len(), Driver::ALL.len() - 1, "the copy alone has no queues");
        row.drivers[0].is_projected = true;
        row.drivers[0].add(Ok(turn(50.0, 0.0)));
        row.drivers[1].add(Ok(turn(100.0, 0.0)));
        row.summarise();
        assert_eq!(row.drivers[0].projected_frames_per_s, Some(row.line_rate_fps));
        assert_eq!(row.drivers[1].projected_frames_per_s, Some(8.0 * 13e6));
        assert_eq!(
            (row.drivers[0].published_line_percent, row.drivers[1].published_line_percent),
            (Some(97.0), None)
        );
        let plan = Sze2Plan { modes: vec![ForwardMode::RxOnly], ..Sze2Plan::default() };
        let cores = CorePair { first: 0, second: 1 };
        let table = Sze2Report::new(plan, MachineFacts::gather(), None, cores, false, vec![row]).to_table();
        assert!(table.contains("8C/1T *") && table.contains("97 %"), "{table}");
    }

    #[test]
    fn many_sizes_are_drawn_as_lines() {
        let plan = Sze2Plan::multiread();
        let of_point = |point: Sze2Point| {
            let mut row = Sze2Row::new(point, &plan.drivers);
            row.drivers.iter_mut().for_each(|driver| drop(driver.add(Ok(turn(50.0, 0.0)))));
            row
        };
        let rows = plan.points().into_iter().map(of_point).collect();
        let cores = CorePair { first: 0, second: 1 };
        let report = Sze2Report::new(plan.clone(), MachineFacts::gather(), None, cores, false, rows);
        let file = tempfile::NamedTempFile::new().unwrap();
        crate::sze2::chart::draw(&report, file.path()).unwrap();
        let drawn = std::fs::read_to_string(file.path()).unwrap();
        // Bars would be as many rectangles as there are values.
        assert!(drawn.matches("<rect").count() < 30 && drawn.contains("szedata2, no copy"), "{drawn}");
    }

    #[test]
    fn a_disturbed_turn_judges_no_goal() {
        let report = report(&[turn(50.0, 0.9)]);
        assert_eq!(report.goals[0].is_reached, None);
        assert!(report.to_table().contains("not judged"));
    }
}
