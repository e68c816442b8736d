//! `ringroad kinds`.

use clap::Args;
use clap::builder::PossibleValuesParser;
use ringroad::catalogue::{
    COMMON_OPTIONS, OpenedBy, PortKind, PortOption, SWITCH_PORT_OPTIONS, Spelling, kinds,
};
use serde::Serialize;

use crate::failure::Failure;
use crate::options::Global;
use crate::output::Output;
use crate::output::table::{lines, table};
use crate::verb::MainVerb;

/// Show the kinds of port, or details of one kind
#[derive(Debug, Args)]
pub(crate) struct KindsArgs {
    /// Kind of port: the scheme before the colon in port names, or "interface" or "host"
    #[arg(value_name = "KIND", value_parser = PossibleValuesParser::new(kinds().map(name_of)))]
    kind: Option<String>,
}

/// Returns the kind's name on the command line.
fn name_of(kind: &PortKind) -> &'static str {
    match kind.spelling {
        Spelling::Scheme(scheme) => scheme,
        Spelling::Bare => "interface",
        Spelling::Suffix(_) => "host",
    }
}

#[derive(Debug, Serialize)]
struct KindReport {
    kind: &'static str,
    driver: &'static str,
    form: &'static str,
    about: &'static str,
    needs_daemon: bool,
    options: Vec<OptionReport>,
}

#[derive(Debug, Serialize)]
struct OptionReport {
    key: &'static str,
    values: String,
    default: &'static str,
    about: &'static str,
    for_administrators: bool,
}

impl OptionReport {
    fn of(option: &PortOption) -> Self {
        Self {
            key: option.key,
            values: option.value.to_string(),
            default: option.default,
            about: option.help,
            for_administrators: option.for_administrators,
        }
    }
}

impl KindReport {
    fn of(kind: &PortKind) -> Self {
        Self {
            kind: name_of(kind),
            driver: kind.driver,
            form: kind.form,
            about: kind.about,
            needs_daemon: kind.access == OpenedBy::Daemon,
            options: kind.options.iter().copied().map(OptionReport::of).collect(),
        }
    }

    fn text(&self) -> String {
        let opener = if self.needs_daemon { "the daemon opens it" } else { "programs open it in themselves" };
        let common: Vec<_> = COMMON_OPTIONS.into_iter().map(OptionReport::of).collect();
        format!(
            "{}: {}\n\nDriver {}; {opener}, or an administrator attaches it to a switch.\n\n{}\n\nEvery port has:\n\n{}",
            self.form,
            self.about,
            self.driver,
            options_table(&self.options).trim_end(),
            options_table(&common)
        )
    }
}

fn options_table(options: &[OptionReport]) -> String {
    table(
        options,
        &[
            ("option", |option| option.key.to_owned()),
            ("values", |option| option.values.clone()),
            ("default", |option| option.default.to_owned()),
            ("meaning", |option| option.about.to_owned()),
        ],
        "It has no further options.",
    )
}

impl MainVerb for KindsArgs {
    const EXAMPLES: &str = "\
ringroad kinds
# All options of memif: ports
ringroad kinds memif";

    fn run(&self, _: &Global, output: &Output) -> Result<(), Failure> {
        if let Some(wanted) = &self.kind
            && let Some(kind) = kinds().find(|kind| name_of(kind) == wanted)
        {
            return output.result(&KindReport::of(kind), KindReport::text);
        }
        let all: Vec<_> = kinds().map(KindReport::of).collect();
        output.result(&all, |all| {
            let keys = SWITCH_PORT_OPTIONS.map(|option| option.key).join(", ");
            let switch_port = format!("port a of the learning switch vale0; its options: {keys}");
            let rings = [
                ["vale0:a".to_owned(), switch_port],
                ["x{1 and x}1".to_owned(), "the two ends of a pipe between programs".to_owned()],
            ];
            let devices = all.iter().map(|kind| [kind.form.to_owned(), kind.about.to_owned()]);
            lines(&["name", "port"], rings.into_iter().chain(devices), "")
        })
    }
}
