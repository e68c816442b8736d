//! OpenFlow with the real binaries: Open vSwitch's tools and its controller work with Ringroad's switch.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::process::Command;

use ringroad_tests::command::{run, stderr};
use ringroad_tests::daemon::{Daemon, PATIENCE};
use ringroad_tests::flow_switch::{FlowSwitch, pass};
use ringroad_tests::frames::{number_of, numbered, receive, receive_from, send, station};
use ringroad_tests::reserved_port::ReservedTcpPort;
use ringroad_tests::service::Service;
use serde_json::Value;

const LEN: usize = 100;

#[test]
fn flows_of_ovs_ofctl_decide_count_and_rewrite() {
    let mut switch = FlowSwitch::new(&[]);
    switch.ofctl(&[
        "add-flow",
        "table=0,priority=5,in_port=1,dl_type=0x88b5,actions=mod_dl_src:02:00:00:00:77:09,output:2",
    ]);
    switch.ofctl(&["add-flow", "table=0,priority=9,dl_dst=02:00:00:00:77:33,actions=push_vlan:0x8100,set_field:4196->vlan_vid,output:2,output:3"]);
    for number in 0..10 {
        pass(&mut switch.a, &numbered(station(2), station(1), number, LEN));
        let frame = receive_from(&mut switch.b, station(9));
        assert_eq!((number_of(&frame, station(9)), frame.len()), (Some(number), LEN));
    }
    pass(&mut switch.b, &numbered(station(0x33), station(2), 0, LEN));
    let tagged = receive(&mut switch.c);
    assert_eq!((&tagged[12..16], tagged.len()), (&[0x81, 0, 0, 100][..], LEN + 4));
    // Frames from port 3 match no flow.
    pass(&mut switch.c, &numbered(station(1), station(3), 0, LEN));
    switch.await_report("the frame without a flow", |_| switch.dropped("no_flow") == 1);
    let flows = switch.ofctl(&["dump-flows"]);
    assert!(flows.contains("n_packets=10, n_bytes=1000, priority=5"), "{flows}");
    assert!(flows.contains("n_packets=1, n_bytes=100, priority=9"), "{flows}");
    assert!(switch.ofctl(&["dump-tables"]).contains("active=2, lookup=12, matched=11"));
    let changed = switch.ofctl(&["dump-aggregate"]);
    assert!(changed.contains("packet_count=11 byte_count=1100 flow_count=2"), "{changed}");
    switch.ofctl(&["del-flows", "dl_dst=02:00:00:00:77:33"]);
    switch.await_flows(1);
    let ports = switch.ofctl(&["dump-ports", "1"]);
    assert!(ports.contains("rx pkts=10, bytes=1000"), "{ports}");
}

#[test]
fn ringroad_flows_shows_adds_replaces_compares_and_deletes() {
    let switch = FlowSwitch::new(&[]);
    let flows = |arguments: &[&str]| {
        let printed = run(switch.daemon.ringroad(&[&["flows"], arguments].concat()));
        (printed.status.code(), String::from_utf8(printed.stdout.clone()).unwrap(), stderr(&printed))
    };
    let added =
        flows(&["add", "vale0", "priority=5,in_port=1,actions=output:2", "tcp,tp_dst=80,actions=drop"]);
    assert_eq!((added.0, added.1.trim()), (Some(0), "2 added"), "{}", added.2);
    let dump = flows(&["dump", "vale0", "in_port=1"]).1;
    assert!(
        dump.contains("n_packets=0, n_bytes=0, priority=5,in_port=1 actions=output:2")
            && dump.lines().count() == 1,
        "{dump}"
    );
    let by_ofctl = switch.ofctl(&["dump-flows", "in_port=1"]);
    assert_eq!(without_duration(&dump), without_duration(by_ofctl.lines().nth(1).unwrap()));
    let file = switch.daemon.folder().join("flows");
    std::fs::write(&file, "# wanted\npriority=5,in_port=1,actions=output:3\npriority=7,arp,actions=NORMAL\n")
        .unwrap();
    let file = file.to_str().unwrap();
    let difference = flows(&["diff", "vale0", file]);
    assert_eq!(difference.0, Some(1));
    assert!(
        difference.1.contains("-priority=5,in_port=1 actions=output:2")
            && difference.1.contains("+priority=7,arp actions=NORMAL"),
        "{}",
        difference.1
    );
    assert_eq!(flows(&["replace", "vale0", file]).1.trim(), "2 added, 1 deleted");
    assert_eq!(flows(&["diff", "vale0", file]).0, Some(0));
    assert_eq!(flows(&["del", "vale0", "arp"]).1.trim(), "1 deleted");
    switch.await_flows(1);
    for (arguments, part) in [
        (&["add", "vale0", "in_port=1"][..], "has no actions"),
        (&["add", "vale0", "in_port=x,actions=drop"], "in_port"),
        (&["add", "vale0", "in_port=1,actions=group:9"], "OFPBAC_BAD_OUT_GROUP"),
        (&["dump", "vale9"], "vale9 has no flow tables"),
        (&["replace", "vale0", "/nonexistent"], "/nonexistent"),
    ] {
        let (status, _, printed) = flows(arguments);
        assert!(status != Some(0) && printed.contains(part), "{arguments:?}: {printed}");
    }
}

/// A dumped flow without its duration, which differs from one moment to the next.
fn without_duration(flow: &str) -> String {
    let words = flow.trim().split(' ').filter(|word| !word.starts_with("duration="));
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn groups_and_meters_of_ovs_ofctl_work() {
    let mut switch = FlowSwitch::new(&[]);
    switch.ofctl(&[
        "add-group",
        "group_id=7,type=all,bucket=output:2,bucket=set_field:02:00:00:00:77:44->eth_dst,output:3",
    ]);
    switch.ofctl(&["add-meter", "meter=1,pktps,burst,band=type=drop,rate=1,burst_size=3"]);
    switch.ofctl(&["add-flow", "in_port=1,actions=meter:1,group:7"]);
    for number in 0..20 {
        send(&mut switch.a, &numbered(station(2), station(1), number, LEN));
    }
    switch.a.tx().sync().unwrap();
    assert_eq!(number_of(&receive_from(&mut switch.b, station(1)), station(1)), Some(0));
    let copy = receive_from(&mut switch.c, station(1));
    assert_eq!(copy[..6], station(0x44));
    switch.await_report("frames above the rate", |_| switch.dropped("metered") > 0);
    assert!(switch.ofctl(&["dump-groups"]).contains("group_id=7,type=all"));
    let meters = switch.ofctl(&["meter-stats"]);
    assert!(meters.contains("packet_in_count:20"), "{meters}");
    switch.ofctl(&["del-groups"]);
    // The flow went with its group.
    switch.await_flows(0);
}

#[test]
fn the_meter_of_the_controllers_limits_their_frames_and_counts_the_rest() {
    let mut switch = FlowSwitch::new(&[]);
    switch.ofctl(&["add-meter", "meter=controller,pktps,burst,band=type=drop,rate=1,burst_size=3"]);
    switch.ofctl(&["add-flow", "in_port=1,actions=controller,output:2"]);
    for number in 0..20 {
        send(&mut switch.a, &numbered(station(2), station(1), number, LEN));
    }
    switch.a.tx().sync().unwrap();
    for number in 0..20 {
        assert_eq!(number_of(&receive_from(&mut switch.b, station(1)), station(1)), Some(number));
    }
    let metered = |report: &Value| report["metered_packet_ins"].as_u64().unwrap();
    switch.await_report("all frames", |report| {
        metered(report) > 0 && metered(report) + report["packet_ins"].as_u64().unwrap() == 20
    });
    let count = metered(&switch.report());
    let stats = switch.ofctl(&["meter-stats", "meter=controller"]);
    assert!(
        stats.contains("packet_in_count:20") && stats.contains(&format!("packet_count:{count} ")),
        "{stats}"
    );
    let printed = run(switch.daemon.ringroad(&["switch", "vale0"]));
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.contains(&format!("{count} frames for controllers metered")), "{printed}");
    switch.daemon.upgrade();
    switch.await_report("the thread", |report| report["waiting"].is_null() && metered(report) == count);
    let dumped = switch.ofctl(&["dump-meters"]);
    assert!(dumped.contains("meter=controller"), "{dumped}");
    switch.ofctl(&["del-meter", "meter=controller"]);
    // It is gone already.
    switch.ofctl(&["del-meter", "meter=controller"]);
    assert_eq!(metered(&switch.report()), count);
}

#[test]
fn ovs_ofctl_shows_and_changes_all_that_there_is() {
    let switch = FlowSwitch::new(&[]);
    let file = switch.daemon.folder().join("flows");
    let flows: String =
        (0..500).map(|port| format!("priority={port},tcp,tp_dst={port},actions=output:2\n")).collect();
    std::fs::write(&file, flows).unwrap();
    let file = file.to_str().unwrap();
    // Each command is listed with a part of its output.
    for (arguments, part) in [
        (&["add-flows", file][..], ""),
        (&["dump-aggregate"], "flow_count=500"),
        (&["diff-flows", file], ""),
        (&["mod-flows", "tcp,tp_dst=7,actions=output:3"], ""),
        (&["dump-flows", "tcp,tp_dst=7"], "actions=output:3"),
        (&["--strict del-flows", "priority=8,tcp,tp_dst=8"], ""),
        (&["dump-aggregate"], "flow_count=499"),
        (&["replace-flows", file], ""),
        (&["dump-aggregate"], "flow_count=500"),
        (&["dump-flows", "tcp,tp_dst=7"], "actions=output:2"),
        (&["show"], "n_tables:254"),
        (&["dump-desc"], "Manufacturer: Ringroad"),
        (&["dump-tables"], "table 0"),
        (&["dump-table-features"], "max_entries=2000000"),
        (&["dump-ports-desc", "2"], "2(b)"),
        (&["dump-ports"], "3 ports"),
        (&["mod-port", "2", "no-forward"], ""),
        (&["show"], "NO_FWD"),
        (&["mod-port", "b", "forward"], ""),
        (&["get-frags"], "normal"),
        (&["set-frags", "drop"], ""),
        (&["get-frags"], "drop"),
        (&["set-frags", "normal"], ""),
        (&["queue-stats"], ""),
        (&["queue-get-config", "1"], ""),
        (&["add-group", "group_id=1,type=select,bucket=weight:3,output:1,bucket=weight:5,output:2"], ""),
        (&["mod-group", "group_id=1,type=select,bucket=weight:7,output:1"], ""),
        (&["dump-groups"], "weight:7"),
        (&["dump-group-stats", "group_id=1"], "group_id=1"),
        (&["dump-group-features"], "max_groups=0x2710"),
        (&["del-groups", "group_id=1"], ""),
        (&["add-meter", "meter=1,kbps,band=type=drop,rate=1000"], ""),
        (&["mod-meter", "meter=1,kbps,band=type=drop,rate=2000"], ""),
        (&["dump-meters"], "rate=2000"),
        (&["meter-stats", "meter=1"], "meter:1"),
        (&["meter-features"], "max_meter:10000"),
        (&["del-meters"], ""),
        (&["probe"], ""),
        (&["ping", "1000"], "1000 bytes"),
        (&["benchmark", "100", "200"], "packets/s"),
    ] {
        let printed = switch.ofctl(arguments);
        assert!(printed.contains(part), "{arguments:?}: {printed}");
    }
    // Features that OpenFlow 1.3 does not have are refused, not ignored.
    let bundle = run(switch.ofctl_command("--bundle add-flow", &["actions=drop"]));
    assert!(!bundle.status.success());
}

#[test]
fn an_explanation_predicts_the_path_of_frames_and_changes_nothing() {
    let mut switch = FlowSwitch::new(&[]);
    switch.ofctl(&["add-meter", "meter=1,pktps,burst,band=type=drop,rate=1,burst_size=1"]);
    switch.ofctl(&[
        "add-flow",
        "table=0,priority=5,in_port=1,actions=meter:1,mod_dl_src:02:00:00:00:77:09,output:2,goto_table:1",
    ]);
    switch.ofctl(&["add-flow", "table=1,actions=NORMAL"]);
    let frame = numbered(station(2), station(1), 7, LEN);
    let digits: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
    let explain = |switch: &FlowSwitch, arguments: &[&str]| {
        let printed = run(switch.daemon.ringroad(&[&["--json", "explain", "vale0"], arguments].concat()));
        assert!(printed.status.success(), "{}", stderr(&printed));
        serde_json::from_slice::<Value>(&printed.stdout).unwrap()
    };
    let whole = ["--hex", &digits, "--in-port", "a"];
    let before = explain(&switch, &whole);
    for _ in 0..5 {
        assert_eq!(explain(&switch, &whole), before, "neither the meter nor the addresses know of it");
    }
    assert_eq!(before["dropped"], Value::Null);
    let ports = |output: &Value| output["ports"][0]["name"].as_str().unwrap().to_owned();
    assert_eq!(ports(&before["outputs"][0]), "vale0:b");
    pass(&mut switch.a, &frame);
    for (output, port) in [(0, &mut switch.b), (1, &mut switch.c)] {
        let came: String = receive(port).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(before["outputs"][output]["start"], came);
    }
    // NORMAL floods, so port b gets the frame a second time.
    let _ = receive(&mut switch.b);
    let flows = switch.ofctl(&["dump-flows"]);
    assert!(flows.contains("n_packets=1, n_bytes=100, priority=5"), "{flows}");
    assert!(switch.ofctl(&["meter-stats"]).contains("packet_in_count:1"));
    // The source address that the flow set was learned at the input port.
    let back = ["in_port=2,dl_src=02:00:00:00:77:02,dl_dst=02:00:00:00:77:09,dl_type=0x88b5"];
    switch.ofctl(&["add-flow", "in_port=2,actions=NORMAL"]);
    let back = explain(&switch, &back);
    assert_eq!(ports(&back["outputs"][0]), "vale0:a", "{back:#}");
    assert_eq!(back["steps"][1]["reason"], "known");
    // Errors are reported for these arguments.
    for (arguments, part) in [
        (&["in_port=9"][..], "no port"),
        (&["tcp"], "in_port"),
        (&["in_port=1,nw_dst=10.0.0.0/8,ip"], "leave the mask out"),
        (&["in_port=1", "--hex", "00"], "--hex"),
        (&["--pcap", "/nonexistent", "--in-port", "a"], "/nonexistent"),
    ] {
        let printed = run(switch.daemon.ringroad(&[&["explain", "vale0"], arguments].concat()));
        assert!(
            !printed.status.success() && stderr(&printed).contains(part),
            "{arguments:?}: {}",
            stderr(&printed)
        );
    }
}

#[test]
fn an_explanation_of_groups_in_groups_ends() {
    let switch = FlowSwitch::new(&[]);
    // Each group has the previous group in twenty buckets, which makes 20 to the power of 12 paths.
    let bucket = |group: u32| format!(",bucket=group:{}", group - 1).repeat(20);
    let mut groups = "group_id=1,type=all,bucket=output:2\n".to_owned();
    for group in 2..14 {
        groups.push_str(&format!("group_id={group},type=all{}\n", bucket(group)));
    }
    let file = switch.daemon.folder().join("groups");
    std::fs::write(&file, groups).unwrap();
    switch.ofctl(&["add-groups", file.to_str().unwrap()]);
    switch.ofctl(&["add-flow", "actions=group:13"]);
    let printed = run(switch.daemon.ringroad(&["--json", "explain", "vale0", "in_port=1"]));
    let explanation: Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!(
        (&explanation["is_cut"], explanation["steps"].as_array().unwrap().len()),
        (&true.into(), 2000)
    );
}

#[test]
fn frames_meet_one_rule_or_the_other_while_thousands_of_changes_come() {
    for workers in 1..=2 {
        let mut switch = FlowSwitch::with_workers(workers, &[]);
        // Both addresses contain the rule's number, and each change replaces both by one message.
        let change = |number: u32| {
            let [high, low] = (number as u16).to_be_bytes();
            let mac = format!("02:00:00:00:{high:02x}:{low:02x}");
            format!("priority=5,in_port=1,actions=set_field:{mac}->eth_src,set_field:{mac}->eth_dst,output:2")
        };
        switch.ofctl(&["add-flow", &change(0)]);
        let file = switch.daemon.folder().join("changes");
        let changes: String = (0..20_000).map(|number| change(number) + "\n").collect();
        std::fs::write(&file, changes).unwrap();
        let mut sender = Service::start(switch.ofctl_command("add-flows", &[file.to_str().unwrap()]));
        let (mut sent, mut seen) = (0, HashSet::new());
        while sender.is_running() || sent < 1000 {
            for _ in 0..16 {
                send(&mut switch.a, &numbered(station(2), station(1), sent, LEN));
                sent += 1;
            }
            switch.a.tx().sync().unwrap();
            for number in sent - 16..sent {
                let frame = receive(&mut switch.b);
                assert_eq!(frame[..6], frame[6..12], "half a rule");
                let source = *frame[6..].first_chunk().unwrap();
                assert_eq!(number_of(&frame, source), Some(number), "a frame was lost");
                seen.insert(source);
            }
        }
        assert!(sender.await_end().0.success());
        assert!(seen.len() > 3, "{} rules seen by {sent} frames", seen.len());
        switch.await_report("all changes", |report| report["flow_mods"] == 20_001);
        let counted = format!("n_packets={sent}, n_bytes={}", sent * LEN as u64);
        let flows = switch.ofctl(&["dump-flows"]);
        assert!(flows.contains(&counted), "{counted}: {flows}");
        assert_eq!(switch.dropped("no_flow"), 0);
    }
}

#[test]
fn a_mirror_shows_frames_as_they_came_and_as_they_leave() {
    let mut switch = FlowSwitch::new(&[]);
    switch.ofctl(&["add-flow", "in_port=1,actions=mod_dl_src:02:00:00:00:77:09,output:2"]);
    let mut monitor = switch.daemon.open("vale0:look");
    for (source, seen) in [("vale0:a", 1), ("vale0:b", 9)] {
        let set = run(switch.daemon.ringroad(&["mirror", source, "--to", "vale0:look"]));
        assert!(set.status.success(), "{}", stderr(&set));
        pass(&mut switch.a, &numbered(station(2), station(1), seen, LEN));
        assert_eq!(number_of(&receive_from(&mut switch.b, station(9)), station(9)), Some(seen));
        assert_eq!(number_of(&receive(&mut monitor), station(seen as u8)), Some(seen));
        let ended = run(switch.daemon.ringroad(&["mirror", source, "--to", "vale0:look", "--remove"]));
        assert!(ended.status.success(), "{}", stderr(&ended));
    }
}

#[test]
fn packets_go_to_the_controller_and_come_from_it() {
    let mut switch = FlowSwitch::new(&[]);
    switch.ofctl(&["add-flow", "priority=1,in_port=1,actions=CONTROLLER:64"]);
    let mut monitor = Service::start(switch.ofctl_command("monitor", &["65534"]));
    // The monitor has subscribed once the switch reports it.
    switch.await_report("the monitor", |report| {
        report["tools"] == 1 && switch.ofctl(&["show"]).contains("miss_send_len=65534")
    });
    pass(&mut switch.a, &numbered(station(2), station(1), 7, LEN));
    let printed = monitor.await_line("OFPT_PACKET_IN");
    assert!(
        printed.contains("total_len=100") && printed.contains("in_port=1") && printed.contains("action"),
        "{printed}"
    );
    monitor.kill();
    let packet: String =
        numbered(station(1), station(8), 5, LEN).iter().map(|byte| format!("{byte:02x}")).collect();
    switch.ofctl(&[
        "packet-out",
        &format!("in_port=controller packet={packet} actions=push_vlan:0x8100,output:2,output:3"),
    ]);
    for port in [&mut switch.b, &mut switch.c] {
        let frame = receive(port);
        assert_eq!((frame.len(), &frame[12..14]), (LEN + 4, &[0x81, 0x00][..]));
    }
}

#[test]
fn a_controller_teaches_the_switch_and_its_flows_stay_without_it() {
    let reserved = ReservedTcpPort::reserve();
    let port = reserved.port();
    let folder = tempfile::tempdir().unwrap();
    let controller = || {
        let mut command = Command::new("ovs-testcontroller");
        command.env("OVS_RUNDIR", folder.path()).args(["--verbose=off", &format!("ptcp:{port}:127.0.0.1")]);
        Service::start(command)
    };
    let mut running = controller();
    let mut switch = FlowSwitch::new(&[&format!("tcp:127.0.0.1:{port}")]);
    let is_connected = |report: &Value| report["controllers"][0]["is_connected"] == true;
    switch.await_report("the controller", is_connected);
    pass(&mut switch.b, &numbered(station(1), station(2), 0, LEN));
    assert_eq!(number_of(&receive_from(&mut switch.a, station(2)), station(2)), Some(0));
    pass(&mut switch.a, &numbered(station(2), station(1), 1, LEN));
    assert_eq!(number_of(&receive_from(&mut switch.b, station(1)), station(1)), Some(1));
    switch.await_report("flows for the two stations", |report| report["flows"].as_u64() > Some(1));
    running.kill();
    switch.await_report("the end of the controller", |report| !is_connected(report));
    pass(&mut switch.a, &numbered(station(2), station(1), 2, LEN));
    assert_eq!(number_of(&receive_from(&mut switch.b, station(1)), station(1)), Some(2));
    let _again = controller();
    switch.await_report("the controller again", is_connected);
}

#[test]
fn a_standalone_switch_learns_until_it_has_a_controller() {
    let mut switch = FlowSwitch::new(&["--fail-mode", "standalone"]);
    pass(&mut switch.a, &numbered(station(2), station(1), 0, LEN));
    assert_eq!(number_of(&receive_from(&mut switch.b, station(1)), station(1)), Some(0));
    assert!(switch.ofctl(&["dump-flows"]).contains("actions=NORMAL"));
}

#[test]
fn learned_addresses_decide_again_when_the_tables_go() {
    let mut switch = FlowSwitch::new(&[]);
    let printed = run(switch.daemon.ringroad(&["switch", "vale0", "--learn"]));
    assert!(printed.status.success(), "{}", stderr(&printed));
    assert!(!switch.socket().exists());
    pass(&mut switch.a, &numbered(station(2), station(1), 0, LEN));
    assert_eq!(number_of(&receive_from(&mut switch.c, station(1)), station(1)), Some(0));
    let again = run(switch.daemon.ringroad(&["switch", "vale0", "--learn"]));
    assert!(stderr(&again).contains("vale0 has no flow tables"), "{}", stderr(&again));
}

#[test]
fn the_configuration_makes_and_ends_flow_tables_and_keeps_those_of_commands() {
    let daemon = Daemon::with_config("[[openflow]]\nswitch = \"vale1\"\ndatapath_id = \"12\"\n");
    let listed = || {
        let printed = run(daemon.ringroad(&["--json", "switch", "--list"]));
        let reports: Value = serde_json::from_slice(&printed.stdout).unwrap();
        let names = reports
            .as_array()
            .unwrap()
            .iter()
            .map(|report| report["settings"]["switch"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(listed(), ["vale1"]);
    let set = run(daemon.ringroad(&["switch", "vale2", "--openflow"]));
    assert!(set.status.success(), "{}", stderr(&set));
    let difference = run(daemon.ringroad(&["config", "diff"]));
    assert!(String::from_utf8_lossy(&difference.stdout).contains("OpenFlow for vale2"), "{difference:?}");
    let saved = run(daemon.ringroad(&["config", "save"]));
    assert!(saved.status.success(), "{}", stderr(&saved));
    let reloaded = run(daemon.ringroad(&["reload"]));
    assert!(reloaded.status.success(), "{}", stderr(&reloaded));
    assert_eq!(listed(), ["vale1", "vale2"]);
    daemon.write_config("");
    assert!(run(daemon.ringroad(&["reload"])).status.success());
    assert_eq!(listed(), [] as [&str; 0]);
}

#[test]
fn a_switch_that_waits_for_its_tables_drops_all_frames() {
    let reserved = ReservedTcpPort::reserve();
    let address = reserved.address();
    let taken = TcpListener::bind(address).unwrap();
    let daemon =
        Daemon::with_config(&format!("[[openflow]]\nswitch = \"vale0\"\nlisten = [\"{address}\"]\n"));
    let [a, b, c] = ["vale0:a", "vale0:b", "vale0:c"].map(|name| daemon.open(name));
    let mut switch = FlowSwitch { daemon, a, b, c };
    assert!(switch.report()["waiting"].as_str().unwrap().contains("cannot listen"), "{:#}", switch.report());
    pass(&mut switch.a, &numbered(station(2), station(1), 0, LEN));
    switch.await_report("the frame without a flow", |_| switch.dropped("no_flow") == 1);
    drop(taken);
    switch.await_report("the tables", |report| report["waiting"].is_null());
    switch.ofctl(&["add-flow", "actions=NORMAL"]);
    pass(&mut switch.a, &numbered(station(2), station(1), 1, LEN));
    assert_eq!(number_of(&receive_from(&mut switch.b, station(1)), station(1)), Some(1));
}

#[test]
fn flows_groups_and_counters_go_through_an_upgrade() {
    let mut switch = FlowSwitch::new(&[]);
    switch.ofctl(&["add-meter", "meter=1,kbps,band=type=drop,rate=1000000"]);
    switch.ofctl(&["add-group", "group_id=7,type=all,bucket=mod_dl_src:02:00:00:00:77:09,output:2"]);
    switch.ofctl(&["add-flow", "cookie=5,priority=9,idle_timeout=3000,in_port=1,actions=meter:1,group:7"]);
    let flows: String = (0..10_000)
        .map(|number| format!("priority=3,dl_type={:#x},actions=output:3\n", 0x6000 + number))
        .collect();
    let file = switch.daemon.folder().join("flows");
    std::fs::write(&file, flows).unwrap();
    switch.ofctl(&["add-flows", file.to_str().unwrap()]);
    let passes = |switch: &mut FlowSwitch, number| {
        pass(&mut switch.a, &numbered(station(2), station(1), number, LEN));
        assert_eq!(number_of(&receive_from(&mut switch.b, station(9)), station(9)), Some(number));
    };
    passes(&mut switch, 1);
    switch.daemon.upgrade();
    // Flows work at once, before the switch's agent runs again.
    passes(&mut switch, 2);
    switch.await_report("the thread", |report| report["waiting"].is_null() && switch.socket().exists());
    switch.await_flows(10_001);
    let flow = switch.ofctl(&["dump-flows", "in_port=1"]);
    assert!(
        flow.contains("cookie=0x5") && flow.contains("n_packets=2, n_bytes=200, idle_timeout=3000"),
        "{flow}"
    );
    assert!(switch.ofctl(&["dump-group-stats"]).contains("packet_count=2,byte_count=200"));
    assert!(switch.ofctl(&["meter-stats"]).contains("packet_in_count:2"));
    assert!(switch.ofctl(&["dump-tables"]).contains("active=10001, lookup=2, matched=2"));
    // The kept flows and groups are entries like others.
    passes(&mut switch, 3);
    switch.ofctl(&["del-groups"]);
    // The flow went with its group.
    switch.await_flows(10_000);
    switch.daemon.upgrade();
    switch.await_report("the thread", |report| report["waiting"].is_null() && switch.socket().exists());
    switch.await_flows(10_000);
}

#[test]
fn settings_that_cannot_be_are_refused_with_what_would_do() {
    let daemon = Daemon::start();
    for (arguments, part) in [
        (&["switch", "eth0", "--openflow"][..], "not a name of a switch"),
        (&["switch", "vale0:a", "--openflow"], "not a name of a switch"),
        (&["switch", "vale0", "--openflow", "127.0.0.1:6653"], "tcp:HOST:PORT"),
        (&["switch", "vale0", "--openflow", "--listen", "6654"], "127.0.0.1:6654"),
        (&["switch", "vale0", "--openflow", "--datapath-id", "xyz"], "hexadecimal"),
        (&["switch", "vale0", "--openflow", "--listen", "192.0.2.1:6654"], "cannot listen"),
        (&["switch", "vale0", "--learn"], "has no flow tables"),
    ] {
        let printed = run(daemon.ringroad(arguments));
        assert!(
            !printed.status.success() && stderr(&printed).contains(part),
            "{arguments:?}: {}",
            stderr(&printed)
        );
    }
}

#[test]
fn a_tool_that_sends_nonsense_or_does_not_read_harms_no_other() {
    let mut switch = FlowSwitch::new(&[]);
    switch.ofctl(&["add-flow", "in_port=1,actions=output:2"]);
    // Messages without length, with a wrong version, with an unknown type, and half a message.
    for bytes in [
        &[4, 0, 0, 0, 0, 0, 0, 0][..],
        &[9, 5, 0, 8, 0, 0, 0, 1],
        &[4, 99, 0, 8, 0, 0, 0, 1],
        &[4, 14, 0, 200],
    ] {
        let mut tool = UnixStream::connect(switch.socket()).unwrap();
        tool.write_all(bytes).unwrap();
        tool.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answers = Vec::new();
        tool.set_read_timeout(PATIENCE).unwrap();
        tool.read_to_end(&mut answers).unwrap();
        assert_eq!(answers[..2], [4, 0], "the switch greets");
    }
    // A tool sends requests and reads no replies: its connection ends when too many replies wait.
    let mut deaf = UnixStream::connect(switch.socket()).unwrap();
    let features: Vec<u8> = [4u8, 18, 0, 16, 0, 0, 0, 1, 0, 12, 0, 0, 0, 0, 0, 0].repeat(4096);
    deaf.set_write_timeout(PATIENCE).unwrap();
    while deaf.write_all(&features).is_ok() {}
    // Connections beyond the limit wait, and do not keep frames from passing.
    let _connections: Vec<_> = (0..70).map(|_| UnixStream::connect(switch.socket())).collect();
    pass(&mut switch.a, &numbered(station(2), station(1), 3, LEN));
    assert_eq!(number_of(&receive_from(&mut switch.b, station(1)), station(1)), Some(3));
}
