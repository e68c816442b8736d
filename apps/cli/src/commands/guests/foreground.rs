//! A program in the foreground: how the terminal's keys end it, and its exit status.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};

use ringroad_guest::process::ProcessIdentity;
use rustix::process::{Signal, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// Delivery of the terminal's signal keys, such as Ctrl-C, to the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Delivery by the terminal: the program is in the same process group and handles the keys.
    Shared,
    /// Delivery by this process, which alone gets the keys, and sends SIGINT to the program.
    PassedOn,
}

/// End of a program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProgramExit {
    pub(crate) status: ExitStatus,
    /// Whether a signal to end the program arrived.
    pub(crate) asked_to: bool,
}

/// Signals that no longer end this process.
#[derive(Debug)]
pub(crate) struct HeldSignals(Signals);

impl HeldSignals {
    pub(crate) fn hold() -> Result<Self, Failure> {
        Signals::new([SIGINT, SIGTERM, SIGHUP])
            .map(Self)
            .map_err(|error| Failure::new(format!("watching for signals: {error}"), ""))
    }

    /// Waits for the program's end, and passes signals to the program meanwhile.
    pub(crate) fn wait_for(mut self, child: &mut Child, keys: Keys) -> Result<ProgramExit, Failure> {
        let program = ProcessIdentity::of(child.id()).and_then(ProcessIdentity::descriptor);
        let handle = self.0.handle();
        let asked_to = AtomicBool::new(false);
        let status = std::thread::scope(|scope| {
            scope.spawn(|| {
                for signal in self.0.forever() {
                    asked_to.store(true, Ordering::Relaxed);
                    let passed_on = match (signal, keys) {
                        (SIGINT, Keys::Shared) => None,
                        (_, Keys::PassedOn) => Some(Signal::INT),
                        (SIGHUP, Keys::Shared) => Some(Signal::HUP),
                        _ => Some(Signal::TERM),
                    };
                    if let (Some(signal), Some(program)) = (passed_on, &program) {
                        // An error is ignored: the program may have ended meanwhile.
                        let _ = pidfd_send_signal(program, signal);
                    }
                }
            });
            let status = child.wait();
            handle.close();
            status
        });
        let asked_to = asked_to.into_inner();
        status
            .map(|status| ProgramExit { status, asked_to })
            .map_err(|error| Failure::new(format!("waiting for the program: {error}"), ""))
    }
}

/// Returns the exit status that shells report for the end of a program.
pub(crate) fn exit_status(status: ExitStatus) -> u8 {
    let of_signal = || status.signal().map(|signal| 128 + signal);
    status.code().or_else(of_signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
