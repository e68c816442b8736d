//! Text files that users name.

use std::io::{self, Read};
use std::path::Path;

use crate::failure::Failure;

/// Reads a file.
pub(crate) fn read_text(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("reading {}: {error}", path.display()), ""))
}

/// Reads a file; `-` is standard input.
pub(crate) fn read_text_or_input(path: &Path) -> io::Result<String> {
    if path != Path::new("-") {
        return std::fs::read_to_string(path);
    }
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    Ok(text)
}
