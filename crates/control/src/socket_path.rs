//! Path of the daemon's socket, by one rule for daemon, library and CLI.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Environment variable that names the socket.
pub const SOCKET_VARIABLE: &str = "RINGROAD_SOCKET";
/// Name of the socket in its directory.
pub const SOCKET_FILE: &str = "ringroad.sock";

/// Content of the daemon's lock file if a service manager restarts the daemon when it dies.
pub const MANAGED: &str = "service\n";

/// Path of a file beside the socket: the socket's path with this ending.
#[must_use]
pub fn beside(socket: &Path, ending: &str) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// The file beside the socket that a daemon locks while it takes the socket. Other programs lock `FILE.lock` to write
/// FILE, such as `/etc/passwd.lock`, so the name has the daemon's own.
#[must_use]
pub fn lock_path(socket: &Path) -> PathBuf {
    beside(socket, ".ringroadd.lock")
}

/// Path of the socket for a process with this environment and effective user. This is the first of these paths:
///
/// 1. `ringroad_socket` (`$RINGROAD_SOCKET`), without checks;
/// 2. for root, `/run/ringroad/ringroad.sock`;
/// 3. under `xdg_runtime_dir` (`$XDG_RUNTIME_DIR`; a relative one is ignored, as the XDG Base Directory Specification
///    0.8 demands), `ringroad/ringroad.sock`;
/// 4. [`fallback_socket_path`].
///
/// An empty variable counts as not set.
#[must_use]
pub fn socket_path(ringroad_socket: Option<&OsStr>, xdg_runtime_dir: Option<&OsStr>, uid: u32) -> PathBuf {
    if let Some(path) = ringroad_socket.filter(|path| !path.is_empty()) {
        return PathBuf::from(path);
    }
    if uid == 0 {
        return Path::new("/run/ringroad").join(SOCKET_FILE);
    }
    match xdg_runtime_dir.map(Path::new).filter(|directory| directory.is_absolute()) {
        Some(directory) => directory.join("ringroad").join(SOCKET_FILE),
        None => fallback_socket_path(uid),
    }
}

/// Path of the socket of a user without a runtime directory: `/tmp/ringroad-UID/ringroad.sock`.
///
/// Anybody can make that directory first. The daemon must find it owned by its user with mode 0700, or give it this
/// mode; [`crate::Connection::connect`] refuses a daemon there that is neither root's nor the user's own.
#[must_use]
pub fn fallback_socket_path(uid: u32) -> PathBuf {
    PathBuf::from(format!("/tmp/ringroad-{uid}")).join(SOCKET_FILE)
}

/// Path of the socket for this process, as [`socket_path`] gives it.
#[must_use]
pub fn default_socket_path() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name);
    socket_path(
        variable(SOCKET_VARIABLE).as_deref(),
        variable("XDG_RUNTIME_DIR").as_deref(),
        rustix::process::geteuid().as_raw(),
    )
}

/// File in which the daemon at `socket` keeps the ports that commands attached. It exists while the daemon runs, and
/// after the daemon was killed.
#[must_use]
pub fn attached_ports_path(socket: &Path) -> PathBuf {
    beside(socket, ".ports")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(socket: Option<&str>, runtime: Option<&str>, uid: u32) -> PathBuf {
        socket_path(socket.map(OsStr::new), runtime.map(OsStr::new), uid)
    }

    #[test]
    fn the_variable_wins_over_everything() {
        assert_eq!(path(Some("my.sock"), Some("/run/user/0"), 0), Path::new("my.sock"));
    }

    #[test]
    fn root_has_the_system_socket() {
        assert_eq!(path(None, Some("/run/user/0"), 0), Path::new("/run/ringroad/ringroad.sock"));
    }

    #[test]
    fn a_user_has_a_socket_in_the_runtime_directory() {
        assert_eq!(
            path(None, Some("/run/user/1000"), 1000),
            Path::new("/run/user/1000/ringroad/ringroad.sock")
        );
    }

    #[test]
    fn without_a_usable_runtime_directory_it_is_in_tmp() {
        for runtime in [None, Some(""), Some("relative")] {
            assert_eq!(path(None, runtime, 1000), Path::new("/tmp/ringroad-1000/ringroad.sock"));
        }
    }

    #[test]
    fn an_empty_variable_counts_as_not_set() {
        assert_eq!(path(Some(""), None, 0), Path::new("/run/ringroad/ringroad.sock"));
    }
}
