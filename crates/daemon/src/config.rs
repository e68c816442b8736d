//! The configuration file: TOML, every key optional, unknown keys refused.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use ringroad_control::message::{HugePages, Mirror, OpenFlow, PortProperties, PortSpec};
use ringroad_drivers::catalogue::port_name::{PortBase, PortName};
use ringroad_port::port_settings::{PortVlans, STORM_LIMITS};
use ringroad_port::vlan_set::{VLAN_IDS, VlanSet};
use ringroad_switch::MacTableConfig;
use ringroad_wire::mac::Mac;
use serde::{Deserialize, Serialize};

use crate::mirrors;
use crate::openflow;
use crate::port_rules::{self, PortRules};

/// Maximum of memory settings, MiB: more than any machine has, and its number of bytes still fits.
const MAX_MEMORY_MIB: u64 = u64::MAX >> 20;

/// A whole configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `[workers]`
    pub workers: WorkersConfig,
    /// `[socket]`
    pub socket: SocketConfig,
    /// `[switch]`
    pub switch: LearningConfig,
    /// `[log]`
    pub log: Log,
    /// `[limits]`
    pub limits: LimitsConfig,
    /// `[[port]]`: ports that exist without a program.
    #[serde(with = "port_tables")]
    pub port: Vec<PortSpec>,
    /// `[[port_policy]]`: settings of ports that programs cannot change.
    pub port_policy: Vec<PortPolicyConfig>,
    /// `[[address]]`: addresses that stay on their ports.
    pub address: Vec<StaticAddress>,
    /// `[[mirror]]`: ports that get copies of the frames of other ports.
    pub mirror: Vec<Mirror>,
    /// `[[openflow]]`: switches with flow tables.
    pub openflow: Vec<OpenFlow>,
    /// `[[allow]]`: users who may open ports.
    pub allow: Vec<Allow>,
}

/// Threads of the datapath.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkersConfig {
    /// Number of threads, 1 to 16.
    pub count: u16,
    /// Processors for the threads, in order; the kernel chooses for threads without a processor here.
    pub cpus: Vec<u32>,
    /// Time for which an idle worker polls before it sleeps, microseconds.
    pub spin_us: u64,
    /// Whether workers never sleep.
    pub busy: bool,
    /// The highest real-time priority that workers take from programs of administrators, up to 99; 0: none.
    pub real_time: u8,
}

impl Default for WorkersConfig {
    fn default() -> Self {
        Self { count: 1, cpus: Vec::new(), spin_us: 50, busy: false, real_time: 0 }
    }
}

/// The control socket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SocketConfig {
    /// Permission bits in octal, as a string. They decide who can connect.
    pub mode: String,
    /// Group id of the socket file.
    pub gid: Option<u32>,
}

impl Default for SocketConfig {
    fn default() -> Self {
        Self { mode: "0600".into(), gid: None }
    }
}

/// Address learning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LearningConfig {
    /// Lifetime of an address after it was last seen, seconds.
    pub ageing_s: u32,
    /// Maximum number of addresses per switch, a power of two.
    pub mac_entries: usize,
}

impl Default for LearningConfig {
    fn default() -> Self {
        Self { ageing_s: 300, mac_entries: MacTableConfig::DEFAULT_ENTRIES }
    }
}

/// Log output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// `error`, `warn`, `info`, `debug` or `trace`, or a filter such as `ringroadd=debug`.
    pub level: String,
    /// `text` or `json`.
    pub format: LogFormat,
    /// File to which lines are appended. Without it, a daemon in the foreground writes to standard error.
    pub file: Option<PathBuf>,
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".into(), format: LogFormat::Text, file: None }
    }
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Text for users.
    Text,
    /// JSON for programs.
    Json,
}

/// Limits of the resources that clients may use, together and by user. Only the limits for all users together bind root
/// and the daemon's user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Maximum number of control connections. A sixteenth of them is for root and the daemon's user alone.
    pub connections: usize,
    /// Maximum number of control connections of one user; 0 stands for a quarter of `connections`. Root and the
    /// daemon's user have no such limit.
    pub connections_per_user: usize,
    /// Maximum shared memory of all regions, MiB; 0 stands for half of the machine's memory.
    pub shared_memory_mib: u64,
    /// Part of the shared memory, the switches, the ports of each switch and the queues that is for root and the
    /// daemon's user alone, percent.
    pub reserve_percent: u8,
    /// Maximum shared memory of one user, MiB; 0 stands for half of `shared_memory_mib`.
    pub user_shared_memory_mib: u64,
    /// Maximum number of switches on which one user has ports.
    pub user_switches: u32,
    /// Maximum number of ports of one user on one switch.
    pub user_ports_of_switch: u32,
    /// Maximum number of ports of one user in all.
    pub user_ports: u32,
    /// Maximum number of queues of one user's ports, pipes and devices.
    pub user_queues: u32,
    /// Maximum number of pipes that one user made.
    pub user_pipes: u32,
    /// Maximum number of interfaces and other devices that one user's programs have open.
    pub user_devices: u32,
    /// Maximum memory of flow tables, groups and meters of all switches, MiB; 0 stands for a quarter of the machine's
    /// memory.
    pub flow_memory_mib: u64,
    /// Maximum memory of flow tables, groups and meters of one switch, MiB; 0 stands for half of `flow_memory_mib`.
    pub switch_flow_memory_mib: u64,
}

impl LimitsConfig {
    /// Maximum memory of flow tables, bytes: of all switches, and of one.
    #[must_use]
    pub fn flow_memory_bytes(&self) -> (u64, u64) {
        let or = |mib: u64, default: u64| if mib == 0 { default } else { mib.saturating_mul(1 << 20) };
        let all = or(self.flow_memory_mib, memory_bytes() / 4);
        (all, or(self.switch_flow_memory_mib, all / 2))
    }
}

/// Size of the machine's memory, bytes.
pub(crate) fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    u64::from(info.mem_unit) * info.totalram
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            connections: 2048,
            connections_per_user: 0,
            shared_memory_mib: 0,
            reserve_percent: 10,
            user_shared_memory_mib: 0,
            user_switches: 16,
            user_ports_of_switch: 127,
            user_ports: 1024,
            user_queues: 1024,
            user_pipes: 256,
            user_devices: 64,
            flow_memory_mib: 0,
            switch_flow_memory_mib: 0,
        }
    }
}

/// A [`PortSpec`] as the file has it: its sizes beside its name, and its network namespace in the driver. With a
/// structure of its own, an error names line and key.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenPort {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    driver: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queues: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slots: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    buffer_bytes: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    extra_buffers: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    huge_pages: Option<HugePages>,
}

impl From<WrittenPort> for PortSpec {
    fn from(table: WrittenPort) -> Self {
        let WrittenPort { name, driver, queues, slots, buffer_bytes, extra_buffers, huge_pages } = table;
        let (extra_buffers, huge_pages) = (extra_buffers.unwrap_or_default(), huge_pages.unwrap_or_default());
        let properties = PortProperties {
            queues,
            slots,
            buffer_bytes,
            extra_buffers,
            huge_pages,
            ..PortProperties::default()
        };
        Self { name, driver, properties, netns: None }
    }
}

impl From<&PortSpec> for WrittenPort {
    fn from(port: &PortSpec) -> Self {
        // No `..`: the compiler requires a line here for each new field of a port.
        let PortSpec { name, driver, properties, netns: _ } = port.clone();
        let PortProperties { queues, slots, buffer_bytes, extra_buffers, huge_pages, tx: _, rx: _ } =
            properties;
        let extra_buffers = Some(extra_buffers).filter(|&buffers| buffers != 0);
        let huge_pages = Some(huge_pages).filter(|&pages| pages != HugePages::default());
        Self { name, driver, queues, slots, buffer_bytes, extra_buffers, huge_pages }
    }
}

/// Conversion of ports to tables of the file.
mod port_tables {
    use ringroad_control::message::PortSpec;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::WrittenPort;

    pub(super) fn serialize<S: Serializer>(ports: &[PortSpec], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(ports.iter().map(WrittenPort::from))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PortSpec>, D::Error> {
        Ok(Vec::<WrittenPort>::deserialize(deserializer)?.into_iter().map(PortSpec::from).collect())
    }
}

/// Settings of the ports whose name matches. A key that is left out is not fixed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortPolicyConfig {
    /// Pattern of port names: `vale0:guest*`.
    pub port: String,
    /// The VLAN of an access port.
    pub vlan: Option<u16>,
    /// The VLANs of a trunk: `10,20-30`, or `all`.
    pub trunk: Option<VlanSet>,
    /// The VLAN of a trunk's frames without tags.
    pub native: Option<u16>,
    /// Whether the port exchanges frames only with ports that are not isolated.
    pub isolated: Option<bool>,
    /// Storm limit: frames per second to several ports that the port may send.
    pub storm: Option<u32>,
}

impl PortPolicyConfig {
    fn check(&self) -> Result<(), String> {
        globset::Glob::new(&self.port).map_err(|error| error.to_string())?;
        if let Some(bad) =
            [self.vlan, self.native].into_iter().flatten().find(|vlan| !VLAN_IDS.contains(vlan))
        {
            return Err(format!("{bad} is not a VLAN: write a number from 1 to 4094"));
        }
        if let Some(bad) = self.storm.filter(|limit| !STORM_LIMITS.contains(limit)) {
            let (least, most) = STORM_LIMITS.into_inner();
            return Err(format!("storm is {bad}; choose from {least} to {most}"));
        }
        if self.vlans()?.is_none() && self.isolated.is_none() && self.storm.is_none() {
            return Err("it sets nothing: give vlan, trunk, isolated or storm".to_owned());
        }
        Ok(())
    }
}

/// An address that stays on a port: it does not age, and frames do not move it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticAddress {
    /// Address, such as `02:00:00:00:00:01`.
    pub mac: String,
    /// Name of the port, such as `vale0:a`, which need not exist yet.
    pub port: String,
}

impl StaticAddress {
    /// Switch, address, and name of the port on the switch.
    ///
    /// # Errors
    /// Text that names the invalid value, and valid values.
    pub fn parse(&self) -> Result<(String, Mac, String), String> {
        let mac: Mac = self.mac.parse().map_err(|error| format!("{:?}: {error}", self.mac))?;
        if mac.is_multicast() {
            return Err(format!("{mac} is a multicast address, which is on no port"));
        }
        let (switch, port) = mirrors::port_of_switch(&self.port)?;
        Ok((switch, mac, port))
    }

    /// Whether `other` is the same address on the same port, regardless of the spelling.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.parse().is_ok_and(|this| other.parse() == Ok(this))
    }
}

/// Users who may open the ports whose name matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allow {
    /// Pattern of port names: `vale0:*`.
    pub port: String,
    /// User ids.
    #[serde(default)]
    pub uids: Vec<u32>,
    /// Group ids (the primary group of the connecting process counts).
    #[serde(default)]
    pub gids: Vec<u32>,
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// Text that names file, line and valid values.
    pub fn read(path: &Path) -> Result<Self, String> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path);
        Self::parse(&text.map_err(|error| format!("reading the configuration {name}: {error}"))?, &name)
    }

    /// Parses and checks the text of a configuration; `name` names it in errors.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(text: &str, name: &str) -> Result<Self, String> {
        let wrong = |what: &dyn Display| format!("configuration {name}: {what}");
        let config: Self = toml::from_str(text).map_err(|error| wrong(&error))?;
        config.check().map_err(|what| wrong(&what))?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        let most = ringroad_datapath::exchange::MAX_WORKERS;
        if self.workers.count == 0 || usize::from(self.workers.count) > most {
            return Err(format!("workers.count is {}; choose from 1 to {most}", self.workers.count));
        }
        if self.workers.real_time > ringroad_ring::real_time::HIGHEST {
            return Err(format!("workers.real_time is {}; choose from 0 to 99", self.workers.real_time));
        }
        if self.workers.real_time > 0
            && self.workers.busy
            && self.workers.cpus.len() < usize::from(self.workers.count)
        {
            let problem = "workers.real_time with workers.busy takes processors from all ordinary programs; name \
                           a processor for each worker in workers.cpus";
            return Err(problem.to_owned());
        }
        self.socket_mode()?;
        if !(1..=86_400).contains(&self.switch.ageing_s) {
            return Err(format!("switch.ageing_s is {}; choose from 1 to 86400", self.switch.ageing_s));
        }
        let (entries, range) =
            (self.switch.mac_entries, MacTableConfig::MIN_ENTRIES..=MacTableConfig::MAX_ENTRIES);
        if !entries.is_power_of_two() || !range.contains(&entries) {
            let (least, most) = range.into_inner();
            return Err(format!(
                "switch.mac_entries is {entries}; choose a power of two from {least} to {most}"
            ));
        }
        for (key, mib) in [
            ("shared_memory_mib", self.limits.shared_memory_mib),
            ("user_shared_memory_mib", self.limits.user_shared_memory_mib),
        ] {
            if mib > MAX_MEMORY_MIB {
                return Err(format!("limits.{key} is {mib}; choose {MAX_MEMORY_MIB} at most"));
            }
        }
        if self.limits.reserve_percent > 90 {
            return Err(format!(
                "limits.reserve_percent is {}; choose from 0 to 90",
                self.limits.reserve_percent
            ));
        }
        let mut names = BTreeSet::new();
        for port in &self.port {
            let parsed: PortName = port.name.parse().map_err(|error| format!("[[port]]: {error}"))?;
            if !matches!(parsed.base, PortBase::Switch { .. }) {
                return Err(format!(
                    "[[port]] {:?}: only ports of a switch (vale0:name) can be made here",
                    port.name
                ));
            }
            if let Some(driver) = &port.driver {
                driver
                    .parse::<PortName>()
                    .map_err(|error| format!("[[port]] {}: driver: {error}", port.name))?;
            }
            if !names.insert(parsed.base.to_string()) {
                return Err(format!("[[port]] {:?} stands there twice", port.name));
            }
        }
        let mut has_vlans = false;
        for policy in &self.port_policy {
            let failed = |what| format!("[[port_policy]] port {:?}: {what}", policy.port);
            policy.check().map_err(failed)?;
            has_vlans |= policy.vlans().is_ok_and(|vlans| vlans.is_some());
        }
        let rules = PortRules::new(&self.port_policy);
        let with_flow_tables: BTreeSet<&str> =
            self.openflow.iter().map(|openflow| openflow.switch.as_str()).collect();
        for port in &self.port {
            let Ok(name) = port.name.parse::<PortName>() else { continue };
            let settings = rules.settle(&name.base.to_string(), &name.options.settings);
            let settings =
                settings.map_err(|refusal| format!("[[port]] {}: {}", port.name, refusal.message))?;
            has_vlans |= settings.vlans != PortVlans::Unset;
            let PortBase::Switch { switch, .. } = &name.base else { continue };
            if !settings.is_unset() && with_flow_tables.contains(switch.as_str()) {
                let settings = port_rules::words(&settings);
                return Err(format!(
                    "[[port]] {:?} has {settings}, and its switch has flow tables by [[openflow]]: flows have to do that",
                    port.name
                ));
            }
        }
        let least = MacTableConfig::LEAST_ENTRIES_FOR_VLANS;
        if has_vlans && entries < least {
            return Err(format!("switch.mac_entries is {entries}; with VLANs choose {least} at least"));
        }
        let mut addresses = BTreeSet::new();
        for address in &self.address {
            let (switch, mac, _) = address.parse().map_err(|error| format!("[[address]]: {error}"))?;
            if !addresses.insert((switch.clone(), mac.octets())) {
                return Err(format!("[[address]] {mac} stands there twice for {switch}"));
            }
        }
        let mut pairs = BTreeSet::new();
        for mirror in &self.mirror {
            mirrors::parse(mirror).map_err(|error| format!("[[mirror]]: {error}"))?;
            if !pairs.insert((&mirror.from, &mirror.to)) {
                return Err(format!("[[mirror]] from {} to {} stands there twice", mirror.from, mirror.to));
            }
        }
        let mut switches = BTreeSet::new();
        for settings in &self.openflow {
            openflow::parse(settings).map_err(|error| format!("[[openflow]]: {error}"))?;
            if !switches.insert(&settings.switch) {
                return Err(format!("[[openflow]] of {} stands there twice", settings.switch));
            }
        }
        for allow in &self.allow {
            globset::Glob::new(&allow.port)
                .map_err(|error| format!("[[allow]] port {:?}: {error}", allow.port))?;
            if allow.uids.is_empty() && allow.gids.is_empty() {
                return Err(format!("[[allow]] port {:?} allows no user: give uids or gids", allow.port));
            }
        }
        Ok(())
    }

    /// All keys but those of ports, static addresses, mirrors and OpenFlow, such as `log.level`, in the order of
    /// declaration, with their values in TOML. A key without a value is left out.
    pub(crate) fn keys(&self) -> Vec<(String, String)> {
        let mut keys = Vec::new();
        for (section, value) in toml::Table::try_from(self).unwrap_or_default() {
            match value {
                _ if ["port", "address", "mirror", "openflow"].contains(&section.as_str()) => {}
                toml::Value::Table(values) => {
                    let of_section =
                        |(key, value): (_, toml::Value)| (format!("{section}.{key}"), value.to_string());
                    keys.extend(values.into_iter().map(of_section));
                }
                value => keys.push((section, value.to_string())),
            }
        }
        keys
    }

    /// Permission bits of the socket.
    ///
    /// # Errors
    /// A description if the text is not an octal mode.
    pub fn socket_mode(&self) -> Result<u32, String> {
        u32::from_str_radix(&self.socket.mode, 8).ok().filter(|mode| *mode <= 0o777).ok_or_else(|| {
            format!("socket.mode is {:?}; write octal permission bits such as \"0660\"", self.socket.mode)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_gives_the_defaults() {
        assert_eq!(Config::parse("", "x").unwrap(), Config::default());
    }

    #[test]
    fn the_installed_configuration_sets_nothing_and_its_examples_parse() {
        let installed = include_str!("../../../packaging/systemd/ringroadd.toml");
        assert_eq!(Config::parse(installed, "x").unwrap(), Config::default());
        // Commented examples are uncommented: a prose line has a space after the `#`.
        let examples = installed.lines().map(|line| match line.strip_prefix('#') {
            Some(prose) if prose.starts_with(' ') => "",
            Some(example) => example,
            None => line,
        });
        let examples = Config::parse(&examples.collect::<Vec<_>>().join("\n"), "x").unwrap();
        assert_eq!((examples.port.len(), examples.allow.len()), (3, 1));
    }

    #[test]
    fn a_port_is_a_table_with_its_sizes_beside_its_name() {
        let text = "[[port]]\nname = \"vale0:a@vlan=7\"\n\n[[port]]\nname = \"vale0:b\"\ndriver = \"tap:t0\"\n\
                    queues = 2\nslots = 512\nbuffer_bytes = 4096\nextra_buffers = 8\nhuge_pages = \"never\"\n";
        let properties = PortProperties {
            queues: Some(2),
            slots: Some(512),
            buffer_bytes: Some(4096),
            extra_buffers: 8,
            huge_pages: HugePages::Never,
            ..PortProperties::default()
        };
        let ports = vec![
            PortSpec::for_program("vale0:a@vlan=7"),
            PortSpec { properties, ..PortSpec::for_device("vale0:b", "tap:t0") },
        ];
        let config = Config::parse(text, "x").unwrap();
        assert_eq!(config.port, ports);
        let written = toml::to_string_pretty(&config).unwrap();
        assert!(written.contains(text), "{written}");
        assert_eq!(Config::parse(&written, "x").unwrap(), config);
        let sent = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<Config>(&sent).unwrap(), config);
    }

    #[test]
    fn the_time_for_a_check_grows_no_faster_than_the_configuration() {
        // If each entry were compared with each other, this would take longer than anybody waits.
        let entry = |at: u32| {
            let [_, a, b, c] = at.to_be_bytes();
            format!(
                "[[port]]\nname = \"vale0:p{at}\"\n[[mirror]]\nfrom = \"vale0:p{at}\"\nto = \"vale0:m\"\n\
                 [[address]]\nmac = \"02:00:00:{a:02x}:{b:02x}:{c:02x}\"\nport = \"vale0:p{at}\"\n"
            )
        };
        let text: String = (0..20_000).map(entry).collect();
        assert_eq!(Config::parse(&text, "x").unwrap().port.len(), 20_000);
        let error = Config::parse(&(text + &entry(7)), "x").unwrap_err();
        assert!(error.contains("[[port]] \"vale0:p7\" stands there twice"), "{error}");
    }

    #[test]
    fn bad_values_are_named_with_their_remedy() {
        for (text, part) in [
            ("colour = 3", "colour"),
            ("[workers]\ncount = 0", "1 to 16"),
            ("[workers]\nreal_time = 100", "0 to 99"),
            ("[workers]\nreal_time = 1\nbusy = true", "workers.cpus"),
            ("[socket]\nmode = \"rw\"", "octal"),
            ("[switch]\nmac_entries = 1000", "power of two"),
            ("[limits]\nshared_memory_mib = 9000000000000000000", "shared_memory_mib"),
            ("[limits]\nreserve_percent = 91", "from 0 to 90"),
            ("[[port]]\nname = \"x{1\"", "switch"),
            ("[[port]]\nname = \"vale0:a\"\n[[port]]\nname = \"vale0:a\"", "twice"),
            ("[[port]]\nname = \"vale0:a\"\ndriver = \"no such thing\"", "driver"),
            ("[[port]]\nname = \"vale0:a\"\n[[port]]\nname = \"vale0:a@vlan=10\"", "twice"),
            ("[[port]]\nname = \"vale0:a@vlan=4095\"", "1 to 4094"),
            ("[[port]]\nname = \"vale0:a\"\ncolour = 1", "colour"),
            ("[[port]]\nname = \"vale0:a\"\nnetns = 1", "netns"),
            ("[[port]]\nname = \"vale0:a\"\ntx = false", "tx"),
            ("[[port]]\nname = \"vale0:a\"\nslots = \"many\"", "3 | slots = \"many\""),
            ("[[port]]\ndriver = \"null:\"", "name"),
            ("[[port_policy]]\nport = \"vale0:*\"", "it sets nothing"),
            ("[[port_policy]]\nport = \"vale0:*\"\nvlan = 0", "1 to 4094"),
            ("[[port_policy]]\nport = \"vale0:*\"\ntrunk = \"10,4095\"", "4095"),
            ("[[port_policy]]\nport = \"vale0:*\"\nvlan = 1\ntrunk = \"10\"", "choose one"),
            ("[[port_policy]]\nport = \"vale0:*\"\nnative = 1", "give trunk"),
            ("[[port_policy]]\nport = \"vale0:*\"\nstorm = 0", "1 to 10000000"),
            ("[[port_policy]]\nport = \"vale[\"\nvlan = 1", "vale["),
            (
                "[[port_policy]]\nport = \"vale0:*\"\nvlan = 1\n[[port]]\nname = \"vale0:a@vlan=2\"",
                "vlan=1, not vlan=2",
            ),
            ("[switch]\nmac_entries = 8192\n[[port_policy]]\nport = \"*\"\nvlan = 1", "16384"),
            ("[[openflow]]\nswitch = \"vale0\"\n[[port]]\nname = \"vale0:a@isolated\"", "flow tables"),
            ("[[allow]]\nport = \"vale0:*\"", "no user"),
            ("[[allow]]\nport = \"vale[\"\nuids = [1]", "vale["),
        ] {
            let error = Config::parse(text, "test.toml").unwrap_err();
            assert!(error.contains(part) && error.contains("test.toml"), "{text:?} gave {error:?}");
        }
    }
}
