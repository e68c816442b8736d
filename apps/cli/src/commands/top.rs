//! `ringroad top`: rates and drops of all ports, live.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Row, Table};
use ratatui::{DefaultTerminal, Frame};
use ringroad_control::Connection;
use ringroad_control::report::PortReport;
use ringroad_traffic::rate_meter::{RateMeter, TrafficRate, TrafficSnapshot};
use serde::Serialize;

use crate::arguments::{Global, seconds};
use crate::failure::Failure;
use crate::output::Output;
use crate::output::rates::{CONVENTION, grouped};
use crate::output::table::{Columns, drops};
use crate::run::StopFlag;

/// Watch the ports' rates and drops "in" counts frames that the datapath took from a port, "out" frames that it put
/// into it; Gbit/s count L1 bits, as line rate does: frame with FCS, preamble and gap. q ends it. Where standard output
/// is no terminal, and with --json, one interval is measured and printed. Frames on pipes pass between the programs and
/// are not seen.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Measure one interval, print it and end
    #[arg(long)]
    once: bool,
    /// Length of an interval
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Go on when the daemon ends and comes back
    #[arg(long)]
    reconnect: bool,
}

/// A port over one interval.
#[derive(Debug, Serialize)]
struct PortRates {
    name: String,
    kind: String,
    queues: u16,
    /// Taken from the port.
    received: TrafficRate,
    /// Put into the port.
    delivered: TrafficRate,
    /// Frames dropped in the interval, by cause.
    drops: BTreeMap<String, u64>,
    drops_fps: f64,
    received_frames_total: u64,
    delivered_frames_total: u64,
    drops_total: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
struct Interval {
    interval_s: f64,
    ports: Vec<PortRates>,
}

/// The counters of a port as they were last seen.
struct Seen {
    received: RateMeter,
    delivered: RateMeter,
    drops: BTreeMap<String, u64>,
}

/// Asks the daemon and turns counters into rates.
struct Observer {
    connection: Connection,
    start: Instant,
    last_ns: u64,
    seen: BTreeMap<String, Seen>,
}

impl Observer {
    fn new(global: &Global) -> Result<Self, Failure> {
        let connection = global.connect()?;
        Ok(Self { connection, start: Instant::now(), last_ns: 0, seen: BTreeMap::new() })
    }

    /// The interval since the last look.
    fn look(&mut self) -> Result<Interval, Failure> {
        let ports = self.connection.list()?.ports;
        let now_ns = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let interval_s = (now_ns - self.last_ns) as f64 / 1e9;
        self.last_ns = now_ns;
        self.seen.retain(|name, _| ports.iter().any(|port| port.name == *name));
        let ports = ports.into_iter().map(|port| rates(&mut self.seen, port, now_ns)).collect();
        Ok(Interval { interval_s, ports })
    }
}

fn rates(seen: &mut BTreeMap<String, Seen>, port: PortReport, now_ns: u64) -> PortRates {
    let counters = port.counters;
    let received =
        TrafficSnapshot { frames: counters.received_frames, bytes: counters.received_bytes, now_ns };
    let delivered =
        TrafficSnapshot { frames: counters.delivered_frames, bytes: counters.delivered_bytes, now_ns };
    let known = seen.entry(port.name.clone()).or_insert_with(|| Seen {
        received: RateMeter::new(received),
        delivered: RateMeter::new(delivered),
        drops: counters.drops.clone(),
    });
    let received = known.received.update(received);
    let mut by_cause = BTreeMap::new();
    for (cause, frames) in &counters.drops {
        let before = known.drops.get(cause).copied().unwrap_or(0);
        // A port that was opened anew counts from 0.
        let new = frames.checked_sub(before).unwrap_or(*frames);
        if new > 0 {
            by_cause.insert(cause.clone(), new);
        }
    }
    known.drops.clone_from(&counters.drops);
    let dropped: u64 = by_cause.values().sum();
    let interval_s = received.interval_ns as f64 / 1e9;
    PortRates {
        name: port.name,
        kind: port.kind,
        queues: port.queues,
        delivered: known.delivered.update(delivered),
        received,
        drops: by_cause,
        drops_fps: if interval_s > 0.0 { dropped as f64 / interval_s } else { 0.0 },
        received_frames_total: counters.received_frames,
        delivered_frames_total: counters.delivered_frames,
        drops_total: counters.drops,
    }
}

impl Top {
    pub(crate) fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let mut observer = Observer::new(global)?;
        let first = observer.look()?;
        if self.once || output.is_json() || !std::io::stdout().is_terminal() {
            std::thread::sleep(self.interval);
            return output.result(&observer.look()?, text);
        }
        let stop = StopFlag::on_signals()?;
        let mut terminal = ratatui::try_init()
            .map_err(|error| Failure::new(format!("taking the terminal: {error}"), "use --once"))?;
        let ended = self.watch(&mut terminal, &mut observer, first, &stop, global);
        ratatui::restore();
        ended
    }

    fn watch(
        &self,
        terminal: &mut DefaultTerminal,
        observer: &mut Observer,
        first: Interval,
        stop: &StopFlag,
        global: &Global,
    ) -> Result<(), Failure> {
        let trouble =
            |error: std::io::Error| Failure::new(format!("using the terminal: {error}"), "use --once");
        let mut shown = first;
        let mut next = Instant::now() + self.interval;
        while !stop.is_set() {
            terminal.draw(|frame| draw(frame, &shown)).map_err(trouble)?;
            let left = next.saturating_duration_since(Instant::now());
            if event::poll(left.min(Duration::from_millis(250))).map_err(trouble)?
                && is_end(&event::read().map_err(trouble)?)
            {
                return Ok(());
            }
            if Instant::now() >= next {
                shown = match observer.look() {
                    Err(_) if self.reconnect => {
                        if let Ok(next_daemon) = Observer::new(global) {
                            *observer = next_daemon;
                        }
                        Interval { interval_s: 0.0, ports: Vec::new() }
                    }
                    looked => looked?,
                };
                next = Instant::now() + self.interval;
            }
        }
        Ok(())
    }
}

/// In raw mode Ctrl-C comes as a key.
fn is_end(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    key.kind == KeyEventKind::Press
        && match key.code {
            KeyCode::Char('q') | KeyCode::Esc => true,
            KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
            _ => false,
        }
}

const HEADINGS: [&str; 11] = [
    "port",
    "kind",
    ">queues",
    ">Mpps in",
    ">Gbit/s in",
    ">Mpps out",
    ">Gbit/s out",
    ">drops/s",
    ">total in",
    ">total out",
    "drops in all",
];

fn cells(port: &PortRates) -> [String; 11] {
    [
        port.name.clone(),
        port.kind.clone(),
        port.queues.to_string(),
        format!("{:.3}", port.received.rate_fps / 1e6),
        format!("{:.3}", port.received.l1_gbps),
        format!("{:.3}", port.delivered.rate_fps / 1e6),
        format!("{:.3}", port.delivered.l1_gbps),
        if port.drops_fps > 0.0 { format!("{:.0}", port.drops_fps) } else { "0".to_owned() },
        grouped(port.received_frames_total),
        grouped(port.delivered_frames_total),
        drops(&port.drops_total),
    ]
}

fn text(interval: &Interval) -> String {
    let mut columns = Columns::new(&HEADINGS);
    for port in &interval.ports {
        columns.row(cells(port));
    }
    format!("{}Gbit/s are L1; {CONVENTION}", columns.lines_or("no ports"))
}

fn draw(frame: &mut Frame<'_>, interval: &Interval) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)])
            .areas(frame.area());
    let frames_in: f64 = interval.ports.iter().map(|port| port.received.rate_fps).sum();
    let frames_out: f64 = interval.ports.iter().map(|port| port.delivered.rate_fps).sum();
    let title = format!(
        "ringroad top: {} ports, {:.3} Mpps in, {:.3} Mpps out",
        interval.ports.len(),
        frames_in / 1e6,
        frames_out / 1e6
    );
    frame.render_widget(Line::styled(title, Style::new().add_modifier(Modifier::BOLD)), head);
    let rows: Vec<[String; 11]> = interval.ports.iter().map(cells).collect();
    let widths: Vec<u16> = (0..HEADINGS.len())
        .map(|column| {
            let cell = |row: &[String; 11]| row.get(column).map_or(0, |text| text.chars().count());
            let heading = HEADINGS.get(column).map_or(0, |text| text.trim_start_matches('>').len());
            u16::try_from(rows.iter().map(cell).max().unwrap_or(0).max(heading)).unwrap_or(u16::MAX)
        })
        .collect();
    let line = |cells: &[String]| {
        let cells = cells.iter().zip(HEADINGS).map(|(text, heading)| {
            let line = Line::raw(text.clone());
            if heading.starts_with('>') { line.right_aligned() } else { line }
        });
        Row::new(cells.collect::<Vec<_>>())
    };
    let headings = HEADINGS.map(|heading| heading.trim_start_matches('>').to_owned());
    let table = Table::new(rows.iter().map(|row| line(row)), widths)
        .header(line(&headings).style(Style::new().add_modifier(Modifier::REVERSED)))
        .column_spacing(2);
    frame.render_widget(table, body);
    frame.render_widget(Line::raw("q quits; Gbit/s are L1, as line rate counts"), foot);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ringroad_control::report::CounterReport;

    use super::*;

    fn port(received_frames: u64, no_space: u64) -> PortReport {
        let counters = CounterReport {
            received_frames,
            received_bytes: received_frames * 60,
            drops: BTreeMap::from([("no_space".to_owned(), no_space)]),
            ..CounterReport::default()
        };
        PortReport {
            name: "vale0:a".into(),
            kind: "shm".into(),
            persistent: false,
            bound: true,
            owner: None,
            queues: 1,
            slots: 1024,
            buffer_bytes: 2048,
            counters,
            ..PortReport::default()
        }
    }

    fn interval() -> Interval {
        let mut seen = BTreeMap::new();
        rates(&mut seen, port(1000, 5), 0);
        let rates = rates(&mut seen, port(2_001_000, 25), 2_000_000_000);
        Interval { interval_s: 2.0, ports: vec![rates] }
    }

    #[test]
    fn rates_and_drops_cover_the_interval_and_totals_the_port() {
        let interval = interval();
        let port = &interval.ports[0];
        assert_eq!((port.received.rate_fps, port.received.l1_gbps), (1e6, 0.672));
        assert_eq!(port.drops, BTreeMap::from([("no_space".to_owned(), 20)]));
        assert_eq!((port.drops_fps, port.received_frames_total), (10.0, 2_001_000));
    }

    #[test]
    fn a_reopened_port_counts_its_drops_from_zero() {
        let mut seen = BTreeMap::new();
        rates(&mut seen, port(1000, 50), 0);
        let rates = rates(&mut seen, port(10, 3), 1_000_000_000);
        assert_eq!(rates.drops["no_space"], 3);
    }

    #[test]
    fn the_screen_shows_every_port_with_its_rates_and_drops() {
        let mut terminal = Terminal::new(TestBackend::new(140, 6)).unwrap();
        terminal.draw(|frame| draw(frame, &interval())).unwrap();
        let screen = terminal.backend().to_string();
        for part in ["1 ports, 1.000 Mpps in", "vale0:a", "0.672", "no_space 25", "q quits"] {
            assert!(screen.contains(part), "{part} is missing in\n{screen}");
        }
    }
}
