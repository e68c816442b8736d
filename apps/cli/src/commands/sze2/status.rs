//! `ringroad sze2 status`.

use std::fmt::Write;

use clap::Args;
use ringroad_sze2::card::counters::{IbufCounters, ObufCounters};
use ringroad_sze2::message::{CardStatus, ChannelStatus};
use ringroad_wire::mac::Mac;

use super::{CardArgument, switched};
use crate::failure::Failure;
use crate::output::Output;
use crate::output::rates::{grouped, size};
use crate::output::table::Columns;

/// Show everything about a card
#[derive(Debug, Args)]
pub(super) struct CardStatusArgs {
    #[command(flatten)]
    card: CardArgument,
}

impl CardStatusArgs {
    pub(super) fn run(&self, output: &Output) -> Result<(), Failure> {
        output.result(&self.card.open()?.status()?, text)
    }
}

fn text(status: &CardStatus) -> String {
    let mut text = String::new();
    let info = &status.info;
    // Writing into a string cannot fail.
    let _ = writeln!(
        text,
        "card {}: address {}, {} receive and {} transmit channels, buffers of {} and {}, metadata {}\n",
        info.name,
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
    let _ = writeln!(text, "\n{}", channels("receive", &status.receive));
    let _ = write!(text, "{}", channels("transmit", &status.transmit));
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
    let mut columns = Columns::new(&[
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
    ]);
    columns.row(
        [&counters.total(), frames, bytes, overflow, disabled, short, long, address, denied, unclaimed]
            .map(|number| grouped(*number)),
    );
    format!(
        "IBUF {}: check {}, addresses {}, frames from {} to {} bytes\n{}",
        switched(settings.enabled),
        settings.address_check,
        if addresses.is_empty() { "none".to_owned() } else { addresses.join(" ") },
        settings.min_frame_bytes,
        settings.max_frame_bytes,
        columns.lines_or("")
    )
}

/// Formats settings and counters of the output buffer.
pub(super) fn obuf(status: &CardStatus) -> String {
    let ObufCounters { frames, bytes, disabled } = status.obuf_counters;
    let mut columns = Columns::new(&[">frames let out", ">bytes", ">switched off"]);
    columns.row([frames, bytes, disabled].map(grouped));
    format!("OBUF {}\n{}", switched(status.obuf_enabled), columns.lines_or(""))
}

fn channels(direction: &str, channels: &[ChannelStatus]) -> String {
    let heading = format!(">{direction} channel");
    let mut columns = Columns::new(&[
        &heading,
        "program",
        ">process",
        "state",
        ">frames",
        ">bytes",
        ">overflow",
        ">in buffer",
        "fault",
    ]);
    for (number, channel) in channels.iter().enumerate() {
        let subscriber = channel.subscriber.as_ref();
        let state = match (subscriber, &channel.fault, channel.running) {
            (None, ..) => "free",
            (_, Some(_), _) => "stopped by a fault",
            (.., true) => "running",
            (.., false) => "not started",
        };
        columns.row([
            number.to_string(),
            subscriber.map(|subscriber| subscriber.program.clone()).unwrap_or_default(),
            subscriber.and_then(|subscriber| subscriber.pid).map(|pid| pid.to_string()).unwrap_or_default(),
            state.to_owned(),
            grouped(channel.counters.frames),
            grouped(channel.counters.bytes),
            grouped(channel.counters.overflow),
            size(channel.used_bytes),
            channel.fault.clone().unwrap_or_default(),
        ]);
    }
    columns.lines_or("")
}
