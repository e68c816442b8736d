//! Arguments for the generator's threads, for all commands that use it.

use clap::Args;
use ringroad_generator::session::DEFAULT_BURST_FRAMES;
use ringroad_generator::{SessionClock, SessionOptions, Threads};

use crate::options::{Choice, one_of};

const THREADS: [Choice<Threads>; 2] = [("queue", "", Threads::PerQueue), ("one", "", Threads::One)];

/// Settings of the generator's threads.
#[derive(Debug, Clone, Args)]
pub(crate) struct SessionArguments {
    /// Maximum number of frames per sync
    #[arg(long, value_name = "N", default_value_t = DEFAULT_BURST_FRAMES, value_parser = clap::value_parser!(u32).range(1..=4096))]
    burst: u32,
    /// Threads: one for each queue of each port, or one for all
    #[arg(long, default_value = "queue", value_parser = one_of(&THREADS))]
    threads: Threads,
    /// Never sleep: the shortest latency, which takes a processor per thread
    #[arg(long)]
    busy: bool,
    /// Measure latency up to the time at which a frame came to its interface, where the port's driver knows it
    /// (packet:IF), instead of when this program saw the frame
    #[arg(long)]
    port_times: bool,
}

impl SessionArguments {
    /// Converts the arguments to options of the library, with the threads on `cpus` in turn.
    pub(crate) fn options(&self, cpus: &[usize]) -> SessionOptions {
        SessionOptions {
            clock: SessionClock::new(),
            threads: self.threads,
            cpus: cpus.to_vec(),
            burst: self.burst,
            busy: self.busy,
            port_times: self.port_times,
        }
    }
}
