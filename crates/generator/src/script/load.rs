//! Rates and shapes of a load as scripts write them.

use mlua::{Table, Value};
use ringroad_traffic::line_rate::BitLayer;
use ringroad_traffic::pacing::{LoadShape, RateSpec};

/// A rate and a shape; none is as fast as it goes.
pub(super) type Load = Option<(RateSpec, LoadShape)>;

/// `setRate`: Mbit/s of frames with their FCS (L2), or a rate in text; nil is as fast as it goes.
pub(super) fn of_mbit(rate: &Value, shape: &Value) -> mlua::Result<Load> {
    of(rate, shape, "setRate", |mbit| RateSpec::Bits { rate_bps: mbit * 1e6, layer: BitLayer::L2 })
}

/// `setRateMpps`: million frames/s.
pub(super) fn of_mpps(rate: &Value, shape: &Value) -> mlua::Result<Load> {
    of(rate, shape, "setRateMpps", |mpps| RateSpec::Frames { rate_fps: mpps * 1e6 })
}

fn of(rate: &Value, shape: &Value, what: &str, unit: impl Fn(f64) -> RateSpec) -> mlua::Result<Load> {
    let refuse = |why: String| mlua::Error::runtime(format!("{what}: {why}"));
    let rate = match rate {
        Value::Nil => RateSpec::Max,
        Value::String(text) => text.to_string_lossy().parse().map_err(|error| refuse(format!("{error}")))?,
        value => match value.as_number().or_else(|| value.as_integer().map(|whole| whole as f64)) {
            Some(number) if number > 0.0 && number.is_finite() => unit(number),
            _ => {
                return Err(refuse(format!(
                    "the rate is {}: give a number above 0, a rate like \"1Mpps\" or \"10%@10G\", or nil for as fast as \
                     it goes",
                    value.to_string()?
                )));
            }
        },
    };
    let shape = shape_of(shape).map_err(|why| refuse(why.to_string()))?;
    Ok(if rate == RateSpec::Max && shape == LoadShape::Constant { None } else { Some((rate, shape)) })
}

fn shape_of(shape: &Value) -> mlua::Result<LoadShape> {
    let refuse = || {
        mlua::Error::runtime(
            "the shape is none: give \"constant\", \"poisson\", {poisson = seed}, {burst = frames, gap = ns} or \
             {ramp = \"1kpps\", over = seconds}",
        )
    };
    match shape {
        Value::Nil => Ok(LoadShape::Constant),
        // MoonGen's setRateMpps takes the frames' size here; frames/s do not depend on it.
        Value::Integer(_) | Value::Number(_) => Ok(LoadShape::Constant),
        Value::String(name) => match &*name.to_string_lossy() {
            "constant" | "cbr" => Ok(LoadShape::Constant),
            "poisson" => Ok(LoadShape::Poisson { seed: 0 }),
            _ => Err(refuse()),
        },
        Value::Table(table) => shape_of_table(table)?.ok_or_else(refuse),
        _ => Err(refuse()),
    }
}

fn shape_of_table(table: &Table) -> mlua::Result<Option<LoadShape>> {
    if let Some(seed) = table.get::<Option<u64>>("poisson")? {
        return Ok(Some(LoadShape::Poisson { seed }));
    }
    if let Some(frames) = table.get::<Option<u32>>("burst")? {
        return Ok(Some(LoadShape::Bursts { frames, gap_ns: table.get("gap")? }));
    }
    let Some(from) = table.get::<Option<String>>("ramp")? else { return Ok(None) };
    let from = from.parse().map_err(mlua::Error::external)?;
    let over: Option<f64> = table.get("over")?;
    let over_ns =
        over.filter(|seconds| *seconds > 0.0 && seconds.is_finite()).map(|seconds| (seconds * 1e9) as u64);
    let over_ns = over_ns.ok_or_else(|| mlua::Error::runtime("a ramp needs over = seconds above 0"))?;
    Ok(Some(LoadShape::Ramp { from, over_ns }))
}
