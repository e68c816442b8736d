//! `ringroad sze2 dist`.

use clap::{ArgAction, Args};
use ringroad_sze2::card::distribution::DistributionMode;
use ringroad_sze2::message::CardRequest;

use super::CardArgument;
use crate::failure::Failure;
use crate::output::Output;

/// Show or set how frames are spread over the channels
///
/// `ringroad sze2 filter` sets which channels are available to a frame.
#[derive(Debug, Args)]
pub(super) struct Dist {
    #[command(flatten)]
    card: CardArgument,
    /// Method: round-robin, hash (a flow's frames stay together) or symmetric-hash (both directions of a flow stay
    /// together)
    #[arg(value_name = "SPREAD")]
    spread: Option<DistributionMode>,
    /// Whether a flow is identified by hosts, protocol and ports, or by hosts alone
    #[arg(long, value_name = "BOOL", action = ArgAction::Set)]
    ports: Option<bool>,
}

impl Dist {
    pub(super) fn run(&self, output: &Output) -> Result<(), Failure> {
        let card = self.card.open()?;
        let before = card.status()?.distribution;
        let mut distribution = before;
        distribution.spread = self.spread.unwrap_or(before.spread);
        distribution.ports = self.ports.unwrap_or(before.ports);
        if distribution != before {
            card.set(&CardRequest::SetDistribution { distribution })?;
        }
        output.result(&distribution, |distribution| {
            let ports = if distribution.ports { "with" } else { "without" };
            format!("{}, flows identified {ports} protocol and ports", distribution.spread)
        })
    }
}
