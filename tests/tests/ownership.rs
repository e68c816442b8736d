//! A user gets no access to another user's ports, under any name, unless a rule names that user for that port.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use ringroad_tests::daemon::Daemon;
use ringroad_tests::network::{NetworkNamespace, is_root};
use ringroad_tests::service::Service;

const ROOT: u32 = 0;
const OWNER: u32 = 65_534;
const OTHER_USER: u32 = 65_533;
const FRIEND: u32 = 65_532;

/// A daemon that any user may connect to, and a program that others can run.
fn open_to_all(launcher: &[&str], rules: &str) -> Daemon {
    let daemon = Daemon::launched_by(launcher, &format!("[socket]\nmode = \"0666\"\n{rules}"));
    let _ = daemon.program_for_all(Path::new(env!("CARGO_BIN_EXE_netmap_user")));
    daemon
}

fn user(daemon: &Daemon, uid: u32, ports: &[&str]) -> Command {
    let mut command = Command::new(daemon.folder().join("netmap_user"));
    command.arg(daemon.socket()).args(ports).uid(uid).gid(uid);
    command
}

/// Starts a user's program that keeps the ports open while it runs.
fn holds(daemon: &Daemon, uid: u32, ports: &[&str]) -> Service {
    let mut service = Service::start_interactive(user(daemon, uid, ports));
    service.await_line("done");
    service
}

/// Runs a user's program. Returns its result for each port.
fn tries(daemon: &Daemon, uid: u32, ports: &[&str]) -> Vec<String> {
    let (status, printed) = Service::start(user(daemon, uid, ports)).await_end();
    assert!(status.success(), "{printed}");
    let printed: Vec<String> = printed.lines().filter(|line| *line != "done").map(str::to_owned).collect();
    assert_eq!(printed.len(), ports.len(), "{printed:?}");
    printed
}

#[test]
fn only_the_owner_may_use_a_users_ports_and_pipes() {
    if !is_root() {
        return;
    }
    let daemon = open_to_all(&[], "");
    let held = ["vale5:vic", "x{1", "open:y{1", "open:vale6:a"];
    let owner = holds(&daemon, OWNER, &held);
    let wanted = ["vale5:vic", "vale5:vic{z", "x}1", "x}2", "open:y}1", "open:vale6:b@share=vale6:a"];
    for printed in tries(&daemon, OTHER_USER, &wanted) {
        assert!(
            printed.contains("refused errno 13") || printed.contains("refused PermissionDenied"),
            "{printed}"
        );
    }
    for uid in [OWNER, ROOT] {
        for printed in tries(&daemon, uid, &wanted) {
            assert!(!printed.contains("refused"), "user {uid}: {printed}");
        }
    }
    // A free name is available to any user, including netmap's pipes.
    for printed in tries(&daemon, OTHER_USER, &["vale5:own", "z{1", "open:w{1"]) {
        assert!(!printed.contains("refused"), "{printed}");
    }
    for port in ["vale5:vic", "x{1", "y{1", "vale6:a"] {
        let owner = daemon.port(port).unwrap().owner.unwrap();
        assert_eq!((owner.uid, owner.program.as_str()), (OWNER, "netmap_user"), "{port}");
    }
    drop(owner);
    daemon.await_status("end of all ports", |status| status.ports.is_empty());
}

#[test]
fn a_rule_for_one_port_shares_its_region_only_while_it_is_alone_there() {
    if !is_root() {
        return;
    }
    let rules = format!("[[allow]]\nport = \"vale6:a\"\nuids = [{OWNER}, {FRIEND}]\n");
    let daemon = open_to_all(&[], &rules);
    let _owner = holds(&daemon, OWNER, &["open:vale6:a"]);
    let shared = ["open:vale6:b@share=vale6:a"];
    let printed = tries(&daemon, FRIEND, &shared);
    assert!(!printed[0].contains("refused"), "{printed:?}");
    let _beside = holds(&daemon, OWNER, &["open:vale6:c@share=vale6:a"]);
    let printed = tries(&daemon, FRIEND, &shared);
    assert!(printed[0].contains("refused PermissionDenied") && printed[0].contains("vale6:c"), "{printed:?}");
}

#[test]
fn a_rule_shares_the_interface_that_it_names_and_no_other() {
    if !is_root() {
        return;
    }
    let namespace = NetworkNamespace::new();
    namespace.run(&["ip", "link", "add", "here", "type", "veth", "peer", "name", "there"]);
    for interface in ["here", "there"] {
        namespace.run(&["ip", "link", "set", interface, "up"]);
    }
    let enter = ["ip", "netns", "exec", namespace.name()];
    let rules = format!(
        "[[allow]]\nport = \"here\"\nuids = [{FRIEND}]\n[[allow]]\nport = \"ther*\"\nuids = [{FRIEND}]\n"
    );
    let daemon = open_to_all(&enter, &rules);
    // setpriv(1) sets the user: the option of `Command` would set it before ip(8) enters the namespace.
    let within = |uid: u32, ports: &[&str]| {
        let plain = user(&daemon, uid, ports);
        let ids = [format!("--reuid={uid}"), format!("--regid={uid}")];
        let mut command = Command::new("ip");
        command.args(&enter[1..]).arg("setpriv").args(ids).arg("--clear-groups");
        command.arg(plain.get_program()).args(plain.get_args());
        command
    };
    let memory_of = |line: String| line.rsplit(' ').next().unwrap().parse::<u16>().unwrap();
    let mut root = Service::start_interactive(within(ROOT, &["here", "there"]));
    let here = memory_of(root.await_line("here: memory"));
    let there = memory_of(root.await_line("there: memory"));
    assert_ne!(here, there, "what a rule shares lies by itself");
    for (uid, port) in
        [(OTHER_USER, "here"), (OTHER_USER, "there"), (FRIEND, "there"), (OTHER_USER, "here{1")]
    {
        let (_, printed) = Service::start(within(uid, &[port])).await_end();
        assert!(printed.contains("refused errno 13"), "user {uid}: {printed}");
    }
    let mut friend = Service::start(within(FRIEND, &["here"]));
    assert_eq!(memory_of(friend.await_line("here: memory")), here);
    drop(friend);
    let report = daemon.port("there").unwrap();
    let owner = report.owner.unwrap();
    assert_eq!((owner.uid, owner.program.as_str()), (ROOT, "netmap_user"));
    drop(root);
    daemon.await_status("end of all ports", |status| status.ports.is_empty());
}
