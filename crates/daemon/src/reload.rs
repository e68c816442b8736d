//! Application of a new configuration while traffic runs. Ports that are the same in both configurations stay
//! unchanged.

use std::collections::BTreeMap;

use ringroad_control::message::{ErrorKind, PortSpec};
use ringroad_datapath::fabric::FabricError;
use tracing::{info, warn};

use crate::attaching::PortRecord;
use crate::config::{Config, PortPolicyConfig};
use crate::port_entries::{ClientId, PortOrigin};
use crate::port_rules::{self, PortRules};
use crate::ports::Ports;
use crate::switch_settings::SwitchSettings;

/// The result of applying a configuration to the ports.
#[derive(Debug, Default)]
pub struct Applied {
    /// The clients that lost a port.
    pub lost: Vec<ClientId>,
    /// Lines for ports that cannot be made without a change, one for each.
    pub problems: Vec<String>,
    /// Lines for ports whose devices are not there yet, or busy, one for each. Applying the configuration again retries
    /// them.
    pub waiting: Vec<String>,
}

/// Changes the configured ports to `wanted`. Ports of programs and of `ringroad attach` stay.
pub fn apply_ports(ports: &mut Ports, wanted: &[PortSpec]) -> Applied {
    let mut applied = Applied::default();
    let mut known = std::mem::take(&mut ports.waiting);
    let configured =
        ports.table.on_switches().iter().filter(|(_, port)| port.kept.origin == PortOrigin::Config);
    let mut unwanted: Vec<String> = configured
        .filter(|(_, port)| !port.kept.spec.as_ref().is_some_and(|spec| wanted.contains(spec)))
        .map(|(key, _)| key.clone())
        .collect();
    // An interface is removed before its host stack's side, which it takes with it.
    unwanted.sort_by_key(|key| ports.is_host_side(key));
    for key in unwanted {
        if ports.table.on_switches().contains_key(&key) {
            info!(port = %key, "removing a port that the configuration no longer has");
            match ports.detach(&key, true) {
                Ok(owner) => applied.lost.extend(owner),
                Err(refusal) => applied.problems.push(format!("removing {key}: {}", refusal.message)),
            }
        }
    }
    let missing = wanted.iter().filter(|spec| !ports.is_configured(spec)).cloned();
    let missing = missing.map(|spec| PortRecord::new(spec, PortOrigin::Config)).collect();
    for (PortRecord { spec, .. }, made) in ports.attach_each(missing) {
        match made {
            Ok(made) => {
                info!(port = %made.name, driver = %made.driver, mode = %made.mode, "port made");
                made.notes.iter().for_each(|note| info!(port = %made.name, "{note}"));
            }
            Err(refusal) => {
                let waits = matches!(refusal.kind, ErrorKind::NoSuchPort | ErrorKind::Busy);
                // Each reason is logged once, not at each retry.
                if known.remove(&spec.name).is_none_or(|known| known != refusal.message) {
                    warn!(port = %spec.name, reason = %refusal.message, "port not made; it is tried again every second");
                }
                let line = format!("{}: {}", spec.name, refusal.message);
                if waits {
                    applied.waiting.push(line)
                } else {
                    applied.problems.push(line)
                }
                ports.waiting.insert(spec.name, refusal.message);
            }
        }
    }
    applied
}

/// Changes the settings of all ports to the values that these rules fix. Returns the rules that cannot be in force.
pub fn apply_policies(ports: &mut Ports, wanted: &[PortPolicyConfig]) -> Vec<String> {
    ports.rules = PortRules::new(wanted);
    let Ports { table, rules, .. } = ports;
    let changed = table.on_switches().iter().filter_map(|(key, port)| {
        let settings = rules.settings(key, &port.kept.asked);
        (settings != port.settings).then(|| (key.clone(), settings))
    });
    let mut problems = Vec::new();
    for (port, settings) in changed.collect::<Vec<_>>() {
        match table.set_settings(&port, settings.clone()) {
            Ok(()) => info!(%port, settings = %port_rules::words(&settings), "settings changed"),
            Err(error) => problems.push(format!("{port}: {error}")),
        }
    }
    problems
}

/// Changes static addresses, mirrors and OpenFlow from those of `before` to those of `wanted`. Settings made by commands
/// stay. Returns the settings that are retried.
///
/// # Errors
/// A worker that is gone.
pub fn apply_settings(
    ports: &mut Ports,
    before: &Config,
    wanted: &Config,
) -> Result<Vec<String>, FabricError> {
    SwitchSettings::of(wanted).apply(ports, &SwitchSettings::of(before))
}

/// Keys that differ between the two configurations and take effect only when the daemon starts the next time.
#[must_use]
pub fn needs_restart(started: &Config, new: &Config) -> Vec<String> {
    let started = BTreeMap::from_iter(started.keys());
    let at_start = ["workers.", "switch.", "log.format", "limits."];
    let changed = new.keys().into_iter().filter(|(key, value)| started.get(key) != Some(value));
    changed.map(|(key, _)| key).filter(|key| at_start.iter().any(|part| key.starts_with(part))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_names_the_keys_that_wait_for_the_next_start() {
        let config = |text: &str| Config::parse(text, "x").unwrap();
        let started = config("[workers]\nspin_us = 7\n");
        let new = config(
            "[workers]\ncount = 2\nspin_us = 7\n[log]\nlevel = \"warn\"\nformat = \"json\"\nfile = \"/x\"\n\
             [limits]\nuser_pipes = 3\n[socket]\nmode = \"0666\"\n[[port]]\nname = \"vale0:a\"\n",
        );
        assert_eq!(needs_restart(&started, &new), ["workers.count", "log.format", "limits.user_pipes"]);
        assert_eq!(needs_restart(&new, &new), Vec::<String>::new());
    }
}
