//! A command line that the parser refuses, as one JSON object.

use clap::error::ErrorKind;
use serde::Serialize;

/// A usage error under `--json`: the fields of each failure, and the parser's kind of error.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct UsageError {
    error: String,
    advice: String,
    /// Name of this kind of error in clap, such as `UnknownArgument`.
    kind: String,
}

impl UsageError {
    pub(crate) fn new(error: &clap::Error) -> Self {
        let kind = error.kind();
        if kind == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            // Help as an error: the parser's text is the whole help.
            return Self {
                error: "an argument or a command is missing".to_owned(),
                advice: "try '--help'".to_owned(),
                kind: format!("{kind:?}"),
            };
        }
        let text = error.to_string();
        let mut paragraphs = text.split("\n\n").map(one_line).filter(|paragraph| !paragraph.is_empty());
        let message = paragraphs.next().unwrap_or_default();
        Self {
            error: message.strip_prefix("error: ").unwrap_or(&message).to_owned(),
            advice: paragraphs.collect::<Vec<_>>().join("; "),
            kind: format!("{kind:?}"),
        }
    }
}

/// Whether a command line that was not parsed requests JSON: arguments after `--` belong to another program.
pub(crate) fn wants_json(arguments: impl Iterator<Item = std::ffi::OsString>) -> bool {
    arguments.take_while(|argument| argument != "--").any(|argument| argument == "--json")
}

fn one_line(paragraph: &str) -> String {
    paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::command_line::Arguments;

    fn refused(arguments: &[&str]) -> UsageError {
        UsageError::new(&Arguments::try_parse_from(arguments).expect_err("the parser refuses"))
    }

    #[test]
    fn an_unknown_option_is_named_on_one_line() {
        let error = refused(&["ringroad", "--json", "list", "--wrong"]);
        assert_eq!(error.kind, "UnknownArgument");
        assert_eq!(error.error, "unexpected argument '--wrong' found");
        assert!(error.advice.contains("Usage: ringroad"), "{error:?}");
        assert!(!error.advice.contains('\n'), "{error:?}");
    }

    #[test]
    fn a_command_line_without_a_command_is_not_answered_with_the_whole_help() {
        let error = refused(&["ringroad"]);
        assert_eq!(error.error, "an argument or a command is missing");
    }

    #[test]
    fn json_behind_two_dashes_is_another_programs_option() {
        let words =
            |words: &[&str]| words.iter().map(Into::into).collect::<Vec<std::ffi::OsString>>().into_iter();
        assert!(wants_json(words(&["ringroad", "list", "--json", "--wrong"])));
        assert!(!wants_json(words(&["ringroad", "run", "--", "program", "--json"])));
    }
}
