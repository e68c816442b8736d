//! Arguments that are port names. Any name is accepted; shells complete names from the catalogue of ports.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use ringroad::catalogue::{Spelling, kinds};

/// Parser of port names, which offers the schemes of all kinds for completion.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PortArgument;

impl TypedValueParser for PortArgument {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let schemes = kinds().filter_map(|kind| match kind.spelling {
            Spelling::Scheme(scheme) => Some(PossibleValue::new(format!("{scheme}:")).help(kind.about)),
            Spelling::Bare | Spelling::Suffix(_) => None,
        });
        Some(Box::new(schemes))
    }
}
