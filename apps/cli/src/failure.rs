//! The message of a failed command: the fault, and advice.

use std::fmt;
use std::io;
use std::path::Path;

use ringroad_attachment::veth_pair::AttachmentError;
use ringroad_capture::{CaptureError, CaptureFilterError};
use ringroad_control::{ControlError, Reply};
use serde::Serialize;

/// Name of standard output in captures.
const STANDARD_OUTPUT: &str = "standard output";

/// Failure of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Failure {
    /// Text of the error, with the file, port or option where it occurred.
    #[serde(rename = "error")]
    pub(crate) message: String,
    /// Advice for the user; may be empty.
    pub(crate) advice: String,
    #[serde(skip)]
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Failed,
    Usage,
    BrokenPipe,
    NotFound,
    NotExecutable,
    /// Exit status of a program that was run. The program has reported its failure itself.
    Program(u8),
    /// Exit status of a bad result that was reported.
    Verdict(u8),
}

/// Exit status of a failed check: frames were lost or damaged.
pub(crate) const VERDICT_FAIL: u8 = 3;
/// Exit status of an invalid result: the generator could not carry the load.
pub(crate) const VERDICT_INVALID: u8 = 4;

impl Failure {
    pub(crate) fn new(message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { message: message.into(), advice: advice.into(), kind: Kind::Failed }
    }

    /// Reports arguments that contradict each other in a way that the parser cannot detect.
    pub(crate) fn usage(message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { kind: Kind::Usage, ..Self::new(message, advice) }
    }

    /// Adds to the message which part of the command was carried out.
    pub(crate) fn after(self, done: &str) -> Self {
        Self { message: format!("{done}: {}", self.message), ..self }
    }

    /// Reports a missing program, with the exit status of shells for this case.
    pub(crate) fn not_found(message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { kind: Kind::NotFound, ..Self::new(message, advice) }
    }

    /// Reports a program that cannot be run, with the exit status of shells for this case.
    pub(crate) fn not_executable(message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { kind: Kind::NotExecutable, ..Self::new(message, advice) }
    }

    /// Reports that a program that was run did not succeed.
    pub(crate) fn status(status: u8) -> Self {
        Self {
            kind: Kind::Program(status),
            ..Self::new(format!("the program ended with status {status}"), "")
        }
    }

    /// Reports a bad result by its exit status, [`VERDICT_FAIL`] or [`VERDICT_INVALID`].
    pub(crate) fn verdict(status: u8) -> Self {
        Self { kind: Kind::Verdict(status), ..Self::new("the result is not good", "") }
    }

    /// Reports that writing results failed. A reader that closed the pipe is not a failure.
    pub(crate) fn output(error: &io::Error) -> Self {
        let failure = Self::new(format!("writing the result: {error}"), "");
        let kind = if error.kind() == io::ErrorKind::BrokenPipe { Kind::BrokenPipe } else { Kind::Failed };
        Self { kind, ..failure }
    }

    /// Reports a reply of the daemon that does not match the request.
    pub(crate) fn reply(reply: &Reply) -> Self {
        let text = format!("{reply:?}");
        let name = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        Self::new(
            format!("the daemon's reply does not match the request ({name})"),
            "use a program and a daemon of the same version: ringroad down, then ringroad up",
        )
    }

    #[cfg(feature = "script")]
    pub(crate) fn is_broken_pipe(&self) -> bool {
        self.kind == Kind::BrokenPipe
    }

    /// Whether the user gets a message about this failure.
    pub(crate) fn is_worth_telling(&self) -> bool {
        !matches!(self.kind, Kind::BrokenPipe | Kind::Program(_) | Kind::Verdict(_))
    }

    pub(crate) fn exit_status(&self) -> u8 {
        match self.kind {
            Kind::BrokenPipe => 0,
            Kind::Failed => 1,
            Kind::Usage => 2,
            Kind::NotExecutable => 126,
            Kind::NotFound => 127,
            Kind::Program(status) | Kind::Verdict(status) => status,
        }
    }

    /// Splits an error's text at the semicolon where the libraries begin their advice.
    fn from_words(words: &str) -> Self {
        match words.split_once("; ") {
            Some((message, advice)) => Self::new(message, advice),
            None => Self::new(words, ""),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if self.advice.is_empty() { Ok(()) } else { write!(f, "; {}", self.advice) }
    }
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Refused(reply) => Self::new(reply.message, reply.advice),
            ControlError::DaemonNotRunning { path } => {
                Self::new(format!("no daemon listens on {}", path.display()), "start one with: ringroad up")
            }
            error => Self::from_words(&error.to_string()),
        }
    }
}

impl From<AttachmentError> for Failure {
    fn from(error: AttachmentError) -> Self {
        match error {
            AttachmentError::Daemon(error) => error.into(),
            error => Self::from_words(&error.to_string()),
        }
    }
}

impl From<ringroad::OpenError> for Failure {
    fn from(error: ringroad::OpenError) -> Self {
        match error {
            ringroad::OpenError::Control(error) => error.into(),
            error => Self::from_words(&error.to_string()),
        }
    }
}

impl From<CaptureError> for Failure {
    fn from(error: CaptureError) -> Self {
        let words = Self::from_words(&error.to_string());
        match error {
            // The reader of a capture on standard output may stop at any time.
            CaptureError::Write { source, path, .. } if path == Path::new(STANDARD_OUTPUT) => {
                Self { kind: Self::output(&source).kind, ..words }
            }
            _ => words,
        }
    }
}

impl From<CaptureFilterError> for Failure {
    fn from(error: CaptureFilterError) -> Self {
        let kind =
            if matches!(error, CaptureFilterError::Expression { .. }) { Kind::Usage } else { Kind::Failed };
        Self { kind, ..Self::from_words(&error.to_string()) }
    }
}

macro_rules! from_words {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::from_words(&error.to_string())
            }
        })*
    };
}

from_words!(
    ringroad_attachment::container_name::ContainerNameError,
    ringroad_guest::GuestError,
    ringroad_netdev::NamespaceError,
    ringroad_netdev::NetdevError,
    ringroad::PortError,
    ringroad::StartError,
    ringroad_traffic::pacing::RateError,
    ringroad_generator::SessionError,
    ringroad_generator::TestPlanError,
    ringroad_traffic::definition::StreamError,
);
#[cfg(feature = "otg")]
from_words!(ringroad_otg::OtgServerError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_separate_from_the_failure() {
        let failure = Failure::from(ringroad::PortError::FrameTooLong { len: 9, most: 5 });
        assert_eq!(failure.advice, "");
        let refused = ringroad_control::message::ErrorReply::new(
            ringroad_control::message::ErrorKind::NoSuchPort,
            "no port vale0:x",
            "see ringroad list",
        );
        let failure = Failure::from(ControlError::Refused(refused));
        assert_eq!(failure.to_string(), "no port vale0:x; see ringroad list");
        assert_eq!(
            serde_json::to_string(&failure).unwrap(),
            r#"{"error":"no port vale0:x","advice":"see ringroad list"}"#
        );
    }

    #[test]
    fn a_closed_pipe_is_success_and_other_write_errors_are_not() {
        let gone = Failure::output(&io::ErrorKind::BrokenPipe.into());
        assert_eq!(gone.kind, Kind::BrokenPipe);
        assert_eq!(gone.exit_status(), 0);
        assert_eq!(Failure::output(&io::ErrorKind::StorageFull.into()).exit_status(), 1);
        assert_eq!(Failure::usage("two rates", "choose one").exit_status(), 2);
    }
}
