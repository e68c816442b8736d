//! The plugin that assigns addresses (IPAM), which runs the same operation as this plugin.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::NEWEST;
use crate::answer::{CniError, Code};
use crate::request::{CniRequest, IpamResult};

/// Calls the plugin for an operation, and returns the assigned addresses and routes. Does nothing if the network has no
/// such plugin.
pub(crate) fn ask(request: &CniRequest, operation: &str) -> Result<IpamResult, CniError> {
    let Some(answer) = run(request, operation)? else { return Ok(IpamResult::default()) };
    serde_json::from_value(answer)
        .map_err(|error| CniError::new(Code::Decoding, "the addresses cannot be read", error))
}

/// Calls the plugin for an operation of version 1.1.0, unless the plugin is older and does not support it.
pub(crate) fn ask_if_known(request: &CniRequest, operation: &str) -> Result<(), CniError> {
    let versions = run(request, "VERSION")?.unwrap_or_default();
    let known = versions.get("supportedVersions").and_then(Value::as_array);
    if known.is_some_and(|known| known.iter().any(|version| version == NEWEST)) {
        run(request, operation)?;
    }
    Ok(())
}

/// Runs the plugin and returns its reply; `None` if there is no plugin, or its reply is empty.
fn run(request: &CniRequest, operation: &str) -> Result<Option<Value>, CniError> {
    let Some(plugin) = request.network.ipam.as_ref().map(|ipam| &ipam.plugin).filter(|name| !name.is_empty())
    else {
        return Ok(None);
    };
    let program = request.plugins.iter().map(|folder| folder.join(plugin)).find(|path| path.is_file());
    let program = program.ok_or_else(|| {
        let message = format!("there is no plugin {plugin} in CNI_PATH");
        CniError::new(Code::InvalidConfiguration, message, "install it, or change ipam.type")
    })?;
    let failed =
        |error: std::io::Error| CniError::new(Code::Io, format!("running {}", program.display()), error);
    let mut command = Command::new(&program);
    command.env("CNI_COMMAND", operation).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        // A plugin that does not read its input reports errors in its reply.
        let _ = input.write_all(&request.configuration);
    }
    let told = child.wait_with_output().map_err(failed)?;
    if told.status.success() && told.stdout.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let answer = serde_json::from_slice(&told.stdout).map_err(|error| {
        CniError::new(Code::Decoding, format!("{plugin} answers with invalid JSON ({})", told.status), error)
    })?;
    if told.status.success() { Ok(Some(answer)) } else { Err(CniError(answer)) }
}
