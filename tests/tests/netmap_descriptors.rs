//! C programs that use `/dev/netmap` like any descriptor, with the library preloaded, against a daemon: see
//! `compat/tests/preload`.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ringroad_tests::daemon::{Daemon, binary};

/// Compiles a program of `compat/tests/preload` into the daemon's folder.
fn compile(daemon: &Daemon, name: &str) -> PathBuf {
    let compat = Path::new(env!("CARGO_MANIFEST_DIR")).join("../compat");
    let program = daemon.folder().join(name);
    let compiled = Command::new("gcc")
        .args(["-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-I"])
        .arg(compat.join("include"))
        .arg("-o")
        .arg(&program)
        .arg(compat.join("tests/preload").join(name).with_extension("c"))
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    program
}

/// Compiles and runs a program. All its checks must pass, without other output.
fn run(name: &str) {
    let daemon = Daemon::start();
    let program = compile(&daemon, name);
    let ran = Command::new(program)
        .env("LD_PRELOAD", binary("libringroad_preload_netmap.so"))
        .env("RINGROAD_SOCKET", daemon.socket())
        .env("RINGROAD_DAEMON", "/nonexistent/ringroadd")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{}: {printed}", ran.status);
    assert!(ran.stdout.is_empty() && printed.is_empty(), "{printed}");
    daemon.await_status("end of all ports", |status| status.ports.is_empty());
}

#[test]
fn poll_waits_for_devices_among_others() {
    run("poll_devices");
}

#[test]
fn select_waits_for_devices_among_others() {
    run("select_devices");
}

#[test]
fn epoll_sets_hold_devices() {
    run("epoll_devices");
}

#[test]
fn calls_with_invalid_pointers_fail_with_efault() {
    run("invalid_pointers");
}

#[test]
fn a_binding_lasts_as_long_as_its_last_copy_or_mapping() {
    run("lifetime");
}

#[test]
fn threads_and_forks_may_use_devices_at_the_same_time() {
    run("threads");
}
