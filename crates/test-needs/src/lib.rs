//! Requirements of tests that not every machine meets. `make check` runs without root and without Debian packages:
//! there a test that lacks a requirement is skipped, and says so. `make test` has installed everything: there the test
//! fails instead.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// Skips the test if `make check` runs it; the caller then returns from the test. `needed` is what the test lacks.
///
/// # Panics
/// If `make test` runs the test.
pub fn skip(needed: &str) {
    // Variable set by scripts/with-packages.
    let whole_suite = env::var_os("RINGROAD_PACKAGES").is_some_and(|state| state == "installed");
    assert!(!whole_suite, "this test needs {needed}, and `make test` skips no test");
    // Words that scripts/run-rust-tests searches for.
    eprintln!("skipped: needs {needed}");
}

/// Whether the test has root. A test without root is skipped.
///
/// # Panics
/// If `make test` runs the test without root.
#[must_use]
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("root");
    }
    root
}

/// Whether PATH has this program. A test that lacks the program is skipped.
///
/// # Panics
/// If `make test` runs the test, and PATH has no such program.
#[must_use]
pub fn has_program(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).any(|folder| folder.join(name).is_file());
    if !found {
        skip(&format!("the program {name}"));
    }
    found
}

/// File of an installed libpcap, as the dynamic linker finds it. A test without libpcap is skipped.
///
/// # Panics
/// If `make test` runs the test, and there is no libpcap.
#[must_use]
pub fn installed_libpcap() -> Option<PathBuf> {
    let cache =
        Command::new("/sbin/ldconfig").arg("-p").output().map(|output| output.stdout).unwrap_or_default();
    let cache = String::from_utf8_lossy(&cache);
    let line = cache.lines().find(|line| line.contains("libpcap.so.0.8") || line.contains("libpcap.so.1"));
    let file = line.and_then(|line| line.rsplit(' ').next()).map(PathBuf::from);
    if file.is_none() {
        skip("libpcap");
    }
    file
}

/// Returns `unshare` with the options for a mount namespace in which the test may mount; the caller appends a program.
/// A test is skipped if it may not make a mount namespace: without root it needs a user namespace, which the kernel can
/// forbid.
///
/// # Panics
/// If `make test` runs the test, and it may not make one.
#[must_use]
pub fn mount_namespace() -> Option<Command> {
    let unshare = || {
        let mut unshare = Command::new("unshare");
        let root = rustix::process::geteuid().is_root();
        unshare.args(if root { &["--mount"][..] } else { &["--user", "--map-root-user", "--mount"] });
        unshare
    };
    let may = unshare().arg("true").output().is_ok_and(|output| output.status.success());
    if !may {
        skip("a mount namespace");
    }
    may.then(unshare)
}
