//! Instruction counts: the cost of one frame on a path, and whether it has increased.
//!
//! A time on a shared machine shows little about a change of some percent; the number of instructions is the same on
//! every run. A *program* moves frames on one path in its own thread, and valgrind's callgrind counts it twice, over
//! few frames and over many. The difference is the cost of the additional frames, so the start and the first lap of
//! each ring cancel out.
//!
//! * [`callgrind`] runs a program under valgrind and reads its counts;
//! * [`budgets`] is the file of goals and guards, and the judgement;
//! * [`report`] is the table and the JSON.
//!
//! The programs are the benchmark `cost` beside this library: they name drivers, which libraries above them must not.

pub mod budgets;
pub mod callgrind;
pub mod report;

use std::path::PathBuf;

/// Reasons why a path could not be counted or judged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CostError {
    /// valgrind is not installed.
    #[error("running valgrind, which counts the instructions: {0}; install Debian's package valgrind")]
    Valgrind(std::io::Error),
    /// The counted program failed.
    #[error("counting {program}: {status}: {said}")]
    Program {
        program: String,
        status: std::process::ExitStatus,
        /// Last lines of the program's output.
        said: String,
    },
    /// The output of a program has an unexpected form.
    #[error("counting {program}: {what}")]
    Output { program: String, what: String },
    /// A file cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File { path: PathBuf, source: std::io::Error },
    /// The file of budgets is invalid.
    #[error("{path}: {what}", path = path.display())]
    Budgets { path: PathBuf, what: String },
}
