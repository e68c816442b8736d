//! Test that the library exports the same functions as the installed libpcap.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringroad_test_needs::installed_libpcap;

/// Functions that an object exports.
fn functions(object: &Path) -> BTreeSet<String> {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(object).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let function = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        words.next().filter(|kind| *kind == "T").and(words.next()).map(str::to_owned)
    };
    text.lines().filter_map(function).collect()
}

/// Path of the library, which is built beside the test.
fn object() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.ancestors()
        .map(|folder| folder.join("libringroad_preload_pcap.so"))
        .find(|file| file.is_file())
        .unwrap()
}

#[test]
fn every_function_of_the_installed_libpcap_is_exported() {
    let Some(installed) = installed_libpcap() else { return };
    let (ours, theirs) = (functions(&object()), functions(&installed));
    assert!(theirs.len() > 80, "{theirs:?}");
    let missing: Vec<_> = theirs.difference(&ours).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn nothing_else_is_exported() {
    let ours = functions(&object());
    let foreign: Vec<_> = ours
        .iter()
        .filter(|name| !name.starts_with("pcap_") && !name.starts_with("bpf_") && *name != "dlopen")
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}
