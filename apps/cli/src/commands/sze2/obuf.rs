//! `ringroad sze2 obuf`.

use clap::Args;
use ringroad_sze2::message::CardRequest;

use super::{CardArgument, status};
use crate::failure::Failure;
use crate::output::Output;

/// Show or set whether a card transmits frames
///
/// While transmission is disabled, the card takes, counts and discards the frames that programs transmit.
#[derive(Debug, Args)]
pub(super) struct Obuf {
    #[command(flatten)]
    card: CardArgument,
    /// Transmit frames
    #[arg(long, conflicts_with = "disable")]
    enable: bool,
    /// Transmit no frames
    #[arg(long)]
    disable: bool,
}

impl Obuf {
    pub(super) fn run(&self, output: &Output) -> Result<(), Failure> {
        let card = self.card.open()?;
        if self.enable || self.disable {
            card.set(&CardRequest::SetObuf { enabled: self.enable })?;
        }
        output.result(&card.status()?, status::obuf)
    }
}
