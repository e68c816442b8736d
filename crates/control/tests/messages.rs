//! Every message survives its way through a frame, and its JSON follows the documentation and the published schema.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use ringroad_control::codec::{PREFIX_BYTES, decode_reply, decode_request, encode_reply, encode_request};
use ringroad_control::explanation::{
    Explained, ExplainedFlow, ExplainedOutput, ExplainedPort, ExplainedStep, Explanation, HeaderChange,
};
use ringroad_control::message::{
    AttachedPort, ErrorKind, ErrorReply, FailMode, FrameToExplain, HugePages, Mirror, MirrorDirection,
    OpenFlow, OpenedPort, PortBackend, PortProperties, PortSpec,
};
use ringroad_control::report::{
    ConfigDifference, ConfigReport, ControllerReport, CounterReport, FlowTableReport, KeyDifference,
    LinkReport, ListReport, MacEntryReport, OpenFlowReport, PeerReport, PortOwner, PortReport,
    PortSettingsReport, ReloadReport, SaveReport, StartedBy, Statistic, StatusReport, SwitchReport,
    TraceReport, TracedDeliveryReport, TracedFrameReport, TracedReason, TracedSource, UpgradeReport,
    WorkerReport, WorkerState,
};
use ringroad_control::{PROTOCOL_VERSION, Reply, Request};
use ringroad_ring::geometry::{PortPlacement, RegionGeometry};

fn properties() -> PortProperties {
    PortProperties {
        queues: Some(2),
        slots: Some(512),
        buffer_bytes: Some(4096),
        extra_buffers: 3,
        huge_pages: HugePages::Require,
        tx: true,
        rx: false,
    }
}

fn openflow_report() -> OpenFlowReport {
    OpenFlowReport {
        settings: openflow(),
        datapath_id: "0000000000000abc".to_owned(),
        socket: "/run/ringroad/vale0.mgmt".to_owned(),
        controllers: vec![ControllerReport {
            address: "tcp:127.0.0.1:6653".to_owned(),
            is_connected: false,
            problem: "Connection refused".to_owned(),
        }],
        tools: 1,
        refused_tools: 1,
        refused_tools_by_cause: [("tls".to_owned(), 1)].into(),
        refusal: "127.0.0.1:49152: it shows no certificate".to_owned(),
        flows: 2,
        groups: 4,
        meters: 5,
        memory_bytes: 10,
        memory_limit_bytes: 11,
        flow_mods: 6,
        packet_ins: 7,
        metered_packet_ins: 5,
        dropped_news: 3,
        dropped_packet_outs: 12,
        tables: vec![FlowTableReport { table: 3, flows: 2, lookups: 9, matches: 8 }],
        waiting: "the address is in use".to_owned(),
    }
}

fn explanation() -> Explanation {
    let port = |number, name: &str| ExplainedPort { number, name: name.to_owned() };
    let flow = ExplainedFlow {
        priority: 5,
        cookie: u64::MAX,
        matching: "in_port=1".to_owned(),
        actions: "dec_ttl,group:7".to_owned(),
    };
    let change = HeaderChange { field: "nw_ttl".to_owned(), before: Some("64".to_owned()), after: None };
    let steps = [
        Explained::Table { table: 0, flow: Some(flow) },
        Explained::Meter { meter: 1, exceeded_band: Some(0) },
        Explained::Action { action: "dec_ttl".to_owned(), changes: vec![change] },
        Explained::Group { group: 7, chosen: 1 },
        Explained::Bucket { bucket: 0 },
        Explained::ActionSet,
        Explained::Vlan { options: "vlan=10".to_owned(), vlan: Some(10) },
        Explained::Learned {
            source: TracedSource::Moved,
            source_port: Some("vale0:c".to_owned()),
            reason: TracedReason::Unknown,
        },
        Explained::Output { to: "NORMAL".to_owned(), output: Some(0) },
        Explained::Controllers { reason: "action".to_owned(), output: 1 },
        Explained::NotSent { to: "1".to_owned(), why: "came_from_there".to_owned() },
        Explained::Table { table: 1, flow: None },
        Explained::Dropped { cause: "no_flow".to_owned() },
    ];
    Explanation {
        switch: "vale0".to_owned(),
        from: port(1, "vale0:a"),
        has_flow_tables: true,
        headers: "ip,in_port=1".to_owned(),
        frame_bytes: 60,
        steps: (0..).zip(steps).map(|(depth, what)| ExplainedStep { depth, what }).collect(),
        outputs: vec![ExplainedOutput {
            ports: vec![port(2, "vale0:b")],
            to_controllers: true,
            queue: Some(3),
            headers: String::new(),
            start: "00".to_owned(),
            frame_bytes: 60,
        }],
        dropped: Some("no_flow".to_owned()),
        is_cut: true,
    }
}

fn traced_frame() -> TracedFrameReport {
    TracedFrameReport {
        time_ns: 1_700_000_000_000_000_001,
        from: "vale0:a".to_owned(),
        len: 60,
        fragments: 1,
        unfinished: false,
        start: "ffffffffffff".to_owned(),
        source: TracedSource::Moved,
        source_port: Some("vale0:b".to_owned()),
        reason: TracedReason::Multicast,
        to: vec!["vale0:b".to_owned()],
        dropped: None,
        deliveries: vec![TracedDeliveryReport {
            port: Some("vale0:b".to_owned()),
            queue: 1,
            frames: 0,
            dropped: Some("no_space".to_owned()),
            held: false,
        }],
    }
}

fn openflow() -> OpenFlow {
    OpenFlow {
        switch: "vale0".to_owned(),
        controllers: vec!["tcp:127.0.0.1:6653".to_owned()],
        listen: vec!["127.0.0.1:6654".to_owned()],
        fail_mode: FailMode::Standalone,
        datapath_id: Some("abc".to_owned()),
        private_key: Some("/etc/ringroad/key.pem".to_owned()),
        certificate: Some("/etc/ringroad/certificate.pem".to_owned()),
        ca_cert: Some("/etc/ringroad/ca.pem".to_owned()),
    }
}

fn mirror() -> Mirror {
    Mirror {
        from: "vale0:a".to_owned(),
        to: "vale0:m".to_owned(),
        direction: MirrorDirection::Delivered,
        sample: 7,
        records: true,
    }
}

fn requests() -> Vec<Request> {
    vec![
        Request::Hello { protocol: PROTOCOL_VERSION, program: "näme \"quoted\"".to_owned() },
        Request::Open { name: "vale0:a@share=vale0:b".to_owned(), properties: properties() },
        Request::Status,
        Request::List,
        Request::Attach {
            port: PortSpec {
                netns: Some(7),
                properties: properties(),
                ..PortSpec::for_device("vale0:a", "xdp:eth0")
            },
            for_program: false,
            host: true,
            take: true,
            provisional: false,
        },
        Request::Attach {
            port: PortSpec::for_program("vale0:b"),
            for_program: true,
            host: false,
            take: false,
            provisional: true,
        },
        Request::Settle { keep: true },
        Request::Detach { name: "x{1".to_owned(), take: true, number: Some(7) },
        Request::ListFrom { from: "vale0:a".to_owned() },
        Request::MacTable { switch: "vale0".to_owned(), after: None, after_vlan: None },
        Request::MacTable {
            switch: "vale0".to_owned(),
            after: Some("02:00:00:00:00:01".to_owned()),
            after_vlan: Some(10),
        },
        Request::Reload,
        Request::Save { ports: vec!["vale0:a".to_owned()] },
        Request::Config,
        Request::SetAddress {
            switch: "vale0".to_owned(),
            mac: "02:00:00:00:00:01".to_owned(),
            port: Some("a".to_owned()),
        },
        Request::ForgetAddresses { switch: "vale0".to_owned(), port: None },
        Request::SetPortOptions { name: "vale0:a@vlan=10,isolated".to_owned() },
        Request::SetMirror(mirror()),
        Request::RemoveMirror { from: "vale0:a".to_owned(), to: "vale0:m".to_owned() },
        Request::Mirrors,
        Request::SetOpenFlow(openflow()),
        Request::RemoveOpenFlow { switch: "vale0".to_owned() },
        Request::OpenFlow,
        Request::Explain(FrameToExplain {
            switch: "vale0".to_owned(),
            from: "1".to_owned(),
            start: "00".repeat(60),
            frame_bytes: Some(1500),
            metadata: u64::MAX,
            tunnel_id: 0,
        }),
        Request::StartTrace { switch: "vale0".to_owned(), from: Some("a".to_owned()), count: 4096 },
        Request::Traced,
        Request::StopTrace,
        Request::CompareConfig { toml: Some("[workers]".to_owned()) },
        Request::ApplyConfig { toml: String::new() },
        Request::Upgrade { anyway: true },
        Request::Stop,
    ]
}

/// Counters with a different number in each statistic.
fn counters() -> CounterReport {
    let numbers = Statistic::ALL.iter().zip(1_u64..);
    let mut json: serde_json::Map<_, _> =
        numbers.map(|(statistic, number)| (statistic.name.to_owned(), number.into())).collect();
    json.insert("drops".to_owned(), serde_json::json!({ "no_space": u64::MAX }));
    serde_json::from_value(json.into()).unwrap()
}

fn port() -> PortReport {
    PortReport {
        name: "vale0:a".to_owned(),
        kind: "shm".to_owned(),
        mode: "isolated region, 4 KiB pages".to_owned(),
        switch: Some("vale0".to_owned()),
        index: Some(253),
        persistent: false,
        bound: true,
        owner: Some(PortOwner { pid: None, uid: 1000, program: "gen".to_owned() }),
        queues: 1,
        slots: 1024,
        buffer_bytes: 2048,
        settings: Some(PortSettingsReport {
            vlan: None,
            trunk: Some("10,20-30".to_owned()),
            native: Some(5),
            isolated: true,
            storm: Some(1000),
        }),
        counters: counters(),
        queue_counters: vec![
            CounterReport::default(),
            CounterReport { violations: 1, ..CounterReport::default() },
        ],
        error: Some("ring stopped".to_owned()),
        notes: vec!["zero-copy: not supported".to_owned()],
        link: Some(LinkReport {
            interface: "eth0".to_owned(),
            netns: Some("blue".to_owned()),
            up: true,
            running: false,
            speed_bps: Some(10_000_000_000),
            mac: "02:00:00:00:00:01".to_owned(),
            mtu: 1500,
        }),
        peer: Some(PeerReport {
            connected: true,
            connections: 2,
            agreed: "split rings".to_owned(),
            active_queues: 1,
            address: Some("02:00:00:00:00:02".to_owned()),
            last_error: Some("it left".to_owned()),
        }),
    }
}

fn status() -> StatusReport {
    StatusReport {
        version: "0.1.0".to_owned(),
        pid: 1,
        uptime_s: 2,
        socket: "/run/ringroad/ringroad.sock".to_owned(),
        config: None,
        started: StartedBy::OnDemand,
        workers: vec![WorkerReport {
            index: 0,
            cpu: Some(1),
            loops: 2,
            busy_loops: 1,
            busy_ns: 1,
            frames: 9,
            turn_frames: vec![1, 0, 3],
            sleeps: 3,
            kicks_received: 4,
            cpu_time_ns: 5,
            state: WorkerState::Sleeping,
        }],
        switches: vec![SwitchReport {
            name: "vale0".to_owned(),
            ports: 1,
            macs: 2,
            evictions: 4,
            refused_moves: 5,
            replicated_frames: 3,
            totals: CounterReport { received_frames: 8, ..CounterReport::default() },
            openflow: Some(openflow_report()),
        }],
        ports: vec![port()],
        next: None,
        shared_memory_bytes: 1,
        shared_memory_by_user: [(1000, 1)].into(),
        huge_page_bytes: 0,
        waiting: [("vale0:eth9".to_owned(), "there is no interface eth9".to_owned())].into(),
        rejected_requests: 9,
    }
}

fn placement(interface: u32, extra_buffers: u32) -> PortPlacement {
    let first = 4 * interface;
    PortPlacement {
        interface,
        tx_rings: vec![first, first + 2],
        rx_rings: vec![first + 1, first + 3],
        slots: 64,
        extra_buffers,
    }
}

fn replies() -> Vec<Reply> {
    vec![
        Reply::Hello {
            protocol: PROTOCOL_VERSION,
            version: "0.1.0".to_owned(),
            pid: 7,
            instance: u64::MAX,
            started: StartedBy::ServiceManager,
        },
        Reply::Opened(OpenedPort {
            name: "vale0:a".to_owned(),
            kind: PortBackend::SwitchPort,
            mode: "4 KiB pages".to_owned(),
            driver: Some("af_xdp".to_owned()),
            max_frame_bytes: Some(1518),
            notes: vec!["a note".to_owned()],
            geometry: RegionGeometry::for_ports(1, 2, 64, 2048, 3).unwrap(),
            placement: placement(0, 3),
            peer_placement: None,
            queue_count: 2,
            switch: Some("vale0".to_owned()),
            switch_index: Some(0),
        }),
        Reply::Opened(OpenedPort {
            name: "x{1".to_owned(),
            kind: PortBackend::PipeEnd,
            mode: "shared region".to_owned(),
            driver: None,
            max_frame_bytes: None,
            notes: Vec::new(),
            geometry: RegionGeometry::for_ports(2, 2, 64, 2048, 0).unwrap(),
            placement: placement(0, 0),
            peer_placement: Some(placement(1, 0)),
            queue_count: 2,
            switch: None,
            switch_index: None,
        }),
        Reply::Done,
        Reply::Forgotten { addresses: 3 },
        Reply::Mirrors(vec![mirror()]),
        Reply::OpenFlow(vec![openflow_report()]),
        Reply::Explained(explanation()),
        Reply::Traced(TraceReport { frames: vec![traced_frame()], left: 3 }),
        Reply::Saved(SaveReport {
            config: "/etc/ringroad/ringroadd.toml".to_owned(),
            added: vec!["vale0:a".to_owned()],
            removed: Vec::new(),
        }),
        Reply::Config(ConfigReport { config: None, toml: "[workers]\ncount = 1\n".to_owned() }),
        Reply::ConfigDifference(ConfigDifference {
            keys: vec![KeyDifference {
                key: "workers.count".to_owned(),
                in_force: "1".to_owned(),
                configured: "2".to_owned(),
                at_next_start: true,
            }],
            only_attached: vec!["vale0:a".to_owned()],
            only_configured: vec!["vale0:b".to_owned()],
        }),
        Reply::Upgraded(UpgradeReport {
            from: "0.1.0".into(),
            to: "0.2.0".into(),
            pid: 7,
            pause_ns: 3_000_000,
            kept: 2,
            reopened: vec!["vale0:eth0".into()],
            waiting: [("vale0:eth1".to_owned(), "there is no interface eth1".to_owned())].into(),
            lost: vec!["vale0:n".into()],
            problem: String::new(),
        }),
        Reply::Reloaded(ReloadReport {
            config: Some("/etc/ringroad/ringroadd.toml".to_owned()),
            at_next_start: vec!["workers.count".to_owned()],
        }),
        Reply::Attached(vec![AttachedPort {
            name: "vale0:eth0".to_owned(),
            driver: "af_xdp".to_owned(),
            mode: "copy".to_owned(),
            notes: Vec::new(),
            number: 7,
        }]),
        Reply::Status(status()),
        Reply::List(ListReport {
            ports: vec![port()],
            next: Some("vale0:b".to_owned()),
            waiting: [("vale0:eth9".to_owned(), "there is no interface eth9".to_owned())].into(),
        }),
        Reply::MacTable(vec![MacEntryReport {
            mac: "02:00:00:00:00:01".to_owned(),
            vlan: Some(10),
            port: "vale0:a".to_owned(),
            age_s: 1,
            is_static: true,
        }]),
        Reply::Error(ErrorReply::new(ErrorKind::SwitchFull, "vale0 is full", "use another switch")),
    ]
}

#[test]
fn every_request_round_trips() {
    for request in requests() {
        let frame = encode_request(&request).unwrap();
        assert_eq!(decode_request(&frame[PREFIX_BYTES..]).unwrap(), request);
    }
}

#[test]
fn every_reply_round_trips() {
    for reply in replies() {
        let frame = encode_reply(&reply).unwrap();
        assert_eq!(decode_reply(&frame[PREFIX_BYTES..]).unwrap(), reply);
    }
}

#[test]
fn the_messages_of_version_0_1_0_are_understood() {
    let (requests, replies) = (include_str!("requests-0.1.0.jsonl"), include_str!("replies-0.1.0.jsonl"));
    for body in requests.lines() {
        assert!(decode_request(body.as_bytes()).is_ok(), "{body}: {:?}", decode_request(body.as_bytes()));
    }
    for body in replies.lines() {
        assert!(decode_reply(body.as_bytes()).is_ok(), "{body}: {:?}", decode_reply(body.as_bytes()));
    }
    assert_eq!((requests.lines().count(), replies.lines().count()), (30, 19));
}

#[test]
fn names_on_the_wire_are_snake_case() {
    let body = |request: &Request| {
        String::from_utf8(encode_request(request).unwrap()[PREFIX_BYTES..].to_vec()).unwrap()
    };
    assert_eq!(body(&Request::Status), "\"status\"");
    assert_eq!(
        body(&Request::MacTable { switch: "vale0".to_owned(), after: None, after_vlan: None }),
        r#"{"mac_table":{"switch":"vale0"}}"#
    );
    let kinds = [ErrorKind::NoSuchPort, ErrorKind::TooManyPorts, ErrorKind::BadProperties];
    assert_eq!(serde_json::to_string(&kinds).unwrap(), r#"["no_such_port","too_many_ports","bad_wish"]"#);
    assert_eq!(serde_json::to_string(&PortBackend::PipeEnd).unwrap(), "\"pipe_end\"");
    assert_eq!(serde_json::to_string(&StartedBy::OnDemand).unwrap(), "\"on_demand\"");
}

/// Attach requests of programs older than [`PortSpec`], the Python package among them, keep their fields.
#[test]
fn an_attach_request_has_the_fields_of_a_port_beside_its_own() {
    let sent = serde_json::json!({ "attach": {
        "name": "vale0:a", "driver": "tap:t0", "for_program": false, "host": false, "take": true,
        "wish": { "queues": null, "slots": 64, "buffer_bytes": null, "extra_buffers": 0, "huge_pages": "auto", "tx": true, "rx": true },
    } });
    let properties = PortProperties { slots: Some(64), ..PortProperties::default() };
    let port = PortSpec { properties, ..PortSpec::for_device("vale0:a", "tap:t0") };
    let request = Request::Attach { port, for_program: false, host: false, take: true, provisional: false };
    assert_eq!(decode_request(sent.to_string().as_bytes()).unwrap(), request);
    assert_eq!(serde_json::to_value(&request).unwrap(), sent);
    let with_more = sent.to_string().replacen("\"take\"", "\"colour\":1,\"take\"", 1);
    assert!(decode_request(with_more.as_bytes()).is_err(), "a wish is never left out silently");
}

#[test]
fn the_head_is_the_length_in_little_endian() {
    assert_eq!(encode_request(&Request::Stop).unwrap(), b"\x06\0\0\0\"stop\"");
}

#[test]
fn a_reply_may_hold_fields_that_a_newer_daemon_added() {
    let mut json = serde_json::to_value(Reply::Status(status())).unwrap();
    json["status"]["later"] = true.into();
    assert_eq!(decode_reply(json.to_string().as_bytes()).unwrap(), Reply::Status(status()));
}

#[test]
fn an_opened_port_brings_a_region_and_two_eventfds_per_queue() {
    let counts: Vec<usize> = replies().iter().map(Reply::descriptor_count).collect();
    assert_eq!(counts[..3], [0, 5, 5]);
    assert!(counts[3..].iter().all(|&count| count == 0), "{counts:?}");
}

/// Environment variable that makes the test write the schema (`make docs`).
const WRITE: &str = "RINGROAD_WRITE_DOCS";

/// The published schema: its `$defs` have every type, and the types `Request` and `Reply` are the messages.
fn published_schema() -> serde_json::Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/control-protocol.schema.json");
    let mut generator = schemars::generate::SchemaSettings::draft2020_12().into_generator();
    generator.subschema_for::<Request>();
    generator.subschema_for::<Reply>();
    let expected = serde_json::json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": format!("Ringroad's control protocol, version {PROTOCOL_VERSION}"),
        "description": "docs/control-protocol.md has the framing of the messages and the descriptors that go with them.",
        "$defs": generator.take_definitions(true),
    });
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, serde_json::to_string_pretty(&expected).unwrap() + "\n").unwrap();
    }
    let published: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(published, expected, "the types have changed: run `make docs`");
    published
}

#[test]
fn each_statistic_has_its_name_and_its_value_in_a_report() {
    let json = serde_json::to_value(counters()).unwrap();
    for (statistic, number) in Statistic::ALL.iter().zip(1_u64..) {
        assert_eq!((statistic.value)(&counters()), number, "{}", statistic.name);
        assert_eq!(json[statistic.name], number);
    }
    assert_eq!(json.as_object().unwrap().len(), Statistic::ALL.len() + 1, "drops are the only other field");
}

#[test]
fn the_python_package_has_the_statistics() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/ringroad/reports.py");
    let module = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = ("    # The statistics, written by `make docs`.\n", "    # End of the statistics.\n");
    let (before, rest) = module.split_once(begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    let field =
        |Statistic { name, meaning, .. }: &Statistic| format!("    {name}: int\n    \"\"\"{meaning}\"\"\"\n");
    let fields: String = Statistic::ALL.iter().map(field).collect();
    let expected = format!("{before}{begin}{fields}{end}{after}");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &expected).unwrap();
        return;
    }
    assert!(module == expected, "the statistics have changed: run `make docs`");
}

/// Validator of messages by the published schema's definition of `kind`.
fn judge(kind: &str) -> jsonschema::Validator {
    let mut schema = published_schema();
    schema["$ref"] = format!("#/$defs/{kind}").into();
    jsonschema::validator_for(&schema).unwrap()
}

#[test]
fn every_message_matches_the_published_schema() {
    let (of_requests, of_replies) = (judge("Request"), judge("Reply"));
    for request in requests() {
        of_requests.validate(&serde_json::to_value(&request).unwrap()).unwrap();
    }
    for reply in replies() {
        of_replies.validate(&serde_json::to_value(&reply).unwrap()).unwrap();
    }
}

#[test]
fn the_published_schema_refuses_what_the_daemon_refuses() {
    let of_requests = judge("Request");
    for refused in [
        serde_json::json!({ "hello": { "protocol": 1 } }),
        serde_json::json!({ "hello": { "protocol": 1, "program": "p", "more": 1 } }),
        serde_json::json!({ "open": { "name": 1, "wish": {} } }),
        serde_json::json!("no_such_request"),
    ] {
        assert!(!of_requests.is_valid(&refused), "{refused}");
        assert!(serde_json::from_value::<Request>(refused).is_err());
    }
}
