//! A plan of a session: ports and loads.
//!
//! ```toml
//! [[port]]
//! name = "vale0:a"
//!
//! [[port]]
//! name = "vale0:b"
//!
//! [[load]]
//! from = "vale0:a"
//! to = ["vale0:b"]
//! rate = "1Mpps"
//! duration = 10
//!
//! [[load.stream]]
//! size = 64
//! ```
//!
//! Loads run side by side, each at its own rate. A load has one stream or several, which share its rate by their
//! weights.

use std::collections::HashSet;
use std::time::Duration;

use ringroad_traffic::definition::StreamDefinition;
use ringroad_traffic::pacing::{DEFAULT_CATCH_UP_FRAMES, LoadShape, RateSpec};
use serde::{Deserialize, Serialize};

/// Greatest number of wire streams of one plan, which is also the most that meters can number.
pub const MAX_WIRE_STREAMS: usize = 65535;
/// Longest time in a plan, s: one year.
const LONGEST_S: f64 = 31_536_000.0;

/// Ports and their loads.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestPlan {
    /// The ports, each opened once.
    #[serde(rename = "port", default)]
    pub ports: Vec<PlannedPort>,
    /// The loads; without any the ports only receive.
    #[serde(rename = "load", default)]
    pub loads: Vec<Load>,
}

/// A port of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedPort {
    /// The port's name, such as `vale0:a` or `xdp:eth0@slots=512`.
    pub name: String,
    /// The port's name in loads; by default its own name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// Traffic from one port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Name, for reports; by default `load 0` and so on.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Label of the port that sends.
    pub from: String,
    /// Labels of the ports that should receive every frame; without any nothing is expected to arrive.
    #[serde(default)]
    pub to: Vec<String>,
    /// Offered rate.
    #[serde(default = "as_fast_as_it_goes")]
    pub rate: RateSpec,
    /// Spacing of the frames in time.
    #[serde(default)]
    pub shape: LoadShape,
    /// Number of frames after which the load ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<u64>,
    /// Time after which the load ends, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<f64>,
    /// Time from the start of the session to the first frame, s.
    #[serde(default)]
    pub delay: f64,
    /// Greatest number of frames that a late sender catches up.
    #[serde(default = "default_catch_up")]
    pub catch_up_frames: u32,
    /// The streams of the load.
    #[serde(rename = "stream")]
    pub streams: Vec<StreamDefinition>,
}

fn as_fast_as_it_goes() -> RateSpec {
    RateSpec::Max
}

fn default_catch_up() -> u32 {
    DEFAULT_CATCH_UP_FRAMES
}

/// A fault of a plan.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TestPlanError {
    /// The text is not a plan.
    #[error("{field}: {reason}")]
    Read {
        /// Path of the field.
        field: String,
        reason: String,
    },
    /// A plan without a port.
    #[error("the plan has no port; give at least one [[port]] with a name")]
    NoPort,
    /// Two ports have the same label.
    #[error("two ports are called \"{label}\"; give one of them another label")]
    PortTwice {
        /// The label.
        label: String,
    },
    /// Two loads have the same name.
    #[error("two loads are called \"{name}\"; give one of them another name")]
    LoadTwice { name: String },
    /// A load names an unknown port.
    #[error("load \"{load}\": {field} names port \"{label}\", which the plan does not have; it has {known}")]
    UnknownPort {
        load: String,
        /// `from` or `to`.
        field: &'static str,
        /// The label.
        label: String,
        /// Labels of the plan's ports.
        known: String,
    },
    /// A load without a stream.
    #[error("load \"{load}\" has no stream; give at least one [[load.stream]]")]
    NoStream { load: String },
    /// A time outside its range.
    #[error("load \"{load}\": {field} is {value} s; give {range} to {LONGEST_S} s")]
    Time {
        load: String,
        /// The field.
        field: &'static str,
        /// The given value, s.
        value: f64,
        /// Least allowed value, in words.
        range: &'static str,
    },
    /// A load of no frame.
    #[error("load \"{load}\": frames is 0; give at least 1, or leave it out to send without end")]
    NoFrames { load: String },
    /// The plan has more streams times queues than signatures can number.
    #[error(
        "the plan has more than {MAX_WIRE_STREAMS} streams times queues, which is more than signatures can number; vary fields of fewer streams instead"
    )]
    TooManyStreams,
}

impl PlannedPort {
    /// A port that is called by its name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), label: None }
    }

    /// The port's name in loads.
    #[must_use]
    pub fn label(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.name)
    }
}

impl Load {
    /// A load at full speed without end.
    #[must_use]
    pub fn new(from: &str, to: &[&str], streams: Vec<StreamDefinition>) -> Self {
        Self {
            name: String::new(),
            from: from.to_owned(),
            to: to.iter().map(|label| (*label).to_owned()).collect(),
            rate: RateSpec::Max,
            shape: LoadShape::Constant,
            frames: None,
            duration: None,
            delay: 0.0,
            catch_up_frames: DEFAULT_CATCH_UP_FRAMES,
            streams,
        }
    }

    /// Duration, ns; `None` is endless.
    pub(crate) fn duration_ns(&self) -> Option<u64> {
        self.duration.map(as_ns)
    }

    /// Time from the start of the session to the first frame, ns.
    pub(crate) fn delay_ns(&self) -> u64 {
        as_ns(self.delay)
    }
}

fn as_ns(seconds: f64) -> u64 {
    Duration::try_from_secs_f64(seconds)
        .map_or(u64::MAX, |span| span.as_nanos().try_into().unwrap_or(u64::MAX))
}

impl TestPlan {
    /// Reads a plan from TOML.
    ///
    /// # Errors
    /// [`TestPlanError::Read`] with the path of the field; [`TestPlan::check`] reports other errors later.
    pub fn from_toml(text: &str) -> Result<Self, TestPlanError> {
        let wrong = |field: String, reason: String| TestPlanError::Read {
            field,
            reason: reason.trim_end().to_owned(),
        };
        let toml = toml::Deserializer::parse(text)
            .map_err(|error| wrong("the text".to_owned(), error.to_string()))?;
        serde_path_to_error::deserialize(toml)
            .map_err(|error| wrong(error.path().to_string(), error.into_inner().to_string()))
    }

    /// Makes all checks that do not need the ports, and names loads and streams that have no name.
    ///
    /// # Errors
    /// [`TestPlanError`].
    pub fn check(&mut self) -> Result<(), TestPlanError> {
        if self.ports.is_empty() {
            return Err(TestPlanError::NoPort);
        }
        let mut labels = HashSet::new();
        if let Some(twice) = self.ports.iter().find(|port| !labels.insert(port.label())) {
            return Err(TestPlanError::PortTwice { label: twice.label().to_owned() });
        }
        for (index, load) in self.loads.iter_mut().enumerate() {
            for (number, stream) in load.streams.iter_mut().enumerate() {
                if stream.name.is_empty() {
                    stream.name = format!("stream {number}");
                }
            }
            if load.name.is_empty() {
                load.name = format!("load {index}");
            }
            load.check(&self.ports)?;
        }
        let mut names = HashSet::new();
        match self.loads.iter().find(|load| !names.insert(load.name.as_str())) {
            Some(twice) => Err(TestPlanError::LoadTwice { name: twice.name.clone() }),
            None => Ok(()),
        }
    }

    /// Index of the port with this label. `None` only in a plan that was not checked.
    pub(crate) fn port_index(&self, label: &str) -> Option<usize> {
        self.ports.iter().position(|port| port.label() == label)
    }
}

impl Load {
    fn check(&self, ports: &[PlannedPort]) -> Result<(), TestPlanError> {
        let load = || self.name.clone();
        let from = std::iter::once(("from", &self.from));
        for (field, label) in from.chain(self.to.iter().map(|label| ("to", label))) {
            if !ports.iter().any(|port| port.label() == label) {
                let known: Vec<&str> = ports.iter().map(PlannedPort::label).collect();
                return Err(TestPlanError::UnknownPort {
                    load: load(),
                    field,
                    label: label.clone(),
                    known: known.join(", "),
                });
            }
        }
        if self.streams.is_empty() {
            return Err(TestPlanError::NoStream { load: load() });
        }
        if self.frames == Some(0) {
            return Err(TestPlanError::NoFrames { load: load() });
        }
        let (duration, delay) = (self.duration.unwrap_or(LONGEST_S), self.delay);
        if !(duration > 0.0 && duration <= LONGEST_S) {
            return Err(TestPlanError::Time {
                load: load(),
                field: "duration",
                value: duration,
                range: "above 0",
            });
        }
        if !(0.0..=LONGEST_S).contains(&delay) {
            return Err(TestPlanError::Time { load: load(), field: "delay", value: delay, range: "0" });
        }
        Ok(())
    }
}
