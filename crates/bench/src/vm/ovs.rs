//! Open vSwitch with DPDK: a bridge of `dpdkvhostuserclient` ports for each pair of ports, a database and a daemon of its own in the turn's folder and network namespace, so that nothing
//! of it stays, not even its internal interfaces.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringroad_netdev::Namespace;

use super::contestant::{Ground, GuestSwitch, RunningSwitch};
use super::plan::SwitchPort;
use crate::error::BenchError;
use crate::hugepages::{PAGE_BYTES, PeerMemory};
use crate::process::{BenchProcess, EndsBy, command_line, run_to_end};
use crate::veth::lab::Lab;

/// The build with DPDK, and the Debian package that has it. The one in PATH may be without.
const DAEMON: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const PACKAGE: &str = "openvswitch-switch-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// Its packet memory.
const MEBIBYTES: u64 = 512;
/// Time a command may take, or a socket to appear.
const LIMIT: Duration = Duration::from_secs(15);
/// Between looks at what announces nothing.
const CHECK: Duration = Duration::from_millis(10);

/// Open vSwitch as a switch.
#[derive(Debug)]
pub(super) struct OvsSwitch {
    memory: PeerMemory,
    /// Whether it learns addresses (action NORMAL) rather than pass frames from port to port.
    learns: bool,
}

/// The turn's own files, processes and namespace.
struct Instance<'a> {
    folder: PathBuf,
    namespace: Namespace,
    ground: &'a Ground<'a>,
    commands: Vec<String>,
}

impl OvsSwitch {
    /// # Errors
    /// [`BenchError::PeerAbsent`] if it is not installed.
    pub(super) fn find(learns: bool) -> Result<Self, BenchError> {
        if !Path::new(DAEMON).is_file() || !Path::new(SCHEMA).is_file() {
            return Err(BenchError::PeerAbsent { program: "ovs-vswitchd-dpdk", package: PACKAGE });
        }
        Ok(Self { memory: PeerMemory::arrange(MEBIBYTES * (1 << 20) / PAGE_BYTES), learns })
    }
}

impl Instance<'_> {
    fn environment(&self) -> [(&'static str, &std::ffi::OsStr); 4] {
        ["OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR"]
            .map(|name| (name, self.folder.as_os_str()))
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Runs a command to its end.
    fn run(&mut self, program: &str, arguments: &[&str]) -> Result<(), BenchError> {
        let line = run_to_end(&self.namespace, program, arguments, &self.environment())?;
        self.commands.push(line);
        Ok(())
    }

    /// Starts a daemon in the foreground.
    fn start(&mut self, name: &str, program: &str, arguments: &[String]) -> Result<BenchProcess, BenchError> {
        let words: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        self.commands.push(command_line(program.as_ref(), &words));
        let environment = self.environment();
        BenchProcess::start(&self.namespace, name, program.as_ref(), &words, &environment, EndsBy::Signal)
    }

    /// Waits for a file that a daemon makes.
    fn await_file(&self, process: &mut BenchProcess, name: &str) -> Result<(), BenchError> {
        let began = std::time::Instant::now();
        while !self.folder.join(name).exists() {
            if process.has_ended() {
                return Err(process.exited());
            }
            if began.elapsed() > LIMIT {
                return Err(process.not_ready("make its control socket", LIMIT));
            }
            self.ground.stop.pass(CHECK)?;
        }
        Ok(())
    }

    fn configure(&mut self, arguments: &[&str]) -> Result<(), BenchError> {
        let database = format!("--db=unix:{}", self.file("db.sock"));
        let arguments: Vec<&str> =
            [database.as_str(), "--timeout=15"].into_iter().chain(arguments.iter().copied()).collect();
        self.run("ovs-vsctl", &arguments)
    }

    /// Makes a bridge between two ports, which learns or passes what comes at one to the other.
    fn bridge(&mut self, name: &str, pair: &[SwitchPort; 2], learns: bool) -> Result<(), BenchError> {
        self.configure(&["add-br", name, "--", "set", "bridge", name, "datapath_type=netdev"])?;
        for (number, port) in (1..).zip(pair) {
            let socket = self.ground.socket(*port);
            let (port, request) = (port.to_string(), format!("ofport_request={number}"));
            let path = format!("options:vhost-server-path={}", socket.display());
            let add = ["add-port", name, &port, "--", "set", "interface", &port];
            self.configure(&[&add[..], &["type=dpdkvhostuserclient", &path, &request]].concat())?;
        }
        if !learns {
            let bridge = format!("unix:{}", self.file(&format!("{name}.mgmt")));
            self.run("ovs-ofctl", &["del-flows", &bridge])?;
            for flow in ["in_port=1,actions=output:2", "in_port=2,actions=output:1"] {
                self.run("ovs-ofctl", &["add-flow", &bridge, flow])?;
            }
        }
        Ok(())
    }
}

impl GuestSwitch for OvsSwitch {
    fn name(&self) -> &'static str {
        if self.learns { "OVS-DPDK NORMAL" } else { "OVS-DPDK" }
    }

    fn about(&self) -> &'static str {
        if self.learns {
            "Open vSwitch's user-space datapath between dpdkvhostuserclient ports, action NORMAL (it learns); polls always"
        } else {
            "Open vSwitch's user-space datapath between dpdkvhostuserclient ports, a flow from each port of a pair to the other; polls always"
        }
    }

    fn start(&self, ground: &Ground<'_>) -> Result<RunningSwitch, BenchError> {
        let pages = self.memory.lend()?;
        let lab = Lab::create(&[])?;
        let folder = ground.folder.join("ovs");
        std::fs::create_dir(&folder).map_err(BenchError::TemporaryDirectory)?;
        let mut instance = Instance { folder, namespace: lab.namespace(), ground, commands: Vec::new() };
        let (database, socket) = (instance.file("conf.db"), instance.file("db.sock"));
        instance.run("ovsdb-tool", &["create", &database, SCHEMA])?;
        let mut server = instance.start(
            "ovsdb-server",
            "ovsdb-server",
            &[database, format!("--remote=punix:{socket}"), format!("--unixctl={}", instance.file("db.ctl"))],
        )?;
        instance.await_file(&mut server, "db.sock")?;
        instance.configure(&["--no-wait", "init"])?;
        let memory = match self.memory {
            PeerMemory::Hugepages { .. } => "--in-memory --single-file-segments".to_owned(),
            PeerMemory::OrdinaryPages { .. } => format!("--no-huge -m {MEBIBYTES}"),
        };
        let mut settings = vec![
            "other_config:dpdk-init=true".to_owned(),
            format!("other_config:dpdk-extra=--no-pci --file-prefix=rr{}ovs {memory}", std::process::id()),
            format!("other_config:dpdk-lcore-mask={:#x}", 1u64 << ground.cores.generator),
            format!("other_config:pmd-cpu-mask={:#x}", 1u64 << ground.cores.switch),
        ];
        if matches!(self.memory, PeerMemory::Hugepages { .. }) {
            settings.push(format!("other_config:dpdk-socket-mem={MEBIBYTES}"));
        }
        let mut set = vec!["--no-wait", "set", "Open_vSwitch", "."];
        // A value with spaces or equal signs in it is quoted for ovs-vsctl.
        let quoted: Vec<String> = settings
            .iter()
            .map(|setting| match setting.split_once('=') {
                Some((key, value)) => format!("{key}=\"{value}\""),
                None => setting.clone(),
            })
            .collect();
        set.extend(quoted.iter().map(String::as_str));
        instance.configure(&set)?;
        let mut daemon = instance.start(
            "ovs-vswitchd",
            DAEMON,
            &[format!("unix:{socket}"), format!("--unixctl={}", instance.file("v.ctl"))],
        )?;
        instance.await_file(&mut daemon, "v.ctl")?;
        for (number, pair) in ground.topology.port_pairs().iter().enumerate() {
            instance.bridge(&format!("br{number}"), pair, self.learns)?;
        }
        Ok(RunningSwitch {
            ports: ground.generator_ports("@role=server"),
            guest_devices: ground.guest_devices(",server=1"),
            namespace: Namespace::Current,
            process: Some(daemon),
            commands: instance.commands,
            _keep: vec![Box::new(server), Box::new(lab), Box::new(pages)],
        })
    }
}
