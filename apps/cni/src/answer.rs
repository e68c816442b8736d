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

/// Reasons why an operation failed.
#[derive(Debug)]
pub(crate) enum CniError {
    Own {
        code: Code,
        message: String,
        details: String,
    },
    /// Reply of the plugin for addresses, which is passed to the runtime unchanged.
    OfAddresses(Value),
}

impl CniError {
    pub(crate) fn new(code: Code, message: impl ToString, details: impl ToString) -> Self {
        Self::Own { code, message: message.to_string(), details: details.to_string() }
    }

    pub(crate) fn into_answer(self) -> Value {
        match self {
            Self::Own { code, message, details } => {
                json!({ "cniVersion": NEWEST, "code": code as u64, "msg": message, "details": details })
            }
            Self::OfAddresses(answer) => answer,
        }
    }
}

pub(crate) fn refused(error: impl std::fmt::Display) -> CniError {
    CniError::new(Code::Refused, error, "")
}

pub(crate) fn versions() -> Value {
    json!({ "cniVersion": NEWEST, "supportedVersions": VERSIONS })
}
