//! `ringroad script`: traffic scripts in Lua.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use ringroad::{OpenOptions, Port};
use ringroad_generator::script::{
    QueueReport, ScriptError, ScriptOptions, ScriptReport, ScriptSource, StatsFormat, run_script,
};

use crate::failure::Failure;
use crate::number_parsers::seconds;
use crate::options::Global;
use crate::output::Output;
use crate::output::rates::{grouped, span};
use crate::run::SignalFlag;
use crate::verb::MainVerb;

/// Run a traffic script in Lua (LuaJIT), written as for MoonGen
///
/// The script's own arguments follow its name; `ringroad script FILE --help` lists them. Options of this command come
/// before it. Ends when the script does, with --duration or with Ctrl-C. See docs/scripts.md and examples/scripts.
#[derive(Debug, Args)]
pub(crate) struct ScriptArgs {
    /// Script file, and the script's arguments
    #[arg(value_name = "FILE ARGS", required = true, num_args = 1.., trailing_var_arg = true)]
    words: Vec<String>,
    /// End after this number of seconds
    #[arg(long, value_name = "S", value_parser = seconds)]
    duration: Option<Duration>,
    /// CPUs for the tasks, in the order in which they start
    #[arg(long, value_name = "N", value_delimiter = ',')]
    cpu: Vec<usize>,
}

impl MainVerb for ScriptArgs {
    const EXAMPLES: &str =
        "ringroad script l2-load-latency.lua vale0:a vale0:b --rate 1Mpps --frames 1000000";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let Some((file, arguments)) = self.words.split_first() else {
            return Err(Failure::usage("no script is given", "name a file"));
        };
        let source = ScriptSource::read(Path::new(file)).map_err(failure)?;
        let socket = global.socket.clone();
        let (ready, log, quiet) = (output.clone(), output.clone(), global.quiet);
        let options = ScriptOptions {
            open: Arc::new(move |name, queues| {
                let options =
                    OpenOptions { queues: Some(queues), socket: socket.clone(), ..OpenOptions::default() };
                Port::open_with(name, &options)
            }),
            log: Arc::new(move |level, task, text| {
                if !quiet || matches!(level, "warn" | "error") {
                    log.remark(&format!("[{level}] {task}: {text}"));
                }
            }),
            ready: Arc::new(move |ports| ready.ready(ports).map_err(as_io)),
            stop: SignalFlag::on_signals()?.shared(),
            duration: self.duration,
            cpus: self.cpu.clone(),
            stats_format: if output.is_json() { StatsFormat::Json } else { StatsFormat::Plain },
            ..ScriptOptions::default()
        };
        match run_script(source, arguments, options).map_err(failure)? {
            Some(report) => output.result(&report, text),
            None => Ok(()),
        }
    }
}

/// Converts a failure of the output to an I/O error, which ends the script.
fn as_io(failure: Failure) -> io::Error {
    let kind = if failure.exit_status == 0 { io::ErrorKind::BrokenPipe } else { io::ErrorKind::Other };
    io::Error::new(kind, failure.to_string())
}

fn failure(error: ScriptError) -> Failure {
    match error {
        ScriptError::Usage(text) => match text.split_once('\n') {
            Some((message, usage)) => Failure::usage(message, usage),
            None => Failure::usage(text, ""),
        },
        ScriptError::Output(error) => Failure::output(&error),
        error => Failure::new(error.to_string(), ""),
    }
}

fn text(report: &ScriptReport) -> String {
    let mut lines = Vec::new();
    for device in &report.devices {
        for queue in &device.queues {
            lines.push(queue_text(&format!("{}#{}", device.name, queue.queue), queue));
        }
    }
    lines.push(format!("{:.3} s", report.seconds));
    lines.join("\n")
}

fn queue_text(label: &str, queue: &QueueReport) -> String {
    let mut line = format!(
        "{label}: {} frames sent, {} received",
        grouped(queue.sent_frames),
        grouped(queue.received_frames)
    );
    if queue.unsent_frames > 0 {
        line += &format!("; {} of those sent were not taken", grouped(queue.unsent_frames));
    }
    if queue.too_long_frames > 0 {
        line += &format!("; {} longer than the script's buffers", grouped(queue.too_long_frames));
    }
    if queue.offered.skipped_frames > 0 {
        line += &format!("; {} skipped for being late", grouped(queue.offered.skipped_frames));
    }
    if let Some(departure) = &queue.departure {
        line += &format!(
            "; departures {} late on average, between two {} off (99 %: {})",
            span(departure.lateness.mean_ns),
            span(departure.inter_departure.mean_ns),
            span(departure.inter_departure.p99_ns as f64)
        );
    }
    if let Some(total) = queue.meter.as_ref().and_then(|meter| meter.total.as_ref()) {
        line += &format!(
            "; of test frames {} lost, {} duplicate, {} reordered, {} damaged",
            grouped(total.lost),
            grouped(total.duplicates),
            grouped(total.reordered),
            grouped(total.corrupted)
        );
    }
    line
}
