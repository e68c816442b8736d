//! `ringroad man`.

use std::path::PathBuf;

use clap::{Args, CommandFactory};

use crate::arguments::Arguments;
use crate::failure::Failure;

/// Write manual pages into a folder: ringroad.1 and one per command
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Folder, made where it is missing
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Man {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        std::fs::create_dir_all(&self.folder)
            .and_then(|()| clap_mangen::generate_to(Arguments::command(), &self.folder))
            .map_err(|error| {
                Failure::new(
                    format!("writing manual pages into {}: {error}", self.folder.display()),
                    "choose a folder that you may write to",
                )
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_visible_command_has_a_manual_page() {
        let folder = std::env::temp_dir().join(format!("ringroad-man-{}", std::process::id()));
        Man { folder: folder.clone() }.run().unwrap();
        let mut missing = Vec::new();
        for command in Arguments::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let page = folder.join(format!("ringroad-{}.1", command.get_name()));
            if !std::fs::read_to_string(&page).is_ok_and(|text| text.contains(".TH ringroad-")) {
                missing.push(page);
            }
        }
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
