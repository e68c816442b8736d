//! `ringroad man`.

mod examples;
mod port_names;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory};

use crate::arguments::Arguments;
use crate::failure::Failure;

/// Write manual pages into a folder: ringroad.1 and one per command, and ringroad-ports.7
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Folder, created if missing; pages are written to man1 and man7 below it
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Man {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        write_pages(&self.folder).map_err(|error| {
            Failure::new(
                format!("writing manual pages into {}: {error}", self.folder.display()),
                "choose a folder that you may write to",
            )
        })
    }
}

fn write_pages(folder: &Path) -> std::io::Result<()> {
    let (commands, overviews) = (folder.join("man1"), folder.join("man7"));
    std::fs::create_dir_all(&commands)?;
    std::fs::create_dir_all(&overviews)?;
    clap_mangen::generate_to(Arguments::command().disable_help_subcommand(true), &commands)?;
    for verb in std::iter::once("").chain(Arguments::command().get_subcommands().map(clap::Command::get_name))
    {
        let Some(lines) = examples::of(verb) else { continue };
        let path = commands.join(page_name(verb));
        let page = std::fs::read_to_string(&path)?;
        let (before, version) = page.split_at(page.find(".SH VERSION").unwrap_or(page.len()));
        std::fs::write(&path, format!("{before}{}{version}", examples_section(lines)))?;
    }
    std::fs::write(overviews.join("ringroad-ports.7"), port_names::page())
}

/// The file of a verb's page; without a verb, of the command's page.
fn page_name(verb: &str) -> String {
    if verb.is_empty() { "ringroad.1".to_owned() } else { format!("ringroad-{verb}.1") }
}

/// A section of a page that shows lines of a shell.
fn examples_section(lines: &str) -> String {
    let mut section = ".SH EXAMPLES\n.nf\n".to_owned();
    for line in lines.lines() {
        let _ = writeln!(section, "{}", line.replace('\\', "\\e").replace('-', "\\-"));
    }
    section.push_str(".fi\n");
    section
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn every_visible_command_has_a_manual_page_with_examples() {
        let folder = tempfile::tempdir().unwrap();
        Man { folder: folder.path().to_owned() }.run().unwrap();
        let mut missing = Vec::new();
        for command in Arguments::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let page = folder.path().join("man1").join(page_name(command.get_name()));
            if !std::fs::read_to_string(&page)
                .is_ok_and(|text| text.contains(".TH ringroad-") && text.contains(".SH EXAMPLES"))
            {
                missing.push(page);
            }
        }
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn the_command_line_accepts_every_example() {
        let command = Arguments::command();
        for verb in std::iter::once("").chain(command.get_subcommands().map(clap::Command::get_name)) {
            for line in examples::of(verb).unwrap_or_default().lines().filter(|line| !line.starts_with('#')) {
                let own = line.split(['|', '&']).next().unwrap_or_default();
                assert!(verb.is_empty() || verb == "sze2" || own.contains(verb), "{verb}: {line}");
                if let Err(error) = Arguments::try_parse_from(own.split_whitespace()) {
                    panic!("{line}: {error}");
                }
            }
        }
    }

    #[test]
    fn the_page_of_port_names_has_every_kind_and_option() {
        let page = port_names::page();
        for kind in ringroad::catalogue::kinds() {
            assert!(page.contains(&format!(".SS {}\n", kind.form)), "{}", kind.form);
            for option in kind.options {
                let key = format!("{}=", option.key.replace('-', "\\-"));
                assert!(page.contains(&key), "{key}");
            }
        }
    }
}
