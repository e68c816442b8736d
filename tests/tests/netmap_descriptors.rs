//! C programs that use `/dev/netmap` like any descriptor, with the library preloaded, against a daemon: see
//! `compat/tests/preload`.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ringroad_test_needs::is_root;
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

/// Compiles a program and runs it, with `launcher` before its name. All its checks must pass. Returns its output.
fn run_at(daemon: &Daemon, launcher: &[&str], name: &str, arguments: &[&str]) -> String {
    let program = compile(daemon, name);
    let program = program.to_str().unwrap();
    let line: Vec<_> = launcher.iter().copied().chain([program]).chain(arguments.iter().copied()).collect();
    let ran = Command::new(line[0])
        .args(&line[1..])
        .env("LD_PRELOAD", binary("libringroad_preload_netmap.so"))
        .env("RINGROAD_SOCKET", daemon.socket())
        .env("RINGROAD_DAEMON", "/nonexistent/ringroadd")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{}: {printed}", ran.status);
    assert!(ran.stdout.is_empty());
    daemon.await_status("end of all ports", |status| status.ports.is_empty());
    printed.into_owned()
}

/// Compiles and runs a program. All its checks must pass, without other output.
fn run(name: &str) {
    assert_eq!(run_at(&Daemon::start(), &[], name, &[]), "");
}

/// First processor that this process may use.
fn processor() -> String {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..rustix::thread::CpuSet::MAX_CPU).find(|&cpu| set.is_set(cpu)).unwrap().to_string()
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

#[test]
fn frames_pass_a_program_with_real_time_priority_on_the_workers_processor() {
    if !is_root() {
        return;
    }
    let processor = processor();
    let daemon = Daemon::with_config(&format!("[workers]\ncpus = [{processor}]\nreal_time = 50\n"));
    assert_eq!(run_at(&daemon, &[], "urgent", &[&processor, "15000"]), "");
    assert!(daemon.log().contains("priority=20"), "{}", daemon.log());
    // Without such a program the workers are ordinary threads.
    let end = Instant::now() + Duration::from_secs(60);
    while !daemon.log().contains("priority=0") {
        assert!(Instant::now() < end, "{}", daemon.log());
        std::thread::yield_now();
    }
}

#[test]
fn a_program_above_the_workers_priority_is_told() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::with_config("[workers]\nreal_time = 10\n");
    let printed = run_at(&daemon, &["chrt", "--rr", "20"], "urgent", &[&processor(), "0"]);
    assert!(printed.contains("has real-time priority 20, and the daemon's workers take 10"), "{printed}");
    assert_eq!(printed.lines().count(), 1, "{printed}");
    let daemon = Daemon::start();
    let printed = run_at(&daemon, &["chrt", "--rr", "20"], "urgent", &[&processor(), "0"]);
    assert!(printed.contains("workers take 0"), "{printed}");
}
