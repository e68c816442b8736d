//! A daemon for one test; it ends with the test even if the test fails.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ringroad::control::Connection;
use ringroad::control::message::{Reply, Request};
use ringroad::control::report::{PortReport, StatusReport};
use ringroad::{OpenOptions, Port};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, Signal};
use tempfile::TempDir;

use crate::command;
use crate::conservation::await_conserved;
use crate::network::{NetworkNamespace, finished};
use crate::service::Service;

/// Time limit of every wait. Only a failure waits this long, since every wait in the tests ends with an event. A busy
/// machine may be slow.
pub const PATIENCE: Option<Duration> = Some(Duration::from_secs(120));

/// Path of a binary under test. Its folder is `$RINGROAD_BIN_DIR`, or that of the test's own binary if the variable is
/// not set.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    let folder = match std::env::var_os("RINGROAD_BIN_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => {
            let own = std::env::current_exe().unwrap();
            own.ancestors().nth(2).unwrap().to_path_buf()
        }
    };
    let path = folder.join(name);
    assert!(path.is_file(), "{} is not built; run `make build`", path.display());
    path
}

/// A running daemon with its own socket.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    folder: TempDir,
    launcher: Vec<String>,
}

impl Daemon {
    /// Starts a daemon with the default configuration.
    #[must_use]
    pub fn start() -> Self {
        Self::with_config("")
    }

    /// Starts a daemon with a configuration.
    #[must_use]
    pub fn with_config(config: &str) -> Self {
        Self::launched_by(&[], config)
    }

    /// Starts a daemon in the network namespace of its interfaces.
    #[must_use]
    pub fn within(namespace: &NetworkNamespace) -> Self {
        Self::launched_by(&["ip", "netns", "exec", namespace.name()], "")
    }

    /// Starts a daemon through a command that executes it, such as `setpriv` with its options.
    #[must_use]
    pub fn launched_by(launcher: &[&str], config: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("ringroad-test-").tempdir().unwrap();
        std::fs::write(folder.path().join("config.toml"), config).unwrap();
        let launcher = launcher.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let child = spawn(&launcher, folder.path());
        let daemon = Self { child, folder, launcher };
        daemon.await_socket();
        daemon
    }

    /// Kills the daemon, and starts it again as a service manager would: with the same configuration, over the files
    /// that the killed daemon left.
    pub fn crash_and_restart(&mut self) {
        self.crash();
        self.restart();
    }

    /// Kills the daemon: the process that runs now, which after an upgrade is not the first one.
    ///
    /// # Panics
    /// If the process does not end.
    pub fn crash(&mut self) {
        let serving = rustix::process::Pid::from_raw(self.status().pid.cast_signed()).unwrap();
        if serving == self.pid() {
            self.child.kill().unwrap();
        } else {
            let process = rustix::process::pidfd_open(serving, PidfdFlags::empty()).unwrap();
            rustix::process::kill_process(serving, Signal::KILL).unwrap();
            let patience = Timespec::try_from(PATIENCE.unwrap()).unwrap();
            let ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&patience)).unwrap();
            assert_eq!(ended, 1, "the daemon does not end");
        }
        self.child.wait().unwrap();
    }

    /// Starts the daemon again after its end.
    pub fn restart(&mut self) {
        self.child = spawn(&self.launcher, self.folder.path());
        self.await_socket();
    }

    /// Waits until the socket accepts connections. The socket's file exists before the daemon listens, and listening
    /// makes no event.
    fn await_socket(&self) {
        let end = Instant::now() + PATIENCE.unwrap();
        // Before the daemon answers, its log and its ports may not be open yet.
        let answers =
            || Connection::connect(self.socket()).and_then(|mut connection| connection.hello("tests"));
        while answers().is_err() {
            assert!(Instant::now() < end, "the daemon did not come up: {}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Path of the control socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("r.sock")
    }

    /// Folder for the test's files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Gives other users access to the folder.
    pub fn open_folder(&self) {
        std::fs::set_permissions(self.folder(), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Copies a program into the folder, so that other users can run it.
    #[must_use]
    pub fn program_for_all(&self, program: &Path) -> PathBuf {
        self.open_folder();
        let copy = self.folder().join(program.file_name().unwrap());
        // Another process makes the copy. If this process wrote the file, a child of another test could inherit the
        // descriptor, and a file that is open for writing cannot be executed.
        finished(Command::new("install").arg("-m755").arg(program).arg(&copy));
        copy
    }

    /// Returns the daemon's log so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Process ID of the daemon.
    #[must_use]
    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Replaces the configuration file without notifying the daemon.
    pub fn write_config(&self, config: &str) {
        std::fs::write(self.folder.path().join("config.toml"), config).unwrap();
    }

    /// Sends a signal to the daemon.
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for the daemon's end. Returns whether it succeeded.
    ///
    /// # Panics
    /// If the daemon does not end.
    pub fn await_end(&mut self) -> bool {
        let status = command::end_within(&mut self.child, PATIENCE.unwrap());
        status.unwrap_or_else(|| panic!("the daemon does not end: {}", self.log())).success()
    }

    /// Options for opening ports of this daemon.
    #[must_use]
    pub fn options(&self) -> OpenOptions {
        OpenOptions { socket: Some(self.socket()), no_start: true, ..OpenOptions::default() }
    }

    /// Opens a port of this daemon.
    ///
    /// # Panics
    /// If the port cannot be opened.
    #[must_use]
    pub fn open(&self, name: &str) -> Port {
        Port::open_with(name, &self.options()).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Sends a request to the daemon.
    ///
    /// # Panics
    /// If the daemon refuses the request.
    #[must_use]
    pub fn ask(&self, request: &Request) -> Reply {
        let mut connection = Connection::connect(self.socket()).unwrap();
        connection.request(request).unwrap().0
    }

    /// Returns the daemon's status.
    #[must_use]
    pub fn status(&self) -> StatusReport {
        Connection::connect(self.socket()).unwrap().status().unwrap()
    }

    /// Polls the status until the condition holds: the daemon does not announce changes.
    ///
    /// # Panics
    /// If the time limit passes first.
    pub fn await_status(&self, what: &str, mut requested: impl FnMut(&StatusReport) -> bool) -> StatusReport {
        let end = Instant::now() + PATIENCE.unwrap();
        loop {
            let status = self.status();
            if requested(&status) {
                return status;
            }
            assert!(Instant::now() < end, "no {what}: {status:#?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until `count` tools are connected to the flow tables. Only one switch may have flow tables.
    ///
    /// # Panics
    /// If the time limit passes first.
    pub fn await_openflow_tools(&self, count: u64) {
        self.await_status("tools", |status| {
            let reports = status.switches.iter().filter_map(|switch| switch.openflow.as_ref());
            reports.map(|report| report.tools).sum::<u64>() == count
        });
    }

    /// Waits until the first worker sleeps, without a request to the daemon: that would wake the worker.
    ///
    /// # Panics
    /// If the time limit passes first.
    pub fn await_sleep(&self) {
        let tasks = PathBuf::from(format!("/proc/{}/task", self.pid().as_raw_nonzero()));
        let tasks = std::fs::read_dir(tasks).unwrap().map(|task| task.unwrap().path());
        let is_worker = |task: &PathBuf| std::fs::read_to_string(task.join("comm")).unwrap() == "worker-0\n";
        let worker = tasks.into_iter().find(is_worker).expect("a worker");
        let end = Instant::now() + PATIENCE.unwrap();
        // State `S` means that the thread sleeps (proc_pid_stat(5)).
        while !std::fs::read_to_string(worker.join("stat")).unwrap().contains(") S ") {
            assert!(Instant::now() < end, "the worker does not sleep");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Replaces the running daemon by a new one. Returns the report of the upgrade.
    ///
    /// # Panics
    /// If the upgrade fails, or if something differs afterwards.
    pub fn upgrade(&self) -> serde_json::Value {
        let upgraded = command::run(self.ringroad(&["--json", "upgrade"]));
        assert!(upgraded.status.success(), "{}", command::stderr(&upgraded));
        let report: serde_json::Value = serde_json::from_slice(&upgraded.stdout).unwrap();
        assert_eq!(report["problem"], "", "{report}");
        report
    }

    /// Sends frames from `vale0:a` to `vale0:b` without an end. The receiver's ring has room for all frames that are
    /// sent while the receiver gets no processor time for seconds.
    ///
    /// # Panics
    /// If the programs do not start.
    #[must_use]
    pub fn stream(&self) -> Stream<'_> {
        let receiver = command::start(self.ringroad(&["--json", "recv", "vale0:b@slots=4096"]));
        let sender = command::start(self.ringroad(&["--json", "gen", "vale0:a", "--rate", "2kpps"]));
        Stream { daemon: self, receiver, sender }
    }

    /// Returns the daemon's report of one port.
    #[must_use]
    pub fn port(&self, name: &str) -> Option<PortReport> {
        self.status().ports.into_iter().find(|port| port.name == name)
    }

    /// A command of the CLI for this daemon.
    #[must_use]
    pub fn ringroad(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary("ringroad"));
        command.arg("--socket").arg(self.socket()).args(arguments);
        command.env("RINGROAD_DAEMON", binary("ringroadd")).stdin(Stdio::null());
        command
    }

    /// A command of the CLI for this daemon, run in `namespace`: the CLI resolves names of interfaces there.
    #[must_use]
    pub fn ringroad_within(&self, namespace: &NetworkNamespace, arguments: &[&str]) -> Command {
        let command = self.ringroad(arguments);
        let mut within = Command::new("ip");
        within.args(["netns", "exec", namespace.name()]).arg(command.get_program()).args(command.get_args());
        within.env("RINGROAD_DAEMON", binary("ringroadd")).stdin(Stdio::null());
        within
    }
}

/// A sending and a receiving program.
#[derive(Debug)]
pub struct Stream<'daemon> {
    daemon: &'daemon Daemon,
    receiver: Service,
    sender: Service,
}

impl Stream<'_> {
    /// Waits until `frames` more frames are delivered.
    ///
    /// # Panics
    /// If the time limit passes first.
    pub fn await_frames(&self, frames: u64) {
        let before = self.delivered();
        self.daemon.await_status("frames of the stream", |_| self.delivered() >= before + frames);
    }

    fn delivered(&self) -> u64 {
        self.daemon.port("vale0:b").map_or(0, |port| port.counters.delivered_frames)
    }

    /// Ends both programs. Returns the numbers of sent and received frames.
    ///
    /// # Panics
    /// If one of the programs fails.
    #[must_use]
    pub fn end(mut self) -> (u64, u64) {
        self.sender.signal(Signal::INT);
        let sent = command::summary(&mut self.sender)["loads"][0]["sent"]["frames"].as_u64().unwrap();
        await_conserved(self.daemon);
        self.receiver.signal(Signal::INT);
        (sent, command::summary(&mut self.receiver)["frames"].as_u64().unwrap())
    }
}

/// Starts a daemon whose socket, configuration and log are in `folder`. The daemon appends to the log.
fn spawn(launcher: &[String], folder: &Path) -> Child {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(folder.join("log")).unwrap();
    let program = binary("ringroadd");
    let mut command = match launcher.split_first() {
        Some((launcher, arguments)) => {
            let mut command = Command::new(launcher);
            command.args(arguments).arg(program);
            command
        }
        None => Command::new(program),
    };
    let [socket, config] = ["r.sock", "config.toml"].map(|name| folder.join(name));
    command.arg("--socket").arg(socket).arg("--config").arg(config);
    command.stdin(Stdio::null()).stderr(log).spawn().unwrap()
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the daemon's log:\n{}", self.log());
            let status = Connection::connect(self.socket()).ok().and_then(|mut daemon| daemon.status().ok());
            for port in status.into_iter().flat_map(|status| status.ports) {
                let report = serde_json::to_string(&port.counters).unwrap_or_default();
                eprintln!("counters of {}: {report}", port.name);
            }
        }
        // After an upgrade the daemon is not a child of the test.
        let successor = match self.child.try_wait() {
            Ok(Some(_)) => {
                Connection::connect(self.socket()).ok().and_then(|mut daemon| daemon.status().ok())
            }
            _ => None,
        };
        if let Some(pid) =
            successor.and_then(|status| rustix::process::Pid::from_raw(status.pid.cast_signed()))
        {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
