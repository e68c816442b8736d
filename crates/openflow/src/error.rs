//! Errors that a switch reports about requests.

use std::fmt;

/// Type and code of an error message. The text is the name in the specification, such as `OFPBMC_BAD_FIELD`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode {
    /// Type (`ofp_error_type`); [`ErrorCode::EXPERIMENTER`] is the type of an experimenter's errors.
    pub kind: u16,
    /// Code within the type.
    pub code: u16,
}

macro_rules! codes {
    ($( $kind:literal { $( $constant:ident = $code:literal $name:literal, )* } )*) => {
        impl ErrorCode {
            $($(
                #[doc = $name]
                pub const $constant: Self = Self { kind: $kind, code: $code };
            )*)*
            /// All codes that the specification defines.
            pub const ALL: &[Self] = &[$($( Self::$constant, )*)*];

            /// Name in the specification; `None` for a code that it does not define.
            pub fn name(self) -> Option<&'static str> {
                match (self.kind, self.code) {
                    $($( ($kind, $code) => Some($name), )*)*
                    _ => None,
                }
            }
        }
    };
}

impl ErrorCode {
    /// Type of errors that an experimenter defines. The code is then the experimenter's.
    pub const EXPERIMENTER: u16 = 0xffff;
}

codes! {
    0 {
        HELLO_INCOMPATIBLE = 0 "OFPHFC_INCOMPATIBLE",
        HELLO_EPERM = 1 "OFPHFC_EPERM",
    }
    1 {
        REQUEST_BAD_VERSION = 0 "OFPBRC_BAD_VERSION",
        REQUEST_BAD_TYPE = 1 "OFPBRC_BAD_TYPE",
        REQUEST_BAD_MULTIPART = 2 "OFPBRC_BAD_MULTIPART",
        REQUEST_BAD_EXPERIMENTER = 3 "OFPBRC_BAD_EXPERIMENTER",
        REQUEST_BAD_EXP_TYPE = 4 "OFPBRC_BAD_EXP_TYPE",
        REQUEST_EPERM = 5 "OFPBRC_EPERM",
        REQUEST_BAD_LEN = 6 "OFPBRC_BAD_LEN",
        REQUEST_BUFFER_EMPTY = 7 "OFPBRC_BUFFER_EMPTY",
        REQUEST_BUFFER_UNKNOWN = 8 "OFPBRC_BUFFER_UNKNOWN",
        REQUEST_BAD_TABLE_ID = 9 "OFPBRC_BAD_TABLE_ID",
        REQUEST_IS_SLAVE = 10 "OFPBRC_IS_SLAVE",
        REQUEST_BAD_PORT = 11 "OFPBRC_BAD_PORT",
        REQUEST_BAD_PACKET = 12 "OFPBRC_BAD_PACKET",
        REQUEST_MULTIPART_BUFFER_OVERFLOW = 13 "OFPBRC_MULTIPART_BUFFER_OVERFLOW",
    }
    2 {
        ACTION_BAD_TYPE = 0 "OFPBAC_BAD_TYPE",
        ACTION_BAD_LEN = 1 "OFPBAC_BAD_LEN",
        ACTION_BAD_EXPERIMENTER = 2 "OFPBAC_BAD_EXPERIMENTER",
        ACTION_BAD_EXP_TYPE = 3 "OFPBAC_BAD_EXP_TYPE",
        ACTION_BAD_OUT_PORT = 4 "OFPBAC_BAD_OUT_PORT",
        ACTION_BAD_ARGUMENT = 5 "OFPBAC_BAD_ARGUMENT",
        ACTION_EPERM = 6 "OFPBAC_EPERM",
        ACTION_TOO_MANY = 7 "OFPBAC_TOO_MANY",
        ACTION_BAD_QUEUE = 8 "OFPBAC_BAD_QUEUE",
        ACTION_BAD_OUT_GROUP = 9 "OFPBAC_BAD_OUT_GROUP",
        ACTION_MATCH_INCONSISTENT = 10 "OFPBAC_MATCH_INCONSISTENT",
        ACTION_UNSUPPORTED_ORDER = 11 "OFPBAC_UNSUPPORTED_ORDER",
        ACTION_BAD_TAG = 12 "OFPBAC_BAD_TAG",
        ACTION_BAD_SET_TYPE = 13 "OFPBAC_BAD_SET_TYPE",
        ACTION_BAD_SET_LEN = 14 "OFPBAC_BAD_SET_LEN",
        ACTION_BAD_SET_ARGUMENT = 15 "OFPBAC_BAD_SET_ARGUMENT",
    }
    3 {
        INSTRUCTION_UNKNOWN = 0 "OFPBIC_UNKNOWN_INST",
        INSTRUCTION_UNSUPPORTED = 1 "OFPBIC_UNSUP_INST",
        INSTRUCTION_BAD_TABLE_ID = 2 "OFPBIC_BAD_TABLE_ID",
        INSTRUCTION_UNSUPPORTED_METADATA = 3 "OFPBIC_UNSUP_METADATA",
        INSTRUCTION_UNSUPPORTED_METADATA_MASK = 4 "OFPBIC_UNSUP_METADATA_MASK",
        INSTRUCTION_BAD_EXPERIMENTER = 5 "OFPBIC_BAD_EXPERIMENTER",
        INSTRUCTION_BAD_EXP_TYPE = 6 "OFPBIC_BAD_EXP_TYPE",
        INSTRUCTION_BAD_LEN = 7 "OFPBIC_BAD_LEN",
        INSTRUCTION_EPERM = 8 "OFPBIC_EPERM",
    }
    4 {
        MATCH_BAD_TYPE = 0 "OFPBMC_BAD_TYPE",
        MATCH_BAD_LEN = 1 "OFPBMC_BAD_LEN",
        MATCH_BAD_TAG = 2 "OFPBMC_BAD_TAG",
        MATCH_BAD_DL_ADDR_MASK = 3 "OFPBMC_BAD_DL_ADDR_MASK",
        MATCH_BAD_NW_ADDR_MASK = 4 "OFPBMC_BAD_NW_ADDR_MASK",
        MATCH_BAD_WILDCARDS = 5 "OFPBMC_BAD_WILDCARDS",
        MATCH_BAD_FIELD = 6 "OFPBMC_BAD_FIELD",
        MATCH_BAD_VALUE = 7 "OFPBMC_BAD_VALUE",
        MATCH_BAD_MASK = 8 "OFPBMC_BAD_MASK",
        MATCH_BAD_PREREQ = 9 "OFPBMC_BAD_PREREQ",
        MATCH_DUP_FIELD = 10 "OFPBMC_DUP_FIELD",
        MATCH_EPERM = 11 "OFPBMC_EPERM",
    }
    5 {
        FLOW_UNKNOWN = 0 "OFPFMFC_UNKNOWN",
        FLOW_TABLE_FULL = 1 "OFPFMFC_TABLE_FULL",
        FLOW_BAD_TABLE_ID = 2 "OFPFMFC_BAD_TABLE_ID",
        FLOW_OVERLAP = 3 "OFPFMFC_OVERLAP",
        FLOW_EPERM = 4 "OFPFMFC_EPERM",
        FLOW_BAD_TIMEOUT = 5 "OFPFMFC_BAD_TIMEOUT",
        FLOW_BAD_COMMAND = 6 "OFPFMFC_BAD_COMMAND",
        FLOW_BAD_FLAGS = 7 "OFPFMFC_BAD_FLAGS",
    }
    6 {
        GROUP_EXISTS = 0 "OFPGMFC_GROUP_EXISTS",
        GROUP_INVALID = 1 "OFPGMFC_INVALID_GROUP",
        GROUP_WEIGHT_UNSUPPORTED = 2 "OFPGMFC_WEIGHT_UNSUPPORTED",
        GROUP_OUT_OF_GROUPS = 3 "OFPGMFC_OUT_OF_GROUPS",
        GROUP_OUT_OF_BUCKETS = 4 "OFPGMFC_OUT_OF_BUCKETS",
        GROUP_CHAINING_UNSUPPORTED = 5 "OFPGMFC_CHAINING_UNSUPPORTED",
        GROUP_WATCH_UNSUPPORTED = 6 "OFPGMFC_WATCH_UNSUPPORTED",
        GROUP_LOOP = 7 "OFPGMFC_LOOP",
        GROUP_UNKNOWN = 8 "OFPGMFC_UNKNOWN_GROUP",
        GROUP_CHAINED = 9 "OFPGMFC_CHAINED_GROUP",
        GROUP_BAD_TYPE = 10 "OFPGMFC_BAD_TYPE",
        GROUP_BAD_COMMAND = 11 "OFPGMFC_BAD_COMMAND",
        GROUP_BAD_BUCKET = 12 "OFPGMFC_BAD_BUCKET",
        GROUP_BAD_WATCH = 13 "OFPGMFC_BAD_WATCH",
        GROUP_EPERM = 14 "OFPGMFC_EPERM",
    }
    7 {
        PORT_BAD_PORT = 0 "OFPPMFC_BAD_PORT",
        PORT_BAD_HW_ADDR = 1 "OFPPMFC_BAD_HW_ADDR",
        PORT_BAD_CONFIG = 2 "OFPPMFC_BAD_CONFIG",
        PORT_BAD_ADVERTISE = 3 "OFPPMFC_BAD_ADVERTISE",
        PORT_EPERM = 4 "OFPPMFC_EPERM",
    }
    8 {
        TABLE_BAD_TABLE = 0 "OFPTMFC_BAD_TABLE",
        TABLE_BAD_CONFIG = 1 "OFPTMFC_BAD_CONFIG",
        TABLE_EPERM = 2 "OFPTMFC_EPERM",
    }
    9 {
        QUEUE_BAD_PORT = 0 "OFPQOFC_BAD_PORT",
        QUEUE_BAD_QUEUE = 1 "OFPQOFC_BAD_QUEUE",
        QUEUE_EPERM = 2 "OFPQOFC_EPERM",
    }
    10 {
        CONFIG_BAD_FLAGS = 0 "OFPSCFC_BAD_FLAGS",
        CONFIG_BAD_LEN = 1 "OFPSCFC_BAD_LEN",
        CONFIG_EPERM = 2 "OFPSCFC_EPERM",
    }
    11 {
        ROLE_STALE = 0 "OFPRRFC_STALE",
        ROLE_UNSUPPORTED = 1 "OFPRRFC_UNSUP",
        ROLE_BAD_ROLE = 2 "OFPRRFC_BAD_ROLE",
    }
    12 {
        METER_UNKNOWN_ERROR = 0 "OFPMMFC_UNKNOWN",
        METER_EXISTS = 1 "OFPMMFC_METER_EXISTS",
        METER_INVALID = 2 "OFPMMFC_INVALID_METER",
        METER_UNKNOWN = 3 "OFPMMFC_UNKNOWN_METER",
        METER_BAD_COMMAND = 4 "OFPMMFC_BAD_COMMAND",
        METER_BAD_FLAGS = 5 "OFPMMFC_BAD_FLAGS",
        METER_BAD_RATE = 6 "OFPMMFC_BAD_RATE",
        METER_BAD_BURST = 7 "OFPMMFC_BAD_BURST",
        METER_BAD_BAND = 8 "OFPMMFC_BAD_BAND",
        METER_BAD_BAND_VALUE = 9 "OFPMMFC_BAD_BAND_VALUE",
        METER_OUT_OF_METERS = 10 "OFPMMFC_OUT_OF_METERS",
        METER_OUT_OF_BANDS = 11 "OFPMMFC_OUT_OF_BANDS",
    }
    13 {
        FEATURES_BAD_TABLE = 0 "OFPTFFC_BAD_TABLE",
        FEATURES_BAD_METADATA = 1 "OFPTFFC_BAD_METADATA",
        FEATURES_BAD_TYPE = 2 "OFPTFFC_BAD_TYPE",
        FEATURES_BAD_LEN = 3 "OFPTFFC_BAD_LEN",
        FEATURES_BAD_ARGUMENT = 4 "OFPTFFC_BAD_ARGUMENT",
        FEATURES_EPERM = 5 "OFPTFFC_EPERM",
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "error type {} code {}", self.kind, self.code),
        }
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ErrorCode {}

/// Error: a message, or one entry of a list, exceeds the 65,535 bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("longer than the 65535 bytes of an OpenFlow message; use fewer actions, buckets or data")]
pub struct TooLong;
