//! The meter of an rx queue counts the signed frames among all frames that the script receives there.

use std::sync::{Arc, MutexGuard, PoisonError};

use mlua::{Lua, Table, UserData, UserDataMethods, Value};
use ringroad_traffic::meter::{Digest, ExpectedStreams, Meter, MeterSummary, StreamSummary};
use serde::Serialize;
use serde_json::Value as Json;

use super::StatsFormat;
use super::context::context;
use super::device::DeviceQueue;

/// A meter and its next batch.
#[derive(Debug)]
pub(super) struct QueueMeter {
    pub(super) meter: Meter,
    /// Digests of the current batch, reused for their memory.
    pub(super) digests: Vec<Digest>,
}

/// The meter of a queue, in a Lua state.
pub(super) struct MeterRef(Arc<DeviceQueue>);

impl DeviceQueue {
    pub(super) fn meter(&self) -> MutexGuard<'_, Option<QueueMeter>> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MeterRef {
    /// Attaches a meter to `queue`. The meter counts the listed streams, which are numbered from 0, or all that appear.
    pub(super) fn attach(
        queue: &Arc<DeviceQueue>,
        streams: Option<Vec<u16>>,
        now_ns: u64,
    ) -> mlua::Result<Self> {
        // The meter accepts all departure times, because the sending task may have begun before the receiving one.
        // There are no frames of a previous run.
        let mut meter = Meter::new(ExpectedStreams { streams, latency: true, start_ns: 0 })
            .map_err(|error| mlua::Error::runtime(format!("meter: {error}")))?;
        // Intervals begin here.
        meter.interval(now_ns);
        *queue.meter() = Some(QueueMeter { meter, digests: Vec::new() });
        Ok(Self(Arc::clone(queue)))
    }

    fn with<T>(&self, work: impl FnOnce(&mut Meter) -> T) -> mlua::Result<T> {
        match &mut *self.0.meter() {
            Some(metered) => Ok(work(&mut metered.meter)),
            None => Err(mlua::Error::runtime("meter: the queue has no meter")),
        }
    }

    fn summary(&self) -> mlua::Result<MeterSummary> {
        self.with(|meter| meter.report().summary())
    }
}

impl UserData for MeterRef {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("report", |lua, this, ()| to_lua(lua, &this.summary()?));
        methods.add_method("interval", |lua, this, ()| {
            let now_ns = context(lua)?.now_ns();
            let interval = this.with(|meter| meter.interval(now_ns))?;
            to_lua(lua, &interval)
        });
        methods.add_method("print", |lua, this, ()| {
            let summary = this.summary()?;
            let run = &context(lua)?.run;
            if run.options.stats_format == StatsFormat::Json {
                let line = serde_json::json!({ "meter": this.0.label, "report": summary });
                return run.write_line(line.to_string().as_bytes());
            }
            run.write_line(text(&this.0.label, &summary).as_bytes())
        });
    }
}

/// The report for users.
fn text(label: &str, summary: &MeterSummary) -> String {
    let mut lines = vec![format!(
        "[{label}] {} frames, {} foreign, {} damaged beyond recognition",
        summary.port.frames, summary.port.foreign_frames, summary.port.corrupted_unattributed
    )];
    lines.extend(summary.streams.iter().map(|stream| stream_text(label, stream)));
    lines.join("\n")
}

fn stream_text(label: &str, stream: &StreamSummary) -> String {
    let numbers: Vec<_> = stream.wire_streams.iter().map(u16::to_string).collect();
    let mut line = format!(
        "[{label}] stream {}: {} received, {} lost, {} duplicate, {} reordered, {} damaged",
        numbers.join("+"),
        stream.received,
        stream.lost,
        stream.duplicates,
        stream.reordered,
        stream.corrupted
    );
    if let Some(latency) = &stream.delay.latency_ns {
        line += &format!(
            "; latency ns: min {}, mean {:.0}, p50 {}, p99 {}, p99.9 {}, max {}",
            latency.min, latency.mean, latency.p50, latency.p99, latency.p99_9, latency.max
        );
    }
    if let Some(jitter) = stream.delay.jitter_ns {
        line += &format!("; jitter {jitter:.0} ns");
    }
    line
}

/// Turns `value` into Lua tables, with the names of its fields as keys.
fn to_lua(lua: &Lua, value: &impl Serialize) -> mlua::Result<Value> {
    json_to_lua(lua, &serde_json::to_value(value).map_err(mlua::Error::external)?)
}

fn json_to_lua(lua: &Lua, value: &Json) -> mlua::Result<Value> {
    let table = |count: usize| lua.create_table_with_capacity(count, count);
    Ok(match value {
        Json::Null => Value::Nil,
        Json::Bool(value) => Value::Boolean(*value),
        Json::Number(number) => Value::Number(number.as_f64().unwrap_or(f64::NAN)),
        Json::String(text) => Value::String(lua.create_string(text)?),
        Json::Array(values) => {
            let list: Table = table(values.len())?;
            for value in values {
                list.raw_push(json_to_lua(lua, value)?)?;
            }
            Value::Table(list)
        }
        Json::Object(fields) => {
            let object: Table = table(fields.len())?;
            for (name, value) in fields {
                object.raw_set(name.as_str(), json_to_lua(lua, value)?)?;
            }
            Value::Table(object)
        }
    })
}
