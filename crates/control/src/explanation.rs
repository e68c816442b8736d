//! What would happen to a frame at a switch: the reply to `ExplainArgs`, and what the CLI prints of it with `--json`.

use serde::{Deserialize, Serialize};

use crate::report::{TracedReason, TracedSource};

/// The way of a frame through a switch, as the switch is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Explanation {
    /// Name of the switch.
    pub switch: String,
    /// The port that the frame comes in by.
    pub from: ExplainedPort,
    /// Whether flow tables decide; else the learned addresses.
    pub has_flow_tables: bool,
    /// Its headers, in the syntax of flows, and the TTLs that these do not have.
    pub headers: String,
    /// Its length, bytes.
    pub frame_bytes: u64,
    /// What is done with it, in this order.
    pub steps: Vec<ExplainedStep>,
    /// Where it leaves. Several outputs may name one port: it gets several frames.
    pub outputs: Vec<ExplainedOutput>,
    /// The cause under which it counts as dropped, as in reports of ports; `None` where it leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<String>,
    /// Whether there are more steps than are listed. Then outputs may be missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

/// A port of the switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExplainedPort {
    /// Its number for flow tables and controllers.
    pub number: u32,
    /// Its name, such as `vale0:a`.
    pub name: String,
}

/// A frame that leaves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExplainedOutput {
    /// The ports; none where it goes to the controllers.
    pub ports: Vec<ExplainedPort>,
    /// Whether it goes to the controllers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub to_controllers: bool,
    /// The queue that a flow entry has set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u32>,
    /// Its headers then.
    pub headers: String,
    /// Its first bytes then, in hexadecimal digits.
    pub start: String,
    /// Its length then, bytes.
    pub frame_bytes: u64,
}

/// A step of the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExplainedStep {
    /// How many buckets of groups this is in.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub depth: u32,
    /// What is done.
    #[serde(flatten)]
    pub what: Explained,
}

fn is_zero(depth: &u32) -> bool {
    *depth == 0
}

/// What is done with the frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "step", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Explained {
    /// A table looks for an entry.
    Table {
        /// Its number.
        table: u8,
        /// The entry that matches; `None` if none does.
        flow: Option<ExplainedFlow>,
    },
    /// A meter would measure it. Nothing is measured now.
    Meter {
        /// Its number.
        meter: u32,
        /// Number of the band whose rate it would exceed at this moment; `None` if it would pass.
        exceeded_band: Option<u32>,
    },
    /// The action set is carried out.
    ActionSet,
    /// An action changes headers.
    Action {
        /// The action, in the syntax of flows.
        action: String,
        /// What it changes; nothing where the frame had that already, or has no such header.
        changes: Vec<HeaderChange>,
    },
    /// A group chooses buckets.
    Group {
        /// Its number.
        group: u32,
        /// How many buckets.
        chosen: u32,
    },
    /// A copy of the frame goes through a bucket: the next steps that are deeper.
    Bucket {
        /// Number of the bucket in its group, from 0.
        bucket: u32,
    },
    /// The options of its input port determine its VLAN.
    Vlan {
        /// The options, as of a port's name; empty where the port has none.
        options: String,
        /// The VLAN; `None`: it is of no VLAN.
        vlan: Option<u16>,
    },
    /// The learned addresses determine its output.
    Learned {
        /// What the switch knows of its source, and would learn. Nothing is learned now.
        source: TracedSource,
        /// Name of the other port of its source, if it would move or is refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source_port: Option<String>,
        /// Why it goes where it goes.
        reason: TracedReason,
    },
    /// It leaves by ports of the switch.
    Output {
        /// The destination, in the syntax of flows: a number, `ALL`, `FLOOD`, `NORMAL`.
        to: String,
        /// Number of the output in the list of outputs; `None` where there is no port for it.
        output: Option<u32>,
    },
    /// The controllers get it.
    Controllers {
        /// Why: `no_match`, `action` or `invalid_ttl`.
        reason: String,
        /// How many of its bytes they get; 65535 for all.
        max_len: u16,
        /// Number of the output in the list of outputs.
        output: u32,
    },
    /// An output that sends it nowhere.
    NotSent {
        /// The destination, in the syntax of flows.
        to: String,
        /// Why: `came_from_there`, `no_such_port`, `disabled`, `no_packet_in`, or `mirror_port`: a mirror leads to it.
        why: String,
    },
    /// It goes no further, or nowhere at all.
    Dropped {
        /// The cause, as in reports of ports.
        cause: String,
    },
}

/// A flow entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExplainedFlow {
    /// Its priority.
    pub priority: u16,
    /// Its cookie.
    pub cookie: u64,
    /// Which frames it matches, in the syntax of flows; empty: all.
    pub matching: String,
    /// What it does, in the syntax of flows.
    pub actions: String,
}

/// A field of a header that an action has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeaderChange {
    /// Its name, such as `eth_dst`.
    pub field: String,
    /// Its value before; `None` where it was not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Its value now; `None` where it is not there any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}
