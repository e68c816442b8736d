//! `ringroad sze2 status`.

use std::fmt::Write;

use clap::Args;
use ringroad_sze2::card::counters::{IbufCounters, ObufCounters, RuleCounters};
use ringroad_sze2::card::design::DesignInfo;
use ringroad_sze2::card::program_rule::RuleStatus;
use ringroad_sze2::message::{CardStatus, ChannelStatus};
use ringroad_wire::mac::Mac;
use serde::Serialize;

use super::{CardArgument, switched};
use crate::failure::Failure;
use crate::output::Output;
use crate::output::rates::{grouped, size};
use crate::output::table::{lines, table};

/// Show everything about a card
#[derive(Debug, Args)]
pub(super) struct CardStatusArgs {
    #[command(flatten)]
    card: CardArgument,
}

impl CardStatusArgs {
    pub(super) fn run(&self, output: &Output) -> Result<(), Failure> {
        let card = self.card.open()?;
        let design = card.design().ok();
        // A version without designs has no rules of programs.
        let rules = if design.is_some() { card.rules()? } else { Vec::new() };
        let state = CardState { status: card.status()?, design, rules };
        output.result(&state, text)
    }
}

/// Everything about a card.
#[derive(Debug, Serialize)]
struct CardState {
    #[serde(flatten)]
    status: CardStatus,
    /// `None` if the card's daemon is of a version without designs.
    #[serde(skip_serializing_if = "Option::is_none")]
    design: Option<DesignInfo>,
    /// Rules of programs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rules: Vec<RuleStatus>,
}

fn text(state: &CardState) -> String {
    let CardState { status, design, rules } = state;
    let mut text = String::new();
    let info = &status.info;
    // Writing into a string cannot fail.
    let _ = writeln!(
        text,
        "card {}: {}address {}, {} receive and {} transmit channels, buffers of {} and {}, metadata {}\n",
        info.name,
        design.as_ref().map_or(String::new(), |design| format!("design {design}, ")),
        Mac::from(info.address),
        info.receive_channels,
        info.transmit_channels,
        size(info.receive_buffer_bytes),
        size(info.transmit_buffer_bytes),
        if status.timestamps { "with the time" } else { "none" },
    );
    let _ = writeln!(text, "{}", ibuf(status));
    let _ = writeln!(text, "{}", obuf(status));
    let ports = if status.distribution.ports { "" } else { ", without protocol and ports" };
    let _ = writeln!(text, "distribution {}{ports}; filter:", status.distribution.spread);
    for line in status.filter.lines() {
        let _ = writeln!(text, "  {line}");
    }
    if !rules.is_empty() {
        let _ =
            writeln!(text, "\nrules of programs, which come before the filter:\n{}", program_rules(rules));
    }
    let _ = writeln!(text, "\n{}", channels(">receive channel", &status.receive));
    let _ = write!(text, "{}", channels(">transmit channel", &status.transmit));
    text
}

/// Formats settings and counters of the input buffer.
pub(super) fn ibuf(status: &CardStatus) -> String {
    let settings = &status.ibuf;
    let addresses: Vec<String> =
        settings.addresses.iter().map(|address| Mac::from(*address).to_string()).collect();
    let counters = &status.ibuf_counters;
    let IbufCounters { frames, bytes, disabled, short, long, address, denied, unclaimed, overflow } =
        counters;
    let headings = [
        ">frames",
        ">let in",
        ">bytes",
        ">overflow",
        ">switched off",
        ">short",
        ">long",
        ">address",
        ">denied",
        ">unclaimed",
    ];
    let row = [&counters.total(), frames, bytes, overflow, disabled, short, long, address, denied, unclaimed]
        .map(|number| grouped(*number));
    format!(
        "IBUF {}: check {}, addresses {}, frames from {} to {} bytes\n{}",
        switched(settings.enabled),
        settings.address_check,
        if addresses.is_empty() { "none".to_owned() } else { addresses.join(" ") },
        settings.min_frame_bytes,
        settings.max_frame_bytes,
        lines(&headings, [row], "")
    )
}

/// Formats settings and counters of the output buffer.
pub(super) fn obuf(status: &CardStatus) -> String {
    let ObufCounters { frames, bytes, disabled } = status.obuf_counters;
    let row = [frames, bytes, disabled].map(grouped);
    let table = lines(&[">frames let out", ">bytes", ">switched off"], [row], "");
    format!("OBUF {}\n{table}", switched(status.obuf_enabled))
}

fn program_rules(rules: &[RuleStatus]) -> String {
    fn counted(rule: &RuleStatus, of: fn(&RuleCounters) -> u64) -> String {
        rule.counters.as_ref().map_or(String::new(), |counters| grouped(of(counters)))
    }
    table(
        rules,
        &[
            ("program", |rule| rule.program.program.clone()),
            (">process", |rule| rule.program.pid.map_or(String::new(), |pid| pid.to_string())),
            (">priority", |rule| rule.priority.to_string()),
            (">frames", |rule| counted(rule, |counters| counters.frames)),
            (">bytes", |rule| counted(rule, |counters| counters.bytes)),
            ("rule", |rule| rule.rule.clone()),
        ],
        "",
    )
}

fn channels(heading: &'static str, channels: &[ChannelStatus]) -> String {
    table(
        channels.iter().enumerate(),
        &[
            (heading, |(number, _)| number.to_string()),
            ("program", |(_, channel)| {
                channel.subscriber.as_ref().map_or(String::new(), |subscriber| subscriber.program.clone())
            }),
            (">process", |(_, channel)| {
                let pid = channel.subscriber.as_ref().and_then(|subscriber| subscriber.pid);
                pid.map_or(String::new(), |pid| pid.to_string())
            }),
            ("state", |(_, channel)| {
                let state = match (&channel.subscriber, &channel.fault, channel.running) {
                    (None, ..) => "free",
                    (_, Some(_), _) => "stopped by a fault",
                    (.., true) => "running",
                    (.., false) => "not started",
                };
                state.to_owned()
            }),
            (">frames", |(_, channel)| grouped(channel.counters.frames)),
            (">bytes", |(_, channel)| grouped(channel.counters.bytes)),
            (">overflow", |(_, channel)| grouped(channel.counters.overflow)),
            (">in buffer", |(_, channel)| size(channel.used_bytes)),
            ("fault", |(_, channel)| channel.fault.clone().unwrap_or_default()),
        ],
        "",
    )
}
