//! OpenFlow by TLS: Open vSwitch's controller and tools are accepted with the right certificates, and no others are.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};

use ringroad_tests::certificates::{CertificateAuthority, Oddity, Papers};
use ringroad_tests::command::{run, stderr};
use ringroad_tests::daemon::{Daemon, PATIENCE};
use ringroad_tests::flow_switch::{FlowSwitch, pass};
use ringroad_tests::frames::{number_of, numbered, receive_from, station};
use ringroad_tests::network::finished;
use ringroad_tests::open_vswitch::timeout;
use ringroad_tests::reserved_port::ReservedTcpPort;
use ringroad_tests::service::Service;
use serde_json::Value;

const LEN: usize = 100;

/// Options of the switch, after `--openflow` and the controllers.
fn options(papers: &Papers, others: &[&str]) -> Vec<String> {
    let others = others.iter().map(|option| (*option).to_owned());
    others.chain(papers.options()).collect()
}

fn switch(controllers: &[&str], options: &[String]) -> FlowSwitch {
    let options = options.iter().map(String::as_str);
    FlowSwitch::new(&controllers.iter().copied().chain(options).collect::<Vec<_>>())
}

fn ofctl(target: &str, papers: &Papers, arguments: &[&str]) -> Output {
    let [verb, rest @ ..] = arguments else { panic!("a verb") };
    let mut command = Command::new("ovs-ofctl");
    command.args(papers.options()).args(["-O", "OpenFlow13", &timeout(), verb, target]).args(rest);
    run(command)
}

fn controller(folder: &Path, target: &str, papers: Option<&Papers>) -> Service {
    let mut command = Command::new("ovs-testcontroller");
    command.env("OVS_RUNDIR", folder).args(["--verbose=off", target]);
    command.args(papers.map(Papers::options).into_iter().flatten());
    Service::start(command)
}

fn is_connected(report: &Value) -> bool {
    report["controllers"][0]["is_connected"] == true
}

#[test]
fn the_controller_and_the_tools_of_open_vswitch_get_in_with_certificates_of_ovs_pki() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let pki = |arguments: &[&str]| {
        let mut command = Command::new("ovs-pki");
        command.current_dir(folder).arg(format!("--dir={}/pki", folder.display()));
        finished(command.arg(format!("--log={}/log", folder.display())).args(arguments));
    };
    pki(&["init"]);
    pki(&["req+sign", "sc", "switch"]);
    pki(&["req+sign", "ctl", "controller"]);
    let papers = |name: &str, believed: &str| Papers {
        key: folder.join(format!("{name}-privkey.pem")),
        certificate: folder.join(format!("{name}-cert.pem")),
        ca: folder.join(format!("pki/{believed}ca/cacert.pem")),
    };
    let [ours, theirs] = [papers("sc", "controller"), papers("ctl", "switch")];
    let [reserved, listen] = [ReservedTcpPort::reserve(), ReservedTcpPort::reserve()];
    let [controllers, tools] = [reserved.port(), listen.port()];
    let mut running = controller(folder, &format!("pssl:{controllers}:127.0.0.1"), Some(&theirs));
    let listen = format!("ssl:127.0.0.1:{tools}");
    let address = format!("ssl:127.0.0.1:{controllers}");
    let mut switch = switch(&[&address], &options(&ours, &["--listen", &listen]));
    switch.await_report("the controller", is_connected);
    pass(&mut switch.b, &numbered(station(1), station(2), 0, LEN));
    assert_eq!(number_of(&receive_from(&mut switch.a, station(2)), station(2)), Some(0));
    pass(&mut switch.a, &numbered(station(2), station(1), 1, LEN));
    assert_eq!(number_of(&receive_from(&mut switch.b, station(1)), station(1)), Some(1));
    switch.await_report("flows for the two stations", |report| report["flows"].as_u64() > Some(1));
    running.kill();
    switch.await_report("the end of the controller", |report| !is_connected(report));

    // The data exceed the amount that TLS takes at a time, both ways.
    let flows: String = (0..20_000)
        .map(|number| {
            format!(
                "priority=9,dl_dst=02:00:00:00:{:02x}:{:02x},actions=output:2\n",
                number >> 8,
                number & 0xff
            )
        })
        .collect();
    std::fs::write(folder.join("flows"), flows).unwrap();
    let added = ofctl(&listen, &theirs, &["add-flows", folder.join("flows").to_str().unwrap()]);
    assert!(added.status.success(), "{}", stderr(&added));
    let dumped = ofctl(&listen, &theirs, &["dump-flows", "dl_dst=02:00:00:00:00:00/ff:ff:ff:ff:00:00"]);
    let dumped = String::from_utf8(dumped.stdout).unwrap();
    assert_eq!(dumped.lines().filter(|line| line.contains("priority=9")).count(), 20_000);
    assert_eq!(switch.report()["refused_tools"], 0);

    // The configuration contains only the paths of the files, not their content.
    let saved = run(switch.daemon.ringroad(&["config", "save"]));
    assert!(saved.status.success(), "{}", stderr(&saved));
    let config = std::fs::read_to_string(switch.daemon.folder().join("config.toml")).unwrap();
    assert!(config.contains(&format!("private_key = \"{}\"", ours.key.display())), "{config}");
    assert!(!config.contains("BEGIN"), "{config}");
}

#[test]
fn tools_without_the_right_certificate_are_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let [ca, other] = ["ca", "other"].map(|name| CertificateAuthority::new(folder.path(), name));
    let tool = ca.papers("tool", Oddity::None);
    let reserved = ReservedTcpPort::reserve();
    let address = reserved.address().to_string();
    let target = format!("ssl:{address}");
    let switch = switch(&[], &options(&ca.papers("switch", Oddity::None), &["--listen", &target]));
    let mut refused = 0;
    let mut await_refusal = |part: &str| {
        refused += 1;
        switch.await_report(part, |report| {
            report["refused_tools"] == refused && report["refusal"].as_str().unwrap().contains(part)
        });
        let shown = run(switch.daemon.ringroad(&["switch", "vale0"]));
        let shown = String::from_utf8(shown.stdout).unwrap();
        assert!(shown.contains(&format!("refused {refused} tools")) && shown.contains(part), "{shown}");
    };
    // The tool trusts the switch, and the switch does not trust the tool.
    let other_ca = Papers { ca: tool.ca.clone(), ..other.papers("stranger", Oddity::None) };
    assert!(!ofctl(&target, &other_ca, &["dump-flows"]).status.success());
    await_refusal("not signed by a CA");
    assert!(!ofctl(&target, &ca.papers("old", Oddity::Expired), &["dump-flows"]).status.success());
    await_refusal("has expired");
    let mut nameless = Command::new("openssl");
    nameless.args(["s_client", "-connect", &address]);
    let _ = run(nameless);
    await_refusal("shows no certificate");
    let mut plain = Command::new("ovs-ofctl");
    plain.args(["-O", "OpenFlow13", &timeout(), "dump-flows", &format!("tcp:{address}")]);
    assert!(!run(plain).status.success());
    await_refusal("does not speak TLS");
    // A client sends half a handshake, then nothing. Other clients are served in the meantime.
    let mut silent = TcpStream::connect(&address).unwrap();
    silent.write_all(&[22, 3, 1]).unwrap();
    assert!(ofctl(&target, &tool, &["dump-flows"]).status.success());
    silent.set_read_timeout(PATIENCE).unwrap();
    let mut answer = Vec::new();
    silent.read_to_end(&mut answer).unwrap();
    await_refusal("did not finish the TLS handshake");
    drop(TcpStream::connect(&address).unwrap());
    await_refusal("closed the connection during the TLS handshake");
    switch.await_report("end of all tools", |report| report["tools"] == 0);
}

#[test]
fn controllers_without_the_right_certificate_get_no_switch() {
    let folder = tempfile::tempdir().unwrap();
    let [ca, other] = ["ca", "other"].map(|name| CertificateAuthority::new(folder.path(), name));
    let ours = ca.papers("switch", Oddity::None);
    // The switch does not trust the first controller, which trusts the switch. For the second controller it is the
    // other way round.
    let other_ca = Papers { ca: ours.ca.clone(), ..other.papers("stranger", Oddity::None) };
    let doubter = Papers { ca: other.certificate(), ..ca.papers("doubter", Oddity::None) };
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut reserved_ports, mut running, mut addresses) = (Vec::new(), Vec::new(), Vec::new());
    for (papers, part) in [
        (Some(ca.papers("right", Oddity::For("localhost"))), ""),
        (Some(other_ca), "not signed by a CA"),
        (Some(ca.papers("old", Oddity::Expired)), "has expired"),
        (Some(ca.papers("elsewhere", Oddity::For("lab.example"))), "not valid for name"),
        (Some(doubter), "refuses the TLS handshake"),
        (None, "does not speak TLS"),
    ] {
        let reserved = ReservedTcpPort::reserve();
        let port = reserved.port();
        let transport = if papers.is_some() { "pssl" } else { "ptcp" };
        running.push(controller(folder.path(), &format!("{transport}:{port}:127.0.0.1"), papers.as_ref()));
        addresses.push((format!("ssl:localhost:{port}"), part));
        reserved_ports.push(reserved);
    }
    addresses.push((format!("ssl:{}", mute.local_addr().unwrap()), "did not finish the TLS handshake"));
    let names = addresses.iter().map(|(address, _)| address.as_str()).collect::<Vec<_>>();
    let switch = switch(&names, &options(&ours, &[]));
    for (index, (address, part)) in addresses.iter().enumerate() {
        switch.await_report(address, |report| {
            let controller = &report["controllers"][index];
            let problem = controller["problem"].as_str().unwrap_or_default();
            match part.is_empty() {
                true => controller["is_connected"] == true,
                false => problem.contains(part) && controller["is_connected"] == false,
            }
        });
    }
}

#[test]
fn certificates_are_reread_on_request_and_bad_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| CertificateAuthority::new(folder.path(), name));
    let reserved = ReservedTcpPort::reserve();
    let target = format!("ssl:{}", reserved.address());
    let ours = old.papers("switch", Oddity::None);
    let Papers { key, certificate, ca } = &ours;
    let daemon = Daemon::with_config(&format!(
        "[[openflow]]\nswitch = \"vale0\"\nlisten = [\"{target}\"]\nprivate_key = {key:?}\ncertificate = {certificate:?}\nca_cert = {ca:?}\n"
    ));
    let gets_in = |tool: &Papers| ofctl(&target, tool, &["dump-flows"]).status.success();
    let [tool, newer] = [&old, &new].map(|ca| ca.papers("tool", Oddity::None));
    // Both tools trust the switch.
    let old_ca = folder.path().join("kept.pem");
    std::fs::copy(ca, &old_ca).unwrap();
    let [tool, newer] = [tool, newer].map(|tool| Papers { ca: old_ca.clone(), ..tool });
    assert!(gets_in(&tool) && !gets_in(&newer));
    // Another CA's file replaces the old one: tools with certificates of the old CA are refused.
    std::fs::copy(new.certificate(), ca).unwrap();
    assert!(run(daemon.ringroad(&["reload"])).status.success());
    assert!(gets_in(&newer) && !gets_in(&tool));
    // The key does not belong to the certificate: the previous state stays in force, and the reason is reported.
    std::fs::copy(&newer.key, key).unwrap();
    let printed = run(daemon.ringroad(&["reload"]));
    assert!(
        String::from_utf8_lossy(&[printed.stdout, printed.stderr].concat())
            .contains("not the certificate's key")
    );
    assert!(gets_in(&newer));

    let [key, certificate, ca] = [key, certificate, ca].map(|path| path.to_str().unwrap());
    let target = target.as_str();
    let files = ["--private-key", key, "--certificate", certificate, "--ca-cert", ca];
    for (arguments, part) in [
        (vec!["--listen", target], "needs files"),
        ([&["tcp:127.0.0.1:6653"], &files[..]].concat(), "no address begins with ssl:"),
        (["--listen", target, "--private-key", key].to_vec(), "--certificate"),
        (
            [&["--listen", target], &files[..4], &["--ca-cert", "/nonexistent/ca.pem"]].concat(),
            "/nonexistent/ca.pem",
        ),
        (
            [&["--listen", target], &files[..2], &["--certificate", key], &files[4..]].concat(),
            "no certificate in PEM",
        ),
    ] {
        let printed = run(daemon.ringroad(&[&["switch", "vale1", "--openflow"], &arguments[..]].concat()));
        assert!(
            !printed.status.success() && stderr(&printed).contains(part),
            "{arguments:?}: {}",
            stderr(&printed)
        );
    }
}
