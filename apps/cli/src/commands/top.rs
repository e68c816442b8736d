//! `ringroad top`: rates and drops of all ports, live.

mod observer;
mod screen;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event;

use self::observer::{ObservedInterval, Observer, Order};
use self::screen::View;
use crate::failure::Failure;
use crate::number_parsers::seconds;
use crate::options::Global;
use crate::output::Output;
use crate::output::rates::{CONVENTION, grouped};
use crate::output::table::{drops, table};
use crate::run::SignalFlag;
use crate::verb::MainVerb;

/// Watch the ports' rates and drops
///
/// "in" counts frames that the datapath took from a port, "out" frames that it delivered to a port. Gbit/s count L1
/// bits, as line rate does: frame with FCS, preamble and gap. ? lists the keys, q ends it. If standard output is not a
/// terminal, and with --json, one interval is measured and printed. Frames on pipes pass directly between the programs
/// and are not counted.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Measure one interval, print it and end
    #[arg(long)]
    once: bool,
    /// Length of an interval
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Order of the ports: by name, or by a rate, the greatest first
    #[arg(long, value_enum, default_value_t = Order::Port)]
    sort: Order,
    /// Continue when the daemon restarts
    #[arg(long)]
    reconnect: bool,
}

impl MainVerb for TopArgs {
    const EXAMPLES: &str = "ringroad top --interval 2";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let mut observer = Observer::new(global)?;
        let first = observer.sample()?;
        if self.once || output.is_json() || !std::io::stdout().is_terminal() {
            std::thread::sleep(self.interval);
            let mut interval = observer.sample()?;
            self.sort.sort(&mut interval.ports);
            return output.result(&interval, text);
        }
        let stop = SignalFlag::on_signals()?;
        let mut terminal = ratatui::try_init()
            .map_err(|error| Failure::new(format!("taking the terminal: {error}"), "use --once"))?;
        let ended = self.watch(&mut terminal, &mut observer, first, &stop, global);
        ratatui::restore();
        ended
    }
}

impl TopArgs {
    fn watch(
        &self,
        terminal: &mut DefaultTerminal,
        observer: &mut Observer,
        first: ObservedInterval,
        stop: &SignalFlag,
        global: &Global,
    ) -> Result<(), Failure> {
        let trouble =
            |error: std::io::Error| Failure::new(format!("using the terminal: {error}"), "use --once");
        let mut view = View::new(first, self.sort);
        let mut next = Instant::now() + self.interval;
        while !stop.is_set() {
            terminal.draw(|frame| view.draw(frame)).map_err(trouble)?;
            let left = next.saturating_duration_since(Instant::now());
            if event::poll(left.min(Duration::from_millis(250))).map_err(trouble)?
                && view.is_ended_by(&event::read().map_err(trouble)?)
            {
                return Ok(());
            }
            if Instant::now() >= next {
                match observer.sample() {
                    Ok(interval) => view.show(interval),
                    Err(_) if self.reconnect => {
                        if let Ok(next_daemon) = Observer::new(global) {
                            *observer = next_daemon;
                        }
                        view.show(ObservedInterval::default());
                    }
                    Err(error) => return Err(error),
                }
                next = Instant::now() + self.interval;
            }
        }
        Ok(())
    }
}

fn text(interval: &ObservedInterval) -> String {
    let ports = table(
        &interval.ports,
        &[
            ("port", |port| port.name.clone()),
            ("kind", |port| port.kind.clone()),
            (">queues", |port| port.queues.to_string()),
            (">Mpps in", |port| format!("{:.3}", port.received.rate_fps / 1e6)),
            (">Gbit/s in", |port| format!("{:.3}", port.received.l1_gbps)),
            (">Mpps out", |port| format!("{:.3}", port.delivered.rate_fps / 1e6)),
            (">Gbit/s out", |port| format!("{:.3}", port.delivered.l1_gbps)),
            (">drops/s", |port| format!("{:.0}", port.drops_fps)),
            (">total in", |port| grouped(port.received_frames_total)),
            (">total out", |port| grouped(port.delivered_frames_total)),
            ("drops in all", |port| drops(&port.drops_total)),
        ],
        "no ports",
    );
    let flow_tables: String = interval.flow_tables.iter().map(|rates| rates.words() + "\n").collect();
    format!("{ports}{flow_tables}Gbit/s are L1; {CONVENTION}")
}
