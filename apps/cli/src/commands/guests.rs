//! Shared code for guests of all kinds: ports with the lifetime of the guest, records for later commands, a process to
//! wait for.

pub(super) mod addresses;
pub(super) mod foreground;

use std::path::{Path, PathBuf};
use std::process::Command;

use ringroad_attachment::device_text::device_text;
use ringroad_attachment::veth_pair::remove_interface;
use ringroad_control::message::{AttachedPort, ErrorKind, PortSpec};
use ringroad_control::report::StartedBy;
use ringroad_control::socket_path::attached_ports_path;
use ringroad_control::{Connection, ControlError, Reply, Request};
use ringroad_guest::process::ProcessIdentity;
use ringroad_guest::record::{RegistryLock, check_name, check_socket_path};
use ringroad_guest::{GuestKind, GuestRecord, GuestRegistry};
use ringroad_netdev::Namespace;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::failure::Failure;
use crate::options::Global;
use crate::output::Output;
use crate::verb::request;

/// Parses the name of a guest.
pub(super) fn guest_name(text: &str) -> Result<String, String> {
    check_name(text).map(|()| text.to_owned()).map_err(|error| error.to_string())
}

/// A guest that starts or runs in the foreground. Dropping it removes its ports and other resources. If this process is
/// killed, the daemon removes the ports, and the interfaces behind them.
#[derive(Debug)]
pub(super) struct Guest {
    registry: GuestRegistry,
    name: String,
    record: GuestRecord,
    folder: PathBuf,
    daemon: Connection,
    handed_over: bool,
}

impl Guest {
    /// Reserves the name for a guest that ends with this process, after removing the remains of killed guests. Starts
    /// the daemon if none runs.
    pub(super) fn claim(
        global: &Global,
        output: &Output,
        name: &str,
        kind: GuestKind,
    ) -> Result<Self, Failure> {
        let registry = GuestRegistry::of_environment();
        let socket = global.socket_path();
        let daemon_socket = std::path::absolute(&socket).unwrap_or(socket);
        ringroad::ensure_daemon(&daemon_socket)?;
        let mut daemon = global.connect()?;
        let record = GuestRecord {
            kind,
            process: ProcessIdentity::own(),
            daemon_socket,
            daemon: identity(&daemon),
            ports: Vec::new(),
            namespace: None,
            interface: None,
            lent_interface: None,
            addresses: Vec::new(),
        };
        if daemon.status()?.started == StartedBy::OnDemand {
            replace_if_killed(record.daemon_socket.clone());
        }
        let lock = registry.lock()?;
        clean_stale(&registry, &lock, output);
        let folder = registry.claim(&lock, name, &record)?;
        Ok(Self { registry, name: name.to_owned(), record, folder, daemon, handed_over: false })
    }

    /// Returns the guest's folder, for sockets and other files.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn daemon(&mut self) -> &mut Connection {
        &mut self.daemon
    }

    pub(super) fn attach(&mut self, port: &str, driver: String) -> Result<AttachedPort, Failure> {
        let port = PortSpec::for_device(port, driver);
        let attached = attach(&mut self.daemon, port)?;
        self.note(|record| record.ports.push((attached.name.clone(), attached.number)))?;
        Ok(attached)
    }

    /// Attaches a port whose other end, the guest's, is at a socket. Returns the socket: the daemon listens there.
    pub(super) fn attach_socket(
        &mut self,
        port: &str,
        scheme: &str,
        queues: u16,
        options: &[(&str, &str)],
    ) -> Result<PathBuf, Failure> {
        let socket = self.folder.join(format!("port{}.sock", self.record.ports.len()));
        check_socket_path(&socket)?;
        let queues = (queues > 1).then(|| queues.to_string());
        let queues = queues.iter().map(|queues| ("queues", queues.as_str()));
        let options: Vec<_> = queues.chain(options.iter().copied()).collect();
        self.attach(port, device_text(scheme, &socket.to_string_lossy(), &options)?)?;
        Ok(socket)
    }

    /// Changes the guest's record: resources to remove with the guest, and facts for listings.
    pub(super) fn note(&mut self, change: impl FnOnce(&mut GuestRecord)) -> Result<(), Failure> {
        change(&mut self.record);
        Ok(self.registry.write(&self.name, &self.record)?)
    }

    /// Removes the guest's ports and other resources.
    pub(super) fn end(mut self) -> Result<(), Failure> {
        self.handed_over = true;
        self.remove()
    }

    fn remove(&mut self) -> Result<(), Failure> {
        // The daemon removes ports and interfaces even if this process is killed meanwhile.
        self.settle(false)?;
        release(&self.registry, &self.name, &self.record)
    }

    /// Leaves all resources in place: the command that ends the guest removes them.
    pub(super) fn hand_over(mut self) -> Result<(), Failure> {
        self.settle(true)?;
        self.handed_over = true;
        Ok(())
    }

    /// Removes the record. The guest's resources remain for the user.
    pub(super) fn keep(mut self) -> Result<GuestRecord, Failure> {
        self.settle(true)?;
        self.handed_over = true;
        self.registry.remove(&self.name)?;
        Ok(self.record.clone())
    }

    /// Makes the ports outlive this process, or removes them.
    fn settle(&mut self, keep: bool) -> Result<(), Failure> {
        match self.daemon.request(&Request::Settle { keep }) {
            Ok((Reply::Done, _)) => Ok(()),
            // After a crash the next daemon has the ports as ordinary ones.
            Err(ControlError::DaemonGone { .. }) => Ok(()),
            Ok((reply, _)) => Err(Failure::reply(&reply)),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if !self.handed_over {
            // An error is ignored: another failure is already reported to the user, and the next guest removes the
            // remains.
            let _ = self.remove();
        }
    }
}

/// Removes the remains of killed guests.
pub(super) fn clean_stale(registry: &GuestRegistry, _lock: &RegistryLock, output: &Output) {
    for (name, record) in registry.guests() {
        if record.process.is_running() {
            continue;
        }
        match release(registry, &name, &record) {
            Ok(()) => {
                output.note(&format!("cleaned up after {name} ({}), which has ended", record.kind.name()))
            }
            Err(failure) => output.note(&format!("cleaning up after {name}: {failure}")),
        }
    }
}

/// Removes a guest's resources. A missing resource is not a failure.
pub(super) fn release(registry: &GuestRegistry, name: &str, record: &GuestRecord) -> Result<(), Failure> {
    // The interfaces of a killed guest went with its ports, unless the daemon was killed too. By now others may have
    // their names.
    let mut has_interfaces = record.process == ProcessIdentity::own();
    if !record.ports.is_empty() {
        match Connection::connect(&record.daemon_socket) {
            Ok(mut daemon) => {
                daemon.hello("ringroad")?;
                for (port, number) in &record.ports {
                    has_interfaces |= detach(&mut daemon, port, *number)?;
                }
            }
            Err(ControlError::DaemonNotRunning { .. }) => has_interfaces = true,
            Err(error) => return Err(error.into()),
        }
    }
    if has_interfaces {
        remove_interfaces(record)?;
    }
    if let Some(namespace) = &record.namespace
        && Namespace::Named(namespace.clone()).open().is_ok()
    {
        ip(&["netns", "delete", namespace])?;
    }
    Ok(registry.remove(name)?)
}

fn remove_interfaces(record: &GuestRecord) -> Result<(), Failure> {
    if let Some((namespace, interface)) = &record.lent_interface
        && let Ok(namespace) = namespace.parse::<Namespace>()
        && namespace.open().is_ok()
    {
        remove_interface(&namespace, interface)?;
    }
    if let Some(interface) = &record.interface {
        let daemon = record.daemon.filter(|daemon| daemon.is_running());
        let outside = daemon.map_or(Namespace::Current, |daemon| Namespace::OfProcess(daemon.pid));
        remove_interface(&outside, interface)?;
    }
    Ok(())
}

/// Makes a port that is a device. The port ends with the connection unless it is kept.
pub(super) fn attach(daemon: &mut Connection, port: PortSpec) -> Result<AttachedPort, Failure> {
    let request = Request::Attach { port, for_program: false, host: false, take: false, provisional: true };
    let ports = request!(daemon, &request, Reply::Attached(ports) => ports)?;
    ports.into_iter().next().ok_or_else(|| Failure::new("the daemon attached no port", ""))
}

/// Removes the port that was attached under this number. Returns whether it still existed. The number matters since a
/// later daemon may have attached the name again.
fn detach(daemon: &mut Connection, port: &str, number: u64) -> Result<bool, Failure> {
    let request = Request::Detach { name: port.to_owned(), take: false, number: Some(number) };
    match daemon.request(&request) {
        Ok((Reply::Done, _)) => Ok(true),
        Err(ControlError::Refused(error)) if error.kind == ErrorKind::NoSuchPort => Ok(false),
        Ok((reply, _)) => Err(Failure::reply(&reply)),
        Err(error) => Err(error.into()),
    }
}

/// Starts the daemon again if it is killed while this process runs. The new daemon attaches the guest's ports again. No
/// other process may notice the end of a daemon that was started on demand.
fn replace_if_killed(socket: PathBuf) {
    let watch = move || {
        while let Ok(mut daemon) = Connection::connect(&socket) {
            if daemon.hello("ringroad").is_err() {
                return;
            }
            let mut ended = [PollFd::new(&daemon, PollFlags::RDHUP)];
            while poll(&mut ended, None) == Err(Errno::INTR) {}
            // A list of ports remains only after a daemon that was killed.
            if !attached_ports_path(&socket).exists() || ringroad::ensure_daemon(&socket).is_err() {
                return;
            }
        }
    };
    // A failure is ignored: the guest runs without the thread too.
    let _ = std::thread::Builder::new().name("daemon".to_owned()).spawn(watch);
}

fn identity(daemon: &Connection) -> Option<ProcessIdentity> {
    daemon.daemon().pid.and_then(ProcessIdentity::of)
}

/// Runs ip(8).
pub(super) fn ip(arguments: &[&str]) -> Result<(), Failure> {
    let words = arguments.join(" ");
    let output = Command::new("ip").args(arguments).output().map_err(|error| {
        Failure::new(format!("running ip {words}: {error}"), "on Debian: apt-get install iproute2")
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!("ip {words}: {}", said.trim()), "it needs root"))
}
