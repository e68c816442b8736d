//! The daemon's configuration file as operators use it: saved to, shown, checked, compared and applied.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use ringroad::Port;
use ringroad_tests::command::stderr;
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::{Daemon, binary};
use ringroad_tests::frames::{number_of, numbered, receive, receive_from, send, station};
use ringroad_tests::network::{NetworkNamespace, is_root};
use rustix::process::Signal;
use serde_json::Value;

const CONFIG: &str =
    "# Kept by hand.\n[workers]\nspin_us = 20 # short\n\n[[port]]\nname = \"vale0:old\" # the first\n";

fn file(daemon: &Daemon) -> PathBuf {
    daemon.folder().join("config.toml")
}

fn run(daemon: &Daemon, arguments: &[&str]) -> Output {
    daemon.ringroad(arguments).output().unwrap()
}

fn succeed(daemon: &Daemon, arguments: &[&str]) -> String {
    let output = run(daemon, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn difference(daemon: &Daemon) -> (Option<i32>, Value) {
    let output = run(daemon, &["--json", "config", "diff"]);
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
}

fn restart_in_order(daemon: &mut Daemon) {
    daemon.signal(Signal::TERM);
    assert!(daemon.await_end(), "{}", daemon.log());
    daemon.restart();
}

fn names(daemon: &Daemon) -> Vec<String> {
    daemon.status().ports.into_iter().map(|port| port.name).collect()
}

#[test]
fn a_configuration_that_an_earlier_version_read_is_valid() {
    for version in ["0.1.0", "0.2.0"] {
        let file = format!("{}/written-by-{version}/ringroadd.toml", env!("CARGO_MANIFEST_DIR"));
        let checked =
            Command::new(binary("ringroadd")).args(["--check", "--config", &file]).output().unwrap();
        assert!(checked.status.success(), "{version}: {}", stderr(&checked));
    }
}

#[test]
fn saved_ports_come_back_and_the_rest_of_the_file_stays() {
    let mut daemon = Daemon::with_config(CONFIG);
    std::fs::set_permissions(file(&daemon), std::fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(difference(&daemon).0, Some(0));
    let record = daemon.folder().join("record.pcap").display().to_string();
    succeed(&daemon, &["attach", "vale0:p@slots=512", "--for-program", "--save"]);
    succeed(&daemon, &["attach", "vale0:r", "--driver", &format!("pcap:out={record}")]);
    let (status, printed) = difference(&daemon);
    assert_eq!((status, &printed["only_attached"]), (Some(1), &serde_json::json!(["vale0:r"])));
    assert!(succeed(&daemon, &["config", "save"]).contains("+ vale0:r"));
    assert_eq!(difference(&daemon).0, Some(0));
    let text = std::fs::read_to_string(file(&daemon)).unwrap();
    assert!(text.starts_with(CONFIG), "{text}");
    assert_eq!(std::fs::metadata(file(&daemon)).unwrap().permissions().mode() & 0o777, 0o640);

    restart_in_order(&mut daemon);
    assert_eq!(names(&daemon), ["vale0:old", "vale0:p", "vale0:r"]);
    assert_eq!(daemon.port("vale0:p").unwrap().slots, 512);
    // A reload leaves the attached ports unchanged.
    succeed(&daemon, &["reload"]);
    succeed(&daemon, &["detach", "vale0:p", "--save"]);
    succeed(&daemon, &["detach", "vale0:old"]);
    let (status, printed) = difference(&daemon);
    assert_eq!((status, &printed["only_configured"]), (Some(1), &serde_json::json!(["vale0:old"])));
    assert!(succeed(&daemon, &["config", "save", "vale0:old"]).contains("- vale0:old"));
    restart_in_order(&mut daemon);
    assert_eq!(names(&daemon), ["vale0:r"]);
    let refused = run(&daemon, &["config", "save", "vale0:nobody"]);
    assert!(stderr(&refused).contains("neither attached nor configured"), "{}", stderr(&refused));
}

#[test]
fn an_interface_is_saved_with_its_host_and_its_namespace() {
    if !is_root() {
        return;
    }
    let (outside, blue) = (NetworkNamespace::new(), NetworkNamespace::new());
    for namespace in [&outside, &blue] {
        namespace.run(&["ip", "link", "add", "rrc0", "type", "veth", "peer", "name", "rrc1"]);
    }
    let mut daemon = Daemon::launched_by(&["ip", "netns", "exec", outside.name()], "");
    let attach = |namespace: &NetworkNamespace, arguments: &[&str]| {
        let output = daemon.ringroad_within(namespace, arguments).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    };
    attach(&outside, &["attach", "vale0:rrc0", "--driver", "packet:rrc0@immediate=1", "--host", "--save"]);
    attach(&blue, &["attach", "vale1:rrc0", "--save"]);
    let reported = |daemon: &Daemon| -> Vec<_> {
        let ports = daemon.status().ports.into_iter();
        ports.map(|port| (port.name, port.kind, port.link.and_then(|link| link.netns))).collect()
    };
    let before = reported(&daemon);
    assert_eq!(before.len(), 3);
    restart_in_order(&mut daemon);
    daemon.await_status("ports as before", |status| status.ports.len() == 3);
    assert_eq!(reported(&daemon), before);
    assert_eq!(difference(&daemon).0, Some(0));
}

#[test]
fn a_configuration_is_applied_as_a_whole_or_not_at_all() {
    let daemon = Daemon::with_config(CONFIG);
    let new = daemon.folder().join("new.toml");
    let path = new.display().to_string();
    let write = |text: &str| std::fs::write(&new, text).unwrap();
    write("[workers]\nspin_us = 70\n[log]\nlevel = \"debug\"\n[[port]]\nname = \"vale0:new\"\n");
    let dry: Value =
        serde_json::from_str(&succeed(&daemon, &["--json", "config", "apply", &path, "--dry-run"])).unwrap();
    assert_eq!(std::fs::read_to_string(file(&daemon)).unwrap(), CONFIG);
    let applied: Value =
        serde_json::from_str(&succeed(&daemon, &["--json", "config", "apply", &path])).unwrap();
    assert_eq!(dry, applied);
    let keys = applied["keys"].as_array().unwrap();
    let of = |key: &str| keys.iter().find(|found| found["key"] == key).unwrap();
    assert_eq!(
        (&of("log.level")["configured"], &of("log.level")["at_next_start"]),
        (&"\"debug\"".into(), &false.into())
    );
    assert_eq!(
        (&of("workers.spin_us")["in_force"], &of("workers.spin_us")["at_next_start"]),
        (&"20".into(), &true.into())
    );
    assert_eq!(names(&daemon), ["vale0:new"]);
    // The key that waits for the next start is still a difference.
    assert_eq!(difference(&daemon).0, Some(1));
    assert!(succeed(&daemon, &["config", "show"]).contains("spin_us = 20"));

    let before = std::fs::read_to_string(file(&daemon)).unwrap();
    for (text, part) in [
        ("[workers]\ncount = \"two\"\n", "line 2"),
        (
            "[[port]]\nname = \"vale0:x\"\n[[port]]\nname = \"vale0:y\"\ndriver = \"pcap:in=/no/such/file\"\n",
            "vale0:y",
        ),
    ] {
        write(text);
        let refused = run(&daemon, &["config", "apply", &path]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(stderr(&refused).contains(part), "{}", stderr(&refused));
        assert_eq!(std::fs::read_to_string(file(&daemon)).unwrap(), before);
        assert_eq!(names(&daemon), ["vale0:new"]);
    }
}

#[test]
fn a_file_is_checked_without_a_daemon() {
    let daemon = Daemon::start();
    let path = daemon.folder().join("checked.toml");
    let text = path.display().to_string();
    std::fs::write(&path, CONFIG).unwrap();
    let check =
        || daemon.ringroad(&["config", "check", &text]).env("RINGROAD_SOCKET", "/no/such").output().unwrap();
    assert!(check().status.success());
    std::fs::write(&path, "[switch]\nageing_s = 0\n").unwrap();
    let refused = check();
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("switch.ageing_s is 0"), "{}", stderr(&refused));
}

#[test]
fn a_daemon_without_a_file_has_nothing_to_save_to() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s").display().to_string();
    let ringroad = |arguments: &[&str]| {
        let mut command = Command::new(binary("ringroad"));
        command.args(["--socket", &socket]).args(arguments).output().unwrap()
    };
    assert!(ringroad(&["up"]).status.success());
    let refused = ringroad(&["attach", "vale0:a", "--for-program", "--save"]);
    assert!(stderr(&refused).contains("without a configuration file"), "{}", stderr(&refused));
    assert!(String::from_utf8_lossy(&ringroad(&["config", "show"]).stdout).contains("spin_us = 50"));
    assert!(ringroad(&["down"]).status.success());
}

#[test]
fn a_static_address_stays_on_its_port_and_in_the_file() {
    let mut daemon = Daemon::with_config(CONFIG);
    let mac = "02:00:00:00:77:02";
    // The port of the static address does not exist yet.
    succeed(&daemon, &["macs", "vale0", "--set", &format!("{mac}=b")]);
    let ports = || ["vale0:a", "vale0:b", "vale0:c"].map(|name| daemon.open(name));
    let [mut a, mut b, mut c] = ports();
    // A frame with this source address arrives at another port.
    send(&mut c, &numbered([0xff; 6], station(2), 0, 60));
    c.tx().sync().unwrap();
    assert_eq!(receive_from(&mut b, station(2)).len(), 60);
    send(&mut a, &numbered(station(2), station(1), 1, 60));
    a.tx().sync().unwrap();
    assert_eq!(receive_from(&mut b, station(1)).len(), 60);
    let status = daemon.status();
    assert_eq!((status.switches[0].refused_moves, status.switches[0].macs), (1, 2));
    assert_eq!(succeed(&daemon, &["macs", "vale0", "--flush"]), "1 addresses forgotten\n");
    assert_eq!(difference(&daemon).1["only_attached"], serde_json::json!([format!("{mac} on vale0:b")]));
    assert!(succeed(&daemon, &["config", "save"]).contains(&format!("+ {mac} on vale0:b")));
    assert_eq!(difference(&daemon).0, Some(0));
    assert!(std::fs::read_to_string(file(&daemon)).unwrap().starts_with(CONFIG));
    drop((a, b, c));

    restart_in_order(&mut daemon);
    let b = daemon.open("vale0:b");
    let shown: Value = serde_json::from_str(&succeed(&daemon, &["--json", "macs", "vale0"])).unwrap();
    assert_eq!(
        (&shown[0]["mac"], &shown[0]["port"], &shown[0]["static"]),
        (&mac.into(), &"vale0:b".into(), &true.into())
    );
    succeed(&daemon, &["macs", "vale0", "--unset", mac]);
    assert_eq!(succeed(&daemon, &["macs", "vale0"]), "no addresses learned\n");
    assert!(succeed(&daemon, &["config", "save"]).contains(&format!("- {mac} on vale0:b")));
    drop(b);
    for (arguments, part) in [
        (["macs", "vale0", "--set", "ff:ff:ff:ff:ff:ff=b"], "multicast"),
        (["macs", "vale0", "--set", "02:0:0:0:0:1=b"], "not an Ethernet address"),
        (["macs", "vale0", "--unset", mac], "not a static address"),
    ] {
        let refused = run(&daemon, &arguments);
        assert!(!refused.status.success() && stderr(&refused).contains(part), "{}", stderr(&refused));
    }
}

#[test]
fn a_mirrors_port_gets_copies_and_the_mirror_comes_back() {
    let mut daemon = Daemon::with_config("[workers]\ncount = 2\n");
    // Neither port exists yet.
    succeed(&daemon, &["mirror", "vale0:a", "--to", "vale0:m"]);
    let ports = |daemon: &Daemon| ["vale0:a", "vale0:b", "vale0:m"].map(|name| daemon.open(name));
    let [mut a, mut b, mut m] = ports(&daemon);
    let pass = |from: &mut Port, to: &mut Port, frame: &[u8]| {
        send(from, frame);
        from.tx().sync().unwrap();
        assert_eq!(receive(to), frame);
    };
    // The first frame is flooded from the mirrored port. The others are unicast, to this port and from it.
    let frames = [
        numbered([0xff; 6], station(1), 0, 60),
        numbered(station(1), station(2), 1, 1000),
        numbered(station(2), station(1), 2, 1514),
    ];
    pass(&mut a, &mut b, &frames[0]);
    pass(&mut b, &mut a, &frames[1]);
    pass(&mut a, &mut b, &frames[2]);
    assert_eq!([receive(&mut m), receive(&mut m), receive(&mut m)], frames);
    // Frames between other ports do not reach the mirror's port, and its own frames are dropped.
    let mut c = daemon.open("vale0:c");
    pass(&mut c, &mut b, &numbered(station(2), station(3), 3, 60));
    send(&mut m, &numbered([0xff; 6], station(9), 4, 60));
    m.tx().sync().unwrap();
    let status = daemon.await_status("the dropped frame", |status| {
        status.ports.iter().any(|port| port.counters.drops.contains_key("mirror_port"))
    });
    assert_eq!(status.switches[0].macs, 3, "it is not learned");
    await_conserved(&daemon);

    assert_eq!(
        difference(&daemon).1["only_attached"],
        serde_json::json!(["a mirror from vale0:a to vale0:m"])
    );
    succeed(&daemon, &["mirror", "vale0:a", "--to", "vale0:m", "--direction", "received", "--sample", "2"]);
    assert!(succeed(&daemon, &["config", "save"]).contains("+ a mirror from vale0:a to vale0:m"));
    assert_eq!(difference(&daemon).0, Some(0));
    drop((a, b, c, m));
    restart_in_order(&mut daemon);
    let [mut a, mut b, mut m] = ports(&daemon);
    for number in 0..4 {
        pass(&mut a, &mut b, &numbered([0xff; 6], station(1), number, 60));
    }
    let seen = [receive(&mut m), receive(&mut m)].map(|frame| number_of(&frame, station(1)).unwrap());
    assert_eq!(seen.map(|number| number / 2), [0, 1], "one of each two");
    assert!(m.rx().receive(&mut Vec::new()).is_none());
    let listed = succeed(&daemon, &["mirror"]);
    assert!(listed.contains("vale0:a") && listed.contains("received"), "{listed}");

    succeed(&daemon, &["mirror", "vale0:a", "--to", "vale0:m", "--remove"]);
    assert_eq!(succeed(&daemon, &["mirror"]), "no mirrors\n");
    // The former mirror's port is now a port like others.
    send(&mut a, &numbered([0xff; 6], station(1), 9, 60));
    a.tx().sync().unwrap();
    assert_eq!(number_of(&receive(&mut m), station(1)), Some(9));
    assert!(succeed(&daemon, &["config", "save"]).contains("- a mirror"));
    for (arguments, part) in [
        (&["mirror", "vale0:a", "--to", "vale1:m"][..], "two switches"),
        (&["mirror", "vale0:a", "--to", "vale0:m", "--remove"], "there is not a mirror"),
        (&["mirror", "vale0:a"], "--to"),
    ] {
        let refused = run(&daemon, arguments);
        assert!(!refused.status.success() && stderr(&refused).contains(part), "{}", stderr(&refused));
    }
}
