//! Rules of the configuration that fix settings of ports: no program can choose other values.

use globset::{Glob, GlobMatcher};
use ringroad_control::message::ErrorKind;
use ringroad_port::port_settings::{PortSettings, PortVlans};

use crate::config::PortPolicyConfig;
use crate::refusal::{Refusal, refuse};

/// The rules in force.
#[derive(Debug, Default)]
pub struct PortRules(Vec<(GlobMatcher, Fixed)>);

/// The settings that a rule names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Fixed {
    vlans: Option<PortVlans>,
    isolated: Option<bool>,
    storm: Option<u32>,
}

impl PortPolicyConfig {
    /// VLANs that the rule names.
    ///
    /// # Errors
    /// The rule has keys that exclude each other.
    pub(crate) fn vlans(&self) -> Result<Option<PortVlans>, String> {
        match (self.vlan, &self.trunk, self.native) {
            (Some(_), Some(_), _) => Err("vlan and trunk: choose one of them".to_owned()),
            (_, None, Some(_)) => Err("native without trunk: give trunk, too".to_owned()),
            (Some(vlan), None, None) => Ok(Some(PortVlans::Access(vlan))),
            (None, Some(tagged), native) => Ok(Some(PortVlans::Trunk { tagged: tagged.clone(), native })),
            (None, None, None) => Ok(None),
        }
    }
}

impl PortRules {
    /// Compiles the rules of a checked configuration.
    #[must_use]
    pub fn new(policies: &[PortPolicyConfig]) -> Self {
        let rule = |policy: &PortPolicyConfig| {
            let pattern = Glob::new(&policy.port).ok()?.compile_matcher();
            let vlans = policy.vlans().ok()?;
            Some((pattern, Fixed { vlans, isolated: policy.isolated, storm: policy.storm }))
        };
        Self(policies.iter().filter_map(rule).collect())
    }

    /// Settings of the port `key` for which `asked` was requested: rules prevail. The first rule that names a setting
    /// decides about it.
    #[must_use]
    pub fn settings(&self, key: &str, asked: &PortSettings) -> PortSettings {
        let fixed = || self.0.iter().filter(|(pattern, _)| pattern.is_match(key)).map(|(_, fixed)| fixed);
        PortSettings {
            vlans: fixed().find_map(|fixed| fixed.vlans.clone()).unwrap_or_else(|| asked.vlans.clone()),
            isolated: fixed().find_map(|fixed| fixed.isolated).unwrap_or(asked.isolated),
            storm: fixed().find_map(|fixed| fixed.storm).or(asked.storm),
        }
    }

    /// Settings of a port that is about to be created, as in [`Self::settings`].
    ///
    /// # Errors
    /// The refusal to send if the request contradicts a rule.
    pub fn settle(&self, key: &str, asked: &PortSettings) -> Result<PortSettings, Refusal> {
        let settings = self.settings(key, asked);
        if settings.has_all_of(asked) {
            return Ok(settings);
        }
        Err(refuse(
            ErrorKind::PermissionDenied,
            format!("the daemon's configuration gives port {key} {}, not {asked}", words(&settings)),
            "leave these options out; a [[port_policy]] of the configuration fixes them",
        ))
    }
}

/// Settings, as text for users.
pub(crate) fn words(settings: &PortSettings) -> String {
    if settings.is_unset() { "no settings".to_owned() } else { settings.to_string() }
}

#[cfg(test)]
mod tests {
    use ringroad_drivers::catalogue::port_name::PortName;

    use super::*;
    use crate::config::Config;

    fn asked(options: &str) -> PortSettings {
        format!("vale0:a{options}").parse::<PortName>().unwrap().options.settings
    }

    fn rules(text: &str) -> PortRules {
        PortRules::new(&Config::parse(text, "x").unwrap().port_policy)
    }

    #[test]
    fn a_rule_fixes_what_it_names_and_nothing_else() {
        let rules = rules(
            "[[port_policy]]\nport = \"vale0:guest*\"\nvlan = 10\nisolated = true\n\
             [[port_policy]]\nport = \"vale0:*\"\nvlan = 20\nstorm = 1000\n\
             [[port_policy]]\nport = \"vale1:up\"\ntrunk = \"10,20-29\"\nnative = 5\n",
        );
        let settle = |key, options| rules.settle(key, &asked(options)).map(|settings| settings.to_string());
        assert_eq!(settle("vale0:guest1", ""), Ok("vlan=10,isolated,storm=1000".into()));
        assert_eq!(settle("vale0:guest1", "@vlan=10,storm=1000"), Ok("vlan=10,isolated,storm=1000".into()));
        assert_eq!(settle("vale0:b", "@isolated"), Ok("vlan=20,isolated,storm=1000".into()));
        assert_eq!(settle("vale1:up", ""), Ok("trunk=10,20-29,native=5".into()));
        assert_eq!(settle("vale1:b", "@vlan=7"), Ok("vlan=7".into()), "no rule names it");
        for (key, options) in [
            ("vale0:guest1", "@vlan=20"),
            ("vale0:guest1", "@trunk=10"),
            ("vale0:b", "@storm=2000"),
            ("vale1:up", "@trunk=all"),
        ] {
            let refusal = rules.settle(key, &asked(options)).unwrap_err();
            assert_eq!(refusal.kind, ErrorKind::PermissionDenied);
            assert!(refusal.message.contains(key) && refusal.message.contains(&options[1..]), "{refusal}");
        }
        assert_eq!(rules.settings("vale0:guest1", &asked("@vlan=7")).vlans, PortVlans::Access(10));
    }
}
