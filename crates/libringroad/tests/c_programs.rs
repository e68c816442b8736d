//! Tests of programs in C and C++ with the headers and the built library: each program of `compat/tests`, in both
//! languages, and the other checks of `compat/Makefile`.

#![allow(clippy::unwrap_used)]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Path of the library, which cargo builds beside the test.
fn library() -> PathBuf {
    let library = env::current_exe().unwrap().with_file_name("libringroad_c.so");
    assert!(library.exists(), "{} is not there", library.display());
    library
}

/// Makes these targets with GCC, in their own folder.
fn make(folder: &str, targets: &[&str]) {
    let build = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compat").join(folder);
    let output = Command::new("make")
        .arg("-C")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../compat"))
        .arg("CC=gcc")
        .arg(format!("BUILD={}", build.display()))
        .arg(format!("LIBRARY={}", library().display()))
        .args(targets)
        // The variables of an outer make would change the jobs and targets of this one.
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "make {targets:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Makes targets that are compiled as C and as C++.
fn make_in_both_languages(folder: &str, targets: &[&str]) {
    if ringroad_test_needs::has_program("g++") {
        make(folder, targets);
    }
}

#[test]
fn headers_compile_alone_in_every_language() {
    make_in_both_languages("headers", &["headers"]);
}

#[test]
fn layouts_and_values_match_netmap() {
    make_in_both_languages("layout", &["layout"]);
}

#[test]
fn examples_build_and_link() {
    make("examples", &["examples"]);
}

#[test]
fn names_follow_the_grammar() {
    make_in_both_languages("parse_names", &["run-c-parse_names", "run-cxx-parse_names"]);
}

#[test]
fn options_follow_the_grammar() {
    make_in_both_languages("parse_options", &["run-c-parse_options", "run-cxx-parse_options"]);
}

#[test]
fn ports_follow_the_headers_life_cycle() {
    make_in_both_languages("ports", &["run-c-ports", "run-cxx-ports"]);
}

#[test]
fn nm_open_and_its_family_work() {
    make_in_both_languages("nm_open", &["run-c-nm_open", "run-cxx-nm_open"]);
}

#[test]
fn every_declared_function_is_in_the_library() {
    make_in_both_languages("symbols", &["run-c-symbols", "run-cxx-symbols"]);
}
