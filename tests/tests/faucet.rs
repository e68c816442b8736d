//! Faucet and Gauge, controllers in wide use, with two Ringroad switches that are stacked by two cables.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ringroad_netdev::link_change::set_up;
use ringroad_tests::campus::{Campus, FAUCET_METRICS, GAUGE_METRICS, OFFICE};
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::network::is_root;
use serde_json::Value;

#[test]
fn faucet_and_gauge_run_two_stacked_switches() {
    if !is_root() {
        return;
    }
    let mut campus = Campus::start();
    let [lab_a, office_b, lab_b] = [1, 2, 3].map(|host| campus.hosts[host].address);

    campus.await_true("meters of the frames for Faucet", || campus.report("vale0")["meters"] == 2);
    // Hosts of one VLAN communicate over the trunk, whose frames have tags. The two cables do not make a loop.
    assert_eq!(campus.hosts[0].await_ping(office_b), 64);
    assert_eq!(campus.hosts[1].await_ping(lab_b), 64);
    // Hosts of different VLANs communicate by Faucet's routing, also over the trunk.
    assert_eq!(campus.hosts[0].await_ping(lab_a), 63);
    assert_eq!(campus.hosts[0].await_ping(lab_b), 63);
    // Without this routing no host receives traffic of the other VLAN.
    campus.hosts[1].namespace.run(&["ip", "addr", "add", "10.100.0.77/24", "dev", "eth0"]);
    assert_eq!(campus.hosts[0].ping(Ipv4Addr::new(10, OFFICE, 0, 77)), None);
    campus.hosts[1].namespace.run(&["ip", "addr", "del", "10.100.0.77/24", "dev", "eth0"]);

    obey_the_acl(&campus);
    live_without_faucet(&mut campus);
    take_the_other_cable(&campus);
    agree_with_gauge(&campus);
    let exceptions = std::fs::read_to_string(campus.folder.path().join("faucet.exceptions"));
    assert_eq!(exceptions.unwrap_or_default(), "");
}

/// Checks that forbidden frames do not arrive, that allowed frames do, and that the rule's flow counts.
fn obey_the_acl(campus: &Campus) {
    let [from, to] = [&campus.hosts[0], &campus.hosts[2]];
    let sender = from.socket(1000);
    let [forbidden, allowed] = [to.socket(9), to.socket(10)];
    for number in 0..5u8 {
        sender.send_to(&[number], (to.address, 9)).unwrap();
    }
    sender.send_to(&[5], (to.address, 10)).unwrap();
    let mut byte = [0; 1];
    allowed.recv(&mut byte).unwrap();
    assert_eq!(byte, [5]);
    forbidden.set_nonblocking(true).unwrap();
    assert!(forbidden.recv(&mut byte).is_err(), "it arrived");
    let flows = campus.flows("vale0");
    let rule = flows.iter().find(|flow| flow.contains("tp_dst=9 ")).unwrap_or_else(|| panic!("{flows:#?}"));
    assert!(rule.contains("n_packets=5,") && rule.contains("actions=drop"), "{rule}");
}

/// Kills Faucet while frames move, and starts it again. Without Faucet all frames arrive. At its return Faucet rebuilds
/// its tables, and frames lost during that time are counted.
fn live_without_faucet(campus: &mut Campus) {
    let [sender, receiver] = [0, 2].map(|host| campus.hosts[host].socket(2000));
    let target = campus.hosts[2].address;
    // A killed Faucet leaves its tables as they are. Frames for an address that it has not learned go by both cables.
    let mac = campus.hosts[2].namespace.link("eth0").mac.unwrap();
    let learned = format!("dl_dst={}", mac.map(|byte| format!("{byte:02x}")).join(":"));
    campus.await_true("learned address of the receiver", || {
        let _ = campus.hosts[2].ping(campus.hosts[0].address);
        ["vale0", "vale1"]
            .iter()
            .all(|switch| campus.flows(switch).iter().any(|flow| flow.contains(&learned)))
    });
    let go_on = AtomicBool::new(true);
    let drops = |campus: &Campus| -> u64 {
        let ports = campus.daemon.status().ports;
        ports.iter().map(|port| port.counters.drops.values().sum::<u64>()).sum()
    };
    let drops_before = drops(campus);
    let sent = AtomicU64::new(0);
    // Number of arrivals of each frame, by frame number.
    let came = Mutex::new(BTreeMap::<u64, u32>::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while go_on.load(Ordering::Relaxed) {
                let number = sent.fetch_add(1, Ordering::Relaxed);
                sender.send_to(&number.to_be_bytes(), (target, 2000)).unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
            sender.send_to(&u64::MAX.to_be_bytes(), (target, 2000)).unwrap();
        });
        scope.spawn(|| {
            loop {
                let mut number = [0; 8];
                receiver.recv(&mut number).unwrap();
                match u64::from_be_bytes(number) {
                    u64::MAX => return,
                    number => *came.lock().unwrap().entry(number).or_default() += 1,
                }
            }
        });
        // A panic of this thread has to end the two other threads.
        let _end = Ending(&go_on);
        let has_come =
            |number: u64| came.lock().unwrap().last_key_value().is_some_and(|(&last, _)| last >= number);
        campus.await_true("traffic", || has_come(200));
        campus.faucet.kill();
        campus.await_true("end of Faucet", || {
            let controllers = ["vale0", "vale1"].map(|switch| campus.report(switch)["controllers"].clone());
            controllers.iter().all(|both| both[0]["is_connected"] == false && both[1]["is_connected"] == true)
        });
        let first = sent.load(Ordering::Relaxed);
        campus.await_true("traffic without Faucet", || has_come(first + 500));
        let without: Vec<u32> =
            came.lock().unwrap().range(first..first + 500).map(|(_, &times)| times).collect();
        assert_eq!(without, [1; 500], "each frame comes once without a controller");
        campus.restart_faucet();
        campus.await_controllers();
        campus.await_stack();
        let again = sent.load(Ordering::Relaxed);
        campus.await_true("traffic with Faucet again", || has_come(again + 500));
    });
    let (sent, came) = (sent.into_inner(), came.into_inner().unwrap().len() as u64);
    let dropped = drops(campus) - drops_before;
    println!("{} of {sent} frames were lost while Faucet rebuilt its tables", sent - came);
    assert!(sent == came || dropped > 0, "{} frames are lost, and none is counted", sent - came);
    await_conserved(&campus.daemon);
}

/// Ends the other threads when the value is dropped, also by a panic.
struct Ending<'flag>(&'flag AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Breaks a cable between the switches: Faucet is notified of the port, and frames take the other cable.
fn take_the_other_cable(campus: &Campus) {
    let [from, to] = [&campus.hosts[0], &campus.hosts[2]];
    let sent_by = |cable: &str| campus.frames(&format!("vale0:{cable}")).1;
    from.await_ping(to.address);
    let before = ["a3", "a4"].map(sent_by);
    for _ in 0..20 {
        from.await_ping(to.address);
    }
    let sent = ["a3", "a4"].map(sent_by);
    let sent = [sent[0] - before[0], sent[1] - before[1]];
    let (broken, other) = if sent[0] > sent[1] { ("a3", "a4") } else { ("a4", "a3") };
    assert!(sent[0].max(sent[1]) >= 20, "{sent:?} frames: neither cable has them all");
    let port = format!("port=\"{}\"", &broken[1..]);
    let is_up = || campus.metric(FAUCET_METRICS, "port_status", &["dp_name=\"sw1\"", &port]);
    assert_eq!(is_up(), Some(1.0));
    campus.outside.inside(|| set_up(broken, false).unwrap());
    campus.await_true("word of the broken cable", || is_up() == Some(0.0));
    from.await_ping(to.address);
    let before = sent_by(other);
    for _ in 0..20 {
        from.await_ping(to.address);
    }
    assert!(sent_by(other) - before >= 20, "frames do not take the other cable");
    campus.outside.inside(|| set_up(broken, true).unwrap());
    campus.await_true("word of the whole cable", || is_up() == Some(1.0));
    campus.await_stack();
    from.await_ping(to.address);
}

/// Checks that Gauge has the counters and flows of the switches. Both sides change now and then, so they are read until
/// they agree.
fn agree_with_gauge(campus: &Campus) {
    for (switch, dp, hosts) in [("vale0", "sw1", ["a1", "a2"]), ("vale1", "sw2", ["b1", "b2"])] {
        for (number, host) in ["1", "2"].into_iter().zip(hosts) {
            let gauge = |metric: &str| {
                let labels = [format!("dp_name=\"{dp}\""), format!("port=\"{number}\"")];
                campus.metric(GAUGE_METRICS, metric, &[&labels[0], &labels[1]])
            };
            let in_text = |counter: &str| {
                let text = std::fs::read_to_string(campus.folder.path().join("ports.txt")).ok()?;
                let name = format!("\t{dp}-{number}-{counter}\t");
                let line = text.lines().rfind(|line| line.contains(&name))?;
                line.rsplit('\t').next()?.parse().ok()
            };
            campus.await_true("agreement on the frames of a port", || {
                let (received, delivered) = campus.frames(&format!("{switch}:{host}"));
                let [received, delivered] = [received as f64, delivered as f64].map(Some);
                received > Some(0.0)
                    && [gauge("of_port_rx_packets"), in_text("packets-in")] == [received; 2]
                    && [gauge("of_port_tx_packets"), in_text("packets-out")] == [delivered; 2]
            });
        }
        campus.await_true("agreement on the flows", || {
            let mut own: Vec<_> = campus.flows(switch).iter().map(|flow| table_and_priority(flow)).collect();
            own.sort_unstable();
            gauge_flows(campus.folder.path(), dp) == Some(own)
        });
    }
}

/// Table and priority of a flow in the output of `ovs-ofctl`.
fn table_and_priority(flow: &str) -> (u64, u64) {
    let number = |name: &str, default: u64| {
        let Some((_, rest)) = flow.split_once(name) else { return default };
        let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next().unwrap();
        digits.parse().unwrap()
    };
    (number("table=", 0), number("priority=", 32768))
}

/// Sorted tables and priorities of all flows of a switch, from the last complete file that Gauge has written.
fn gauge_flows(folder: &Path, dp: &str) -> Option<Vec<(u64, u64)>> {
    let files = std::fs::read_dir(folder.join("flows")).unwrap().map(|file| file.unwrap().path());
    let is_of_dp = |file: &PathBuf| file.file_name().unwrap().to_str().unwrap().starts_with(dp);
    let last = files.filter(is_of_dp).max()?;
    let printed: Value = serde_json::from_slice(&std::fs::read(last).unwrap()).ok()?;
    let flows = printed["OFPFlowStatsReply"]["body"].as_array()?.iter().map(|flow| {
        let flow = &flow["OFPFlowStats"];
        (flow["table_id"].as_u64().unwrap(), flow["priority"].as_u64().unwrap())
    });
    let mut flows: Vec<_> = flows.collect();
    flows.sort_unstable();
    Some(flows)
}
