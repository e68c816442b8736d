//! `ringroad sze2 filter`.

use std::path::PathBuf;

use clap::Args;
use ringroad_sze2::message::CardRequest;
use serde::Serialize;

use super::CardArgument;
use crate::failure::Failure;
use crate::output::Output;
use crate::text_files::read_text_or_input;

/// Show or set which channels may get which frames
///
/// A line contains one rule: `allow 0-3 if tcp dst 192.0.2.0/24 dport 80`, `deny if vlan 5`. The first rule that
/// matches a frame applies; `default allow 0-7` applies to frames that no rule matches. Conditions: src, dst, sport,
/// dport, tcp, udp, icmp, icmp6, sctp, proto, ipv4, ipv6, vlan, tags, ethertype, smac, dmac. Rules that programs add
/// come before these; `ringroad sze2 status` shows them.
#[derive(Debug, Args)]
pub(super) struct FilterVerb {
    #[command(flatten)]
    card: CardArgument,
    /// File with the rules to set; - for standard input
    #[arg(long, short = 'F', value_name = "FILE", conflicts_with = "rule")]
    file: Option<PathBuf>,
    /// Rule to set; may be repeated. All rules together replace the previous rules
    #[arg(long, value_name = "RULE")]
    rule: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Rules {
    filter: String,
}

impl FilterVerb {
    pub(super) fn run(&self, output: &Output) -> Result<(), Failure> {
        let card = self.card.open()?;
        let rules = match &self.file {
            Some(path) => Some(
                read_text_or_input(path)
                    .map_err(|error| Failure::new(format!("reading {}: {error}", path.display()), ""))?,
            ),
            None if self.rule.is_empty() => None,
            None => Some(self.rule.join("\n")),
        };
        if let Some(rules) = rules {
            card.set(&CardRequest::SetFilter { rules })?;
        }
        output.result(&Rules { filter: card.status()?.filter }, |rules| rules.filter.clone())
    }
}
