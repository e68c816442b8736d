//! Text of an explanation.

use ringroad_control::explanation::{
    Explained, ExplainedOutput, ExplainedPort, ExplainedStep, Explanation, HeaderChange,
};
use ringroad_control::report::{TracedReason, TracedSource};
use ringroad_openflow::meter_id;

use crate::output::rates::grouped;

/// Formats an explanation in several lines for users.
pub(super) fn text(explanation: &Explanation) -> String {
    let Explanation { from, headers, frame_bytes, steps, outputs, dropped, is_cut, .. } = explanation;
    let mut lines =
        vec![format!("{}: {} bytes", port(from), grouped(*frame_bytes)), format!("  frame     {headers}")];
    lines.extend(steps.iter().map(|step| line(step, outputs)));
    if *is_cut {
        lines.push("  ...       there are more steps than listed".to_owned());
    }
    lines.extend(outputs.iter().map(|output| {
        let ExplainedOutput { headers, frame_bytes, .. } = output;
        format!("  result    {}, {} bytes: {headers}", to(output), grouped(*frame_bytes))
    }));
    lines.extend(dropped.iter().map(|cause| format!("  result    dropped: {cause}")));
    lines.join("\n")
}

fn port(port: &ExplainedPort) -> String {
    format!("{} ({})", port.name, port.number)
}

fn to(output: &ExplainedOutput) -> String {
    if output.to_controllers {
        return "to the controllers".to_owned();
    }
    let queue = output.queue.map(|queue| format!(", queue {queue}")).unwrap_or_default();
    format!("to {}{queue}", output.ports.iter().map(port).collect::<Vec<_>>().join(", "))
}

fn line(step: &ExplainedStep, outputs: &[ExplainedOutput]) -> String {
    let label = match &step.what {
        Explained::Table { table, .. } => format!("table {table}"),
        Explained::Vlan { .. } => "port".to_owned(),
        Explained::Learned { .. } => "learned".to_owned(),
        _ => String::new(),
    };
    let words = match &step.what {
        Explained::Table { flow: None, .. } => "no entry matches".to_owned(),
        Explained::Table { flow: Some(flow), .. } => {
            let comma = if flow.matching.is_empty() { "" } else { "," };
            let cookie =
                if flow.cookie == 0 { String::new() } else { format!("cookie={:#x}, ", flow.cookie) };
            format!("{cookie}priority={}{comma}{} actions={}", flow.priority, flow.matching, flow.actions)
        }
        Explained::Meter { meter, exceeded_band: None } => format!("{}: it would pass", meter_text(*meter)),
        Explained::Meter { meter, exceeded_band: Some(band) } => {
            format!("{}: it would exceed the rate of band {band} now", meter_text(*meter))
        }
        Explained::ActionSet => "action set:".to_owned(),
        Explained::Action { action, changes } => format!("{action}: {}", changed(changes)),
        Explained::Group { group, chosen: 0 } => format!("group:{group}: no bucket for it"),
        Explained::Group { group, chosen: 1 } => format!("group:{group}: 1 bucket"),
        Explained::Group { group, chosen } => format!("group:{group}: {chosen} buckets"),
        Explained::Bucket { bucket } => format!("bucket {bucket}:"),
        Explained::Vlan { options, vlan } => {
            let options = if options.is_empty() { "no options" } else { options };
            let vlan = vlan.map_or("no VLAN".to_owned(), |vlan| format!("VLAN {vlan}"));
            format!("{options}: {vlan}")
        }
        Explained::Learned { source, source_port, reason } => {
            format!("{}, {}", source_words(*source, source_port.as_deref()), reason_words(*reason))
        }
        Explained::Output { to: target, output } => {
            let output = output.and_then(|output| outputs.get(output as usize));
            format!("output:{target}: {}", output.map_or("there is no port for it".to_owned(), to))
        }
        Explained::Controllers { reason, .. } => format!("CONTROLLER: all of it, because of {reason}"),
        Explained::NotSent { to, why } => {
            let why = match why.as_str() {
                "came_from_there" => "it came from there; output:IN_PORT would send it back",
                "no_such_port" => "there is no such port",
                "disabled" => "a controller has disabled the port",
                "no_packet_in" => "controllers get no packets of this port",
                "mirror_port" => "a mirror leads to this port",
                other => other,
            };
            format!("output:{to}: not sent: {why}")
        }
        Explained::Dropped { cause } => format!("dropped: {cause}"),
        _ => "a step that this program does not know".to_owned(),
    };
    format!("  {label:<10}{}{words}", "  ".repeat(step.depth as usize))
}

/// Formats a meter, with the names of `ovs-ofctl` for the virtual ones.
fn meter_text(meter: u32) -> String {
    match meter {
        meter_id::CONTROLLER => "meter:controller".to_owned(),
        meter_id::SLOWPATH => "meter:slowpath".to_owned(),
        other => format!("meter:{other}"),
    }
}

fn changed(changes: &[HeaderChange]) -> String {
    if changes.is_empty() {
        return "changes nothing".to_owned();
    }
    let words = changes.iter().map(|HeaderChange { field, before, after }| match (before, after) {
        (Some(before), Some(after)) => format!("{field} {before} -> {after}"),
        (None, Some(after)) => format!("{field} {after} comes"),
        (Some(before), None) => format!("{field} {before} goes"),
        (None, None) => field.clone(),
    });
    words.collect::<Vec<_>>().join(", ")
}

fn source_words(source: TracedSource, port: Option<&str>) -> String {
    let port = port.unwrap_or_default();
    match source {
        TracedSource::Known => "source known at this port".to_owned(),
        TracedSource::Learned => "source new".to_owned(),
        TracedSource::Moved => format!("source at {port} until now"),
        TracedSource::Refused => format!("source static at {port}"),
        TracedSource::NotLearned => "source not learned".to_owned(),
    }
}

/// Formats the reason for a switch's decision.
pub(crate) fn reason_words(reason: TracedReason) -> &'static str {
    match reason {
        TracedReason::Known => "known destination",
        TracedReason::Unknown => "unknown destination",
        TracedReason::Multicast => "for several stations",
        TracedReason::Forced => "as its sender requests",
    }
}

#[cfg(test)]
mod tests {
    use ringroad_control::explanation::ExplainedFlow;

    use super::*;

    #[test]
    fn a_frame_is_listed_with_every_step() {
        let step = |depth, what| ExplainedStep { depth, what };
        let named = |number, name: &str| ExplainedPort { number, name: name.to_owned() };
        let change = |field: &str, before: Option<&str>, after: Option<&str>| HeaderChange {
            field: field.to_owned(),
            before: before.map(str::to_owned),
            after: after.map(str::to_owned),
        };
        let flow = ExplainedFlow {
            priority: 5,
            cookie: 1,
            matching: "in_port=1".to_owned(),
            actions: "meter:3,dec_ttl,group:7".to_owned(),
        };
        let action = |action: &str, changes| Explained::Action { action: action.to_owned(), changes };
        let explanation = Explanation {
            switch: "vale0".to_owned(),
            from: named(1, "vale0:a"),
            has_flow_tables: true,
            headers: "ip,in_port=1".to_owned(),
            frame_bytes: 1500,
            steps: vec![
                step(0, Explained::Table { table: 0, flow: Some(flow) }),
                step(0, Explained::Meter { meter: 3, exceeded_band: None }),
                step(0, action("dec_ttl", vec![change("nw_ttl", Some("64"), Some("63"))])),
                step(0, Explained::Group { group: 7, chosen: 1 }),
                step(0, Explained::Bucket { bucket: 0 }),
                step(1, action("push_vlan:0x8100", vec![change("vlan_vid", None, Some("0"))])),
                step(1, Explained::Output { to: "2".to_owned(), output: Some(0) }),
                step(1, Explained::NotSent { to: "1".to_owned(), why: "came_from_there".to_owned() }),
            ],
            outputs: vec![ExplainedOutput {
                ports: vec![named(2, "vale0:b")],
                to_controllers: false,
                queue: None,
                headers: "ip,in_port=1,dl_vlan=0".to_owned(),
                start: "00".to_owned(),
                frame_bytes: 1504,
            }],
            dropped: None,
            is_cut: false,
        };
        assert_eq!(
            text(&explanation),
            "\
vale0:a (1): 1 500 bytes
  frame     ip,in_port=1
  table 0   cookie=0x1, priority=5,in_port=1 actions=meter:3,dec_ttl,group:7
            meter:3: it would pass
            dec_ttl: nw_ttl 64 -> 63
            group:7: 1 bucket
            bucket 0:
              push_vlan:0x8100: vlan_vid 0 comes
              output:2: to vale0:b (2)
              output:1: not sent: it came from there; output:IN_PORT would send it back
  result    to vale0:b (2), 1 504 bytes: ip,in_port=1,dl_vlan=0"
        );
        let dropped = Explanation {
            steps: vec![step(0, Explained::Table { table: 0, flow: None })],
            outputs: Vec::new(),
            dropped: Some("no_flow".to_owned()),
            ..explanation
        };
        assert!(text(&dropped).ends_with("  table 0   no entry matches\n  result    dropped: no_flow"));
    }
}
