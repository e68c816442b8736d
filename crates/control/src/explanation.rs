//! Prediction of a frame's path through a switch: the reply to `ExplainArgs`, and what the CLI prints of it with
//! `--json`.

use serde::{Deserialize, Serialize};

use crate::report::{TracedReason, TracedSource};

/// Path of a frame through a switch in its present state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Explanation {
    /// Name of the switch.
    pub switch: String,
    /// The port that the frame comes in by.
    pub from: ExplainedPort,
    /// Whether flow tables decide; else the learned addresses do.
    pub has_flow_tables: bool,
    /// Headers of the frame in the syntax of flows, and the TTLs that this syntax does not have.
    pub headers: String,
    /// Length of the frame, bytes.
    pub frame_bytes: u64,
    /// Steps of the path, in order.
    pub steps: Vec<ExplainedStep>,
    /// Outputs of the frame. Several outputs may name one port, which then gets several frames.
    pub outputs: Vec<ExplainedOutput>,
    /// Cause under which the frame counts as dropped, as in reports of ports; `None` if it leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<String>,
    /// Whether the path has more steps than are listed. Outputs may be missing then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

/// A port of the switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExplainedPort {
    /// Number of the port for flow tables and controllers.
    pub number: u32,
    /// Name of the port, such as `vale0:a`.
    pub name: String,
}

/// A frame that leaves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExplainedOutput {
    /// Ports that get the frame; none if it goes to the controllers.
    pub ports: Vec<ExplainedPort>,
    /// Whether the frame goes to the controllers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub to_controllers: bool,
    /// The queue that a flow entry has set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u32>,
    /// Headers of the frame as it leaves.
    pub headers: String,
    /// First bytes of the frame as it leaves, in hexadecimal digits.
    pub start: String,
    /// Length of the frame as it leaves, bytes.
    pub frame_bytes: u64,
}

/// A step of a frame's path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExplainedStep {
    /// Number of nested group buckets around this step.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub depth: u32,
    /// Content of the step.
    #[serde(flatten)]
    pub what: Explained,
}

fn is_zero(depth: &u32) -> bool {
    *depth == 0
}

/// Content of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "step", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Explained {
    /// A table is searched for an entry.
    Table {
        /// Number of the table.
        table: u8,
        /// Matching entry; `None` if no entry matches.
        flow: Option<ExplainedFlow>,
    },
    /// A meter would measure the frame. The explanation measures nothing.
    Meter {
        /// Number of the meter.
        meter: u32,
        /// Number of the band whose rate the frame would exceed at this moment; `None` if it would pass.
        exceeded_band: Option<u32>,
    },
    /// The action set is carried out.
    ActionSet,
    /// An action changes headers.
    Action {
        /// The action, in the syntax of flows.
        action: String,
        /// Changed fields; none if the frame had these values already, or has no such header.
        changes: Vec<HeaderChange>,
    },
    /// A group chooses buckets.
    Group {
        /// Number of the group.
        group: u32,
        /// Number of chosen buckets.
        chosen: u32,
    },
    /// A copy of the frame goes through a bucket, in the next steps with a greater depth.
    Bucket {
        /// Number of the bucket in its group, from 0.
        bucket: u32,
    },
    /// The options of its input port determine the frame's VLAN.
    Vlan {
        /// Options, as in a port's name; empty if the port has none.
        options: String,
        /// VLAN of the frame; `None` if it is in no VLAN.
        vlan: Option<u16>,
    },
    /// The learned addresses determine the frame's output.
    Learned {
        /// Knowledge of the switch about the frame's source, with the change that the frame would cause. The
        /// explanation learns nothing.
        source: TracedSource,
        /// Name of the other port of the source address, if the address would move or is refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source_port: Option<String>,
        /// Reason for the frame's destination.
        reason: TracedReason,
    },
    /// The frame leaves by ports of the switch.
    Output {
        /// Destination in the syntax of flows: a number, `ALL`, `FLOOD`, `NORMAL`.
        to: String,
        /// Index of the output in the list of outputs; `None` if the switch has no such port.
        output: Option<u32>,
    },
    /// The controllers get the frame.
    Controllers {
        /// Reason: `no_match`, `action` or `invalid_ttl`.
        reason: String,
        /// Index of the output in the list of outputs.
        output: u32,
    },
    /// An output sends the frame nowhere.
    NotSent {
        /// Destination in the syntax of flows.
        to: String,
        /// Reason: `came_from_there`, `no_such_port`, `disabled`, `no_packet_in`, or `mirror_port` if a mirror leads to
        /// the port.
        why: String,
    },
    /// The frame is dropped, or a copy of it.
    Dropped {
        /// The cause, as in reports of ports.
        cause: String,
    },
}

/// A flow entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExplainedFlow {
    /// Priority of the entry.
    pub priority: u16,
    /// Cookie of the entry.
    pub cookie: u64,
    /// Match of the entry, in the syntax of flows; empty if it matches all frames.
    pub matching: String,
    /// Actions of the entry, in the syntax of flows.
    pub actions: String,
}

/// A field of a header that an action has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeaderChange {
    /// Name of the field, such as `eth_dst`.
    pub field: String,
    /// Value before the action; `None` if the frame did not have the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Value after the action; `None` if the frame does not have the field any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}
