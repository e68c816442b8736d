//! Writing of settings made at run time to the configuration file, and comparison with the file.
//!
//! Only `[[port]]`, `[[address]]`, `[[mirror]]` and `[[openflow]]` tables are written. All else in the file stays as
//! its user wrote it, comments included.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Error, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use ringroad_control::message::{ErrorKind, Mirror, MirrorDirection, OpenFlow, PortSpec};
use ringroad_control::report::{ConfigDifference, KeyDifference, SaveReport};
use ringroad_drivers::catalogue::NETNS;
use ringroad_drivers::catalogue::port_name::PortName;
use ringroad_netdev::namespace::HeldNamespace;
use serde::Serialize;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

use crate::attaching::key_of;
use crate::config::{Config, StaticAddress, WrittenPort};
use crate::mirrors;
use crate::openflow;
use crate::port_entries::PortOrigin;
use crate::ports::Ports;
use crate::refusal::{Refusal, refuse};
use crate::reload::needs_restart;
use crate::switch_settings::addresses_in_force;

/// Table of the configuration that makes the port `key`, which a command attached.
///
/// # Errors
/// The refusal to send: the configuration cannot describe the port.
fn configured(key: &str, mut port: PortSpec) -> Result<PortSpec, Refusal> {
    // Directions are a program's request, and have no meaning in the configuration.
    (port.properties.tx, port.properties.rx) = (true, true);
    let (Some(text), Some(number)) = (&port.driver, port.netns) else { return Ok(port) };
    let driver = driver_text(text, number).map_err(|why| {
        refuse(
            ErrorKind::BadProperties,
            format!("{key} cannot be saved: {why}"),
            "give the namespace a name (ip netns attach), and attach the port with --netns NAME",
        )
    })?;
    Ok(PortSpec { driver: Some(driver), netns: None, ..port })
}

/// Driver text that names the namespace with this number, as a daemon outside of the namespace would write it.
fn driver_text(text: &str, netns: u64) -> Result<String, String> {
    let (base, options) = text.split_once('@').map_or((text, None), |(base, options)| (base, Some(options)));
    let options = options.into_iter().flat_map(|options| options.split(','));
    let mut options: Vec<String> =
        options.filter(|option| !option.starts_with("netns=")).map(str::to_owned).collect();
    let namespace = HeldNamespace::numbered(netns).map_err(|error| error.to_string())?;
    if !namespace.is_current() {
        let label = namespace.label();
        if label.starts_with("net:") {
            return Err(format!("the network namespace {label} has no name"));
        }
        options.push(format!("{}={label}", NETNS.key));
    }
    Ok(if options.is_empty() { base.to_owned() } else { format!("{base}@{}", options.join(",")) })
}

/// Writes the present ports called `names`, or all, into the configuration file at `path`; `config` is the daemon's
/// copy of the file.
///
/// # Errors
/// The refusal to send. The file is unchanged then.
pub(crate) fn save(
    ports: &mut Ports,
    config: &mut Config,
    path: &Path,
    names: &[String],
) -> Result<SaveReport, Refusal> {
    let failed = |error: &dyn std::fmt::Display| {
        refuse(
            ErrorKind::BadRequest,
            format!("{}: {error}", path.display()),
            "the daemon writes its configuration file: it must be there, and be writable for the daemon",
        )
    };
    let is_meant = |key: &str| names.is_empty() || names.iter().any(|name| name == key);
    let on_switches = ports.table.on_switches();
    let mut added_ports = BTreeMap::new();
    for (key, port) in on_switches.iter().filter(|(key, _)| is_meant(key)) {
        if let (PortOrigin::Command { .. }, Some(spec)) = (&port.kept.origin, port.kept.spec_now()) {
            added_ports.insert(key.clone(), configured(key, spec)?);
        }
    }
    for name in names {
        let known = added_ports.contains_key(name) || config.port.iter().any(|port| key_of(port) == *name);
        if !known {
            return Err(refuse(
                ErrorKind::NoSuchPort,
                format!("{name} is neither attached nor configured"),
                "ringroad list shows the ports that exist",
            ));
        }
    }
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    let mut document: DocumentMut = text.parse().map_err(|error| failed(&error))?;
    let tables = document.entry("port").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    let tables = tables.as_array_of_tables_mut().ok_or_else(|| failed(&"write ports as [[port]] tables"))?;
    let mut removed = Vec::new();
    // Detached interfaces took their host stack's sides with them, which alone would cut the host off.
    let detached =
        names.iter().any(|name| !on_switches.contains_key(name) && !ports.waiting.contains_key(name));
    tables.retain(|table| {
        let name = table.get("name").and_then(Item::as_str).unwrap_or_default();
        let key = name.parse::<PortName>().map_or_else(|_| name.to_owned(), |name| name.base.to_string());
        let is_gone = !on_switches.contains_key(&key) && !ports.waiting.contains_key(name);
        let is_meant = is_meant(&key) || detached && is_gone && key.ends_with('^');
        let goes = is_meant && (is_gone || added_ports.contains_key(&key));
        if goes && is_gone {
            removed.push(key);
        }
        !goes
    });
    for port in added_ports.values() {
        tables.push(table(&WrittenPort::from(port)).map_err(|error| failed(&error))?);
    }
    let mut added: Vec<String> = added_ports.keys().cloned().collect();
    if names.is_empty() {
        let (new, old) = save_addresses(ports, config, &mut document)
            .ok_or_else(|| failed(&"write static addresses as [[address]] tables"))?;
        added.extend(new);
        removed.extend(old);
        let (new, old) = save_mirrors(ports, config, &mut document)
            .ok_or_else(|| failed(&"write mirrors as [[mirror]] tables"))?;
        added.extend(new);
        removed.extend(old);
        let (new, old) = save_openflow(ports, config, &mut document)
            .ok_or_else(|| failed(&"write OpenFlow as [[openflow]] tables"))?;
        added.extend(new);
        removed.extend(old);
    }
    let text = document.to_string();
    // Text that a reload would refuse is not written.
    let new = Config::parse(&text, &path.display().to_string()).map_err(|error| failed(&error))?;
    replace(path, &text).map_err(|error| failed(&error))?;
    (config.port, config.address, config.mirror) = (new.port, new.address, new.mirror);
    config.openflow = new.openflow;
    for (key, port) in added_ports {
        if let Some(kept) = ports.table.kept_mut(&key) {
            (kept.origin, kept.spec) = (PortOrigin::Config, Some(port));
        }
    }
    ports.keep_to(config);
    Ok(SaveReport { config: path.display().to_string(), added, removed })
}

/// Text for users.
fn words(address: &StaticAddress) -> String {
    format!("{} on {}", address.mac, address.port)
}

/// Updates the `[[address]]` tables to the values in force; returns the added and the removed addresses, or `None` if
/// the file has no tables there.
fn save_addresses(
    ports: &Ports,
    config: &Config,
    document: &mut DocumentMut,
) -> Option<(Vec<String>, Vec<String>)> {
    let now = addresses_in_force(ports);
    let is_in =
        |all: &[StaticAddress], address: &StaticAddress| all.iter().any(|other| other.is_same(address));
    let added: Vec<_> = now.iter().filter(|address| !is_in(&config.address, address)).collect();
    let removed: Vec<_> = config.address.iter().filter(|address| !is_in(&now, address)).map(words).collect();
    if added.is_empty() && removed.is_empty() {
        return Some(Default::default());
    }
    let tables = document.entry("address").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    let tables = tables.as_array_of_tables_mut()?;
    tables.retain(|table| {
        let text = |key| table.get(key).and_then(Item::as_str).unwrap_or_default().to_owned();
        is_in(&now, &StaticAddress { mac: text("mac"), port: text("port") })
    });
    for address in &added {
        let mut table = Table::new();
        table.insert("mac", value(&address.mac));
        table.insert("port", value(&address.port));
        tables.push(table);
    }
    Some((added.into_iter().map(words).collect(), removed))
}

/// Updates the `[[mirror]]` tables to the values in force; returns the added and the removed mirrors, or `None` if the
/// file has no tables there.
fn save_mirrors(
    ports: &Ports,
    config: &Config,
    document: &mut DocumentMut,
) -> Option<(Vec<String>, Vec<String>)> {
    let now = mirrors::in_force(ports);
    let added: Vec<_> = now.iter().filter(|mirror| !config.mirror.contains(mirror)).collect();
    let removed: Vec<_> = config.mirror.iter().filter(|mirror| !now.contains(mirror)).collect();
    if added.is_empty() && removed.is_empty() {
        return Some(Default::default());
    }
    let tables = document.entry("mirror").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    let tables = tables.as_array_of_tables_mut()?;
    tables.retain(|table| {
        let text = |key| table.get(key).and_then(Item::as_str).unwrap_or_default();
        !removed.iter().any(|mirror| (text("from"), text("to")) == (&mirror.from, &mirror.to))
    });
    for mirror in &added {
        let mut table = Table::new();
        table.insert("from", value(&mirror.from));
        table.insert("to", value(&mirror.to));
        let direction = match mirror.direction {
            MirrorDirection::Received => Some("received"),
            MirrorDirection::Delivered => Some("delivered"),
            MirrorDirection::Both => None,
        };
        if let Some(direction) = direction {
            table.insert("direction", value(direction));
        }
        if mirror.sample != 1 {
            table.insert("sample", value(i64::from(mirror.sample)));
        }
        if mirror.records {
            table.insert("records", value(true));
        }
        tables.push(table);
    }
    let words = |mirrors: Vec<&Mirror>| mirrors.into_iter().map(mirrors::words).collect();
    Some((words(added), words(removed)))
}

/// Updates the `[[openflow]]` tables to the values in force; returns the added and the removed settings, or `None` if
/// the file has no tables there.
fn save_openflow(
    ports: &Ports,
    config: &Config,
    document: &mut DocumentMut,
) -> Option<(Vec<String>, Vec<String>)> {
    let now = openflow::in_force(ports);
    let added: Vec<_> = now.iter().filter(|settings| !config.openflow.contains(settings)).collect();
    let removed: Vec<_> = config.openflow.iter().filter(|settings| !now.contains(settings)).collect();
    if added.is_empty() && removed.is_empty() {
        return Some(Default::default());
    }
    let tables = document.entry("openflow").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    let tables = tables.as_array_of_tables_mut()?;
    let of = |table: &Table| table.get("switch").and_then(Item::as_str).unwrap_or_default().to_owned();
    tables.retain(|table| !removed.iter().any(|settings| settings.switch == of(table)));
    for settings in &added {
        tables.push(table(settings).ok()?);
    }
    let words = |settings: Vec<&OpenFlow>| settings.into_iter().map(openflow::words).collect();
    Some((words(added), words(removed)))
}

/// Converts a value to a table of the file.
fn table(value: &impl Serialize) -> Result<Table, String> {
    let text = toml::to_string(value).map_err(|error| error.to_string())?;
    Ok(text.parse::<DocumentMut>().map_err(|error| error.to_string())?.as_table().clone())
}

/// Replaces a file by one with this text, in one step and with the same owner and mode.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), Error> {
    // The target of a link is replaced, not the link.
    let path = path.canonicalize()?;
    let before = std::fs::metadata(&path)?;
    let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new("/")))?;
    file.write_all(text.as_bytes())?;
    let file_itself = file.as_file();
    file_itself.set_permissions(std::fs::Permissions::from_mode(before.mode() & 0o7777))?;
    std::os::unix::fs::fchown(file_itself, Some(before.uid()), Some(before.gid()))?;
    file_itself.sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// Differences between the daemon, which has `ports` and the configuration `in_force`, and `other`.
pub(crate) fn compare(ports: &Ports, in_force: &Config, other: &Config) -> ConfigDifference {
    let at_next_start = needs_restart(in_force, other);
    let (here, there) = (keys_of(in_force), keys_of(other));
    // A key without a value is left out.
    let value =
        |keys: &BTreeMap<String, String>, key| keys.get(key).cloned().unwrap_or_else(|| "none".to_owned());
    let all: BTreeSet<&String> = here.keys().chain(there.keys()).collect();
    let keys = all.into_iter().filter(|key| here.get(*key) != there.get(*key)).map(|key| KeyDifference {
        key: key.clone(),
        in_force: value(&here, key),
        configured: value(&there, key),
        at_next_start: at_next_start.contains(&key.as_str()),
    });
    let on_switches = ports.table.on_switches();
    let attached = on_switches.iter().filter_map(|(key, port)| {
        let is_in_other = match &port.kept.origin {
            PortOrigin::Program { .. } => true,
            PortOrigin::Command { .. } => false,
            PortOrigin::Config => port.kept.spec.as_ref().is_some_and(|spec| other.port.contains(spec)),
        };
        (!is_in_other).then(|| key.clone())
    });
    let is_there = |port: &&PortSpec| {
        let there = on_switches.get(&key_of(port)).map(|there| &there.kept);
        there.is_some_and(|kept| kept.origin == PortOrigin::Config && kept.spec.as_ref() == Some(port))
    };
    let statics = addresses_in_force(ports);
    let not_in =
        |all: &[StaticAddress], address: &StaticAddress| !all.iter().any(|other| other.is_same(address));
    let only_here = statics.iter().filter(|address| not_in(&other.address, address)).map(words);
    let only_there = other.address.iter().filter(|address| not_in(&statics, address)).map(words);
    let mirrors = mirrors::in_force(ports);
    let mirrors_here = mirrors.iter().filter(|mirror| !other.mirror.contains(mirror)).map(mirrors::words);
    let mirrors_there = other.mirror.iter().filter(|mirror| !mirrors.contains(mirror)).map(mirrors::words);
    let flows = openflow::in_force(ports);
    let flows_here = flows.iter().filter(|settings| !other.openflow.contains(settings)).map(openflow::words);
    let flows_there = other.openflow.iter().filter(|settings| !flows.contains(settings)).map(openflow::words);
    ConfigDifference {
        keys: keys.collect(),
        only_attached: attached.chain(only_here).chain(mirrors_here).chain(flows_here).collect(),
        only_configured: other
            .port
            .iter()
            .filter(|port| !is_there(port))
            .map(key_of)
            .chain(only_there)
            .chain(mirrors_there)
            .chain(flows_there)
            .collect(),
    }
}

/// The values of all keys but those of ports, static addresses, mirrors and OpenFlow, in TOML.
fn keys_of(config: &Config) -> BTreeMap<String, String> {
    let mut keys = BTreeMap::new();
    let all = toml::Table::try_from(config).unwrap_or_default();
    let is_list = |section: &String| ["port", "address", "mirror", "openflow"].contains(&section.as_str());
    for (section, values) in all.into_iter().filter(|(section, _)| !is_list(section)) {
        match values {
            toml::Value::Table(values) => {
                keys.extend(
                    values.into_iter().map(|(key, value)| (format!("{section}.{key}"), value.to_string())),
                );
            }
            other => {
                keys.insert(section, other.to_string());
            }
        }
    }
    keys
}
