//! `ringroadd`, the daemon.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use clap::Parser;
use ringroad_control::listening_socket::ListeningSocketError::Taken;
use ringroad_control::report::StartedBy;
use ringroad_control::socket_path::{beside, default_socket_path};
use ringroad_daemon::claims::name_daemon;
use ringroad_daemon::config::Config;
use ringroad_daemon::listen::{ListenError, StartFiles, listen, take_over_lock};
use ringroad_daemon::logging::LogFiles;
use ringroad_daemon::openflow::FlowSwitches;
use ringroad_daemon::ports::Ports;
use ringroad_daemon::quotas::Quotas;
use ringroad_daemon::restore::{self, RestoreFile};
use ringroad_daemon::server::{AGEING_TICKS, NewProcess, Server, ServerParts, Signals};
use ringroad_daemon::service_manager::ServiceManager;
use ringroad_daemon::{logging, reload};
use ringroad_datapath::fabric::Fabric;
use ringroad_datapath::worker::WorkerConfig;
use ringroad_ring::eventfd;
use ringroad_switch::MacTableConfig;
use signal_hook::iterator::exfiltrator::SignalOnly;

/// Ringroad's daemon: owns switches and devices, and hands rings to programs.
///
/// `ringroad up` starts it, and so does any program that opens a port while none runs.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Control socket [default: $RINGROAD_SOCKET, else the user's usual path]
    #[arg(long)]
    socket: Option<PathBuf>,
    /// Configuration (TOML); read again on SIGHUP
    #[arg(long)]
    config: Option<PathBuf>,
    /// Check the configuration and do nothing else
    #[arg(long, requires = "config")]
    check: bool,
    /// Append log lines to this file instead of standard error
    #[arg(long)]
    log_file: Option<PathBuf>,
    /// Run in the background: return when the socket is ready
    #[arg(long)]
    background: bool,
    /// End when there have been no ports and no connections for a while
    #[arg(long)]
    on_demand: bool,
    /// Marks the process in the background
    #[arg(long, hide = true)]
    detached: bool,
    /// Take over from the parent process, which is connected to standard input
    #[arg(long, hide = true)]
    take_over: bool,
}

impl Arguments {
    /// Arguments of a process that will replace this one, with `socket` and `config` as found.
    fn for_successor(&self, socket: &Path, config: Option<&Path>) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["--socket".into(), socket.into()];
        for (option, value) in [("--config", config), ("--log-file", self.log_file.as_deref())] {
            if let Some(value) = value {
                arguments.extend([option.into(), value.into()]);
            }
        }
        if self.detached {
            arguments.push("--detached".into());
        }
        arguments
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // A process that takes over has no inherited descriptors.
    if arguments.detached && !arguments.take_over {
        close_inherited();
    }
    if arguments.take_over {
        // The kernel named this process after the descriptor that it was started by. Programs like ps show the name.
        let _ = rustix::thread::set_name(c"ringroadd");
    }
    let result = if arguments.background { start_in_background(&arguments) } else { run(&arguments) };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            let _ = writeln!(std::io::stderr(), "ringroadd: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Closes descriptors that the starting program had open: its pipes and connections must not stay open until the daemon
/// ends.
fn close_inherited() {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers = open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for number in numbers.filter(|&number| number > 2).collect::<Vec<_>>() {
        // This program has opened none yet, and the listing's own descriptor is closed already.
        let _ = nix::unistd::close(number);
    }
}

/// Starts this program once more in a session of its own. It writes "ready" to the inherited standard output and then
/// closes all inherited descriptors, so their readers see the end.
fn start_in_background(arguments: &Arguments) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| format!("finding this program: {error}"))?;
    let mut command = Command::new(program);
    command.arg("--detached").stdin(Stdio::null());
    for (option, value) in [
        ("--socket", &arguments.socket),
        ("--config", &arguments.config),
        ("--log-file", &arguments.log_file),
    ] {
        if let Some(value) = value {
            command.arg(option).arg(absolute(value));
        }
    }
    if arguments.on_demand {
        command.arg("--on-demand");
    }
    command.spawn().map_err(|error| format!("starting in the background: {error}"))?;
    Ok(())
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let successor = arguments.take_over.then(NewProcess::of_standard_input).transpose();
    let successor = successor.map_err(|error| format!("the socket of the process before: {error}"))?;
    let started = match start(arguments, successor.as_ref()) {
        Err(reason) if let Some(successor) = &successor => {
            successor.report_failure(&reason);
            // Destructors must not run: they would undo resources that belong to the other process.
            std::process::exit(1);
        }
        started => started?,
    };
    let Some(Started { mut server, socket, service_manager, status }) = started else { return Ok(()) };
    say_ready(arguments.detached)?;
    if let Some(manager) = &service_manager {
        manager.ready(&status).map_err(|error| told_manager(&error))?;
    }
    let result = server.run();
    if let Some(Err(error)) = service_manager.as_ref().map(ServiceManager::stopping) {
        tracing::warn!(%error, "notifying the service manager of the end");
    }
    server.shut_down();
    if result.is_ok() {
        restore::forget(&socket);
    }
    result.map_err(|error| error.to_string())
}

/// A server that is ready to run.
struct Started {
    server: Server,
    socket: PathBuf,
    service_manager: Option<ServiceManager>,
    /// State of the daemon, in a line.
    status: String,
}

fn told_manager(error: &std::io::Error) -> String {
    format!("talking to the service manager: {error}")
}

/// Starts the server, or takes over from the previous process. `None` means that there is nothing to serve.
fn start(arguments: &Arguments, successor: Option<&NewProcess>) -> Result<Option<Started>, String> {
    if arguments.detached && successor.is_none() {
        // The daemon gets a session of its own, since signals of the starting user's terminal are not for the daemon.
        let _ = rustix::process::setsid();
        std::env::set_current_dir("/").map_err(|error| format!("changing to /: {error}"))?;
    }
    let config = match &arguments.config {
        Some(path) => Config::read(path)?,
        None => Config::default(),
    };
    if arguments.check {
        return Ok(None);
    }
    let socket = arguments.socket.clone().unwrap_or_else(default_socket_path);
    let socket = std::path::absolute(&socket).map_err(|error| format!("{}: {error}", socket.display()))?;
    name_daemon(&socket);
    raise_descriptor_limit();
    eventfd::prepare().map_err(|errno| {
        format!("the kernel refuses asynchronous I/O, which wakes programs: {errno}; raise the sysctl fs.aio-max-nr")
    })?;
    let service_manager = ServiceManager::of_environment().map_err(|error| told_manager(&error))?;
    let is_managed = service_manager.is_some();
    // Declared before the socket, so that it is dropped after the socket.
    let mut start_files = StartFiles::default();
    let listener = match successor {
        Some(_) => None,
        None => {
            match listen(&socket, config.socket_mode()?, config.socket.gid, is_managed, &mut start_files) {
                // Another daemon was quicker, and serves the caller.
                Err(ListenError::Socket(Taken { .. })) if arguments.on_demand => {
                    say_ready(arguments.detached)?;
                    return Ok(None);
                }
                other => Some(other.map_err(|error| error.to_string())?),
            }
        }
    };
    let files = LogFiles {
        given: arguments.log_file.clone(),
        otherwise: arguments.detached.then(|| beside(&socket, ".log")),
    };
    let log = logging::start(&config.log, files)?;
    let signals = watch_signals().map_err(|error| format!("watching signals: {error}"))?;
    let quotas = Quotas::new(&config.limits, rustix::process::geteuid().as_raw());
    let mut ports = Ports::new(make_fabric(&config)?, quotas).map_err(|error| error.to_string())?;
    ports.openflow = FlowSwitches::beside(&socket, &config.limits);
    let config_path = arguments.config.as_deref().map(absolute);
    let for_successor = arguments.for_successor(&socket, config_path.as_deref());
    let mut parts = ServerParts {
        socket: socket.clone(),
        config,
        config_path,
        ports,
        signals,
        log,
        arguments: for_successor,
    };
    let Some(listener) = listener else {
        let Some(successor) = successor else { return Ok(None) };
        let server = Server::take_over(successor, parts)?;
        if let Err(error) = take_over_lock(&socket, is_managed) {
            tracing::warn!(%error, "programs may start a daemon when this one dies");
        }
        let status = "serving, after an upgrade".to_owned();
        return Ok(Some(Started { server, socket, service_manager, status }));
    };
    let ServerParts { ports, config, .. } = &mut parts;
    reload::apply_policies(ports, &config.port_policy);
    let retried = reload::apply_settings(ports, &Config::default(), config);
    for problem in retried.map_err(|error| error.to_string())? {
        tracing::warn!("{problem}; it is tried again every second");
    }
    let applied = reload::apply_ports(ports, &config.port);
    if !applied.problems.is_empty() {
        return Err(applied.problems.join("; "));
    }
    let (restore, problem) = RestoreFile::beside(&socket);
    ports.restore = restore;
    if let Some(error) = problem {
        tracing::warn!(%error, "ports of a daemon before this one do not come back");
    }
    for problem in ports.restore(config).map_err(|error| error.to_string())? {
        tracing::warn!("{problem}; it is tried again every second");
    }
    let started = match &service_manager {
        Some(_) => StartedBy::ServiceManager,
        None if arguments.on_demand => StartedBy::OnDemand,
        None => StartedBy::Command,
    };
    let server = Server::new(listener, started, parts).map_err(|error| error.to_string())?;
    start_files.keep();
    let status = match applied.waiting.as_slice() {
        [] => "serving".to_owned(),
        waiting => format!("serving; waiting for: {}", waiting.join("; ")),
    };
    Ok(Some(Started { server, socket, service_manager, status }))
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Reports to the waiting process, and closes inherited descriptors if the process is in the background.
fn say_ready(detached: bool) -> Result<(), String> {
    if !detached {
        return Ok(());
    }
    let failed = |error: std::io::Error| format!("reporting that the daemon is ready: {error}");
    writeln!(std::io::stdout(), "ready").map_err(failed)?;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null").map_err(failed)?;
    rustix::stdio::dup2_stdin(&null).map_err(|errno| failed(errno.into()))?;
    rustix::stdio::dup2_stdout(&null).map_err(|errno| failed(errno.into()))?;
    rustix::stdio::dup2_stderr(&null).map_err(|errno| failed(errno.into()))
}

fn make_fabric(config: &Config) -> Result<Fabric, String> {
    let workers = (0..config.workers.count)
        .map(|index| WorkerConfig {
            index,
            cpu: config.workers.cpus.get(usize::from(index)).copied(),
            spin: Duration::from_micros(config.workers.spin_us),
            busy: config.workers.busy,
        })
        .collect();
    let table = MacTableConfig {
        entries: config.switch.mac_entries,
        ageing_ticks: AGEING_TICKS,
        ..MacTableConfig::new(0)
    };
    Fabric::threaded(workers, table).map_err(|error| error.to_string())
}

/// Raises the limit of open descriptors: each port takes five, and the usual soft limit of 1024 is for programs that
/// use select.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Watches the signals that request a reload or the end.
fn watch_signals() -> std::io::Result<Signals> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let (reader, writer) = UnixStream::pair()?;
    Signals::with_pipe(reader, writer, SignalOnly, [SIGHUP, SIGINT, SIGTERM])
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_manual_page_has_every_option() {
        let page = include_str!("../../../packaging/man/ringroadd.8");
        for option in Arguments::command().get_arguments().filter(|option| !option.is_hide_set()) {
            let name = option.get_long().unwrap();
            assert!(page.contains(&format!(".It Fl -{name}")), "--{name}");
        }
    }
}
