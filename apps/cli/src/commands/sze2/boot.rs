//! `ringroad sze2 boot`.

use clap::Args;
use ringroad_sze2::card::design::{DESIGN_NAMES, DesignInfo};
use ringroad_sze2::message::CardRequest;

use super::CardArgument;
use crate::failure::Failure;
use crate::output::Output;

/// Show or load the design of a card
///
/// A design is what the card's firmware can do: RINGROAD has everything; NIC_100G1_LR4 has 8 channels, which take
/// turns, and no filter; HANIC_100G1_LR4 has 8 channels, filter and distribution. Loading one ends all subscriptions
/// and the connections of all programs, and sets settings and counters to their state at the start.
#[derive(Debug, Args)]
pub(super) struct Boot {
    #[command(flatten)]
    card: CardArgument,
    /// Design to load
    #[arg(value_name = "DESIGN", value_parser = DESIGN_NAMES)]
    design: Option<String>,
}

impl Boot {
    pub(super) fn run(&self, output: &Output) -> Result<(), Failure> {
        let card = self.card.open()?;
        if let Some(design) = &self.design {
            card.set(&CardRequest::Boot { design: design.clone() })?;
        }
        output.result(&card.design()?, text)
    }
}

fn text(design: &DesignInfo) -> String {
    let filter = if design.filter { "a filter" } else { "no filter" };
    let distribution = if design.distribution { "a distribution to set" } else { "channels that take turns" };
    format!("design {design}: up to {} channels each way, {filter}, {distribution}", design.channels)
}
