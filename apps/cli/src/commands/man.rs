//! `ringroad man`.

mod port_names;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory};

use crate::command_line::Arguments;
use crate::commands::Command;
use crate::failure::Failure;
use crate::options::Global;
use crate::output::Output;
use crate::verb::MainVerb;

/// Shell lines for the page of `ringroad` itself.
const EXAMPLES: &str = "\
# Receive at one port of a switch, send at another, and look on. The first command starts the daemon.
ringroad recv vale0:b &
ringroad gen vale0:a --rate 1Mpps --duration 5
ringroad top";

/// Write manual pages into a folder: ringroad.1 and one per command, and ringroad-ports.7
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct ManArgs {
    /// Folder for the pages, created if missing; they are written to man1 and man7 below it
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl MainVerb for ManArgs {
    const EXAMPLES: &str = "";

    fn run(&self, _: &Global, _: &Output) -> Result<(), Failure> {
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
    for (verb, lines) in examples().filter(|(_, lines)| !lines.is_empty()) {
        let path = commands.join(page_name(&verb));
        let page = std::fs::read_to_string(&path)?;
        let (before, version) = page.split_at(page.find(".SH VERSION").unwrap_or(page.len()));
        std::fs::write(&path, format!("{before}{}{version}", examples_section(lines)))?;
    }
    std::fs::write(overviews.join("ringroad-ports.7"), port_names::page())
}

/// Returns each verb with shell lines for its page. The first entry is `ringroad` itself, with an empty name.
fn examples() -> impl Iterator<Item = (String, &'static str)> {
    let command = Arguments::command();
    let verbs = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect::<Vec<_>>();
    std::iter::once((String::new(), EXAMPLES)).chain(verbs.into_iter().zip(Command::examples()))
}

/// Returns the file name of a verb's page, or of the command's page for an empty verb.
fn page_name(verb: &str) -> String {
    if verb.is_empty() { "ringroad.1".to_owned() } else { format!("ringroad-{verb}.1") }
}

/// Formats a section of a page with lines of a shell.
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
        write_pages(folder.path()).unwrap();
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
        for (verb, lines) in examples() {
            for line in lines.lines().filter(|line| !line.starts_with('#')) {
                let own = line.split(['|', '&']).next().unwrap_or_default();
                assert!(verb.is_empty() || verb == "sze2" || own.contains(&verb), "{verb}: {line}");
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
