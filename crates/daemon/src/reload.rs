//! Application of a new configuration while traffic runs. Ports that are the same in both configurations stay
//! unchanged.

use ringroad_control::message::{ErrorKind, Mirror, OpenFlow, PortSpec};
use ringroad_datapath::fabric::FabricError;
use tracing::{info, warn};

use crate::attaching::{PortRecord, key_of};
use crate::config::{
    Config, LearningConfig, LimitsConfig, Log, PortPolicyConfig, StaticAddress, WorkersConfig,
};
use crate::mirrors;
use crate::openflow;
use crate::port_entries::{ClientId, PortOrigin};
use crate::port_rules::{self, PortRules};
use crate::ports::Ports;

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
    let on_switches = ports.table.on_switches();
    let is_there = |spec: &&PortSpec| {
        let there = on_switches.get(&key_of(spec)).map(|port| &port.kept);
        there.is_some_and(|kept| kept.origin == PortOrigin::Config && kept.spec.as_ref() == Some(spec))
    };
    let missing = wanted.iter().filter(|spec| !is_there(spec)).cloned();
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

/// Changes the static addresses from `before` to `wanted`. Addresses set by commands stay.
pub fn apply_addresses(ports: &mut Ports, before: &[StaticAddress], wanted: &[StaticAddress]) {
    let fabric = ports.table.fabric_mut();
    for (switch, mac, _) in before.iter().filter(|old| !wanted.contains(old)).flat_map(StaticAddress::parse) {
        fabric.set_static(&switch, mac, None);
    }
    for (switch, mac, port) in wanted.iter().flat_map(StaticAddress::parse) {
        fabric.set_static(&switch, mac, Some(&port));
    }
}

/// Changes the mirrors from `before` to `wanted`. Mirrors set by commands stay.
///
/// # Errors
/// A worker that is gone.
pub fn apply_mirrors(ports: &mut Ports, before: &[Mirror], wanted: &[Mirror]) -> Result<(), FabricError> {
    let fabric = ports.table.fabric_mut();
    for (switch, old) in before.iter().filter(|old| !wanted.contains(old)).flat_map(mirrors::parse) {
        fabric.remove_mirror(&switch, old.from.as_deref(), &old.to)?;
    }
    for (switch, mirror) in wanted.iter().flat_map(mirrors::parse) {
        fabric.set_mirror(&switch, mirror)?;
    }
    Ok(())
}

/// Changes OpenFlow from `before` to `wanted`, and reads keys and certificates again. Settings made by commands stay.
/// Returns the settings that are retried.
pub fn apply_openflow(ports: &mut Ports, before: &[OpenFlow], wanted: &[OpenFlow]) -> Vec<String> {
    let is_wanted = |old: &OpenFlow| wanted.iter().any(|new| new.switch == old.switch);
    for old in before.iter().filter(|old| !is_wanted(old)) {
        // A command may have removed it already.
        let _ = ports.remove_openflow(&old.switch);
    }
    let now = openflow::in_force(ports);
    let changed = wanted.iter().filter(|settings| !now.contains(settings) || settings.private_key.is_some());
    changed.filter_map(|settings| ports.want_openflow(settings)).collect()
}

/// Keys that differ between the two configurations and take effect only when the daemon starts the next time.
#[must_use]
pub fn needs_restart(started: &Config, new: &Config) -> Vec<&'static str> {
    // No `..`: the compiler requires a line here for every new key.
    let WorkersConfig { count, cpus, spin_us, busy } = &new.workers;
    let LearningConfig { ageing_s, mac_entries } = &new.switch;
    let LimitsConfig {
        connections,
        connections_per_user,
        shared_memory_mib,
        reserve_percent,
        user_shared_memory_mib,
        user_switches,
        user_ports_of_switch,
        user_ports,
        user_queues,
        user_pipes,
        user_devices,
        flow_memory_mib,
        switch_flow_memory_mib,
    } = &new.limits;
    let Log { level: _, format, file: _ } = &new.log;
    let (workers, switch, limits) = (&started.workers, &started.switch, &started.limits);
    [
        ("workers.count", *count != workers.count),
        ("workers.cpus", *cpus != workers.cpus),
        ("workers.spin_us", *spin_us != workers.spin_us),
        ("workers.busy", *busy != workers.busy),
        ("switch.ageing_s", *ageing_s != switch.ageing_s),
        ("switch.mac_entries", *mac_entries != switch.mac_entries),
        ("log.format", *format != started.log.format),
        ("limits.connections", *connections != limits.connections),
        ("limits.connections_per_user", *connections_per_user != limits.connections_per_user),
        ("limits.shared_memory_mib", *shared_memory_mib != limits.shared_memory_mib),
        ("limits.reserve_percent", *reserve_percent != limits.reserve_percent),
        ("limits.user_shared_memory_mib", *user_shared_memory_mib != limits.user_shared_memory_mib),
        ("limits.user_switches", *user_switches != limits.user_switches),
        ("limits.user_ports_of_switch", *user_ports_of_switch != limits.user_ports_of_switch),
        ("limits.user_ports", *user_ports != limits.user_ports),
        ("limits.user_queues", *user_queues != limits.user_queues),
        ("limits.user_pipes", *user_pipes != limits.user_pipes),
        ("limits.user_devices", *user_devices != limits.user_devices),
        ("limits.flow_memory_mib", *flow_memory_mib != limits.flow_memory_mib),
        ("limits.switch_flow_memory_mib", *switch_flow_memory_mib != limits.switch_flow_memory_mib),
    ]
    .into_iter()
    .filter_map(|(key, differs)| differs.then_some(key))
    .collect()
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
        assert_eq!(needs_restart(&new, &new), Vec::<&str>::new());
    }
}
