//! Checks of Ringroad's own parts: the daemon, its socket, sealed memory, peers of the benchmark.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use ringroad_control::{Connection, ControlError};
use rustix::fs::{Access, MemfdFlags, SealFlags, access, fcntl_add_seals, ftruncate, memfd_create};

use super::{Outcome, fail, ok, warn};

/// Runs the checks of this module.
pub(super) fn checks(socket: &Path) -> Vec<(&'static str, Outcome)> {
    let own = [
        ("daemon program", daemon_program()),
        ("socket folder", socket_folder(socket)),
        ("daemon", daemon(socket)),
        ("sealed memory", sealed_memory()),
    ];
    let tools = [
        (
            "tcpdump",
            "to read captures and follow `ringroad capture PORT -w -`",
            "install the package tcpdump",
        ),
        ("dpdk-testpmd", "the peer that `ringroad bench` compares with", "install the package dpdk"),
    ];
    let tools = tools.map(|(name, purpose, advice)| (name, tool(name, purpose, advice)));
    own.into_iter().chain(tools).collect()
}

fn daemon_program() -> Outcome {
    match ringroad::daemon_program() {
        Some(program) if program.is_file() => ok(program.display().to_string()),
        Some(program) => fail(
            format!("$RINGROAD_DAEMON names {}, which is not a file", program.display()),
            "correct or unset RINGROAD_DAEMON",
        ),
        None => fail(
            "ringroadd is neither beside this program nor in PATH",
            "install ringroadd beside ringroad, or name it in $RINGROAD_DAEMON",
        ),
    }
}

fn socket_folder(socket: &Path) -> Outcome {
    let folder = match socket.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // The daemon makes a missing folder, so the nearest existing folder is checked.
    let nearest = folder.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("/"));
    match access(nearest, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) if nearest == folder => ok(format!("{} is writable", folder.display())),
        Ok(()) => ok(format!("{} will be made by the daemon", folder.display())),
        Err(error) => fail(
            format!("{} cannot be written: {error}", nearest.display()),
            "choose another socket with --socket or $RINGROAD_SOCKET, or let the administrator start the daemon",
        ),
    }
}

fn daemon(socket: &Path) -> Outcome {
    let own = env!("CARGO_PKG_VERSION");
    let greeted = Connection::connect(socket).and_then(|mut connection| {
        Ok((connection.hello("ringroad doctor")?.version, connection.daemon().pid))
    });
    match greeted {
        Ok((version, pid)) if version == own => {
            let process = pid.map(|pid| format!(", process {pid}")).unwrap_or_default();
            ok(format!("{version} listens on {}{process}", socket.display()))
        }
        Ok((version, _)) => warn(
            format!("it is version {version}, and this program {own}"),
            "restart it when its ports can be spared: ringroad down, then ringroad up",
        ),
        Err(ControlError::DaemonNotRunning { .. }) => {
            ok(format!("none runs on {}; it is started when needed", socket.display()))
        }
        Err(error) => fail(error.to_string(), "see its log; restart it: ringroad down, then ringroad up"),
    }
}

fn sealed_memory() -> Outcome {
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let sealed = memfd_create("ringroad-doctor", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .and_then(|memory| ftruncate(&memory, 4096).and_then(|()| fcntl_add_seals(memory.as_fd(), seals)));
    match sealed {
        Ok(()) => ok("memfd and seals work; /dev/shm is not needed"),
        Err(error) => fail(
            format!("memfd with seals: {error}"),
            "use Linux 3.17 or newer, and allow memfd_create in the container's system call filter",
        ),
    }
}

fn tool(name: &'static str, purpose: &str, advice: &str) -> Outcome {
    match in_path(name) {
        Some(path) => ok(path.display().to_string()),
        None => warn(format!("not found; it serves {purpose}"), advice),
    }
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian's folders for administrators' programs are added, since a user's PATH omits them.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(name)).find(|program| program.is_file())
}
