use ringroad_traffic::line_rate::BitLayer;
use ringroad_traffic::pacing::{LoadShape, RateSpec};
use serde_json::json;

use super::*;

/// Makes ports a and b, and a flow from a to b with the additional `members`.
fn with_flow(members: &Value) -> Value {
    let mut flow =
        json!({"name": "f", "tx_rx": {"choice": "port", "port": {"tx_name": "a", "rx_names": ["b"]}}});
    if let (Some(flow), Some(members)) = (flow.as_object_mut(), members.as_object()) {
        flow.extend(members.clone());
    }
    json!({
        "ports": [{"name": "a", "location": "vale0:a"}, {"name": "b", "location": "vale0:b"}],
        "layer1": [{"name": "l", "port_names": ["a"], "speed": "speed_10_gbps"}],
        "flows": [flow],
    })
}

fn flow(members: &Value) -> FlowConfig {
    let config = Config::read(with_flow(members));
    config.unwrap_or_else(|refusal| panic!("{members}: {refusal:?}")).flows.remove(0)
}

fn problems(document: Value) -> Vec<String> {
    Config::read(document.clone()).map_or_else(|refusal| refusal.errors, |_| panic!("{document} was taken"))
}

#[test]
fn an_empty_flow_has_the_models_defaults() {
    let config = Config::read(with_flow(&json!({}))).unwrap();
    let flow = &config.flows[0];
    assert_eq!((flow.tx.as_str(), flow.rx.as_slice()), ("a", ["b".to_owned()].as_slice()));
    assert_eq!(flow.load.rate, RateSpec::Frames { rate_fps: 1000.0 });
    assert_eq!((flow.load.frames, flow.load.duration, flow.load.delay), (None, None, 0.0));
    assert_eq!(flow.load.shape, LoadShape::Constant);
    let metrics = flow.metrics;
    assert_eq!(
        (metrics.enabled, metrics.loss, metrics.latency, metrics.expected_copies),
        (false, false, false, 1.0)
    );
    let source = flow.load.streams[0].compile(0).unwrap();
    assert_eq!((source.next_size(), flow.load.streams[0].signature), (60, false));

    let mut plan = config.plan();
    plan.check().unwrap();
    assert_eq!((plan.ports[0].name.as_str(), plan.ports[0].label()), ("vale0:a", "a"));
    assert!(Config::read(json!({})).unwrap().flows.is_empty());
}

#[test]
fn rates_are_frames_or_bits_of_the_line() {
    let l1 = |rate_bps| RateSpec::Bits { rate_bps, layer: BitLayer::L1 };
    for (rate, expected) in [
        (json!({"choice": "pps", "pps": "250"}), RateSpec::Frames { rate_fps: 250.0 }),
        (json!({"choice": "bps", "bps": "672"}), l1(672.0)),
        (json!({"choice": "kbps", "kbps": 5}), l1(5e3)),
        (json!({"choice": "mbps", "mbps": 5}), l1(5e6)),
        (json!({"choice": "gbps", "gbps": 5}), l1(5e9)),
        (
            json!({"choice": "percentage", "percentage": 2.5}),
            RateSpec::PercentOfLink { percent: 2.5, link_bps: 10e9 },
        ),
    ] {
        assert_eq!(flow(&json!({"rate": rate})).load.rate, expected, "{rate}");
    }
}

#[test]
fn durations_are_frames_seconds_or_bursts() {
    let fixed = flow(&json!({"duration": {"choice": "fixed_packets", "fixed_packets": {
        "packets": 7, "gap": 12, "delay": {"choice": "bytes", "bytes": 1250}
    }}}));
    assert_eq!((fixed.load.frames, fixed.load.delay), (Some(7), 1e-6));
    let timed = flow(&json!({"duration": {"choice": "fixed_seconds", "fixed_seconds": {
        "seconds": 1.5, "delay": {"choice": "microseconds", "microseconds": 20}
    }}}));
    assert_eq!((timed.load.duration, timed.load.delay), (Some(1.5), 20e-6));
    let burst = |gap: Value| {
        flow(&json!({"duration": {"choice": "burst", "burst": {"bursts": 3, "packets": 5, "inter_burst_gap": gap}}})).load
    };
    for (gap, gap_ns) in [
        (json!({"choice": "nanoseconds", "nanoseconds": 500}), 500),
        (json!({"choice": "bytes", "bytes": 12}), 10),
        (json!(null), 96),
    ] {
        let load = burst(gap.clone());
        assert_eq!(load.frames, Some(15));
        assert_eq!(load.shape, LoadShape::Bursts { frames: 5, gap_ns: Some(gap_ns) }, "{gap}");
    }
    assert_eq!(burst(json!({"choice": "bytes", "bytes": 0})).shape, LoadShape::Constant);
}

#[test]
fn sizes_have_the_models_shares() {
    let sizes = |size: Value, frames: usize| {
        let mut source = flow(&json!({"size": size})).load.streams[0].compile(0).unwrap();
        // Four bytes for the FCS, which the model's sizes count.
        (0..frames).map(|_| source.next_frame(0).len() + 4).collect::<Vec<_>>()
    };
    assert_eq!(sizes(json!({"choice": "fixed", "fixed": 512}), 2), [512, 512]);
    let increment = json!({"choice": "increment", "increment": {"start": 64, "end": 70, "step": 3}});
    assert_eq!(sizes(increment, 4), [64, 67, 70, 64]);
    let random = sizes(json!({"choice": "random", "random": {"min": 100, "max": 103}}), 200);
    assert!(
        (100..=103).all(|size| random.contains(&size))
            && random.iter().all(|size| (100..=103).contains(size))
    );
    let mix = |name: &str, frames| {
        sizes(
            json!({"choice": "weight_pairs", "weight_pairs": {"choice": "predefined", "predefined": name}}),
            frames,
        )
    };
    let share = |sizes: &[usize], size| sizes.iter().filter(|other| **other == size).count();
    let imix = mix("imix", 1200);
    assert_eq!([64, 570, 1518].map(|size| share(&imix, size)), [700, 400, 100]);
    let tcp = mix("tcp_imix", 10_000);
    assert_eq!([90, 92, 594, 1518].map(|size| share(&tcp, size)), [5867, 200, 2366, 1567]);
    let custom = json!({"choice": "weight_pairs", "weight_pairs": {
        "choice": "custom", "custom": [{"size": 64, "weight": 0.5}, {"size": 128, "weight": 1.5}]
    }});
    let custom = sizes(custom, 400);
    assert_eq!([64, 128].map(|size| share(&custom, size)), [100, 300]);
}

#[test]
fn payloads_fill_the_bytes_behind_the_headers() {
    let frame = |payload: Value| {
        let flow = flow(&json!({"payload": payload, "size": {"choice": "fixed", "fixed": 68}}));
        let mut source = flow.load.streams[0].compile(0).unwrap();
        source.next_frame(0)[14..20].to_vec()
    };
    let pattern = json!({"choice": "fixed", "fixed": {"pattern": "a1B2", "repeat": true}});
    assert_eq!(frame(pattern), [0xa1, 0xb2, 0xa1, 0xb2, 0xa1, 0xb2]);
    assert_eq!(frame(json!({"choice": "increment_byte"})), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn counters_wrap_at_the_ends_of_their_field() {
    let values = |field: &str, bytes: std::ops::Range<usize>, counter: Value| {
        let (choice, _) = counter.as_object().and_then(|counter| counter.iter().next()).unwrap();
        let varied = json!({"choice": choice, choice.as_str(): counter[choice]});
        let flow = flow(&json!({"packet": [
            {"choice": "ethernet"}, {"choice": "vlan", "vlan": {"id": if field == "id" { varied.clone() } else { json!(null) }}},
            {"choice": "ipv4", "ipv4": {"src": if field == "src" { varied.clone() } else { json!(null) }}},
            {"choice": "udp", "udp": {"src_port": if field == "src_port" { varied } else { json!(null) }}},
        ]}));
        let mut source = flow.load.streams[0].compile(0).unwrap();
        let value =
            |frame: &[u8]| frame[bytes.clone()].iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        (0..4).map(|_| value(source.next_frame(0))).collect::<Vec<_>>()
    };
    let up = json!({"increment": {"start": 65534, "step": 1, "count": 4}});
    assert_eq!(values("src_port", 38..40, up), [65534, 65535, 0, 1]);
    let down = json!({"decrement": {"start": 1, "step": 3, "count": 3}});
    assert_eq!(values("src_port", 38..40, down), [1, 65534, 65531, 1]);
    let address = json!({"increment": {"start": "255.255.255.0", "step": "0.0.0.255", "count": 3}});
    assert_eq!(values("src", 30..34, address), [0xffff_ff00, 0xffff_ffff, 0xfe, 0xffff_ff00]);
    let tag = json!({"increment": {"start": 4094, "step": 2, "count": 4_294_967_295u64}});
    assert_eq!(values("id", 14..16, tag), [4094, 0, 2, 4], "the bits beside the field stay");
}

#[test]
fn a_measured_flow_carries_signatures() {
    let measured = flow(&json!({"metrics": {
        "enable": true, "loss": true, "latency": {"enable": true, "mode": "store_forward"},
        "rx_tx_ratio": {"choice": "value", "value": 2}
    }}));
    assert!(measured.load.streams[0].signature);
    assert!(measured.metrics.loss && measured.metrics.latency);
    assert_eq!(measured.metrics.expected_copies, 2.0);
}

#[test]
fn members_without_effect_are_accepted_with_a_warning() {
    let config = Config::read(json!({
        "ports": [{"name": "a", "location": "vale0:a"}],
        "layer1": [{"name": "l", "port_names": ["a"], "mtu": 9000, "media": "fiber", "promiscuous": true}],
        "options": {"port_options": {"location_preemption": true, "data_integrity": false}},
        "devices": [], "flows": [], "captures": null,
    }))
    .unwrap();
    let told: Vec<&str> = config.warnings.iter().filter_map(|text| text.split(':').next()).collect();
    assert_eq!(told, ["options.port_options.location_preemption", "layer1[0].mtu", "layer1[0].media"]);
}

#[test]
fn faults_of_a_flow_are_named_by_path() {
    for (members, expected) in [
        (
            json!({"egress_packet": [{"choice": "ethernet"}]}),
            "flows[0].egress_packet: not supported; supported are name,",
        ),
        (json!({"tx_rx": null}), "flows[0].tx_rx.port.tx_name: missing"),
        (
            json!({"tx_rx": {"choice": "device", "device": {"tx_names": [], "rx_names": []}}}),
            "flows[0].tx_rx.device: not supported; supported is port",
        ),
        (
            json!({"tx_rx": {"port": {"tx_name": "c", "rx_names": ["b"]}}}),
            "flows[0].tx_rx.port.tx_name: no port is called \"c\"; there are a, b",
        ),
        (
            json!({"size": {"fixed": 63}}),
            "flows[0].size.fixed: 63 given; give a whole number from 64 to 65539",
        ),
        (
            json!({"size": {"choice": "increment", "increment": {"start": 90, "end": 80}}}),
            "flows[0].size.increment.start: 90 given; give at most flows[0].size.increment.end, which is 80",
        ),
        (
            json!({"size": {"choice": "weight_pairs", "weight_pairs": {"predefined": "ipv6_imix"}}}),
            "flows[0].size.weight_pairs.predefined: \"ipv6_imix\" given; give one of imix, ipsec_imix, tcp_imix: this one has",
        ),
        (
            json!({"rate": {"choice": "percentage", "percentage": 0}}),
            "flows[0].rate.percentage: 0 given; give a number above 0, up to 100",
        ),
        (
            json!({"tx_rx": {"port": {"tx_name": "b", "rx_names": ["a"]}}, "rate": {"choice": "percentage", "percentage": 5}}),
            "flows[0].rate.percentage: port \"b\" has no speed; set its speed in layer1",
        ),
        (
            json!({"duration": {"continuous": {"gap": 20}}}),
            "flows[0].duration.continuous.gap: 20 given; give at most 12, the gap of the line",
        ),
        (
            json!({"duration": {"choice": "fixed_packets", "fixed_packets": {"packets": 0}}}),
            "flows[0].duration.fixed_packets.packets: 0 given; give a whole number from 1 to 4294967295",
        ),
        (
            json!({"metrics": {"enable": true, "latency": {"enable": true, "mode": "cut_through"}}}),
            "flows[0].metrics.latency.mode: not supported; supported is store_forward",
        ),
        (
            json!({"payload": {"choice": "decrement_word"}}),
            "flows[0].payload.decrement_word: not supported; supported are fixed, increment_byte",
        ),
        // Values that are each valid, but make no frame together.
        (
            json!({"packet": [{"choice": "ethernet"}, {"choice": "ipv6"}, {"choice": "tcp"}], "metrics": {"enable": true}}),
            "flows[0].size: frames of 64 bytes are too short",
        ),
        (
            json!({"packet": [{"choice": "ethernet"}, {"choice": "vlan", "vlan": {
                "tpid": {"choice": "values", "values": [33024, 34984]}
            }}]}),
            "flows[0].packet[1].vlan.tpid: cannot vary from frame to frame; give one value",
        ),
        (
            json!({"packet": [{"choice": "ethernet"}, {"choice": "ipv4", "ipv4": {
                "protocol": {"choice": "increment", "increment": {"start": 6, "step": 11, "count": 2}}
            }}]}),
            "flows[0].packet[1].ipv4.protocol: cannot vary from frame to frame; give one value",
        ),
        (
            json!({"packet": [{"choice": "ethernet"}, {"choice": "ipv4"}, {"choice": "vxlan"}]}),
            "flows[0].packet[2].vxlan: vxlan cannot follow ipv4 directly: IP carries udp, tcp, icmp, icmpv6, ipv4, ipv6 and custom",
        ),
        (
            json!({"packet": [{"choice": "ethernet"}, {"choice": "custom", "custom": {"bytes": "00"}}, {"choice": "udp"}]}),
            "flows[0].packet[2].udp: its checksum needs the addresses of an IP header before it: add ipv4 or ipv6, or set a custom checksum",
        ),
    ] {
        let found = problems(with_flow(&members));
        assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}\n{expected}");
    }
}

#[test]
fn faults_outside_flows_are_named_by_path() {
    let found = problems(json!({
        "ports": [
            {"name": "a", "location": "vale0:a"}, {"name": "a", "location": "vale0:b"}, {"name": "c"},
            {"name": "d", "location": "vale0:a"}
        ],
        "layer1": [{"name": "l", "port_names": ["x"], "speed": "speed_3_gbps", "flow_control": {}, "promiscuous": false}],
        "lags": [{"name": "lag"}],
        "options": {"port_options": {"data_integrity": true}},
    }));
    let expected = [
        "lags: not supported; supported are ports, layer1, flows, options",
        "options.port_options.data_integrity: true is not supported",
        "ports[2].location: missing",
        "ports[1].name: \"a\" is given twice",
        "ports[3].location: \"vale0:a\" is given twice",
        "layer1[0].flow_control: not supported; supported are name,",
        "layer1[0].speed: \"speed_3_gbps\" given; give one of speed_10_fd_mbps,",
        "layer1[0].promiscuous: false is not supported: a port receives every frame",
        "layer1[0].port_names: no port is called \"x\"",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
}
