//! Arguments for the generator's threads, for all commands that use it.

use clap::{Args, ValueEnum};
use ringroad_generator::session::DEFAULT_BURST_FRAMES;
use ringroad_generator::{SessionClock, SessionOptions, Threads};

/// Settings of the generator's threads.
#[derive(Debug, Clone, Args)]
pub(crate) struct SessionArguments {
    /// Maximum number of frames per sync
    #[arg(long, value_name = "N", default_value_t = DEFAULT_BURST_FRAMES, value_parser = clap::value_parser!(u32).range(1..=4096))]
    burst: u32,
    /// Threads: one for each queue of each port, or one for all
    #[arg(long, value_enum, default_value_t = ThreadChoice::Queue)]
    threads: ThreadChoice,
    /// Never sleep: the shortest latency, which takes a processor per thread
    #[arg(long)]
    busy: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ThreadChoice {
    Queue,
    One,
}

impl SessionArguments {
    /// Converts the arguments to options of the library, with the threads on `cpus` in turn.
    pub(crate) fn options(&self, cpus: &[usize]) -> SessionOptions {
        SessionOptions {
            clock: SessionClock::new(),
            threads: match self.threads {
                ThreadChoice::Queue => Threads::PerQueue,
                ThreadChoice::One => Threads::One,
            },
            cpus: cpus.to_vec(),
            burst: self.burst,
            busy: self.busy,
        }
    }
}
