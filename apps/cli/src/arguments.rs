//! Definition of the command line. Help, completions and manual pages are generated from it.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser};
use ringroad::{OpenOptions, Port, PortName};
use ringroad_control::message::PortProperties;

use crate::commands::Command;
use crate::failure::Failure;

/// Packets around the kernel: ports, switches and traffic in shared memory.
///
/// A port is named vale0:a (port a of the learning switch vale0), x{1 and x}1 (the two ends of a pipe), eth0 (a network
/// interface), eth0^ (its host stack), or by a scheme, as in memif:SOCKET: `ringroad kinds` shows all. Commands that
/// need the daemon start it.
///
/// Numbers: k, M, G and T are powers of 1000; for memory (buffer=32M) of 1024. A rate needs its unit: 1Mpps, 10Gbit.
///
/// Exit status: 0 done, 1 failed, 2 wrong usage; 3 and 4 a result that is not good (trial, recv --check); the program's
/// own status with run, container and vm exec. With --json a failure is an object {"error", "advice"} on standard
/// error, with a "kind" where the usage is wrong.
#[derive(Debug, Parser)]
#[command(name = "ringroad", version, max_term_width = 100, propagate_version = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Global {
    /// Socket of the daemon [default: $RINGROAD_SOCKET, or the usual path]
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Print results as JSON, one value per line
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print results and failures only: no progress, no notes
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

impl Global {
    /// Path of the daemon's socket.
    pub(crate) fn socket_path(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(ringroad_control::socket_path::default_socket_path)
    }

    /// Connects to the daemon, which must be running, and sends the greeting.
    pub(crate) fn connect(&self) -> Result<ringroad_control::Connection, Failure> {
        let mut connection = ringroad_control::Connection::connect(self.socket_path())?;
        connection.hello("ringroad")?;
        if !self.quiet && !self.json {
            connection.report_waits(|waited| {
                // A failure to write the note is ignored.
                let _ = writeln!(
                    std::io::stderr(),
                    "the daemon is still at it after {} s: an interface's driver can take long",
                    waited.as_secs()
                );
            });
        }
        Ok(connection)
    }
}

/// Slots of a deep ring: it holds 4 ms of frames at 1 Mpps, the time that a thread may wait for a shared core.
pub(crate) const DEEP_SLOTS: u32 = 4096;

/// Sizes of the ports that a command opens. Options in a port's name (`vale0:a@slots=256`) have precedence.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Port")]
pub(crate) struct PortSizeArgs {
    /// Queues, each a transmit and a receive ring [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) queues: Option<u16>,
    /// Slots per ring [default: 1024; 4096 for commands that only receive, or send at a given rate]
    #[arg(long, value_name = "N")]
    pub(crate) slots: Option<u32>,
    /// Size of a buffer, bytes [default: 2112; over AF_XDP 2048]
    #[arg(long, value_name = "BYTES")]
    pub(crate) buf_size: Option<u32>,
    /// Network namespace of the interface: a name, or a process in it [default: the command's own]
    #[arg(long, value_name = "NAME|PID")]
    pub(crate) netns: Option<String>,
    /// Replace another program's XDP program on the interface
    #[arg(long)]
    pub(crate) force: bool,
}

impl PortSizeArgs {
    /// Returns the sizes with deep rings, unless the user sets another number of slots.
    pub(crate) fn deep(&self) -> Self {
        Self { slots: self.slots.or(Some(DEEP_SLOTS)), ..self.clone() }
    }

    /// Opens port `name` with these sizes. `limits` tells whether to reconnect.
    pub(crate) fn open(&self, name: &str, global: &Global, limits: &RunLimits) -> Result<Port, Failure> {
        let options = OpenOptions { reconnect: limits.reconnect, ..self.open_options(global) };
        Ok(Port::open_with(&self.device(name), &options)?)
    }

    /// Converts the sizes to options of the library, for names that [`Self::device`] made.
    pub(crate) fn open_options(&self, global: &Global) -> OpenOptions {
        OpenOptions {
            queues: self.queues,
            slots: self.slots,
            buffer_bytes: self.buf_size,
            socket: global.socket.clone(),
            ..OpenOptions::default()
        }
    }

    /// Returns the name of `device` with the options for devices.
    pub(crate) fn device(&self, device: &str) -> String {
        // Absolute paths, since the daemon runs in another folder.
        let device = match std::env::current_dir() {
            Ok(folder) => PortName::text_with_absolute_paths(device, &folder),
            Err(_) => device.to_owned(),
        };
        let netns = self.netns.as_ref().map(|netns| format!("netns={netns}"));
        let options: Vec<_> = netns.into_iter().chain(self.force.then(|| "force".to_owned())).collect();
        if options.is_empty() {
            return device;
        }
        let separator = if device.contains('@') { ',' } else { '@' };
        format!("{device}{separator}{}", options.join(","))
    }

    /// Whether an option is set that only applies to devices.
    pub(crate) fn names_a_device(&self) -> bool {
        self.netns.is_some() || self.force
    }

    /// Converts the sizes to properties that the daemon is requested to give the port.
    pub(crate) fn properties(&self) -> PortProperties {
        PortProperties {
            queues: self.queues,
            slots: self.slots,
            buffer_bytes: self.buf_size,
            ..PortProperties::default()
        }
    }
}

/// Duration of a traffic command, its progress reports, and its processors.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Run")]
pub(crate) struct RunLimits {
    /// End after this many seconds
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) duration: Option<Duration>,
    /// Print rates every S seconds, also if standard error is not a terminal; with --json as objects {"interval": ...}
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) interval: Option<Duration>,
    /// CPU to run on; two for two threads, such as 0,1
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub(crate) cpu: Vec<usize>,
    /// If the daemon ends, wait for its restart and open the ports again; frames in the rings are lost
    #[arg(long)]
    pub(crate) reconnect: bool,
}

/// Parses a duration in seconds, whole or not, above 0.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').unwrap_or(text).parse().ok().filter(|seconds| *seconds > 0.0);
    number
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "give seconds above 0, like 10 or 0.5".to_owned())
}

/// Parses a duration in seconds that may be 0.
pub(crate) fn seconds_or_none(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('s').unwrap_or(text).parse().ok();
    number
        .filter(|seconds| (0.0..=86_400.0).contains(seconds))
        .ok_or_else(|| "give seconds from 0 to 86400, like 2 or 0.5".to_owned())
}

/// Parses a count in one of these forms: `1000000`, `1e6`, `64k`, `1M`, `2G` (powers of 1000), underscores allowed.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    let plain = text.replace('_', "");
    let (number, factor) = match plain.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (plain.get(..at), 1_000),
        Some((at, 'm' | 'M')) => (plain.get(..at), 1_000_000),
        Some((at, 'g' | 'G')) => (plain.get(..at), 1_000_000_000),
        _ => (Some(plain.as_str()), 1),
    };
    let number = number.unwrap_or_default();
    let whole = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    // Exponents make whole numbers too, such as 1e6; up to 2^53 the conversion is exact.
    let exponent = || {
        let value = number.parse::<f64>().ok()? * factor as f64;
        (value.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&value)).then_some(value as u64)
    };
    whole.or_else(exponent).ok_or_else(|| "give a whole number, like 1000000, 1e6 or 1M".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_argument_definitions_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn counts_take_suffixes_and_separators() {
        for (text, frames) in [
            ("0", 0),
            ("1000000", 1_000_000),
            ("1_000_000", 1_000_000),
            ("1e6", 1_000_000),
            ("1M", 1_000_000),
            ("1.5M", 1_500_000),
            ("64k", 64_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(count(text), Ok(frames), "{text}");
        }
        for text in ["", "M", "-1", "1.5", "1e-3", "1e300", "nan", "inf", "12x", "99999999999999999999"] {
            assert!(count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_seconds_above_zero() {
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(seconds("10s"), Ok(Duration::from_secs(10)));
        for text in ["", "0", "-1", "nan", "inf", "1e99", "1m"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn global_options_may_follow_the_verb() {
        let arguments = Arguments::parse_from(["ringroad", "list", "--json", "--socket", "s"]);
        assert!(arguments.global.json);
        assert_eq!(arguments.global.socket_path(), PathBuf::from("s"));
    }
}
