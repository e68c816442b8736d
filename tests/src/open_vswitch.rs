//! Open vSwitch as the reference: a private ovs-vswitchd with a dummy datapath, which needs no interface and no
//! namespace. It predicts what happens to frames, or forwards them.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::command::{run, stderr};
use crate::daemon::PATIENCE;
use crate::network::patience_s;
use crate::service::Service;

/// Time limit of Open vSwitch's tools, as their option.
#[must_use]
pub fn timeout() -> String {
    format!("--timeout={}", patience_s())
}

/// A bridge `br0` with the ports `p1`, `p2` and so on, which have these numbers.
#[derive(Debug)]
pub struct OpenVSwitch {
    folder: TempDir,
    _switch: Service,
    _database: Service,
}

impl OpenVSwitch {
    /// Starts Open vSwitch with `ports` ports.
    ///
    /// # Panics
    /// If Open vSwitch does not start.
    #[must_use]
    pub fn start(ports: u32) -> Self {
        let folder = tempfile::Builder::new().prefix("ringroad-ovs-").tempdir().unwrap();
        let database = folder.path().join("conf.db");
        let mut create = Command::new("ovsdb-tool");
        create.arg("create").arg(&database).arg("/usr/share/openvswitch/vswitch.ovsschema");
        expect(create);
        let socket = |name: &str| format!("unix:{}", folder.path().join(name).display());
        let control = |name: &str| format!("--unixctl={}", folder.path().join(name).display());
        let mut server = program(folder.path(), "ovsdb-server");
        server.arg(&database).arg(format!("--remote=p{}", socket("db.sock"))).arg(control("db.ctl"));
        let server = Service::start(server);
        let vsctl = |words: &[&str]| {
            let mut command = program(folder.path(), "ovs-vsctl");
            command.arg(format!("--db={}", socket("db.sock"))).args(["--retry", &timeout()]).args(words);
            expect(command)
        };
        vsctl(&["--no-wait", "init"]);
        let mut switch = program(folder.path(), "ovs-vswitchd");
        switch.arg(socket("db.sock")).arg(control("switch.ctl")).args(["--enable-dummy", "--disable-system"]);
        let switch = Service::start(switch);
        // Two VLAN tags are Open vSwitch's maximum. Each ovs-vsctl command waits until the switch has applied it.
        vsctl(&["set", "Open_vSwitch", ".", "other_config:vlan-limit=2"]);
        vsctl(&[
            "add-br",
            "br0",
            "--",
            "set",
            "bridge",
            "br0",
            "datapath_type=dummy",
            "protocols=OpenFlow13",
            "fail_mode=secure",
        ]);
        for port in 1..=ports {
            let name = format!("p{port}");
            let request = format!("ofport_request={port}");
            let frames = format!("options:pstream=p{}", socket(&name));
            vsctl(&[
                "add-port",
                "br0",
                &name,
                "--",
                "set",
                "interface",
                &name,
                "type=dummy",
                &request,
                &frames,
            ]);
        }
        Self { folder, _switch: switch, _database: server }
    }

    /// Runs `ovs-ofctl` with a verb, the bridge, and the arguments `rest`.
    ///
    /// # Panics
    /// If `ovs-ofctl` fails.
    pub fn ofctl(&self, verb: &str, rest: &[&str]) -> String {
        let mut command = program(self.folder.path(), "ovs-ofctl");
        let bridge = format!("unix:{}", self.folder.path().join("br0.mgmt").display());
        command.args(["-O", "OpenFlow13", &timeout(), verb, &bridge]).args(rest);
        expect(command)
    }

    /// Connects to a port, as a cable does.
    ///
    /// # Panics
    /// If Open vSwitch does not listen.
    #[must_use]
    pub fn plug(&self, port: u32) -> Plug {
        let stream = UnixStream::connect(self.folder.path().join(format!("p{port}"))).unwrap();
        stream.set_read_timeout(PATIENCE).unwrap();
        stream.set_write_timeout(PATIENCE).unwrap();
        Plug(stream)
    }

    /// Empties the datapath's cache of decisions, so that the next frames meet the flows. A wait for the cache's own
    /// check (`revalidator/wait`) can end with a check that began before the flows changed.
    ///
    /// # Panics
    /// If Open vSwitch does not answer.
    pub fn settle(&self) {
        self.appctl(&["dpctl/del-flows"]);
    }

    fn appctl(&self, arguments: &[&str]) -> String {
        let mut command = program(self.folder.path(), "ovs-appctl");
        command.arg("-t").arg(self.folder.path().join("switch.ctl")).arg(timeout()).args(arguments);
        expect(command)
    }

    /// Predicts what would happen to a packet. The packet is given by its headers, or by some of them and its bytes in
    /// hexadecimal digits.
    ///
    /// # Panics
    /// If Open vSwitch refuses.
    #[must_use]
    pub fn trace(&self, headers: &str, packet: Option<&str>) -> Trace {
        let mut arguments = vec!["ofproto/trace", "--names", "br0", headers];
        arguments.extend(packet);
        let text = self.appctl(&arguments);
        let line = |label: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(label));
            line.unwrap_or_else(|| panic!("no {label:?} in {text}")).trim().to_owned()
        };
        Trace { headers: line("Flow:"), actions: line("Datapath actions:"), text }
    }
}

/// The far end of a cable to a port. Each frame on it follows its length, two bytes.
#[derive(Debug)]
pub struct Plug(UnixStream);

impl Plug {
    /// Sends a frame to the port.
    ///
    /// # Panics
    /// If Open vSwitch does not take it.
    pub fn send(&mut self, frame: &[u8]) {
        let length = u16::try_from(frame.len()).unwrap().to_be_bytes();
        self.0.write_all(&[&length, frame].concat()).unwrap();
    }

    /// Waits for the next frame from the port.
    ///
    /// # Panics
    /// If none comes within the time limit.
    #[must_use]
    pub fn receive(&mut self) -> Vec<u8> {
        let mut length = [0; 2];
        self.0.read_exact(&mut length).unwrap();
        let mut frame = vec![0; usize::from(u16::from_be_bytes(length))];
        self.0.read_exact(&mut frame).unwrap();
        frame
    }
}

/// Open vSwitch's prediction for a packet.
#[derive(Debug)]
pub struct Trace {
    /// Headers of the packet at its arrival.
    pub headers: String,
    /// Actions that the datapath would take.
    pub actions: String,
    /// Full output of the prediction.
    pub text: String,
}

fn program(folder: &Path, name: &str) -> Command {
    let mut command = Command::new(name);
    for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
        command.env(variable, folder);
    }
    command
}

fn expect(command: Command) -> String {
    let what = format!("{command:?}");
    let printed = run(command);
    assert!(printed.status.success(), "{what}: {}", stderr(&printed));
    String::from_utf8(printed.stdout).unwrap()
}
