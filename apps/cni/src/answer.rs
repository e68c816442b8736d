//! Output to the runtime: results and errors (CNI 1.1.0, section 5).

use serde_json::{Value, json};

use crate::{NEWEST, VERSIONS};

/// Error codes (section 5, "Error").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    IncompatibleVersion = 1,
    UnknownContainer = 3,
    InvalidEnvironment = 4,
    Io = 5,
    Decoding = 6,
    InvalidConfiguration = 7,
    TryAgain = 11,
    NotAvailable = 50,
    /// Code of this plugin: the daemon or the kernel refused the operation.
    Refused = 100,
}

/// Answer that tells the runtime why an operation failed: this plugin's, or that of the plugin for addresses.
#[derive(Debug)]
pub(crate) struct CniError(pub(crate) Value);

impl CniError {
    pub(crate) fn new(code: Code, message: impl ToString, details: impl ToString) -> Self {
        let (message, details) = (message.to_string(), details.to_string());
        Self(json!({ "cniVersion": NEWEST, "code": code as u64, "msg": message, "details": details }))
    }
}

pub(crate) fn refused(error: impl std::fmt::Display) -> CniError {
    CniError::new(Code::Refused, error, "")
}

pub(crate) fn versions() -> Value {
    json!({ "cniVersion": NEWEST, "supportedVersions": VERSIONS })
}
