//! Ports of a switch with VLANs, isolation and storm limits, with the real binaries.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use ringroad::Port;
use ringroad::control::Connection;
use ringroad::control::report::{PortReport, StatusReport};
use ringroad_netdev::{Namespace, in_namespace};
use ringroad_tests::command::{run, stderr};
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::Daemon;
use ringroad_tests::frames::{numbered, receive, send, station};
use ringroad_tests::network::{NetworkNamespace, careless_cable, is_root, patience_s, unused_name};
use ringroad_tests::service::Service;
use rustix::process::Signal;
use serde_json::Value;

const ALL: [u8; 6] = [0xff; 6];

/// A frame from a station, with a tag if a VLAN is given.
fn frame(to: [u8; 6], from: u8, vlan: Option<u16>) -> Vec<u8> {
    let plain = numbered(to, station(from), 7, 100);
    match vlan {
        None => plain,
        Some(vlan) => [&plain[..12], &[0x81, 0], &vlan.to_be_bytes(), &plain[12..]].concat(),
    }
}

fn pass(port: &mut Port, frame: &[u8]) {
    send(port, frame);
    port.tx().sync().unwrap();
}

/// Frames that are in a port's ring now.
fn waiting(port: &mut Port) -> Vec<Vec<u8>> {
    port.rx().sync().unwrap();
    let (mut frames, mut frame) = (Vec::new(), Vec::new());
    while port.rx().receive(&mut frame).is_some() {
        frames.push(frame.clone());
    }
    frames
}

fn drops(port: &PortReport, cause: &str) -> u64 {
    port.counters.drops.get(cause).copied().unwrap_or(0)
}

/// Waits until a port has dropped `count` frames for a cause.
fn await_drops(daemon: &Daemon, port: &str, cause: &str, count: u64) -> StatusReport {
    daemon.await_status(&format!("{count} {cause} at {port}"), |status| {
        status.ports.iter().any(|known| known.name == port && drops(known, cause) == count)
    })
}

/// The settings of a port, written as the options of a port name.
fn settings(daemon: &Daemon, port: &str) -> String {
    let port = daemon.port(port).unwrap_or_else(|| panic!("{port} is not there"));
    port.settings.map(|settings| settings.to_string()).unwrap_or_default()
}

fn refusal(daemon: &Daemon, name: &str) -> String {
    match Port::open_with(name, &daemon.options()) {
        Ok(_) => panic!("{name} was opened"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn frames_stay_in_their_vlan_and_change_their_tags_on_one_worker_and_on_two() {
    for workers in 1..=2 {
        let daemon = Daemon::with_config(&format!("[workers]\ncount = {workers}\n"));
        let names = [
            "vale0:a@vlan=10",
            "vale0:b@vlan=10",
            "vale0:c@vlan=20",
            "vale0:t@trunk=10,20",
            "vale0:n@trunk=20,native=10",
        ];
        let [mut a, mut b, mut c, mut t, mut n] = names.map(|name| daemon.open(name));
        pass(&mut a, &frame(ALL, 1, None));
        assert_eq!(receive(&mut b), frame(ALL, 1, None));
        assert_eq!(receive(&mut t), frame(ALL, 1, Some(10)));
        assert_eq!(receive(&mut n), frame(ALL, 1, None));
        // Frames go to a learned address, with the tag of its VLAN and of another VLAN.
        pass(&mut t, &frame(station(1), 2, Some(10)));
        assert_eq!(receive(&mut a), frame(station(1), 2, None));
        pass(&mut t, &frame(station(1), 2, Some(20)));
        assert_eq!(receive(&mut c), frame(station(1), 2, None));
        assert_eq!(receive(&mut n), frame(station(1), 2, Some(20)));
        for (port, bad) in [(&mut a, [Some(10), Some(20)]), (&mut t, [None, Some(30)])] {
            bad.iter().for_each(|vlan| pass(port, &frame(ALL, 3, *vlan)));
        }
        await_drops(&daemon, "vale0:a", "wrong_vlan", 2);
        await_drops(&daemon, "vale0:t", "wrong_vlan", 2);
        let left = [&mut a, &mut b, &mut c, &mut t, &mut n].map(waiting);
        assert_eq!(left, <[Vec<Vec<u8>>; 5]>::default());
        await_conserved(&daemon);

        let addresses = Connection::connect(daemon.socket()).unwrap().mac_table("vale0").unwrap();
        let addresses: Vec<_> =
            addresses.iter().map(|entry| (entry.mac.as_str(), entry.vlan, entry.port.as_str())).collect();
        let [one, two] = ["02:00:00:00:77:01", "02:00:00:00:77:02"];
        assert_eq!(
            addresses,
            [(one, Some(10), "vale0:a"), (two, Some(10), "vale0:t"), (two, Some(20), "vale0:t")]
        );
        let printed = run(daemon.ringroad(&["--json", "list"]));
        let list: Value = serde_json::from_slice(&printed.stdout).unwrap();
        let settings: Vec<_> =
            list["ports"].as_array().unwrap().iter().map(|port| &port["settings"]).collect();
        assert_eq!(settings[3], &serde_json::json!({"native": 10, "trunk": "20"}), "{list}");
        let printed = String::from_utf8(run(daemon.ringroad(&["list"])).stdout).unwrap();
        assert!(printed.contains("trunk=10,20") && printed.contains("vlan=20"), "{printed}");
    }
}

#[test]
fn isolated_ports_and_storms_are_kept_from_others() {
    let daemon = Daemon::start();
    let [mut a, mut b, mut up] =
        ["vale0:a@isolated,storm=1", "vale0:b@isolated", "vale0:up"].map(|name| daemon.open(name));
    pass(&mut b, &frame(ALL, 2, None));
    assert_eq!(receive(&mut up), frame(ALL, 2, None));
    pass(&mut a, &frame(station(2), 1, None));
    await_drops(&daemon, "vale0:a", "isolated", 1);
    pass(&mut up, &frame(station(2), 3, None));
    assert_eq!(receive(&mut b), frame(station(2), 3, None));
    // The storm limit has a token for at least one frame to several ports, and not for all of many.
    const STORM: u64 = 500;
    for _ in 0..STORM {
        send(&mut a, &frame(ALL, 1, None));
    }
    a.tx().sync().unwrap();
    assert_eq!(receive(&mut up), frame(ALL, 1, None));
    let status = daemon.await_status("the end of a storm", |status| {
        status.ports.iter().any(|port| port.name == "vale0:a" && port.counters.received_frames == STORM + 1)
    });
    let port = status.ports.iter().find(|port| port.name == "vale0:a").unwrap();
    let dropped = drops(port, "storm");
    assert!((1..STORM).contains(&dropped), "{port:#?}");
    assert_eq!(waiting(&mut up).len() as u64 + 1, STORM - dropped);
    // Frames to known addresses pass nevertheless.
    pass(&mut up, &frame(station(1), 3, None));
    assert_eq!(receive(&mut a), frame(station(1), 3, None));
    for _ in 0..100 {
        pass(&mut a, &frame(station(3), 1, None));
        assert_eq!(receive(&mut up), frame(station(3), 1, None));
    }
    await_conserved(&daemon);
}

const RULES: &str = "[socket]\nmode = \"0666\"\n\
    [[port_policy]]\nport = \"vale0:guest*\"\nvlan = 10\nisolated = true\n\
    [[port]]\nname = \"vale0:up@trunk=10,20\"\n";

#[test]
fn no_program_leaves_the_vlan_that_the_configuration_gives_its_port() {
    let daemon = Daemon::with_config(RULES);
    for options in ["@vlan=20", "@trunk=all", "@trunk=10,native=10"] {
        let printed = refusal(&daemon, &format!("vale0:guest1{options}"));
        assert!(printed.contains("vlan=10,isolated") && printed.contains("[[port_policy]]"), "{printed}");
    }
    for (name, part) in
        [("vale0:up@vlan=10", "was made with trunk=10,20"), ("vale0:x@vlan=4095", "1 to 4094")]
    {
        let printed = refusal(&daemon, name);
        assert!(printed.contains(part), "{printed}");
    }
    let mut up = daemon.open("vale0:up");
    // Ports are opened by the library, by a netmap program, and by a command.
    let mut guest = daemon.open("vale0:guest1");
    let mut netmap = Command::new(env!("CARGO_BIN_EXE_netmap_user"));
    netmap.arg(daemon.socket()).arg("vale0:guest2");
    let mut netmap = Service::start_interactive(netmap);
    netmap.await_line("done");
    let attached = run(daemon.ringroad(&["attach", "vale0:guest3@storm=9", "--for-program"]));
    assert!(attached.status.success(), "{}", stderr(&attached));
    let attached = run(daemon.ringroad(&["attach", "vale0:guest4@vlan=20", "--for-program"]));
    assert!(!attached.status.success() && stderr(&attached).contains("not vlan=20"), "{}", stderr(&attached));
    for (port, expected) in [
        ("vale0:guest1", "vlan=10,isolated"),
        ("vale0:guest2", "vlan=10,isolated"),
        ("vale0:guest3", "vlan=10,isolated,storm=9"),
        ("vale0:up", "trunk=10,20"),
    ] {
        assert_eq!(settings(&daemon, port), expected, "{port}");
    }
    pass(&mut guest, &frame(ALL, 1, None));
    assert_eq!(receive(&mut up), frame(ALL, 1, Some(10)));
    pass(&mut guest, &frame(ALL, 1, Some(20)));
    await_drops(&daemon, "vale0:guest1", "wrong_vlan", 1);

    // Changes of a reload apply to open ports.
    daemon.write_config(&RULES.replace("vlan = 10", "vlan = 20"));
    let reloaded = run(daemon.ringroad(&["reload"]));
    assert!(reloaded.status.success(), "{}", stderr(&reloaded));
    assert_eq!(settings(&daemon, "vale0:guest1"), "vlan=20,isolated");
    pass(&mut guest, &frame(ALL, 1, None));
    assert_eq!(receive(&mut up), frame(ALL, 1, Some(20)));
    drop(netmap);
    let report = daemon.upgrade();
    assert_eq!(report["lost"], serde_json::json!([]), "{report}");
    assert_eq!(settings(&daemon, "vale0:guest1"), "vlan=20,isolated");
    pass(&mut up, &frame(station(1), 2, Some(20)));
    assert_eq!(receive(&mut guest), frame(station(1), 2, None));
    pass(&mut guest, &frame(ALL, 1, Some(20)));
    await_drops(&daemon, "vale0:guest1", "wrong_vlan", 2);
    await_conserved(&daemon);
}

#[test]
fn vlans_and_flow_tables_exclude_each_other() {
    let daemon = Daemon::start();
    let a = daemon.open("vale0:a@vlan=10");
    let printed = run(daemon.ringroad(&["switch", "vale0", "--openflow"]));
    assert!(
        !printed.status.success() && stderr(&printed).contains("vale0:a has settings"),
        "{}",
        stderr(&printed)
    );
    drop(a);
    daemon.await_status("no ports", |status| status.ports.is_empty());
    let printed = run(daemon.ringroad(&["switch", "vale0", "--openflow"]));
    assert!(printed.status.success(), "{}", stderr(&printed));
    let printed = refusal(&daemon, "vale0:a@isolated");
    assert!(printed.contains("vale0 has flow tables"), "{printed}");
    let _plain = daemon.open("vale0:a");
    let bad = Daemon::with_config("[switch]\nmac_entries = 1024\n");
    let printed = refusal(&bad, "vale0:a@vlan=10");
    assert!(printed.contains("16384") && printed.contains("mac_entries"), "{printed}");
    let _isolated = bad.open("vale0:a@isolated");
}

#[test]
fn a_trunk_at_an_interface_has_tags_that_tcpdump_reads() {
    if !is_root() {
        return;
    }
    let (outside, inside) = (NetworkNamespace::new(), NetworkNamespace::new());
    careless_cable(&outside, "outer", &inside, "inner", 1500, 1);
    let daemon = Daemon::within(&outside);
    let attach = ["attach", "vale0:up@trunk=10,20,native=5", "--driver", "outer"];
    let attached = run(daemon.ringroad_within(&outside, &attach));
    assert!(attached.status.success(), "{}", stderr(&attached));
    let mut tcpdump = inside.command(&[
        "tcpdump",
        "-i",
        "inner",
        "-n",
        "-e",
        "-l",
        "-c",
        "2",
        "ether proto 0x88b5 or vlan",
    ]);
    tcpdump.env("LC_ALL", "C");
    let mut tcpdump = Service::start(tcpdump);
    tcpdump.await_line("listening on");
    let [mut native, mut guest] =
        ["vale0:native@vlan=5", "vale0:guest@vlan=20"].map(|name| daemon.open(name));
    pass(&mut native, &frame(ALL, 1, None));
    let printed = tcpdump.await_line("02:00:00:00:77:01 > ff:ff:ff:ff:ff:ff");
    assert!(printed.contains("length 100") && !printed.contains("vlan"), "{printed}");
    pass(&mut guest, &frame(ALL, 2, None));
    let printed = tcpdump.await_line("02:00:00:00:77:02 > ff:ff:ff:ff:ff:ff");
    assert!(printed.contains("802.1Q (0x8100), length 104: vlan 20"), "{printed}");
    await_conserved(&daemon);
}

/// A container on a port, with an address.
fn container(daemon: &Daemon, name: &str, port: &str, host: u8) -> Service {
    let address = format!("10.79.0.{host}/24");
    let arguments =
        ["--json", "container", name, "--port", port, "--address", &address, "--", "sleep", "1000"];
    let mut command = daemon.ringroad(&arguments);
    command.env("RINGROAD_RUNTIME_DIR", daemon.folder());
    let mut service = Service::start(command);
    service.await_line("\"ready\":true");
    service
}

const PIECE: usize = 1 << 20;

fn carry(sender: &mut TcpStream, receiver: &mut TcpStream) {
    let piece: Vec<u8> = (0..PIECE).map(|at| (at / 7) as u8).collect();
    let mut got = vec![0; PIECE];
    std::thread::scope(|scope| {
        scope.spawn(|| sender.write_all(&piece).unwrap());
        receiver.read_exact(&mut got).unwrap();
    });
    assert!(got == piece);
}

#[test]
fn containers_of_a_vlan_speak_tcp_through_the_switch_and_not_within_the_kernel() {
    if !is_root() {
        return;
    }
    let outside = NetworkNamespace::new();
    let rules = "[[port_policy]]\nport = \"vale1:*\"\nisolated = true\n";
    let daemon = Daemon::within(&outside);
    let names = ["rrc", "rrs", "rrx", "rry", "rrz"].map(unused_name);
    let ports = ["vale0:c@vlan=10", "vale0:s@vlan=10", "vale0:x@vlan=20", "vale1:c", "vale1:s"];
    let mut containers: Vec<_> = names
        .iter()
        .zip(ports)
        .zip([1, 2, 3, 1, 2])
        .map(|((name, port), host)| container(&daemon, name, port, host))
        .collect();
    let spaces = names.each_ref().map(|name| Namespace::Named(name.clone()));
    let connect = |from: &Namespace, to: &Namespace| {
        let listener = in_namespace(to, || TcpListener::bind("10.79.0.2:7").unwrap()).unwrap();
        let sender = in_namespace(from, || TcpStream::connect("10.79.0.2:7").unwrap()).unwrap();
        (sender, listener.accept().unwrap().0)
    };
    let (mut sender, mut receiver) = connect(&spaces[0], &spaces[1]);
    let (mut plain_sender, mut plain_receiver) = connect(&spaces[3], &spaces[4]);
    let busy = |status: &StatusReport| status.workers.iter().map(|worker| worker.frames).sum::<u64>();
    // Between ports without settings the kernel passes frames on once it knows the addresses. It gets all addresses at
    // once.
    carry(&mut sender, &mut receiver);
    daemon.await_status("a piece that passes within the kernel", |before| {
        carry(&mut plain_sender, &mut plain_receiver);
        busy(&daemon.status()) == busy(before)
    });
    let before = daemon.status();
    carry(&mut sender, &mut receiver);
    // A frame has 64 KiB at most.
    assert!(busy(&daemon.status()) - busy(&before) >= (PIECE >> 16) as u64);
    let answers = |from: &str, host: u8, limit_s: &str| {
        let address = format!("10.79.0.{host}");
        let arguments = ["netns", "exec", from, "ping", "-n", "-c", "1", "-W", limit_s, &address];
        run({
            let mut ping = Command::new("ip");
            ping.args(arguments);
            ping
        })
        .status
        .success()
    };
    let ping = |from: &str, host: u8| answers(from, host, &patience_s());
    let is_silent = |from: &str, host: u8| !answers(from, host, "1");
    assert!(ping(&names[0], 2) && is_silent(&names[0], 3), "another VLAN");
    assert!(ping(&names[3], 2));
    // A rule that is added later applies to frames that pass within the kernel, too.
    daemon.write_config(rules);
    let reloaded = run(daemon.ringroad(&["reload"]));
    assert!(reloaded.status.success(), "{}", stderr(&reloaded));
    assert!(is_silent(&names[3], 2) && is_silent(&names[4], 1), "both are isolated");
    let status = daemon.status();
    let isolated: u64 = status.ports.iter().map(|port| drops(port, "isolated")).sum();
    let nowhere: u64 = status.ports.iter().map(|port| drops(port, "no_destination")).sum();
    assert!(isolated + nowhere > 0, "{status:#?}");
    daemon.write_config("");
    assert!(run(daemon.ringroad(&["reload"])).status.success());
    assert!(ping(&names[3], 2));
    carry(&mut plain_sender, &mut plain_receiver);
    await_conserved(&daemon);
    drop((sender, receiver, plain_sender, plain_receiver));
    for container in &mut containers {
        container.signal(Signal::TERM);
        container.await_end();
    }
    assert!(daemon.status().ports.is_empty());
}

fn ringroad(daemon: &Daemon, arguments: &[&str]) -> String {
    let printed = run(daemon.ringroad(arguments));
    assert!(printed.status.success(), "{arguments:?}: {}", stderr(&printed));
    String::from_utf8(printed.stdout).unwrap()
}

#[test]
fn options_change_while_frames_pass_and_no_frame_is_lost() {
    let daemon = Daemon::start();
    let stream = daemon.stream();
    // Port `b` has no options, so it gets the frames of all VLANs.
    for options in
        ["vlan=10", "vlan=20,isolated", "trunk=10-20,native=5,storm=9000000", "isolated", ""].repeat(4)
    {
        let changed = match options {
            "" => run(daemon.ringroad(&["port", "--unset", "vale0:a"])),
            options => run(daemon.ringroad(&["port", &format!("vale0:a@{options}")])),
        };
        assert!(changed.status.success(), "{options}: {}", stderr(&changed));
        assert_eq!(settings(&daemon, "vale0:a"), options);
        stream.await_frames(100);
    }
    let (sent, received) = stream.end();
    assert_eq!(received, sent);
}

#[test]
fn changed_options_hold_for_the_next_frames_and_are_kept() {
    let daemon = Daemon::with_config("[[port_policy]]\nport = \"vale0:fixed\"\nvlan = 7\n");
    let [mut a, mut b, _fixed] = ["vale0:a@vlan=10", "vale0:b", "vale0:fixed"].map(|name| daemon.open(name));
    ringroad(&daemon, &["attach", "vale0:up@trunk=10,20,queues=2", "--for-program"]);
    ringroad(&daemon, &["port", "vale0:b@vlan=10"]);
    pass(&mut a, &frame(ALL, 1, None));
    assert_eq!(receive(&mut b), frame(ALL, 1, None));
    ringroad(&daemon, &["port", "vale0:b@vlan=20"]);
    ringroad(&daemon, &["port", "vale0:up@vlan=30,isolated"]);
    pass(&mut a, &frame(ALL, 1, None));
    await_drops(&daemon, "vale0:a", "no_destination", 1);
    assert_eq!(waiting(&mut b), Vec::<Vec<u8>>::new());
    for (arguments, part) in [
        (&["port", "vale0:nobody@vlan=1"][..], "there is no port vale0:nobody"),
        (&["port", "vale0:fixed@vlan=8"], "vlan=7"),
        (&["port", "vale0:a@queues=2"], "only VLANs, isolation and storm limits"),
        (&["port", "vale0:a@vlan=5000"], "1 to 4094"),
        (&["port", "vale0:a"], "--unset vale0:a"),
        (&["port"], "PORT@OPTIONS"),
    ] {
        let printed = run(daemon.ringroad(arguments));
        assert!(
            !printed.status.success() && stderr(&printed).contains(part),
            "{arguments:?}: {}",
            stderr(&printed)
        );
    }
    // The latest settings are kept by an upgrade, `config save` and a reload.
    daemon.upgrade();
    assert_eq!(settings(&daemon, "vale0:b"), "vlan=20");
    ringroad(&daemon, &["config", "save"]);
    let saved = std::fs::read_to_string(daemon.folder().join("config.toml")).unwrap();
    assert!(saved.contains("\"vale0:up@queues=2,vlan=30,isolated\""), "{saved}");
    ringroad(&daemon, &["reload"]);
    assert_eq!(settings(&daemon, "vale0:up"), "vlan=30,isolated");
    assert_eq!(settings(&daemon, "vale0:b"), "vlan=20");
    // Flow tables and options exclude each other.
    ringroad(&daemon, &["switch", "vale1", "--openflow"]);
    let _c = daemon.open("vale1:c");
    let refused = run(daemon.ringroad(&["port", "vale1:c@isolated"]));
    assert!(stderr(&refused).contains("flow tables"), "{}", stderr(&refused));
}

/// The bytes of a frame in hexadecimal digits.
fn digits(frame: &[u8]) -> String {
    frame.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn an_explanation_predicts_what_the_options_of_ports_do_to_frames() {
    let daemon = Daemon::start();
    let names = [
        "vale0:a@vlan=10",
        "vale0:b@vlan=10,isolated",
        "vale0:c@vlan=20",
        "vale0:t@trunk=10,20",
        "vale0:n@trunk=20,native=10,isolated",
        "vale0:u",
    ];
    let mut ports = names.map(|name| daemon.open(name));
    // Stations 1 and 3 are known.
    pass(&mut ports[0], &frame(ALL, 1, None));
    pass(&mut ports[2], &frame(ALL, 3, None));
    daemon.await_status("known addresses", |status| status.switches[0].macs == 2);
    let two_tags = {
        let inner = frame(ALL, 9, Some(20));
        [&inner[..12], &[0x81, 0, 0, 10], &inner[12..]].concat()
    };
    let mut compared = 0;
    for from in 0..names.len() {
        for sent in [
            frame(ALL, 9, None),
            frame(station(1), 9, None),
            frame(station(1), 9, Some(10)),
            frame(station(3), 9, Some(20)),
            frame(ALL, 9, Some(20)),
            frame(ALL, 9, Some(30)),
            frame(ALL, 9, Some(0)),
            two_tags.clone(),
        ] {
            await_conserved(&daemon);
            ports.iter_mut().for_each(|port| drop(waiting(port)));
            let before = daemon.status();
            let name = names[from].split('@').next().unwrap();
            let printed = ringroad(
                &daemon,
                &[
                    "--json",
                    "explain",
                    "vale0",
                    "--hex",
                    &digits(&sent),
                    "--in-port",
                    name.split(':').nth(1).unwrap(),
                ],
            );
            let printed: Value = serde_json::from_str(&printed).unwrap();
            // Nothing was counted or learned, and no limit used up.
            let counted = |status: &StatusReport| {
                let totals = &status.switches[0].totals;
                (totals.received_frames, totals.drops.clone())
            };
            assert_eq!(counted(&daemon.status()), counted(&before));
            assert_eq!(daemon.status().switches[0].macs, before.switches[0].macs);
            pass(&mut ports[from], &sent);
            daemon.await_status("the frame", |status| counted(status).0 > counted(&before).0);
            let after = await_conserved(&daemon);
            let dropped = counted(&after)
                .1
                .into_iter()
                .find(|(cause, count)| *count > counted(&before).1.get(cause).copied().unwrap_or(0));
            assert_eq!(
                printed["dropped"].as_str(),
                dropped.as_ref().map(|(cause, _)| cause.as_str()),
                "{printed:#}"
            );
            for (port, name) in ports.iter_mut().zip(names) {
                let name = name.split('@').next().unwrap();
                let explained: Vec<String> = printed["outputs"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|output| {
                        output["ports"].as_array().unwrap().iter().any(|port| port["name"] == name)
                    })
                    .map(|output| output["start"].as_str().unwrap().to_owned())
                    .collect();
                let came: Vec<String> = waiting(port).iter().map(|frame| digits(frame)).collect();
                assert_eq!(came, explained, "{name} of {printed:#}");
                compared += came.len();
            }
            // Station 9 must be new each time.
            ringroad(&daemon, &["macs", "vale0", "--flush"]);
            pass(&mut ports[0], &frame(station(9), 1, None));
            pass(&mut ports[2], &frame(station(9), 3, None));
            daemon.await_status("known addresses", |status| status.switches[0].macs == 2);
        }
    }
    assert!(compared > 40, "{compared}");
    let printed =
        ringroad(&daemon, &["explain", "vale0", "--hex", &digits(&frame(ALL, 9, None)), "--in-port", "a"]);
    assert!(printed.contains("port      vlan=10: VLAN 10"), "{printed}");
    let printed =
        ringroad(&daemon, &["explain", "vale0", "--hex", &digits(&frame(ALL, 9, None)), "--in-port", "t"]);
    assert!(printed.contains("trunk=10,20: no VLAN") && printed.contains("dropped: wrong_vlan"), "{printed}");
    // The storm limit is used up, until a token comes.
    let mut stormy = daemon.open("vale0:s@vlan=20,storm=1");
    let beyond = (0..100).any(|_| {
        pass(&mut stormy, &frame(ALL, 8, None));
        await_conserved(&daemon);
        let arguments = ["explain", "vale0", "--hex", &digits(&frame(ALL, 8, None)), "--in-port", "s"];
        ringroad(&daemon, &arguments).contains("dropped: storm")
    });
    assert!(beyond);
}
