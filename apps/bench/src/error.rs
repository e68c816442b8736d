//! Errors while taking a sample.

use std::time::Duration;

/// Reasons why a measurement or a whole contestant failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// A peer's program is not installed.
    #[error(
        "{program} was not found in PATH; install Debian's package `{package}` (apt install {package}) to compare with it"
    )]
    PeerAbsent {
        /// Name of the missing program.
        program: &'static str,
        /// Debian package that contains the program.
        package: &'static str,
    },
    /// Ringroad's own daemon is missing.
    #[error(
        "ringroadd was found neither beside this program nor in PATH; install it, or name it in $RINGROAD_DAEMON"
    )]
    DaemonAbsent,
    /// A process could not be started.
    #[error("cannot start `{command}`")]
    Start {
        /// Command line of the process.
        command: String,
        #[source]
        source: std::io::Error,
    },
    /// A process ended, or closed its output, before its work was done.
    #[error("{program} ended before its time ({status}); its last words: {last_words}")]
    Exited {
        program: String,
        /// Exit code or signal.
        status: String,
        /// Last lines of its standard error and output.
        last_words: String,
    },
    /// A process did not reach the expected state in time.
    #[error("{program} did not {awaited} within {} s; its last words: {last_words}", .waited.as_secs_f64())]
    NotReady {
        program: String,
        /// Description of the awaited event.
        awaited: &'static str,
        /// Time limit that passed.
        waited: Duration,
        /// Last lines of its standard error and output.
        last_words: String,
    },
    /// A process sent a reply that cannot be parsed.
    #[error("{program} sent an answer that this version cannot parse ({what}): {answer}")]
    Answer {
        program: String,
        /// Description of the expected reply.
        what: &'static str,
        /// Received reply, shortened.
        answer: String,
    },
    /// The counters of a DPDK process could not be read.
    #[error("cannot {action} the DPDK telemetry socket of {program}")]
    Telemetry {
        program: String,
        /// The failed action: connect to, query, or read from.
        action: &'static str,
        #[source]
        source: std::io::Error,
    },
    /// Huge pages that were available at the start of the run are no longer available.
    #[error("no huge pages for this turn")]
    Hugepages(#[from] crate::hugepages::HugepageError),
    /// No network namespace can be created for a turn.
    #[error("cannot make a network namespace for virtual interfaces; that needs root (CAP_SYS_ADMIN)")]
    NewNamespace(#[source] std::io::Error),
    /// The network namespace of a turn cannot be entered.
    #[error("cannot use the network namespace of this turn")]
    Namespace(#[from] ringroad_netdev::NamespaceError),
    /// The virtual interfaces of a turn cannot be made or queried.
    #[error("cannot use virtual interfaces (veth) in the network namespace of this turn")]
    Interfaces(#[from] ringroad_netdev::NetdevError),
    /// The directory for sockets could not be made.
    #[error("cannot make a temporary directory for sockets; is TMPDIR writable?")]
    TemporaryDirectory(#[source] std::io::Error),
    /// The capture for a sending peer could not be written.
    #[error("cannot write a capture for a peer to send")]
    Capture(#[from] ringroad_capture::CaptureError),
    /// The path needs more CPUs than the process may use.
    #[error("this path needs 2 CPUs of its own, and the process may use {allowed}; see taskset(1)")]
    TooFewCpus {
        /// Number of CPUs that the process may use.
        allowed: usize,
    },
    /// The card under test cannot be used.
    #[error("cannot use the card of this turn")]
    Card(#[from] ringroad_sze2::client::CardError),
    /// A thread of the bench cannot run on its CPU.
    #[error("cannot run on CPU {cpu}")]
    Pin {
        /// Number of the CPU.
        cpu: usize,
        #[source]
        source: std::io::Error,
    },
    /// A sample was taken but is invalid.
    #[error("the sample does not count: {0}")]
    Implausible(String),
    /// A contestant failed too often at a point.
    #[error("not run again after {0} failures at this point")]
    KeepsFailing(usize),
    /// A Ringroad worker reported a failure.
    #[error("the {role} worker failed: {message}")]
    Worker {
        /// Role of the worker, as on its command line.
        role: String,
        message: String,
    },
    /// The run was stopped on request.
    #[error("stopped on request")]
    Stopped,
}

impl BenchError {
    /// Returns the error with its causes, on one line.
    pub(crate) fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(inner) = cause {
            text.push_str(": ");
            text.push_str(&inner.to_string());
            cause = inner.source();
        }
        text
    }
}
