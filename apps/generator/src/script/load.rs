//! Rates and shapes of a load as scripts write them.

use mlua::Value;
use ringroad_traffic::line_rate::BitLayer;
use ringroad_traffic::pacing::{LoadShape, RateSpec};

/// A rate and a shape; without a rate, the maximum.
pub(super) type Load = Option<(RateSpec, LoadShape)>;

/// Load of `setRate`: Mbit/s of frames with their FCS (L2), or a rate in text; nil is the maximum.
pub(super) fn of_mbit(rate: &Value, shape: &Value) -> mlua::Result<Load> {
    of(rate, shape, "setRate", |mbit| RateSpec::Bits { rate_bps: mbit * 1e6, layer: BitLayer::L2 })
}

/// Load of `setRateMpps`: million frames/s.
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
    match shape {
        // MoonGen's setRateMpps takes the frames' size as this argument. Frames/s do not depend on it.
        Value::Nil | Value::Integer(_) | Value::Number(_) => Ok(LoadShape::Constant),
        Value::String(text) => text.to_string_lossy().parse().map_err(mlua::Error::external),
        other => Err(mlua::Error::runtime(format!(
            "the shape is a {}: give a string like \"constant\", \"poisson:7\", \"bursts:32\" or \"ramp:1kpps:10s\"",
            other.type_name()
        ))),
    }
}
