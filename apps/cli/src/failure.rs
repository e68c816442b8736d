//! The message of a failed command: the fault, and advice.

use std::fmt;
use std::io;
use std::path::Path;

use ringroad_attachment::container_name::ContainerNameError;
use ringroad_attachment::device_text::DeviceTextError;
use ringroad_attachment::veth_pair::AttachmentError;
use ringroad_capture::{CaptureError, CaptureFilterError};
use ringroad_control::message::ErrorKind;
use ringroad_control::{ControlError, Reply};
use ringroad_generator::SessionError;
use ringroad_netdev::{NamespaceError, NetdevError};
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
    pub(crate) exit_status: u8,
    /// Whether the user gets a message. A closed pipe needs none, and a bad result was reported already.
    #[serde(skip)]
    pub(crate) is_worth_telling: bool,
}

/// Exit status of wrong usage, as the parser's.
pub(crate) const USAGE: u8 = 2;
/// Exit status of a failed check: frames were lost or damaged.
pub(crate) const VERDICT_FAIL: u8 = 3;
/// Exit status of an invalid result: the generator could not carry the load.
pub(crate) const VERDICT_INVALID: u8 = 4;

impl Failure {
    pub(crate) fn new(message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { message: message.into(), advice: advice.into(), exit_status: 1, is_worth_telling: true }
    }

    /// Reports arguments that contradict each other in a way that the parser cannot detect.
    pub(crate) fn usage(message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { exit_status: USAGE, ..Self::new(message, advice) }
    }

    /// Adds to the message which part of the command was carried out.
    pub(crate) fn after(self, done: &str) -> Self {
        Self { message: format!("{done}: {}", self.message), ..self }
    }

    /// Reports a missing program, with the exit status of shells for this case.
    pub(crate) fn not_found(message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { exit_status: 127, ..Self::new(message, advice) }
    }

    /// Reports a program that cannot be run, with the exit status of shells for this case.
    pub(crate) fn not_executable(message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { exit_status: 126, ..Self::new(message, advice) }
    }

    /// Reports a bad result, or a program that did not succeed, by the exit status alone: the command has printed the
    /// result, or the program its failure.
    pub(crate) fn status(exit_status: u8) -> Self {
        let message = format!("the result is not good: exit status {exit_status}");
        Self { exit_status, is_worth_telling: false, ..Self::new(message, "") }
    }

    /// Reports that writing results failed. A reader that closed the pipe is not a failure.
    pub(crate) fn output(error: &io::Error) -> Self {
        let is_closed = error.kind() == io::ErrorKind::BrokenPipe;
        Self {
            exit_status: u8::from(!is_closed),
            is_worth_telling: !is_closed,
            ..Self::new(format!("writing the result: {error}"), "")
        }
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

    /// Splits an error's text at the semicolon where the libraries begin their advice.
    fn from_words(words: &str) -> Self {
        match words.split_once("; ") {
            Some((message, advice)) => Self::new(message, advice),
            None => Self::new(words, ""),
        }
    }

    /// Makes the failure wrong usage if the user's words are at fault whatever exists: a name that cannot be one.
    fn with_usage(self, is_usage: bool) -> Self {
        if is_usage { Self { exit_status: USAGE, ..self } } else { self }
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
            ControlError::Refused(reply) => {
                Self::new(reply.message, reply.advice).with_usage(reply.kind == ErrorKind::BadName)
            }
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
            error => Self::from_words(&error.to_string()).with_usage(is_bad_name(&error)),
        }
    }
}

/// Whether no port can have the name of a port that could not be opened.
fn is_bad_name(error: &ringroad::OpenError) -> bool {
    use ringroad::OpenError::{Control, Name};
    match error {
        Name(_) => true,
        Control(ControlError::Refused(reply)) => reply.kind == ErrorKind::BadName,
        _ => false,
    }
}

impl From<CaptureError> for Failure {
    fn from(error: CaptureError) -> Self {
        let words = Self::from_words(&error.to_string());
        match error {
            // The reader of a capture on standard output may stop at any time.
            CaptureError::Write { source, path, .. } if path == Path::new(STANDARD_OUTPUT) => {
                Self { message: words.message, advice: words.advice, ..Self::output(&source) }
            }
            _ => words,
        }
    }
}

impl From<CaptureFilterError> for Failure {
    fn from(error: CaptureFilterError) -> Self {
        let is_usage = matches!(error, CaptureFilterError::Expression { .. });
        Self::from_words(&error.to_string()).with_usage(is_usage)
    }
}

/// Errors whose texts are messages. A function after `usage` tells which of them are wrong usage.
macro_rules! from_words {
    ($($error:ty $(, usage $is_usage:expr)?;)*) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                let is_usage: &[fn(&$error) -> bool] = &[$($is_usage)?];
                Self::from_words(&error.to_string()).with_usage(is_usage.iter().any(|is_it| is_it(&error)))
            }
        })*
    };
}

from_words!(
    ContainerNameError, usage |error| {
        matches!(error, ContainerNameError::Namespace(NamespaceError::BadName(_)))
    };
    DeviceTextError, usage |_| true;
    ringroad_guest::GuestError;
    NamespaceError, usage |error| matches!(error, NamespaceError::BadName(_));
    NetdevError, usage |error| matches!(error, NetdevError::BadName { .. });
    ringroad::PortError;
    ringroad::StartError;
    ringroad_traffic::pacing::RateError;
    SessionError, usage |error| matches!(error, SessionError::Open { source, .. } if is_bad_name(source));
    ringroad_generator::TestPlanError;
    ringroad_traffic::definition::StreamError;
);
#[cfg(feature = "otg")]
from_words!(ringroad_otg::OtgServerError;);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_separate_from_the_failure() {
        let failure = Failure::from(ringroad::PortError::FrameTooLong { len: 9, most: 5 });
        assert_eq!(failure.advice, "");
        let refused = ringroad_control::message::ErrorReply::new(
            ErrorKind::NoSuchPort,
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
        assert!(!gone.is_worth_telling);
        assert_eq!(gone.exit_status, 0);
        assert_eq!(Failure::output(&io::ErrorKind::StorageFull.into()).exit_status, 1);
        assert_eq!(Failure::usage("two rates", "choose one").exit_status, 2);
    }
}
