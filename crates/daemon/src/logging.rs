//! Log lines: structured, to standard error or a file. Nothing is logged per packet.

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::Handle;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

use crate::config::{Log, LogFormat};

/// Changes the level while the daemon runs.
pub type LevelHandle = Handle<EnvFilter, Registry>;

/// Starts logging as configured; `file` overrides the configuration's.
///
/// # Errors
/// A description where the level does not parse or the file cannot be opened.
pub fn start(config: &Log, file: Option<&Path>) -> Result<LevelHandle, String> {
    let (filter, handle) = tracing_subscriber::reload::Layer::new(filter(&config.level)?);
    let to_file = file.or(config.file.as_deref());
    let writer = match to_file {
        Some(path) => {
            let file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .map_err(|error| format!("opening the log file {}: {error}", path.display()))?;
            BoxMakeWriter::new(Mutex::new(file))
        }
        None => BoxMakeWriter::new(std::io::stderr),
    };
    let layer = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false);
    let layer = match config.format {
        LogFormat::Text => layer.boxed(),
        LogFormat::Json => layer.json().boxed(),
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(layer)
        .try_init()
        .map_err(|error| format!("starting the log: {error}"))?;
    Ok(handle)
}

/// The filter for a level as the configuration writes it.
///
/// # Errors
/// A description where it does not parse.
pub fn filter(level: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(level)
        .map_err(|error| format!("log.level {level:?}: {error}; write error, warn, info, debug or trace"))
}
