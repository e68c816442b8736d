//! Output: text or JSON results on standard output; progress, notes and failures on standard error.

pub(crate) mod json;
pub(crate) mod rates;
pub(crate) mod table;

use std::io::{self, IsTerminal, Write};

use ringroad::PortInfo;
use ringroad_control::printable::printable;
use serde::Serialize;

use crate::failure::Failure;
use crate::options::Global;

/// Output of a command.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    json: bool,
    quiet: bool,
    /// Whether standard output carries other data, such as a capture.
    stdout_taken: bool,
}

impl Output {
    pub(crate) fn new(global: &Global) -> Self {
        Self { json: global.json, quiet: global.quiet, stdout_taken: false }
    }

    /// Returns an output with results on standard error, for commands that write data to standard output.
    pub(crate) fn beside_data(&self) -> Self {
        Self { stdout_taken: true, ..self.clone() }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether standard error is a terminal on which progress can be shown and overwritten.
    pub(crate) fn is_watched(&self) -> bool {
        !self.quiet && !self.json && io::stderr().is_terminal()
    }

    /// Prints a result: as JSON, or as the text that `text` makes of the value.
    pub(crate) fn result<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        if self.json { self.line(&json::line(value)?) } else { self.line(text(value).trim_end()) }
    }

    /// Reports that ports are open and traffic can start: an object with --json, else a note.
    pub(crate) fn ready(&self, ports: &[&PortInfo]) -> Result<(), Failure> {
        if self.json {
            return self.line(&json::line(&json::Ready::new(ports))?);
        }
        for port in ports {
            self.note(&format!("{}: {} ({})", port.name, port.mode, port.driver));
        }
        Ok(())
    }

    /// Reports that a command works from now on: an object with --json, else a note.
    pub(crate) fn announce<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        if self.json {
            return self.line(&json::line(value)?);
        }
        self.note(&text(value));
        Ok(())
    }

    /// Prints a note for users on standard error.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet && !self.json {
            // A failure to write the note is ignored.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    /// Prints a message of a user's script, always on standard error.
    #[cfg(feature = "script")]
    pub(crate) fn remark(&self, text: &str) {
        // A failure to write the message is ignored.
        let _ = writeln!(io::stderr(), "{text}");
    }

    /// Prints a line of text as a result.
    pub(crate) fn line(&self, text: &str) -> Result<(), Failure> {
        let written = if self.stdout_taken {
            writeln!(io::stderr(), "{text}")
        } else {
            let mut stdout = io::stdout().lock();
            writeln!(stdout, "{text}").and_then(|()| stdout.flush())
        };
        written.map_err(|error| Failure::output(&error))
    }

    /// Prints a failure on standard error.
    pub(crate) fn failure(&self, failure: &Failure) {
        let message = plain_lines(&failure.message);
        let text = match json::line(failure) {
            Ok(line) if self.json => line,
            _ if failure.advice.is_empty() => format!("ringroad: {message}"),
            _ => format!("ringroad: {message}\n  {}", plain_lines(&failure.advice)),
        };
        let _ = writeln!(io::stderr(), "{text}");
    }
}

/// Formats a text that may quote untrusted text without control characters, apart from its own line ends and tabs.
fn plain_lines(text: &str) -> String {
    let parts = text.split_inclusive(['\n', '\t']).map(|part| {
        let end = part.len() - usize::from(part.ends_with(['\n', '\t']));
        let (part, end) = part.split_at(end);
        printable(part, usize::MAX) + end
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_keeps_its_lines_and_tabs_and_loses_control_characters() {
        assert_eq!(plain_lines("two\nlines of \x1b[31mprog"), "two\nlines of \u{fffd}[31mprog");
        assert_eq!(plain_lines("traceback:\n\ta.lua:1:\r\tin b\n"), "traceback:\n\ta.lua:1:\u{fffd}\tin b\n");
    }
}
