//! `ringroad flows`: flow entries of a switch, shown, added, deleted, replaced and compared.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use ringroad_openflow::message::{FlowCommand, FlowMod, FlowStats};
use ringroad_openflow::oxm::Match;
use ringroad_openflow::text::FlowText;
use serde::{Serialize, Serializer};

use crate::failure::Failure;
use crate::flow_client::FlowClient;
use crate::options::{Global, switch_name};
use crate::output::Output;
use crate::text_files::read_text_or_input;
use crate::verb::MainVerb;

/// Show, add, delete, replace or compare the flows of a switch
///
/// Flows are in the syntax of ovs-ofctl, which works with the switch, too. See docs/openflow.md.
#[derive(Debug, Args)]
pub(crate) struct FlowsArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show flows and their counters
    Dump {
        /// Name of the switch, such as vale0
        #[arg(value_parser = switch_name)]
        switch: String,
        /// Show only flows that match no other packets than this match, such as table=1,ip,nw_dst=10.0.0.0/8
        #[arg(value_name = "MATCH", default_value = "")]
        matching: String,
    },
    /// Add flows; a flow with the same table, match and priority is replaced
    Add {
        /// Name of the switch
        #[arg(value_parser = switch_name)]
        switch: String,
        /// Flows, such as priority=10,in_port=1,actions=output:2
        #[arg(value_name = "FLOW", required_unless_present = "file")]
        flows: Vec<String>,
        /// File with a flow in each line; - for standard input
        #[arg(long, short, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Delete flows
    Del {
        /// Name of the switch
        #[arg(value_parser = switch_name)]
        switch: String,
        /// Delete flows that match no other packets than this match [default: all flows]
        #[arg(value_name = "MATCH", default_value = "")]
        matching: String,
        /// Delete only the flow with exactly this match and priority
        #[arg(long, requires = "matching")]
        strict: bool,
    },
    /// Make the flows those of a file: other flows are deleted, and equal flows keep their counters
    Replace {
        /// Name of the switch
        #[arg(value_parser = switch_name)]
        switch: String,
        /// File with a flow in each line; - for standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Show how the flows differ from those of a file
    ///
    /// Lines with - are only in the switch, lines with + only in the file. Exit status: 0 if they do not differ, 1 if
    /// they do.
    Diff {
        /// Name of the switch
        #[arg(value_parser = switch_name)]
        switch: String,
        /// File with a flow in each line; - for standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// Flow in JSON output.
#[derive(Debug, Serialize)]
struct FlowReport {
    table: u8,
    priority: u16,
    cookie: u64,
    packets: u64,
    bytes: u64,
    duration_s: u32,
    idle_timeout_s: u16,
    hard_timeout_s: u16,
    /// Match and actions, in the syntax of `add`.
    flow: String,
}

/// Flows in JSON output. Each is converted when it is written, since there may be millions.
struct Reports(Vec<FlowStats>);

impl Serialize for Reports {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(report))
    }
}

#[derive(Debug, Serialize)]
struct Changed {
    added: usize,
    deleted: usize,
}

#[derive(Debug, Serialize)]
struct Difference {
    only_in_switch: Vec<String>,
    only_in_file: Vec<String>,
}

impl MainVerb for FlowsArgs {
    const EXAMPLES: &str = "\
ringroad flows add vale0 priority=10,in_port=1,actions=output:2 actions=NORMAL
ringroad flows dump vale0 in_port=1
ringroad flows diff vale0 flows.txt
ringroad flows replace vale0 flows.txt
ringroad flows del vale0";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        match &self.verb {
            Verb::Dump { switch, matching } => {
                let wanted = parse(matching)?;
                let mut flows = FlowClient::connect(global, switch)?.flows(wanted.stats_request())?;
                flows.sort_by(|one, other| {
                    let order = (one.table, other.priority).cmp(&(other.table, one.priority));
                    order.then_with(|| one.matching.fields().cmp(other.matching.fields()))
                });
                output.result(&Reports(flows), |Reports(flows)| {
                    let mut text = String::new();
                    for flow in flows {
                        // Writing into memory does not fail.
                        let _ = writeln!(text, "{flow}");
                    }
                    text
                })
            }
            Verb::Add { switch, flows, file } => {
                let mut all = flows.iter().map(|flow| parse_entry(flow)).collect::<Result<Vec<_>, _>>()?;
                all.extend(file.as_deref().map(read).transpose()?.unwrap_or_default());
                let changes: Vec<_> = all.iter().map(|flow| flow.flow_mod(FlowCommand::Add)).collect();
                FlowClient::connect(global, switch)?.change(&changes)?;
                done(output, changes.len(), 0)
            }
            Verb::Del { switch, matching, strict } => {
                let wanted = parse(matching)?;
                let command = if *strict { FlowCommand::DeleteStrict } else { FlowCommand::Delete };
                let mut client = FlowClient::connect(global, switch)?;
                let before = client.flows(wanted.stats_request())?.len();
                client.change(&[wanted.flow_mod(command)])?;
                let after = client.flows(wanted.stats_request())?.len();
                done(output, 0, before.saturating_sub(after))
            }
            Verb::Replace { switch, file } => {
                let wanted = read(file)?;
                let mut client = FlowClient::connect(global, switch)?;
                let there = client.flows(parse("")?.stats_request())?;
                let (surplus, missing) = compare(&there, &wanted);
                let adds: Vec<FlowMod> = missing.iter().map(|flow| flow.flow_mod(FlowCommand::Add)).collect();
                // A changed flow is added over the old flow, so that every packet finds one of the two.
                let replaced: HashSet<_> = adds.iter().map(added_flow_id).collect();
                let gone = surplus.iter().copied().filter(|flow| !replaced.contains(&flow_id(flow)));
                let gone: Vec<FlowMod> = gone.map(removal).collect();
                client.change(&adds)?;
                client.change(&gone)?;
                done(output, adds.len(), gone.len())
            }
            Verb::Diff { switch, file } => {
                let wanted = read(file)?;
                let there = FlowClient::connect(global, switch)?.flows(parse("")?.stats_request())?;
                let (surplus, missing) = compare(&there, &wanted);
                let difference = Difference {
                    only_in_switch: surplus.iter().map(|flow| entry_text(flow)).collect(),
                    only_in_file: missing.iter().map(ToString::to_string).collect(),
                };
                output.result(&difference, |difference| {
                    let here = difference.only_in_switch.iter().map(|flow| format!("-{flow}\n"));
                    let there = difference.only_in_file.iter().map(|flow| format!("+{flow}\n"));
                    here.chain(there).collect::<String>().trim_end().to_owned()
                })?;
                let is_same = difference.only_in_switch.is_empty() && difference.only_in_file.is_empty();
                if is_same { Ok(()) } else { Err(Failure::status(1)) }
            }
        }
    }
}

fn done(output: &Output, added: usize, deleted: usize) -> Result<(), Failure> {
    output.result(&Changed { added, deleted }, |changed| match (changed.added, changed.deleted) {
        (added, 0) => format!("{added} added"),
        (0, deleted) => format!("{deleted} deleted"),
        (added, deleted) => format!("{added} added, {deleted} deleted"),
    })
}

fn parse(text: &str) -> Result<FlowText, Failure> {
    text.parse()
        .map_err(|error| Failure::usage(format!("flow {text:?}: {error}"), "man ovs-ofctl has the syntax"))
}

/// Parses a flow to be added, which must have actions.
fn parse_entry(text: &str) -> Result<FlowText, Failure> {
    let flow = parse(text)?;
    if flow.instructions.is_none() {
        let advice = "add actions=..., such as actions=output:2 or actions=drop";
        return Err(Failure::usage(format!("flow {text:?} has no actions"), advice));
    }
    Ok(flow)
}

/// Reads a file with a flow in each line. Lines may be empty, or comments.
fn read(path: &Path) -> Result<Vec<FlowText>, Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", path.display()), "");
    let text = read_text_or_input(path).map_err(failed)?;
    let lines = (1..)
        .zip(text.lines())
        .map(|(number, line)| (number, line.split('#').next().unwrap_or_default().trim()));
    let flows = lines.filter(|(_, line)| !line.is_empty()).map(|(number, line)| {
        parse_entry(line).map_err(|failure| failure.after(&format!("{}, line {number}", path.display())))
    });
    flows.collect()
}

fn report(flow: &FlowStats) -> FlowReport {
    FlowReport {
        table: flow.table,
        priority: flow.priority,
        cookie: flow.cookie,
        packets: flow.packets,
        bytes: flow.bytes,
        duration_s: flow.duration_s,
        idle_timeout_s: flow.idle_timeout_s,
        hard_timeout_s: flow.hard_timeout_s,
        flow: entry_text(flow),
    }
}

/// Returns the flow in the form in which it is added.
fn entry(flow: &FlowStats) -> FlowText {
    FlowText {
        table: Some(flow.table).filter(|&table| table != 0),
        priority: Some(flow.priority),
        cookie: Some((flow.cookie, None)).filter(|&(cookie, _)| cookie != 0),
        idle_timeout_s: flow.idle_timeout_s,
        hard_timeout_s: flow.hard_timeout_s,
        flags: flow.flags,
        out_port: None,
        out_group: None,
        matching: flow.matching.clone(),
        instructions: Some(flow.instructions.clone()),
    }
}

fn entry_text(flow: &FlowStats) -> String {
    entry(flow).to_string()
}

/// Key of a flow: table, priority and match, which are unique in a switch.
type FlowId<'a> = (u8, u16, &'a Match);

fn flow_id(flow: &FlowStats) -> FlowId<'_> {
    (flow.table, flow.priority, &flow.matching)
}

fn added_flow_id(add: &FlowMod) -> FlowId<'_> {
    (add.table, add.priority, &add.matching)
}

fn removal(flow: &FlowStats) -> FlowMod {
    // The cookie is left out, since it would narrow the match: table, priority and match alone identify the flow.
    FlowText { cookie: None, ..entry(flow) }.flow_mod(FlowCommand::DeleteStrict)
}

/// Returns flows that are only in the switch, and flows that are only in the file.
fn compare<'a>(there: &'a [FlowStats], wanted: &'a [FlowText]) -> (Vec<&'a FlowStats>, Vec<&'a FlowText>) {
    let adds: Vec<FlowMod> = wanted.iter().map(|flow| flow.flow_mod(FlowCommand::Add)).collect();
    let wanted_by_id: HashMap<_, _> = adds.iter().map(|add| (added_flow_id(add), add)).collect();
    let present_by_id: HashMap<_, _> = there.iter().map(|flow| (flow_id(flow), flow)).collect();
    let is_equal = |flow: &FlowStats, add: &FlowMod| {
        (flow.cookie, flow.idle_timeout_s, flow.hard_timeout_s, flow.flags, &flow.instructions)
            == (add.cookie, add.idle_timeout_s, add.hard_timeout_s, add.flags, &add.instructions)
    };
    let surplus =
        there.iter().filter(|flow| !wanted_by_id.get(&flow_id(flow)).is_some_and(|add| is_equal(flow, add)));
    let missing = wanted
        .iter()
        .zip(&adds)
        .filter(|(_, add)| !present_by_id.get(&added_flow_id(add)).is_some_and(|flow| is_equal(flow, add)));
    (surplus.collect(), missing.map(|(flow, _)| flow).collect())
}
