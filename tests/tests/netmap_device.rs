//! Programs in C that know only the header of `/dev/netmap`, under `ringroad run`, with every kind of port and every
//! request. The examples link the library instead, so nothing is preloaded for them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

use ringroad_tests::command::{run, start, summary};
use ringroad_tests::daemon::{Daemon, binary};
use ringroad_tests::network::{NetworkNamespace, is_root, patience_s};
use ringroad_tests::service::Service;

/// Compiles a program in a folder of `compat`. The arguments `more` come last.
fn compiled(folder: &Path, kind: &str, name: &str, more: &[&str]) -> PathBuf {
    let compat = Path::new(env!("CARGO_MANIFEST_DIR")).join("../compat");
    let program = folder.join(name);
    let output = run({
        let mut gcc = Command::new("gcc");
        gcc.args([
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-D_FORTIFY_SOURCE=2",
            "-O2",
            "-pthread",
            "-I",
        ]);
        gcc.arg(compat.join("include")).arg(compat.join(kind).join(name).with_extension("c"));
        gcc.arg("-o").arg(&program).args(more);
        gcc
    });
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Runs a program with a daemon. The program must succeed; otherwise its error output is shown.
fn passes(daemon: &Daemon, launcher: &[&str], name: &str, arguments: &[&str]) {
    let program = compiled(daemon.folder(), "tests/device", name, &[]);
    let limit = patience_s();
    let program = program.to_str().unwrap();
    let command = [&["run", "--no-pcap", "--"], launcher, &["timeout", &limit, program], arguments].concat();
    let output = run(daemon.ringroad(&command));
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}: {printed}\n{}", output.status, daemon.log());
}

#[test]
fn a_switch_takes_every_frame_and_delivers_by_address() {
    passes(&Daemon::start(), &[], "switch", &[]);
}

#[test]
fn pipes_pass_whole_slots_and_drop_no_frame() {
    passes(&Daemon::start(), &[], "pipes", &[]);
}

#[test]
fn several_bindings_share_rings_and_memory_by_netmaps_rules() {
    passes(&Daemon::start(), &[], "bindings", &[]);
}

#[test]
fn monitors_see_all_frames_and_delay_no_program() {
    passes(&Daemon::start(), &[], "monitors", &[]);
}

#[test]
fn requests_answer_as_in_the_manual() {
    passes(&Daemon::start(), &[], "control", &[]);
}

#[test]
fn programs_of_the_older_interface_are_served() {
    passes(&Daemon::start(), &[], "legacy", &[]);
}

#[test]
fn programs_of_2012_move_cur_read_avail_and_keep_reserved_slots() {
    passes(&Daemon::start(), &[], "api_2012", &[]);
}

#[test]
fn the_sync_loop_reads_indexes_in_the_programs_memory() {
    passes(&Daemon::start(), &[], "loops", &[]);
}

#[test]
fn a_region_can_replace_the_programs_memory() {
    passes(&Daemon::start(), &[], "external_memory", &[]);
}

#[test]
fn frames_with_a_virtio_net_header_are_finished_for_plain_ports() {
    passes(&Daemon::start(), &[], "virtio_headers", &[]);
}

#[test]
fn a_killed_program_that_overwrote_its_region_disturbs_no_other() {
    passes(&Daemon::start(), &[], "hostile", &[]);
}

/// A command for a program of a folder of `compat` that is linked with the library.
fn linked(daemon: &Daemon, folder: &str, name: &str, arguments: &[&str]) -> Command {
    let libraries = daemon.folder().join("lib");
    if std::fs::create_dir(&libraries).is_ok() {
        for file in ["libringroad.so.0", "libringroad.so"] {
            std::os::unix::fs::symlink(binary("libringroad_c.so"), libraries.join(file)).unwrap();
        }
    }
    let libraries = libraries.to_str().unwrap();
    let link = [format!("-L{libraries}"), "-lringroad".to_owned(), format!("-Wl,-rpath,{libraries}")];
    let program = compiled(daemon.folder(), folder, name, &link.each_ref().map(String::as_str));
    let mut command = Command::new(program);
    command.args(arguments).env("RINGROAD_SOCKET", daemon.socket());
    command
}

/// Sends frames with the example `source`, through the example `bridge` between `from` and `to`, and waits until all
/// have arrived.
fn bridged(send: &str, from: &str, to: &str, receive: &str) {
    const FRAMES: &str = "20000";
    let daemon = Daemon::start();
    let expect = compiled(daemon.folder(), "tests/device", "expect", &[]);
    let expect = expect.to_str().unwrap();
    let mut expected = Service::start(daemon.ringroad(&["run", "--no-pcap", "--", expect, receive, FRAMES]));
    let _ = expected.await_line("ready");
    let bridge = Service::start(linked(&daemon, "examples", "bridge", &[from, to]));
    let mut source = Service::start(linked(&daemon, "examples", "source", &[send, FRAMES]));
    for program in [&mut source, &mut expected] {
        let (status, printed) = program.await_end();
        assert!(status.success(), "{printed}");
    }
    drop(bridge);
}

#[test]
fn the_examples_pass_frames_without_a_preloaded_library() {
    bridged("netmap:x{1", "netmap:x}1", "netmap:y{1", "y}1");
}

#[test]
fn parent_and_child_share_a_port_that_was_open_at_the_fork() {
    let daemon = Daemon::start();
    let (status, printed) = Service::start(linked(&daemon, "tests/device", "forked", &[])).await_end();
    assert!(status.success(), "{printed}");
    daemon.await_status("end of all ports", |status| status.ports.is_empty());
}

#[test]
fn both_ends_of_a_pipe_list_its_counts() {
    let daemon = Daemon::start();
    let expect = compiled(daemon.folder(), "tests/device", "expect", &[]);
    // The receiver waits for one more frame than is sent, so that its end stays open.
    let mut expected =
        Service::start(daemon.ringroad(&["run", "--no-pcap", "--", expect.to_str().unwrap(), "x}1", "501"]));
    let _ = expected.await_line("ready");
    let (status, printed) =
        Service::start(linked(&daemon, "examples", "source", &["netmap:x{1", "500"])).await_end();
    assert!(status.success(), "{printed}");
    let [sender, receiver] = ["x{1", "x}1"].map(|end| daemon.port(end).unwrap().counters);
    assert_eq!((sender.received_frames, sender.received_bytes, sender.delivered_frames), (500, 30_000, 0));
    assert_eq!(
        (receiver.delivered_frames, receiver.delivered_bytes, receiver.received_frames),
        (500, 30_000, 0)
    );
}

#[test]
fn a_bridge_within_one_region_exchanges_buffers() {
    bridged("netmap:x{1", "netmap:x}1", "netmap:x{2", "x}2");
}

#[test]
fn the_exchange_that_the_paper_of_2012_prints_forwards_frames() {
    const FRAMES: &str = "20000";
    let daemon = Daemon::start();
    let expect = compiled(daemon.folder(), "tests/device", "expect", &[]);
    let expect = expect.to_str().unwrap();
    let mut expected = Service::start(daemon.ringroad(&["run", "--no-pcap", "--", expect, "x}2", FRAMES]));
    let _ = expected.await_line("ready");
    let program = compiled(daemon.folder(), "tests/device", "printed_2012", &[]);
    let forwarder = ["run", "--no-pcap", "--", program.to_str().unwrap(), "forward", "x}1", "x{2"];
    let _forwarder = Service::start(daemon.ringroad(&forwarder));
    let mut source = Service::start(linked(&daemon, "examples", "source", &["netmap:x{1", FRAMES]));
    for program in [&mut source, &mut expected] {
        let (status, printed) = program.await_end();
        assert!(status.success(), "{printed}");
    }
}

#[test]
fn the_generator_that_the_paper_of_2012_prints_sends_on_its_interface() {
    if !is_root() {
        return;
    }
    let namespace = interfaces("ix0", "far");
    let daemon = Daemon::within(&namespace);
    let mut receiver =
        start(daemon.ringroad_within(&namespace, &["--json", "recv", "far", "--count", "5000"]));
    let program = compiled(daemon.folder(), "tests/device", "printed_2012", &[]);
    let generator = ["run", "--no-pcap", "--", program.to_str().unwrap(), "generate"];
    let _generator = Service::start(daemon.ringroad_within(&namespace, &generator));
    let summary = summary(&mut receiver);
    assert_eq!((&summary["frames"], &summary["bytes"]), (&5000.into(), &300_000.into()), "{summary}");
}

#[test]
fn a_waiting_netmap_program_notices_the_daemons_end() {
    let daemon = Daemon::start();
    let expect = compiled(daemon.folder(), "tests/device", "expect", &[]);
    let command = ["run", "--no-pcap", "--", expect.to_str().unwrap(), "vale0:lonely", "1"];
    let mut waiting = Service::start(daemon.ringroad(&command));
    let _ = waiting.await_line("ready");
    daemon.signal(rustix::process::Signal::KILL);
    let (status, printed) = waiting.await_end();
    assert!(!status.success(), "{printed}");
}

/// A network namespace with two interfaces, connected to each other.
fn interfaces(one: &str, other: &str) -> NetworkNamespace {
    let namespace = NetworkNamespace::new();
    namespace.run(&["ip", "link", "add", one, "type", "veth", "peer", "name", other]);
    for interface in [one, other] {
        namespace.set(&format!("net/ipv6/conf/{interface}/disable_ipv6"), "1");
        namespace.run(&["ip", "link", "set", interface, "up"]);
    }
    namespace
}

#[test]
fn interfaces_have_rings_and_can_be_attached() {
    if !is_root() {
        return;
    }
    let namespace = interfaces("here", "there");
    passes(
        &Daemon::within(&namespace),
        &["ip", "netns", "exec", namespace.name()],
        "interface",
        &["here", "there"],
    );
}

#[test]
fn a_program_finds_the_interfaces_of_its_own_namespace() {
    if !is_root() {
        return;
    }
    let namespace = interfaces("here", "there");
    passes(&Daemon::start(), &["ip", "netns", "exec", namespace.name()], "interface", &["here", "there"]);
}

#[test]
fn host_rings_carry_frames_between_the_host_and_its_interface() {
    if !is_root() {
        return;
    }
    let namespace = NetworkNamespace::new();
    namespace.run(&["ip", "tuntap", "add", "mode", "tap", "name", "tap0"]);
    namespace.set("net/ipv6/conf/tap0/disable_ipv6", "1");
    namespace.run(&["ip", "link", "set", "tap0", "up"]);
    passes(&Daemon::within(&namespace), &["ip", "netns", "exec", namespace.name()], "host_rings", &["tap0"]);
}
