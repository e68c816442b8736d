//! Errors of a definition.

use crate::frame_size_mix::MAX_SIZES;

/// Reason why the frames of a stream cannot be made: the stream, the field of its definition, and the problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("stream \"{stream}\": {field}: {problem}")]
#[non_exhaustive]
pub struct StreamError {
    /// Name of the stream.
    pub stream: String,
    /// Path of the field in the definition, like `modify[0].increment.count`.
    pub field: String,
    pub problem: Problem,
}

/// Problem of a field of a definition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The value is outside of the allowed range.
    #[error("{given} is out of range: give {allowed}")]
    OutOfRange {
        given: String,
        /// The allowed values.
        allowed: String,
    },
    /// The value cannot be read.
    #[error("\"{given}\" is not {expected}")]
    Unreadable {
        given: String,
        /// The expected form.
        expected: String,
    },
    /// The frame has no such field.
    #[error("the frame has no field \"{given}\": it has {known}")]
    NoSuchField {
        given: String,
        /// The fields of the frame.
        known: String,
    },
    /// The field is computed from other fields.
    #[error("\"{given}\" cannot be modified: {reason}")]
    NotModifiable { given: String, reason: &'static str },
    /// The header cannot be at this position.
    #[error("{header} cannot follow {after} directly: {advice}")]
    Misplaced {
        /// The refused header.
        header: &'static str,
        /// The header before the refused header.
        after: &'static str,
        /// Advice for the user.
        advice: &'static str,
    },
    /// Frames of this size have no room for their headers, payload and signature.
    #[error(
        "frames of {size} bytes are too short: {needs}, with {fcs} bytes of FCS, take at least {least}",
        fcs = crate::line_rate::FCS_BYTES
    )]
    TooShort {
        /// The given size, bytes with FCS.
        size: usize,
        /// The least sufficient size, bytes with FCS.
        least: usize,
        /// The parts that need the room.
        needs: String,
    },
    /// There are more sizes than a stream can have.
    #[error("{given} sizes are too many: give at most {MAX_SIZES}, for example with a larger step")]
    TooManySizes {
        /// Number of sizes given.
        given: usize,
    },
    /// Two modifiers vary the same bits.
    #[error("\"{given}\" overlaps the bytes that {other} varies: leave one of them out")]
    Overlap {
        /// The field given.
        given: String,
        /// The earlier modifier of the same bits.
        other: String,
    },
    /// Fields exclude each other, or a field is missing.
    #[error("{advice}")]
    Combination {
        /// Advice for the user.
        advice: String,
    },
}

impl StreamError {
    /// The error for `problem` of `field`. [`Self::of`] adds the stream.
    pub(crate) fn at(field: impl Into<String>, problem: Problem) -> Self {
        Self { stream: String::new(), field: field.into(), problem }
    }

    pub(crate) fn out_of_range(
        field: impl Into<String>,
        given: impl ToString,
        allowed: impl Into<String>,
    ) -> Self {
        Self::at(field, Problem::OutOfRange { given: given.to_string(), allowed: allowed.into() })
    }

    pub(crate) fn combination(field: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::at(field, Problem::Combination { advice: advice.into() })
    }

    /// Adds `outer` to the path of the field.
    pub(crate) fn within(mut self, outer: &str) -> Self {
        self.field = if self.field.is_empty() { outer.to_owned() } else { format!("{outer}.{}", self.field) };
        self
    }

    /// Adds the name of the stream.
    pub(crate) fn of(mut self, name: &str) -> Self {
        name.clone_into(&mut self.stream);
        self
    }
}
