//! A flow's frame sizes. The model counts the FCS, as the RFCs do.

use ringroad_traffic::line_rate::FrameSize;
use serde_json::{Value, json};

use crate::document::Node;

/// Default size, bytes.
const DEFAULT_SIZE: u64 = 64;
/// Largest frame of the model's IMIX, and default end of ranges, bytes.
const LONGEST_ETHERNET: u64 = 1518;
/// Seed for random sizes: the model has none.
const RANDOM_SEED: u64 = 1;
/// Steps of a weight, so that shares such as 58.67 % are whole numbers.
const WEIGHT_STEPS: f64 = 100.0;
/// Largest weight.
const MAX_WEIGHT: f64 = 10_000.0;

/// Predefined mixes that consist of Ethernet frames: size, and weight times [`WEIGHT_STEPS`].
const MIXES: [(&str, &[(u64, u64)]); 3] = [
    ("imix", &[(64, 700), (570, 400), (1518, 100)]),
    ("ipsec_imix", &[(90, 5867), (92, 200), (594, 2366), (1418, 1567)]),
    ("tcp_imix", &[(90, 5867), (92, 200), (594, 2366), (1518, 1567)]),
];
const ALL_MIXES: [&str; 5] = ["imix", "ipsec_imix", "ipv6_imix", "standard_imix", "tcp_imix"];

/// Reads the frame sizes into the form of a stream definition.
pub(crate) fn size(node: &Node<'_>) -> Value {
    let Some((choice, chosen)) = node.given(&["fixed", "increment", "random", "weight_pairs"], "fixed")
    else {
        return json!(DEFAULT_SIZE);
    };
    match choice {
        "fixed" => json!(frame_size(&chosen, DEFAULT_SIZE)),
        "increment" => {
            chosen.only(&["start", "end", "step"]);
            let range = range(&chosen.get("start"), &chosen.get("end"));
            json!({"range": range, "step": chosen.get("step").whole(1, longest(), 1)})
        }
        "random" => {
            chosen.only(&["min", "max"]);
            json!({"range": range(&chosen.get("min"), &chosen.get("max")), "random_seed": RANDOM_SEED})
        }
        _ => weighted(&chosen),
    }
}

fn longest() -> u64 {
    FrameSize::MAX.bytes().into()
}

fn frame_size(node: &Node<'_>, default: u64) -> u64 {
    node.whole(FrameSize::MIN.bytes().into(), longest(), default)
}

fn range(low: &Node<'_>, high: &Node<'_>) -> [u64; 2] {
    let range = [frame_size(low, DEFAULT_SIZE), frame_size(high, LONGEST_ETHERNET)];
    if range[0] > range[1] {
        low.report_value(format_args!("at most {}, which is {}", high.path(), range[1]));
    }
    range
}

fn weighted(node: &Node<'_>) -> Value {
    let Some((choice, chosen)) = node.chosen(&["predefined", "custom"], "predefined") else {
        return json!(DEFAULT_SIZE);
    };
    let pairs: Vec<(u64, u64)> =
        if choice == "custom" { custom(&chosen) } else { predefined(&chosen).to_vec() };
    json!({"weighted": pairs})
}

fn predefined(node: &Node<'_>) -> &'static [(u64, u64)] {
    let name = node.one_of(&ALL_MIXES, "imix");
    let mix = MIXES.iter().find(|(known, _)| *known == name);
    if mix.is_none() {
        let known = MIXES.map(|(known, _)| known).join(", ");
        node.report_value(format_args!(
            "one of {known}: this one has frames shorter than Ethernet's 64 bytes"
        ));
    }
    mix.map_or(&[], |(_, pairs)| pairs)
}

fn custom(node: &Node<'_>) -> Vec<(u64, u64)> {
    let items = node.items();
    if items.is_empty() {
        node.report("no sizes given; give at least one pair of size and weight");
    }
    let pair = |item: &Node<'_>| {
        item.only(&["size", "weight"]);
        let weight =
            item.get("weight").number(1.0 / WEIGHT_STEPS..=MAX_WEIGHT, "a number from 0.01 to 10000", 1.0);
        (frame_size(&item.get("size"), DEFAULT_SIZE), (weight * WEIGHT_STEPS).round() as u64)
    };
    items.iter().map(pair).collect()
}
