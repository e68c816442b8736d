//! Writing of settings made at run time to the configuration file, and comparison with the file.
//!
//! Only `[[port]]`, `[[address]]`, `[[mirror]]` and `[[openflow]]` tables are written. All else in the file stays as
//! its user wrote it, comments included.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Error, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use ringroad_control::message::{ErrorKind, MirrorDirection, PortSpec};
use ringroad_control::report::{ConfigDifference, KeyDifference, SaveReport};
use ringroad_drivers::catalogue::NETNS;
use ringroad_drivers::catalogue::port_name::PortName;
use ringroad_netdev::namespace::HeldNamespace;
use serde::Serialize;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table};

use crate::attaching::key_of;
use crate::config::{Config, StaticAddress, WrittenPort};
use crate::port_entries::PortOrigin;
use crate::ports::Ports;
use crate::refusal::{Refusal, refuse};
use crate::reload::needs_restart;
use crate::switch_settings::SwitchSettings;

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
    let tables = tables(&mut document, "port", "ports").map_err(|error| failed(&error))?;
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
        let (now, configured) = (SwitchSettings::in_force(ports), SwitchSettings::of(config));
        let (new, old) = (now.clone().without(&configured), configured.without(&now));
        save_settings(&mut document, &now, &new, &old).map_err(|error| failed(&error))?;
        added.extend(new.words());
        removed.extend(old.words());
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

/// The `[[key]]` tables of the file, which list `what`.
fn tables<'a>(document: &'a mut DocumentMut, key: &str, what: &str) -> Result<&'a mut ArrayOfTables, String> {
    let tables = document.entry(key).or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    tables.as_array_of_tables_mut().ok_or_else(|| format!("write {what} as [[{key}]] tables"))
}

/// Writes the settings `now` in force into the file: `new` ones are not there yet, `old` ones have ended.
fn save_settings(
    document: &mut DocumentMut,
    now: &SwitchSettings,
    new: &SwitchSettings,
    old: &SwitchSettings,
) -> Result<(), String> {
    let text = |table: &Table, key| table.get(key).and_then(Item::as_str).unwrap_or_default().to_owned();
    if !new.addresses.is_empty() || !old.addresses.is_empty() {
        let tables = tables(document, "address", "static addresses")?;
        tables.retain(|table| {
            let address = StaticAddress { mac: text(table, "mac"), port: text(table, "port") };
            now.addresses.iter().any(|other| other.is_same(&address))
        });
        append(tables, &new.addresses)?;
    }
    if !new.mirrors.is_empty() || !old.mirrors.is_empty() {
        let tables = tables(document, "mirror", "mirrors")?;
        tables.retain(|table| {
            let (from, to) = (text(table, "from"), text(table, "to"));
            !old.mirrors.iter().any(|mirror| (&mirror.from, &mirror.to) == (&from, &to))
        });
        let first = tables.len();
        append(tables, &new.mirrors)?;
        for (table, mirror) in tables.iter_mut().skip(first).zip(&new.mirrors) {
            // Defaults are left out.
            if mirror.direction == MirrorDirection::Both {
                table.remove("direction");
            }
            if mirror.sample == 1 {
                table.remove("sample");
            }
        }
    }
    if !new.openflow.is_empty() || !old.openflow.is_empty() {
        let tables = tables(document, "openflow", "OpenFlow")?;
        tables.retain(|table| !old.openflow.iter().any(|settings| settings.switch == text(table, "switch")));
        append(tables, &new.openflow)?;
    }
    Ok(())
}

/// Appends values as tables of the file.
fn append(tables: &mut ArrayOfTables, values: &[impl Serialize]) -> Result<(), String> {
    values.iter().try_for_each(|value| table(value).map(|table| tables.push(table)))
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
    let [here, there] = [in_force, other].map(|config| BTreeMap::from_iter(config.keys()));
    // A key without a value is left out.
    let value =
        |keys: &BTreeMap<String, String>, key| keys.get(key).cloned().unwrap_or_else(|| "none".to_owned());
    let all: BTreeSet<&String> = here.keys().chain(there.keys()).collect();
    let keys = all.into_iter().filter(|key| here.get(*key) != there.get(*key)).map(|key| KeyDifference {
        key: key.clone(),
        in_force: value(&here, key),
        configured: value(&there, key),
        at_next_start: at_next_start.contains(key),
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
    let (here, there) = (SwitchSettings::in_force(ports), SwitchSettings::of(other));
    let missing = other.port.iter().filter(|port| !ports.is_configured(port)).map(key_of);
    ConfigDifference {
        keys: keys.collect(),
        only_attached: attached.chain(here.clone().without(&there).words()).collect(),
        only_configured: missing.chain(there.without(&here).words()).collect(),
    }
}
