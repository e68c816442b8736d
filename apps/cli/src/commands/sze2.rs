//! `ringroad sze2`: capture cards in software.

mod boot;
mod distribution;
mod dump;
mod filter;
mod ibuf;
mod obuf;
mod status;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ringroad_sze2::client::{CardClient, CardError};
use ringroad_sze2::memory::MemoryError;

use crate::failure::Failure;
use crate::options::Global;
use crate::output::Output;
use crate::verb::MainVerb;

/// Show and set an SZE2 capture card in software
///
/// A card is a port: `ringroad attach vale0:card --driver sze2:/run/szedataII0` makes one on the switch vale0, with a
/// socket for programs. Frames that arrive at the port pass the input buffer (IBUF), filter and distribution into one
/// of the channels; frames that programs transmit leave by the output buffer (OBUF). See docs/sze2.md.
#[derive(Debug, Args)]
pub(crate) struct Sze2Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show everything about a card
    Status(status::CardStatusArgs),
    /// Show or set which frames a card accepts
    Ibuf(ibuf::IbufArgs),
    /// Show or set whether a card transmits frames
    Obuf(obuf::Obuf),
    /// Show or set which channels may get which frames
    Filter(filter::FilterVerb),
    /// Show or set how frames are spread over the channels
    Dist(distribution::Dist),
    /// Show or load the design of a card
    Boot(boot::Boot),
    /// Print the segments of a channel, or of a file
    Dump(dump::Dump),
}

/// The card to control.
#[derive(Debug, Args)]
struct CardArgument {
    /// Path of the card's socket
    #[arg(value_name = "CARD")]
    path: PathBuf,
}

impl CardArgument {
    fn open(&self) -> Result<CardClient, Failure> {
        Ok(CardClient::open(&self.path, "ringroad sze2")?)
    }
}

impl MainVerb for Sze2Args {
    const EXAMPLES: &str = "\
ringroad attach vale0:card --driver sze2:/run/szedataII0
ringroad sze2 status /run/szedataII0";

    fn run(&self, _: &Global, output: &Output) -> Result<(), Failure> {
        match &self.verb {
            Verb::Status(verb) => verb.run(output),
            Verb::Ibuf(verb) => verb.run(output),
            Verb::Obuf(verb) => verb.run(output),
            Verb::Filter(verb) => verb.run(output),
            Verb::Dist(verb) => verb.run(output),
            Verb::Boot(verb) => verb.run(output),
            Verb::Dump(verb) => verb.run(output),
        }
    }
}

impl From<CardError> for Failure {
    fn from(error: CardError) -> Self {
        let advice = match &error {
            CardError::NotThere { path, .. } => {
                format!("make a card: ringroad attach vale0:card --driver sze2:{}", path.display())
            }
            CardError::Memory(MemoryError::System { .. }) => {
                "give the card smaller buffers (@buffer=4M), or this process more memory to map".to_owned()
            }
            _ => String::new(),
        };
        Self::new(error.to_string(), advice)
    }
}

/// Formats a state as on or off.
fn switched(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}
