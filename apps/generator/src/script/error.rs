//! Errors of a script, in words for its author.

use std::io;
use std::path::PathBuf;

/// Reason why a script did not run, or not to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    /// The script is wrong, or one of its requests failed.
    #[error("{message}{}{traceback}", if traceback.is_empty() { "" } else { "\n" })]
    Failed {
        /// The task that failed: `master`, or the name of the function.
        task: String,
        /// The error, after file and line.
        message: String,
        /// The calls that led there, innermost first, a line each; empty for errors of syntax.
        traceback: String,
    },
    /// The arguments do not match the script's `configure`.
    #[error("{0}")]
    Usage(
        /// The problem, and the script's usage.
        String,
    ),
    /// Output cannot be written.
    #[error("writing the output: {0}")]
    Output(io::Error),
    /// A thread cannot be started.
    #[error("starting a thread: {0}")]
    Thread(io::Error),
}

impl ScriptError {
    /// The error of `task`, from an error of its Lua state.
    pub(super) fn of_lua(task: &str, error: &mlua::Error) -> Self {
        let (message, traceback) = words(error);
        Self::Failed { task: task.to_owned(), message, traceback }
    }

    /// The error of `task`, from a failure outside of Lua.
    pub(super) fn in_task(task: &str, message: impl Into<String>) -> Self {
        Self::Failed { task: task.to_owned(), message: message.into(), traceback: String::new() }
    }
}

/// The message, with the position in the script, and the traceback.
fn words(error: &mlua::Error) -> (String, String) {
    match error {
        mlua::Error::SyntaxError { message, .. } => (message.clone(), String::new()),
        mlua::Error::RuntimeError(text) => match text.split_once("\nstack traceback:\n") {
            Some((message, traceback)) => with_location(message, cleaned(traceback)),
            None => (text.clone(), String::new()),
        },
        mlua::Error::CallbackError { traceback, cause } => {
            let (message, inner) = words(cause);
            let traceback =
                cleaned(traceback.trim_start_matches("stack traceback:").trim_start_matches('\n'));
            let traceback = if inner.is_empty() { traceback } else { inner };
            match location(&traceback) {
                Some(location) if !message.starts_with(location) => {
                    (format!("{location} {message}"), traceback)
                }
                _ => (message, traceback),
            }
        }
        mlua::Error::BadArgument { cause, .. } => words(cause),
        mlua::Error::ExternalError(error) => (error.to_string(), String::new()),
        error => (error.to_string(), String::new()),
    }
}

/// Completes errors from the prelude with the position in the script that called it.
fn with_location(message: &str, traceback: String) -> (String, String) {
    let rest = message.strip_prefix("ringroad/").and_then(|rest| rest.splitn(3, ':').nth(2));
    match (rest, location(&traceback)) {
        (Some(rest), Some(location)) => (format!("{location}{rest}"), traceback),
        _ => (message.to_owned(), traceback),
    }
}

/// The traceback without the frames of this module's own Lua.
fn cleaned(traceback: &str) -> String {
    let lines = traceback.lines().map(str::trim_end).filter(|line| {
        let line = line.trim_start();
        !line.is_empty() && !line.starts_with("[C]") && !line.starts_with("ringroad/")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The position `file:line:` of the innermost call of a traceback.
fn location(traceback: &str) -> Option<&str> {
    let line = traceback.lines().next()?.trim_start();
    let end = line.find(": in ")?;
    line.get(..=end)
}
