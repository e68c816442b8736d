//! `make cost`: the instructions that a frame costs on each path, beside their guards; `ringroad_bench::cost` describes
//! how they are counted.
//!
//! Without arguments it counts all paths. It runs itself under valgrind as `count PROGRAM`. A new path is a file, or a
//! function in one, and a line in [`paths::PATHS`].

mod acl;
mod decision;
mod flows;
mod generator;
mod interface;
mod paths;
mod replay;
mod switch;
mod testbed;
mod vhost_user;
mod workers;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use clap::{Parser, Subcommand};
use ringroad_bench::cost::budgets::Budgets;
use ringroad_bench::cost::callgrind::CallgrindCounts;
use ringroad_bench::cost::report::{CostReport, CostRow, Skipped};

use paths::{Formula, PATHS, Program, Run};

/// An error message for users.
type Failure = Box<dyn Error + Send + Sync>;

/// Function in which callgrind counts: [`counted`].
const COUNTED: &str = "cost::counted*";
/// Number of frames of the two runs. In the first run every ring wraps several times.
const FRAMES: [u64; 2] = [20_000, 60_000];
/// Number of turns without a frame after which a program is stuck.
const IDLE_TURNS: u32 = 10_000;

/// Count the instructions that a frame costs on each path, and compare them with their guards
#[derive(Debug, Parser)]
#[command(name = "cost")]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Count only these paths
    path: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Set the guards of the counted paths to the new counts
    #[arg(long)]
    accept: bool,
    /// Argument that cargo passes to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Move frames to be counted; runs under valgrind
    #[command(hide = true)]
    Count { program: String, burst: u32, frames: u64 },
}

/// Runs the work that callgrind counts.
#[inline(never)]
fn counted<T>(work: impl FnOnce() -> T) -> T {
    work()
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.command {
        Some(Command::Count { program, burst, frames }) => {
            move_frames(program, *burst, *frames).map(|()| true)
        }
        None => compare(&arguments),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("cost: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a program until it has moved this number of frames, and prints the number of moved frames.
fn move_frames(name: &str, burst: u32, frames: u64) -> Result<(), Failure> {
    let mut programs = PATHS.iter().flat_map(|path| path.formula.programs());
    let set_up = programs.find_map(|program| match program.run {
        Run::Here(set_up) if program.name == name => Some(set_up),
        _ => None,
    });
    let mut turn = set_up.ok_or_else(|| no_such("program", name))?(burst)?;
    let (mut moved, mut idle) = (0, 0);
    while moved < frames {
        let before = moved;
        turn(&mut moved)?;
        idle = if moved == before { idle + 1 } else { 0 };
        if idle > IDLE_TURNS {
            return Err(format!("{name} moves no frame any more after {moved}").into());
        }
    }
    println!("{moved}");
    Ok(())
}

fn no_such(what: &str, name: &str) -> Failure {
    let names: Vec<&str> = PATHS.iter().map(|path| path.name).collect();
    format!("there is no {what} {name}; the paths are {}", names.join(", ")).into()
}

/// Counts the requested paths and prints them. Returns whether all paths are within their guards.
fn compare(arguments: &Arguments) -> Result<bool, Failure> {
    if let Some(unknown) = arguments.path.iter().find(|name| !PATHS.iter().any(|path| path.name == **name)) {
        return Err(no_such("path", unknown));
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("cost-budgets.toml");
    let mut budgets = Budgets::read(&file)?;
    if let Some(unknown) = budgets.0.keys().find(|name| !PATHS.iter().any(|path| path.name == **name)) {
        return Err(format!("{}: {}", file.display(), no_such("path", unknown)).into());
    }
    let mut counter = Counter::new()?;
    let mut report = CostReport::default();
    let wanted = |name: &str| arguments.path.is_empty() || arguments.path.iter().any(|path| path == name);
    for path in PATHS.iter().filter(|path| wanted(path.name)) {
        if let Some(why) = path.formula.programs().find_map(|program| program.need.missing()) {
            report.skipped.push(Skipped { path: path.name, why });
            continue;
        }
        let counts = counter.evaluate(&path.formula)?;
        if arguments.accept {
            budgets.accept(path.name, counts.total());
        }
        report.paths.push(CostRow::new(path.name, path.about, counts, budgets.of(path.name)));
    }
    if arguments.accept {
        budgets.write(&file)?;
    }
    match arguments.json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => print!("{}", report.to_table()),
    }
    Ok(report.is_kept())
}

/// Cache of counted programs, so that each program is counted once.
struct Counter {
    /// Folder of callgrind's output files.
    folder: PathBuf,
    known: BTreeMap<(&'static str, u32), CallgrindCounts>,
}

impl Counter {
    fn new() -> Result<Self, Failure> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cost");
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self { folder, known: BTreeMap::new() })
    }

    fn evaluate(&mut self, formula: &'static Formula) -> Result<CallgrindCounts, Failure> {
        let beyond = |counter: &mut Self, ours, native, burst| -> Result<CallgrindCounts, Failure> {
            Ok(counter.per_frame(ours, burst)?.plus(-1.0, &counter.per_frame(native, burst)?))
        };
        match formula {
            Formula::PerFrame(program) => self.per_frame(program, paths::BURST),
            Formula::FrameBeyond { ours, native, .. } | Formula::CallBeyond { ours, native, .. } => {
                // Cost per frame with bursts of `b` frames: `frame + calls * call / b`.
                let [short, long] = paths::BURSTS;
                let [at_short, at_long] =
                    [beyond(self, ours, native, short)?, beyond(self, ours, native, long)?];
                let [short, long] = [short, long].map(f64::from);
                let per_burst = at_short.plus(-1.0, &at_long).times(1.0 / (1.0 / short - 1.0 / long));
                Ok(match formula {
                    Formula::CallBeyond { calls, .. } => per_burst.times(1.0 / calls),
                    _ => at_long.plus(-1.0 / long, &per_burst),
                })
            }
        }
    }

    /// Returns the cost per frame, from two simultaneous runs.
    fn per_frame(&mut self, program: &'static Program, burst: u32) -> Result<CallgrindCounts, Failure> {
        let key = (program.name, burst);
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let run = |frames: u64| {
            let file = self.folder.join(format!("{}-{burst}-{frames}.callgrind", program.name));
            program.count(burst, frames, &file)
        };
        let [few, many] = thread::scope(|scope| {
            FRAMES
                .map(|frames| scope.spawn(move || run(frames)))
                .map(|run| run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let ((few, first), (many, second)) = (few?, many?);
        let counts = second.plus(-1.0, &first).times(1.0 / (many - few) as f64);
        self.known.insert(key, counts.clone());
        Ok(counts)
    }
}
