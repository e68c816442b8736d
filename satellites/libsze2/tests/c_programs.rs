//! Programs in C and C++ with the header and the built library: the SZE2 programs of `compat/`, with a card if they
//! need one.

#![allow(clippy::unwrap_used)]

mod loopback_card;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use loopback_card::LoopbackCard;
use ringroad_test_needs::has_program;
use tempfile::TempDir;

/// The library, which cargo builds beside the test.
fn library() -> PathBuf {
    let library = env::current_exe().unwrap().with_file_name("libringroad_libsze2.so");
    assert!(library.exists(), "{} is not there", library.display());
    library
}

/// Builds a program with GCC, in a folder of its own.
fn make(program: &str) -> PathBuf {
    let build = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compat").join(program.replace('/', "-"));
    let output = Command::new("make")
        .arg("-C")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../compat"))
        .arg("CC=gcc")
        .arg(format!("BUILD={}", build.display()))
        .arg(format!("SZE2_LIBRARY={}", library().display()))
        .arg(build.join(program))
        // The variable would pass jobs and targets of an outer make.
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .output()
        .unwrap();
    assert!(output.status.success(), "make {program}: {}", text(&output));
    build.join(program)
}

fn text(output: &Output) -> String {
    let [out, error] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{}\n{out}{error}", output.status)
}

fn run(program: &str) {
    let program = make(program);
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("szedataII0");
    let _card = LoopbackCard::start(&path);
    let output = Command::new("timeout").arg("120").arg(&program).env("SZE2_CARD", &path).output().unwrap();
    assert!(output.status.success(), "{}: {}", program.display(), text(&output));
}

#[test]
fn invalid_arguments_are_refused() {
    run("c/sze2_arguments");
    if has_program("g++") {
        run("cxx/sze2_arguments");
    }
}

#[test]
fn frames_pass_a_card_both_ways() {
    run("c/sze2_card");
}

#[test]
fn frames_pass_a_card_both_ways_in_cxx() {
    if has_program("g++") {
        run("cxx/sze2_card");
    }
}

#[test]
fn the_examples_send_and_count() {
    let (count, send) = (make("sze2-count"), make("sze2-send"));
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("szedataII0");
    let _card = LoopbackCard::start(&path);
    let mut counting = Command::new("timeout")
        .args(["--signal=INT", "--preserve-status", "60"])
        .arg(&count)
        .arg(&path)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    await_subscriber(&path);
    let sent = Command::new(&send).arg(&path).args(["1000", "100"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&sent.stdout), "1000 frames\n", "{}", text(&sent));
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(counting.stdout.take().unwrap()));
    for number in 0_u32..1000 {
        let line = lines.next().unwrap().unwrap();
        let [one, two, ..] = number.to_le_bytes();
        let bytes = format!("  100 ff ff ff ff ff ff 02 00 00 00 00 01 88 b5 {one:02x} {two:02x}");
        assert!(line.starts_with(&bytes), "{number}: {line}");
        if number == 999 {
            let pid = rustix::process::Pid::from_child(&counting);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        }
    }
    assert_eq!(lines.next().unwrap().unwrap(), "1000 frames, 100000 bytes");
    assert!(counting.wait().unwrap().success());
}

#[test]
fn the_measuring_example_counts_all_frames_with_and_without_the_copy() {
    let (multiread, send) = (make("sze2-multiread"), make("sze2-send"));
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("szedataII0");
    let _card = LoopbackCard::start(&path);
    for copy in [&[][..], &["-c"]] {
        let reading = Command::new("timeout")
            .arg("60")
            .arg(&multiread)
            .args(copy)
            .args(["-m", "1", "-n", "1000"])
            .arg(&path)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        await_subscriber(&path);
        let sent = Command::new(&send).arg(&path).args(["1000", "100"]).output().unwrap();
        assert!(sent.status.success(), "{}", text(&sent));
        let read = reading.wait_with_output().unwrap();
        assert!(
            read.status.success() && text(&read).contains("1000 frames, 100000 bytes, "),
            "{}",
            text(&read)
        );
    }
    let usage = Command::new(&multiread).output().unwrap();
    assert_eq!(usage.status.code(), Some(2), "{}", text(&usage));
}

/// Waits until a program has started receive channel 0.
fn await_subscriber(path: &Path) {
    let card = ringroad_sze2::client::CardClient::open(path, "test").unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !card.status().unwrap().receive[0].running {
        assert!(std::time::Instant::now() < end, "no program subscribes");
        std::thread::yield_now();
    }
}
