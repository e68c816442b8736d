//! `ringroad sze2 ibuf`.

use clap::Args;
use ringroad_sze2::card::settings::AddressCheck;
use ringroad_sze2::message::CardRequest;
use ringroad_wire::mac::Mac;

use super::{CardArgument, status};
use crate::failure::Failure;
use crate::output::Output;

/// Show or set which frames a card accepts
///
/// Rejected frames are counted by reason.
#[derive(Debug, Args)]
pub(super) struct IbufArgs {
    #[command(flatten)]
    card: CardArgument,
    /// Accept frames
    #[arg(long, conflicts_with = "disable")]
    enable: bool,
    /// Accept no frames
    #[arg(long)]
    disable: bool,
    /// Destination addresses to accept: promiscuous (all), listed, broadcast (and listed) or multicast (and both)
    #[arg(long, value_name = "CHECK")]
    check: Option<AddressCheck>,
    /// Address to accept; may be repeated. The addresses replace the previous ones
    #[arg(long, value_name = "MAC")]
    address: Vec<Mac>,
    /// Shortest frame, bytes without FCS
    #[arg(long, value_name = "BYTES")]
    min: Option<u32>,
    /// Longest frame, bytes without FCS
    #[arg(long, value_name = "BYTES")]
    max: Option<u32>,
    /// Set all counters of the card to zero
    #[arg(long)]
    clear: bool,
}

impl IbufArgs {
    pub(super) fn run(&self, output: &Output) -> Result<(), Failure> {
        let card = self.card.open()?;
        let before = card.status()?.ibuf;
        let mut ibuf = before.clone();
        if self.enable || self.disable {
            ibuf.enabled = self.enable;
        }
        ibuf.address_check = self.check.unwrap_or(ibuf.address_check);
        if !self.address.is_empty() {
            ibuf.addresses = self.address.iter().map(|address| address.octets()).collect();
        }
        ibuf.min_frame_bytes = self.min.unwrap_or(ibuf.min_frame_bytes);
        ibuf.max_frame_bytes = self.max.unwrap_or(ibuf.max_frame_bytes);
        if ibuf != before {
            card.set(&CardRequest::SetIbuf { ibuf })?;
        }
        if self.clear {
            card.set(&CardRequest::ClearCounters)?;
        }
        output.result(&card.status()?, status::ibuf)
    }
}
