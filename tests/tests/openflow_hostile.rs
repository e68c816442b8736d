//! Hostile controllers and tools: the daemon and its other switches continue, and memory has a limit.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ringroad::Port;
use ringroad_openflow::action::{Action, PortNo};
use ringroad_openflow::error::ErrorCode;
use ringroad_openflow::first_message;
use ringroad_openflow::instruction::Instructions;
use ringroad_openflow::message::{
    ControllerMessage, FlowCommand, FlowMod, FlowStatsRequest, FragmentFlags, Hello, MultipartReply,
    MultipartReplyMessage, MultipartRequest, MultipartRequestMessage, SwitchConfig, SwitchMessage,
};
use ringroad_openflow::oxm::{FieldMatch, FieldValue, Match, OxmField};
use ringroad_tests::command::{run, stderr};
use ringroad_tests::daemon::PATIENCE;
use ringroad_tests::flow_switch::{FlowSwitch, pass};
use ringroad_tests::frames::{number_of, numbered, receive_from, station};
use ringroad_tests::open_vswitch::timeout;
use ringroad_tests::reserved_port::ReservedTcpPort;
use rustix::net::{AddressFamily, SocketType};

const LEN: usize = 100;
const MIB: u64 = 1 << 20;

/// A connection of a tool that can misbehave.
struct Tool<S = UnixStream> {
    stream: S,
    input: Vec<u8>,
}

impl Tool {
    fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(PATIENCE).unwrap();
        stream.set_write_timeout(PATIENCE).unwrap();
        Self::greeting(stream)
    }
}

impl<S: Read + Write> Tool<S> {
    fn greeting(stream: S) -> Self {
        let mut tool = Self { stream, input: Vec::new() };
        tool.send(&ControllerMessage::Hello(Hello::ours())).unwrap();
        tool
    }

    fn send(&mut self, request: &ControllerMessage) -> std::io::Result<()> {
        self.stream.write_all(&bytes_of(request))
    }

    /// Receives the next reply that is not a hello.
    fn receive(&mut self) -> SwitchMessage {
        loop {
            if let Some(message) = first_message(&self.input).unwrap().map(<[u8]>::to_vec) {
                self.input.drain(..message.len());
                match SwitchMessage::decode(&message).unwrap().1 {
                    SwitchMessage::Hello(_) => continue,
                    reply => return reply,
                }
            }
            let mut bytes = [0; 65536];
            let len = self.stream.read(&mut bytes).unwrap();
            assert!(len > 0, "the switch closed the connection");
            self.input.extend_from_slice(&bytes[..len]);
        }
    }
}

fn bytes_of(request: &ControllerMessage) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.encode(7, &mut bytes).unwrap();
    bytes
}

/// A flow-mod that adds an entry for one destination.
fn add(destination: u128, out: PortNo) -> FlowMod {
    let matching =
        FieldMatch { field: OxmField::EthDst, value: destination, mask: OxmField::EthDst.all_ones() };
    let output = Action::Output { port: out, max_len: ringroad_openflow::WHOLE_PACKET };
    let instructions = Instructions { apply: Some(vec![output]), ..Instructions::default() };
    FlowMod::add(0, 1, Match::new(vec![matching]).unwrap(), instructions)
}

/// Two stations on another switch of the same daemon.
struct Neighbours {
    a: Port,
    b: Port,
    count: u64,
}

impl Neighbours {
    fn of(switch: &FlowSwitch) -> Self {
        let [a, b] = ["vale1:a", "vale1:b"].map(|name| switch.daemon.open(name));
        Self { a, b, count: 0 }
    }

    fn assert_served(&mut self) {
        self.count += 1;
        pass(&mut self.a, &numbered(station(2), station(1), self.count, LEN));
        assert_eq!(number_of(&receive_from(&mut self.b, station(1)), station(1)), Some(self.count));
    }
}

/// Resident memory of the daemon in bytes.
fn resident_bytes(switch: &FlowSwitch) -> u64 {
    let pid = switch.daemon.pid().as_raw_nonzero();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn descriptors(switch: &FlowSwitch) -> usize {
    let pid = switch.daemon.pid().as_raw_nonzero();
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

#[test]
#[ignore = "half a minute and 1.3 GB; the unit tests of flow-tables have the same limit, smaller"]
fn the_flow_behind_the_last_is_refused_with_a_full_table() {
    const LIMIT: u128 = 2_000_000;
    let switch = FlowSwitch::new(&[]);
    let mut neighbours = Neighbours::of(&switch);
    let mut tool = Tool::connect(&switch.socket());
    let mut bytes = Vec::new();
    for number in 0..=LIMIT {
        ControllerMessage::FlowMod(add(number, PortNo(2))).encode(number as u32, &mut bytes).unwrap();
        if bytes.len() > 1 << 16 || number == LIMIT {
            tool.stream.write_all(&bytes).unwrap();
            bytes.clear();
        }
        if number % 250_000 == 0 {
            neighbours.assert_served();
        }
    }
    match tool.receive() {
        SwitchMessage::Error(error) => assert_eq!(error.code, ErrorCode::FLOW_TABLE_FULL),
        other => panic!("{other:?}"),
    }
    switch.await_flows(LIMIT as u64);
    // An entry that replaces another does not add to the count.
    tool.send(&ControllerMessage::FlowMod(add(5, PortNo(3)))).unwrap();
    tool.send(&ControllerMessage::Barrier).unwrap();
    assert!(matches!(tool.receive(), SwitchMessage::Barrier));
    neighbours.assert_served();
}

#[test]
fn long_entries_are_bounded_in_bytes_and_their_memory_goes_back() {
    const LIMIT: u64 = 48 * MIB;
    let config = format!("[limits]\nswitch_flow_memory_mib = {}\n", LIMIT / MIB);
    let switch = FlowSwitch::with_config(&config, &[]);
    let mut neighbours = Neighbours::of(&switch);
    let mut tool = Tool::connect(&switch.socket());
    let before = resident_bytes(&switch);
    let set = |value: u128| Action::SetField(FieldValue { field: OxmField::EthDst, value });
    // Each entry has an action list of its own, of 6 KB.
    for number in 0.. {
        let apply = Some((number..number + 380).map(set).collect());
        let instructions = Instructions { apply, ..Instructions::default() };
        tool.send(&ControllerMessage::FlowMod(FlowMod { instructions, ..add(number, PortNo(2)) })).unwrap();
        tool.send(&ControllerMessage::Barrier).unwrap();
        match tool.receive() {
            SwitchMessage::Barrier => {
                assert!(u64::try_from(number).unwrap() < LIMIT / 6_000, "{number} entries")
            }
            SwitchMessage::Error(error) => {
                assert_eq!(error.code, ErrorCode::FLOW_TABLE_FULL);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(tool.receive(), SwitchMessage::Barrier));
    switch.await_report("the memory in use", |report| report["memory_bytes"].as_u64().unwrap() > LIMIT / 2);
    let report = switch.report();
    assert_eq!(report["memory_limit_bytes"], LIMIT);
    assert!(report["memory_bytes"].as_u64().unwrap() <= LIMIT, "{report}");
    let grown = resident_bytes(&switch).saturating_sub(before);
    assert!(grown < LIMIT * 2, "{} MiB more", grown / MIB);
    neighbours.assert_served();
    let delete = FlowMod { command: FlowCommand::Delete, matching: Match::default(), ..add(0, PortNo(2)) };
    tool.send(&ControllerMessage::FlowMod(delete)).unwrap();
    switch.await_report("the end of the entries", |report| report["memory_bytes"] == 0);
    switch
        .await_report("the kernel's memory", |_| resident_bytes(&switch).saturating_sub(before) < LIMIT / 4);
    neighbours.assert_served();
}

#[test]
fn who_reads_nothing_loses_news_and_then_the_connection() {
    let mut switch = FlowSwitch::new(&[]);
    let mut neighbours = Neighbours::of(&switch);
    switch.ofctl(&["add-flow", "in_port=1,actions=CONTROLLER:65535"]);
    let mut deaf = Tool::connect(&switch.socket());
    let config = SwitchConfig { fragments: FragmentFlags::Normal, miss_send_bytes: u16::MAX };
    deaf.send(&ControllerMessage::SetConfig(config)).unwrap();
    switch.await_report("the tool's wishes", |_| switch.ofctl(&["show"]).contains("miss_send_len=65535"));
    let before = resident_bytes(&switch);
    let mut number = 0;
    while switch.report()["dropped_news"] == 0 {
        for _ in 0..256 {
            number += 1;
            pass(&mut switch.a, &numbered(station(2), station(1), number, 1500));
        }
    }
    neighbours.assert_served();
    // Invalid changes are sent until the connection ends.
    let wrong =
        bytes_of(&ControllerMessage::FlowMod(FlowMod { table: 255, ..add(1, PortNo(2)) })).repeat(1000);
    let end = loop {
        if let Err(error) = deaf.stream.write_all(&wrong) {
            break error;
        }
    };
    assert!(matches!(end.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{end}");
    switch.await_report("the end of the connection", |report| report["tools"] == 0);
    let grown = resident_bytes(&switch).saturating_sub(before);
    assert!(grown < 256 * MIB, "{} MiB more", grown / MIB);
    neighbours.assert_served();
}

#[test]
fn groups_that_multiply_packets_do_not_stop_the_worker() {
    let mut switch = FlowSwitch::with_workers(1, &[]);
    let mut neighbours = Neighbours::of(&switch);
    switch.ofctl(&["add-group", "group_id=1,type=all,bucket=output:2"]);
    for level in 2..=14 {
        let buckets = format!(",bucket=group:{}", level - 1).repeat(50);
        switch.ofctl(&["add-group", &format!("group_id={level},type=all{buckets}")]);
    }
    switch.ofctl(&["add-flow", "in_port=1,actions=group:14"]);
    for number in 0..100 {
        pass(&mut switch.a, &numbered(station(2), station(1), number, LEN));
        neighbours.assert_served();
    }
    // A group has the maximum size, and another group is larger.
    let add_group = |buckets: usize| {
        let buckets = ",bucket=output:2".repeat(buckets);
        let group = format!("group_id=99,type=all{buckets}");
        run(switch.ofctl_command("add-group", &[&group]))
    };
    let refused = stderr(&add_group(1001));
    assert!(refused.contains("OFPGMFC_OUT_OF_BUCKETS"), "{refused}");
    assert!(add_group(1000).status.success());
    neighbours.assert_served();
}

#[test]
fn lengths_that_lie_are_refused_and_half_messages_wait() {
    let switch = FlowSwitch::new(&[]);
    let flow = bytes_of(&ControllerMessage::FlowMod(add(1, PortNo(2))));
    // A flow-mod has 8 bytes of header and 40 bytes of fixed fields, then the match (type, length, fields, padding),
    // then the instructions.
    let matching = 48;
    let instruction = matching + 16;
    for (at, what) in [
        (matching + 2, "match"),
        (matching + 7, "field"),
        (instruction + 2, "instruction"),
        (instruction + 10, "action"),
    ] {
        for lie in [0u8, 1, 7, 200] {
            let mut message = flow.clone();
            // The length of a field has one byte, all other lengths have two.
            match what {
                "field" => message[at] = lie,
                _ => message[at..at + 2].copy_from_slice(&[lie / 100, lie]),
            }
            let mut tool = Tool::connect(&switch.socket());
            tool.stream.write_all(&message).unwrap();
            match tool.receive() {
                SwitchMessage::Error(_) => {}
                other => panic!("{what} of {lie}: {other:?}"),
            }
            tool.send(&ControllerMessage::EchoRequest(vec![lie])).unwrap();
            assert_eq!(tool.receive(), SwitchMessage::EchoReply(vec![lie]), "{what} of {lie}");
        }
    }
    // A message comes byte by byte, and half a message is never completed.
    let mut slow = Tool::connect(&switch.socket());
    for byte in &flow {
        slow.stream.write_all(&[*byte]).unwrap();
    }
    slow.send(&ControllerMessage::Barrier).unwrap();
    assert_eq!(slow.receive(), SwitchMessage::Barrier);
    slow.stream.write_all(&flow[..20]).unwrap();
    switch.await_flows(1);
}

/// Connects from a loopback address.
fn connect_from(host: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from((host, 0))).unwrap();
    rustix::net::connect(&socket, &to).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(PATIENCE).unwrap();
    stream
}

/// Output of `ovs-ofctl dump-flows` for a TCP address.
fn flows_by_tcp(address: SocketAddr) -> String {
    let mut tool = Command::new("ovs-ofctl");
    tool.args(["-O", "OpenFlow13", &timeout(), "dump-flows", &format!("tcp:{address}")]);
    let printed = run(tool);
    assert!(printed.status.success(), "{}", stderr(&printed));
    String::from_utf8(printed.stdout).unwrap()
}

#[test]
fn untrusted_peers_keep_no_tool_from_a_tcp_address() {
    let reserved = ReservedTcpPort::reserve();
    let address = reserved.address();
    let switch = FlowSwitch::new(&["--listen", &address.to_string()]);
    switch.ofctl(&["add-flow", "in_port=1,actions=output:2"]);
    let refused = |cause: &str| switch.report()["refused_tools_by_cause"][cause].as_u64().unwrap_or(0);
    // All connections come from one address and send nothing.
    let silent: Vec<_> = (0..64).map(|_| connect_from([127, 0, 0, 2], address)).collect();
    assert!(flows_by_tcp(address).contains("output:2"));
    switch.await_report("those beyond sixteen", |_| refused("address") == 48);
    drop(silent);
    // Many addresses have as many connections as each may have, and all of them greet.
    let greeted: Vec<_> = (10..18)
        .flat_map(|host| vec![[127, 0, 0, host]; 16])
        .map(|host| Tool::greeting(connect_from(host, address)))
        .collect();
    assert!(flows_by_tcp(address).contains("output:2"));
    switch.await_report("those beyond the places of tools", |_| refused("crowd") >= 64);
    // The remaining tools do not answer, and are disconnected.
    switch.await_report("the silence of strangers", |report| report["tools"] == 0 && refused("silence") > 0);
    drop(greeted);
}

#[test]
fn a_byte_at_a_time_holds_no_connection() {
    let reserved = ReservedTcpPort::reserve();
    let address = reserved.address();
    let switch = FlowSwitch::new(&["--listen", &address.to_string()]);
    // One tool never ends its hello, and the other never ends a later message.
    let trickle = |mut stream: TcpStream, bytes: Vec<u8>| {
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        std::thread::spawn(move || {
            for byte in bytes {
                let mut answer = [0; 1024];
                match stream.write_all(&[byte]).and_then(|()| stream.read(&mut answer)) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Ok(1..) => {}
                    _ => return true,
                }
            }
            false
        })
    };
    let greeting = bytes_of(&ControllerMessage::Hello(Hello::ours()));
    let endless = [&[4, 2, 0xff, 0xff, 0, 0, 0, 1][..], &[0; 1000]].concat();
    let of_greeting = trickle(connect_from([127, 0, 0, 2], address), {
        // The length field of a hello may have this value.
        let mut long = greeting.clone();
        long[2..4].copy_from_slice(&[0xff, 0xff]);
        [long, vec![0; 1000]].concat()
    });
    let of_message = trickle(Tool::greeting(connect_from([127, 0, 0, 3], address)).stream, endless);
    for (trickle, cause) in [(of_greeting, "greeting"), (of_message, "silence")] {
        assert!(trickle.join().unwrap(), "{cause}");
        switch.await_report(cause, |report| report["refused_tools_by_cause"][cause] == 1);
    }
    let metrics = String::from_utf8(run(switch.daemon.ringroad(&["metrics"])).stdout).unwrap();
    for cause in ["greeting", "silence"] {
        let line = format!("ringroad_openflow_refused_tools_total{{switch=\"vale0\",cause=\"{cause}\"}} 1");
        assert!(metrics.contains(&line), "{metrics}");
    }
    let status = String::from_utf8(run(switch.daemon.ringroad(&["status"])).stdout).unwrap();
    assert!(status.contains("refused 2 tools (greeting 1, silence 1)"), "{status}");
}

#[test]
fn a_list_of_flows_goes_as_it_is_read() {
    const FLOWS: u128 = 200_000;
    let reserved = ReservedTcpPort::reserve();
    let address = reserved.address();
    let switch = FlowSwitch::new(&["--listen", &address.to_string()]);
    let mut neighbours = Neighbours::of(&switch);
    let mut tool = Tool::connect(&switch.socket());
    let adds: Vec<u8> =
        (0..FLOWS).flat_map(|number| bytes_of(&ControllerMessage::FlowMod(add(number, PortNo(2))))).collect();
    tool.stream.write_all(&adds).unwrap();
    tool.send(&ControllerMessage::Barrier).unwrap();
    assert_eq!(tool.receive(), SwitchMessage::Barrier);
    let all = ControllerMessage::Multipart(MultipartRequestMessage {
        more: false,
        request: MultipartRequest::Flows(FlowStatsRequest {
            table: ringroad_openflow::table_id::ALL,
            out_port: PortNo::ANY,
            out_group: ringroad_openflow::group_id::ANY,
            cookie: 0,
            cookie_mask: 0,
            matching: Match::default(),
        }),
    });
    // Many tools send requests, and none of them reads the replies.
    let before = resident_bytes(&switch);
    let mut waiting: Vec<_> = (0..20).map(|_| Tool::connect(&switch.socket())).collect();
    waiting.iter_mut().for_each(|tool| tool.send(&all).unwrap());
    let mut deaf = Tool::greeting(connect_from([127, 0, 0, 2], address));
    deaf.send(&all).unwrap();
    for _ in 0..20 {
        assert!(switch.ofctl(&["dump-aggregate"]).contains(&format!("flow_count={FLOWS}")));
        neighbours.assert_served();
    }
    let grown = resident_bytes(&switch).saturating_sub(before);
    assert!(grown < 32 * MIB, "{} MiB more", grown / MIB);
    // A tool that reads later gets all flows, each once, even while other tools change the tables.
    let mut late = waiting.swap_remove(0);
    let mut seen = HashSet::new();
    loop {
        let SwitchMessage::Multipart(MultipartReplyMessage { more, reply: MultipartReply::Flows(flows) }) =
            late.receive()
        else {
            panic!("no flows")
        };
        for flow in flows {
            assert!(seen.insert(flow.matching.get(OxmField::EthDst).unwrap().value));
        }
        if !more {
            break;
        }
        tool.send(&ControllerMessage::FlowMod(add(seen.len() as u128, PortNo(3)))).unwrap();
    }
    assert_eq!(seen.len() as u128, FLOWS);
    drop(waiting);
    // Common programs get all flows, too.
    assert_eq!(switch.ofctl(&["dump-flows"]).matches("dl_dst=").count() as u128, FLOWS);
    let printed = run(switch.daemon.ringroad(&["flows", "dump", "vale0"]));
    assert_eq!(
        printed.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).count() as u128,
        FLOWS
    );
    neighbours.assert_served();
    switch.await_report("the end of who does not read", |report| {
        report["refused_tools_by_cause"]["unread"].as_u64() >= Some(1)
    });
    // The tool receives a part of the list, which was still on its way, and then the end of the connection.
    let mut rest = Vec::new();
    let _ = deaf.stream.read_to_end(&mut rest);
    assert!((rest.len() as u128) < 100 * FLOWS, "{} bytes", rest.len());
}

#[test]
fn thousands_of_connections_keep_no_client_out_on_this_machine() {
    let reserved = ReservedTcpPort::reserve();
    let address = reserved.address();
    let switch = FlowSwitch::new(&["--listen", &address.to_string()]);
    let mut neighbours = Neighbours::of(&switch);
    let before = descriptors(&switch);
    // The kernel holds back connections that have no room in the queue.
    let mut connections = Vec::new();
    for _ in 0..3000 {
        match TcpStream::connect_timeout(&address, Duration::from_secs(1)) {
            Ok(stream) => connections.push(stream),
            Err(_) => break,
        }
    }
    assert!(connections.len() > 64, "{}", connections.len());
    neighbours.assert_served();
    switch.ofctl(&["add-flow", "in_port=1,actions=output:2"]);
    assert!(descriptors(&switch) <= before + 80, "{} descriptors, before {before}", descriptors(&switch));
    // A client that does not greet is disconnected.
    let mut first = connections.swap_remove(0);
    first.set_read_timeout(PATIENCE).unwrap();
    let mut answer = Vec::new();
    let _ = first.read_to_end(&mut answer);
    assert_eq!(answer[..2], [4, 0], "the switch greets");
    drop(connections);
    assert!(flows_by_tcp(address).contains("output:2"));
}
