//! Mirrors of requests and of the configuration.

use ringroad_control::message::{Mirror, MirrorDirection};
use ringroad_datapath::fabric::NamedMirror;
use ringroad_drivers::catalogue::port_name::{PortBase, PortName};

use crate::ports::Ports;

/// Reads the switch of a mirror, and the mirror by the names of its ports there.
///
/// # Errors
/// Text that names the invalid value, and valid values.
pub(crate) fn parse(mirror: &Mirror) -> Result<(String, NamedMirror), String> {
    let (switch, to) = port_of_switch(&mirror.to)?;
    let from = if mirror.from == switch { None } else { Some(port_of_switch(&mirror.from)?) };
    if let Some((other, _)) = &from
        && *other != switch
    {
        return Err(format!(
            "{} and {} are on two switches: mirror to a port of {other}",
            mirror.from, mirror.to
        ));
    }
    let from = from.map(|(_, port)| port);
    if from.as_ref() == Some(&to) {
        return Err(format!("{} cannot mirror itself: mirror to another port", mirror.to));
    }
    if mirror.sample == 0 {
        return Err("one of 0 frames: a sample is at least 1, which copies all".to_owned());
    }
    let from_port = from.is_some();
    let named = NamedMirror {
        from,
        to,
        received: mirror.direction != MirrorDirection::Delivered,
        // Received frames suffice for a whole switch: all its frames come in by some port.
        delivered: mirror.direction != MirrorDirection::Received && from_port,
        sample: mirror.sample,
        records: mirror.records,
    };
    if named.from.is_none() && mirror.direction != MirrorDirection::Both {
        return Err(format!("each frame of {switch} comes in by one of its ports: leave the direction out"));
    }
    Ok((switch, named))
}

pub(crate) fn port_of_switch(text: &str) -> Result<(String, String), String> {
    let name: PortName = text.parse().map_err(|error| format!("{error}"))?;
    match name.base {
        PortBase::Switch { switch, port } => Ok((switch, port)),
        _ => Err(format!("{text:?} is not a port of a switch (vale0:name)")),
    }
}

/// The mirrors in force.
pub(crate) fn in_force(ports: &Ports) -> Vec<Mirror> {
    let named = ports.table.fabric().mirrors().map(|(switch, mirror)| Mirror {
        from: mirror.from.as_ref().map_or_else(|| switch.to_owned(), |port| format!("{switch}:{port}")),
        to: format!("{switch}:{}", mirror.to),
        direction: match (mirror.received, mirror.delivered) {
            (true, true) => MirrorDirection::Both,
            (_, false) if mirror.from.is_none() => MirrorDirection::Both,
            (_, false) => MirrorDirection::Received,
            (false, true) => MirrorDirection::Delivered,
        },
        sample: mirror.sample,
        records: mirror.records,
    });
    named.collect()
}

/// Text for users.
pub(crate) fn words(mirror: &Mirror) -> String {
    format!("a mirror from {} to {}", mirror.from, mirror.to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirror(from: &str, to: &str, direction: MirrorDirection) -> Mirror {
        Mirror { from: from.to_owned(), to: to.to_owned(), direction, sample: 1, records: false }
    }

    #[test]
    fn a_mirror_names_two_ports_of_one_switch_or_a_whole_switch() {
        let (switch, named) = parse(&mirror("vale0:a", "vale0:m", MirrorDirection::Both)).unwrap();
        assert_eq!((switch.as_str(), named.from.as_deref(), named.to.as_str()), ("vale0", Some("a"), "m"));
        assert!(named.received && named.delivered);
        let (_, whole) = parse(&mirror("vale0", "vale0:m", MirrorDirection::Both)).unwrap();
        assert_eq!((whole.from, whole.received, whole.delivered), (None, true, false), "each frame once");
        for (from, to, direction, words) in [
            ("vale0:a", "vale1:m", MirrorDirection::Both, "two switches"),
            ("vale1", "vale0:m", MirrorDirection::Both, "vale1"),
            ("vale0:m", "vale0:m", MirrorDirection::Both, "cannot mirror itself"),
            ("vale0:a", "null:", MirrorDirection::Both, "not a port of a switch"),
            ("vale0", "vale0:m", MirrorDirection::Delivered, "comes in by one"),
        ] {
            let refused = parse(&mirror(from, to, direction)).unwrap_err();
            assert!(refused.contains(words), "{refused}");
        }
        let none = Mirror { sample: 0, ..mirror("vale0:a", "vale0:m", MirrorDirection::Both) };
        assert!(parse(&none).unwrap_err().contains("at least 1"));
    }
}
