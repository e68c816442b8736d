//! Logging of structured lines, to standard error or a file. Nothing is logged per packet.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ringroad_control::guarded_file::{self, FilePurpose};
use ringroad_control::printable::is_printable;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::Handle;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

use crate::config::{Log, LogFormat};
use crate::log_limit::LogLimit;

/// Log files besides the one that the configuration names.
#[derive(Debug, Default)]
pub struct LogFiles {
    /// File from the command line, which takes precedence over the configuration's.
    pub given: Option<PathBuf>,
    /// File for a daemon whose configuration names none; without it, lines go to standard error.
    pub otherwise: Option<PathBuf>,
}

impl LogFiles {
    /// Opens the target of lines.
    fn open(&self, config: &Log) -> Result<Option<File>, String> {
        let path = self.given.as_deref().or(config.file.as_deref()).or(self.otherwise.as_deref());
        path.map(open).transpose()
    }
}

/// The log while the daemon runs.
#[derive(Debug)]
pub struct RunningLog {
    level: Handle<Targets, Registry>,
    files: LogFiles,
    target: Arc<Mutex<Option<File>>>,
    /// Limit on the lines that untrusted peers can cause.
    pub limit: LogLimit,
}

impl RunningLog {
    /// A log that writes nothing.
    #[cfg(test)]
    pub(crate) fn silent() -> Self {
        let (_, level) = tracing_subscriber::reload::Layer::new(Targets::new());
        Self { level, files: LogFiles::default(), target: Arc::default(), limit: LogLimit::new(0) }
    }

    /// Changes the level.
    ///
    /// # Errors
    /// A description if the level does not parse.
    pub fn set_level(&self, level: &str) -> Result<(), String> {
        // The reload fails only if the log is gone, and then no report can reach the user.
        let _ = self.level.reload(filter(level)?);
        Ok(())
    }

    /// Opens the file of the log again: the next lines go to the file that has its name now.
    ///
    /// # Errors
    /// A description if it cannot be opened; lines continue to go to the previous file.
    pub fn reopen(&self, config: &Log) -> Result<(), String> {
        let target = self.files.open(config)?;
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
        Ok(())
    }
}

/// Starts logging as configured.
///
/// # Errors
/// A description if the level does not parse or the file cannot be opened.
pub fn start(config: &Log, files: LogFiles) -> Result<RunningLog, String> {
    let (filter, level) = tracing_subscriber::reload::Layer::new(filter(&config.level)?);
    let limit = LogLimit::new(rustix::process::geteuid().as_raw());
    let target = Arc::new(Mutex::new(files.open(config)?));
    let writer = Arc::clone(&target);
    let writer = move || LineWriter(Arc::clone(&writer));
    let layer = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false);
    let layer = match config.format {
        LogFormat::Text => layer.boxed(),
        LogFormat::Json => layer.json().boxed(),
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(limit.clone())
        .with(layer)
        .try_init()
        .map_err(|error| format!("starting the log: {error}"))?;
    Ok(RunningLog { level, files, target, limit })
}

/// Opens the log file for appending. Another user must not choose the target of the daemon's lines.
fn open(path: &Path) -> Result<File, String> {
    guarded_file::open(path, FilePurpose::Append(0o640))
        .map_err(|error| format!("opening the log file {}: {error}", path.display()))
}

/// Writer of lines to the log's target, which has a file or is standard error.
struct LineWriter(Arc<Mutex<Option<File>>>);

impl Write for LineWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let plain = plain(&String::from_utf8_lossy(bytes));
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            None => std::io::stderr().write_all(plain.as_bytes())?,
            Some(file) => file.write_all(plain.as_bytes())?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Escapes the characters of a line that could control a terminal or look like the end of the line.
fn plain(text: &str) -> String {
    let (line, end) = text.strip_suffix('\n').map_or((text, ""), |line| (line, "\n"));
    let mut plain = String::with_capacity(text.len());
    for c in line.chars() {
        match is_printable(c) {
            true => plain.push(c),
            false => plain.extend(c.escape_default()),
        }
    }
    plain + end
}

/// Filter for a level of the configuration.
fn filter(level: &str) -> Result<Targets, String> {
    level
        .parse::<Targets>()
        .map_err(|error| format!("log.level {level:?}: {error}; write error, warn, info, debug or trace"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_log_line_cannot_control_a_terminal_or_begin_another_line() {
        assert_eq!(plain("port \x1b[2Jx\nFAKE grün\n"), "port \\u{1b}[2Jx\\nFAKE grün\n");
    }

    #[test]
    fn a_log_file_is_appended_to_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        for _ in 0..2 {
            open(&path).unwrap().write_all(b"line\n").unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "line\nline\n");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o137, 0);
        open(Path::new("/dev/null")).unwrap();
    }

    #[test]
    fn no_other_user_redirects_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let path_of = |name: &str| folder.path().join(name);
        std::fs::write(path_of("precious"), "").unwrap();
        std::os::unix::fs::symlink(path_of("precious"), path_of("link")).unwrap();
        assert!(open(&path_of("link")).unwrap_err().contains("symbolic link"));
        std::process::Command::new("mkfifo").arg(path_of("fifo")).status().unwrap();
        assert!(open(&path_of("fifo")).is_err(), "a pipe without a reader would block the daemon");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(path_of("precious"), Some(12345), None).unwrap();
            assert!(open(&path_of("precious")).unwrap_err().contains("user 12345"));
        }
    }
}
