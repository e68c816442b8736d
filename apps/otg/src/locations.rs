//! The ports that clients can open. The server may run as root, with its client on another machine. So the command line
//! must allow files, sockets and network interfaces.

use std::path::{Component, Path};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use ringroad::PortName;
use ringroad::catalogue::{self, NameTarget};

use crate::server::OtgServerError;

/// Start of a port name's network namespace.
const NETNS: &str = "@netns=";

/// Ports that can be opened: ports of switches, ends of pipes, null ports, and additionally allowed ones.
#[derive(Debug, Clone, Default)]
pub struct Locations(GlobSet);

impl Locations {
    /// Allows, in addition to the default, names that match one of `patterns`. `*` is for any characters but `/`, `**`
    /// for all characters. Options after the `@` of a name are ignored, except a network namespace: `eth0@netns=blue`.
    ///
    /// # Errors
    /// [`OtgServerError::Pattern`]: a pattern is invalid.
    pub fn allowing(patterns: &[String]) -> Result<Self, OtgServerError> {
        let wrong = |pattern: &str, error: &globset::Error| OtgServerError::Pattern {
            pattern: pattern.to_owned(),
            reason: error.kind().to_string(),
        };
        let mut set = GlobSetBuilder::new();
        for pattern in patterns {
            let glob = GlobBuilder::new(&in_parts(pattern)).literal_separator(true).build();
            set.add(glob.map_err(|error| wrong(pattern, &error))?);
        }
        set.build().map(Self).map_err(|error| wrong("", &error))
    }

    /// Checks whether `location` is allowed.
    ///
    /// # Errors
    /// The reason of the refusal, and the option that allows the location.
    pub(crate) fn check(&self, location: &str) -> Result<(), String> {
        let name: PortName = location.parse().map_err(|error| format!("{error}"))?;
        let Some(device) = name.base.device() else { return Ok(()) };
        let what = match device.kind.target {
            NameTarget::Settings => return Ok(()),
            NameTarget::CaptureFiles => "files",
            NameTarget::Socket => "sockets",
            NameTarget::Interface(_) | NameTarget::NewInterface => "network interfaces",
        };
        if device.paths().iter().any(|path| leads_up(path)) {
            return Err("a path with .. is not accepted: give it without".to_owned());
        }
        let shown = match name.options.device.text(&catalogue::NETNS) {
            Some(netns) => format!("{}{NETNS}{netns}", name.base),
            None => name.base.to_string(),
        };
        if self.0.is_match(in_parts(&shown)) {
            return Ok(());
        }
        Err(format!(
            "only the server's command line can allow {what}; start it with --allow-location '{shown}'"
        ))
    }
}

/// Splits a name or a pattern into parts with a `/` between them: the base name, the mark of the host stack's side, the
/// namespace. So `*` alone allows neither another namespace's interface nor the host's own frames.
fn in_parts(text: &str) -> String {
    let (base, netns) = match text.split_once(NETNS) {
        Some((base, netns)) => (base, format!("/{NETNS}{netns}")),
        None => (text, String::new()),
    };
    match base.strip_suffix('^') {
        Some(interface) => format!("{interface}/^{netns}"),
        None => format!("{base}{netns}"),
    }
}

/// Whether a path contains `..`, which leads elsewhere than it seems.
fn leads_up(path: &Path) -> bool {
    path.components().any(|part| part == Component::ParentDir)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowing(patterns: &[&str]) -> Locations {
        Locations::allowing(&patterns.iter().map(|pattern| (*pattern).to_owned()).collect::<Vec<_>>())
            .unwrap()
    }

    #[test]
    fn only_ports_of_the_machine_need_permission() {
        let locations = Locations::default();
        for location in ["vale0:a", "vale0:a@queues=2,slots=64", "x{1", "netmap:x}1", "null:size=60"] {
            assert_eq!(locations.check(location), Ok(()), "{location}");
        }
        for (location, allowed) in [
            ("pcap:out=/etc/shadow", "'pcap:out=/etc/shadow'"),
            ("pcap:/etc/shadow", "'pcap:in=/etc/shadow'"),
            ("pcap:in=a,out=b", "'pcap:in=a,out=b'"),
            ("memif:/run/m@id=3", "'memif:/run/m'"),
            ("vhost-user:/run/v", "'vhost-user:/run/v'"),
            ("virtio-user:/run/v", "'virtio-user:/run/v'"),
            ("sze2:/run/s", "'sze2:/run/s'"),
            ("szedata:/run/s", "'szedata:/run/s'"),
            ("tap:t0", "'tap:t0'"),
            ("eth0", "'eth0'"),
            ("netmap:eth0@queues=2", "'eth0'"),
            ("xdp:eth0@netns=blue", "'xdp:eth0@netns=blue'"),
            ("eth0^", "'eth0^'"),
        ] {
            let refused = locations.check(location).unwrap_err();
            assert!(refused.ends_with(&format!("--allow-location {allowed}")), "{location}: {refused}");
            // The pattern that the message suggests allows the location.
            assert_eq!(allowing(&[allowed.trim_matches('\'')]).check(location), Ok(()));
        }
        assert!(locations.check("nonsense:x").unwrap_err().contains("nonsense"));
    }

    #[test]
    fn a_pattern_allows_only_matching_locations() {
        let locations = allowing(&["veth*", "pcap:out=/srv/captures/*.pcap", "memif:/run/lab/**"]);
        for location in
            ["veth0", "veth1@queues=2", "pcap:out=/srv/captures/a.pcap", "memif:/run/lab/1/m.sock"]
        {
            assert_eq!(locations.check(location), Ok(()), "{location}");
        }
        for location in [
            "veth0@netns=blue",
            "xdp:veth0",
            "veth0^",
            "pcap:out=/srv/captures/../../etc/x.pcap",
            "pcap:out=/srv/captures/more/a.pcap",
            "pcap:in=/etc/shadow,out=/srv/captures/a.pcap",
            "pcap:/srv/captures/a.pcap",
            "memif:/run/lab/../m.sock",
            "vhost-user:/run/lab/m.sock",
        ] {
            assert!(locations.check(location).is_err(), "{location}");
        }
        for location in ["pcap:out=/etc/shadow", "veth0@netns=blue", "veth0^", "veth0^@netns=blue"] {
            assert_eq!(allowing(&["**"]).check(location), Ok(()), "{location}");
        }
        for (pattern, location) in [
            ("veth*@netns=b*", "veth0@netns=blue"),
            ("veth*^", "veth0^"),
            ("veth*^@netns=*", "veth0^@netns=blue"),
        ] {
            assert_eq!(allowing(&[pattern]).check(location), Ok(()), "{location}");
        }
    }

    #[test]
    fn an_invalid_pattern_is_refused() {
        let error = Locations::allowing(&["memif:[".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("memif:["), "{error}");
    }
}
