//! Look-up of containers by the names that their engines know.

use std::process::{Command, Stdio};

use ringroad_netdev::{Namespace, NamespaceError};

/// Engines that report a container's process in the same form.
const ENGINES: [&str; 2] = ["podman", "docker"];

/// Reason why a container's namespace is not found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContainerNameError {
    /// The text is neither a container's name nor a namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The engine cannot be called.
    #[error(
        "querying {engine} for its containers: {source}; install it, or give the number of a process in the container"
    )]
    NoEngine {
        /// Command of the engine.
        engine: &'static str,
        /// Reason why the command does not start.
        source: std::io::Error,
    },
    /// The engine does not know the container.
    #[error("{engine} knows no container {name} ({said}); {engine} ps lists those that run")]
    Unknown {
        /// Command of the engine.
        engine: &'static str,
        /// Name of the container.
        name: String,
        /// Output of the engine.
        said: String,
    },
    /// The container does not run.
    #[error("the container {name} does not run: {engine} start {name} starts it")]
    NotRunning {
        /// Command of the engine.
        engine: &'static str,
        /// Name of the container.
        name: String,
    },
}

/// The namespace that `text` names: `podman:NAME`, `docker:NAME`, `pid:NUMBER`, or as [`Namespace`] reads it.
///
/// # Errors
/// [`ContainerNameError`].
pub fn namespace_of(text: &str) -> Result<Namespace, ContainerNameError> {
    if let Some(process) = text.strip_prefix("pid:") {
        let process = process.parse().map_err(|_| NamespaceError::BadName(text.to_owned()))?;
        return Ok(Namespace::OfProcess(process));
    }
    let of_engine = |engine: &&'static str| Some((*engine, text.strip_prefix(*engine)?.strip_prefix(':')?));
    match ENGINES.iter().find_map(of_engine) {
        Some((engine, name)) => process_of(engine, name).map(Namespace::OfProcess),
        None => Ok(text.parse()?),
    }
}

/// Process id of a container's first process.
fn process_of(engine: &'static str, name: &str) -> Result<u32, ContainerNameError> {
    let mut command = Command::new(engine);
    command.args(["inspect", "--type", "container", "--format", "{{.State.Pid}}", "--", name]);
    let told = command.stdin(Stdio::null()).output();
    let told = told.map_err(|source| ContainerNameError::NoEngine { engine, source })?;
    let name = name.to_owned();
    if !told.status.success() {
        let said = String::from_utf8_lossy(&told.stderr);
        let said = said.lines().next().unwrap_or("no reason given").to_owned();
        return Err(ContainerNameError::Unknown { engine, name, said });
    }
    match String::from_utf8_lossy(&told.stdout).trim().parse() {
        Ok(0) | Err(_) => Err(ContainerNameError::NotRunning { engine, name }),
        Ok(process) => Ok(process),
    }
}
