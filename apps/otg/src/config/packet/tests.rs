use super::*;
use crate::document::Problems;

fn read(headers: Value) -> Result<PacketTemplate, Vec<String>> {
    let document = json!({"packet": headers});
    Problems::collect(&document, |root| packet(&root.get("packet"))).map_err(|refusal| refusal.errors)
}

fn headers(given: Value) -> Value {
    Value::Array(read(given).unwrap().headers)
}

#[test]
fn missing_fields_have_the_models_defaults() {
    let zero = "00:00:00:00:00:00";
    let expected = json!([
        {"ethernet": {"destination": "02:00:00:00:00:02", "source": zero}},
        {"vlan": {"priority": 0, "dei": false, "id": 0}},
        {"mpls": {"label": 16, "traffic_class": 0, "ttl": 64}},
        {"ipv4": {
            "identification": 0, "dont_fragment": false, "ttl": 64, "source": "0.0.0.0", "destination": "0.0.0.0"
        }},
        {"ipv6": {"traffic_class": 0, "flow_label": 0, "hop_limit": 64, "source": "::", "destination": "::"}},
        {"udp": {"source": 0, "destination": 0}},
        {"vxlan": {"vni": 0}},
        {"tcp": {
            "source": 0, "destination": 0, "sequence": 0, "acknowledgment": 0, "window": 0, "flags": ""
        }},
        {"icmp": {"type": 8, "code": 0, "identifier": 0, "sequence": 0}},
        {"icmpv6": {"type": 128, "code": 0, "identifier": 0, "sequence": 0}},
        {"arp": {
            "operation": 1, "sender_mac": zero, "sender_ip": "0.0.0.0", "target_mac": zero, "target_ip": "0.0.0.0"
        }},
        {"raw": "deadbeef"},
    ]);
    let given: Vec<Value> = CHOICES
        .iter()
        .filter(|name| **name != "custom")
        .map(|name| json!({"choice": name, *name: {}}))
        .collect();
    let mut found = headers(Value::Array(given));
    found
        .as_array_mut()
        .unwrap()
        .push(headers(json!([{"choice": "custom", "custom": {"bytes": "0xde ad:BE ef"}}]))[0].take());
    let sorted = |headers: &Value| {
        let mut headers = headers.as_array().unwrap().clone();
        headers.sort_by_key(|header| header.as_object().unwrap().keys().next().unwrap().clone());
        headers
    };
    assert_eq!(
        sorted(&found).iter().map(|header| header.to_string().to_lowercase()).collect::<Vec<_>>(),
        sorted(&expected).iter().map(Value::to_string).collect::<Vec<_>>()
    );
    assert_eq!(headers(json!([])), json!([expected[0]]));
}

#[test]
fn headers_keep_their_order_and_modifiers_name_their_header() {
    let found = read(json!([
        {"choice": "ethernet", "ethernet": {"dst": {"choice": "value", "value": "02:00:00:00:00:0a"}}},
        {"choice": "vlan", "vlan": {"id": {"choice": "values", "values": [10, 20]}}},
        {"choice": "vlan", "vlan": {
            "id": {"choice": "increment", "increment": {"start": 5, "step": 2, "count": 3}},
            "tpid": {"choice": "value", "value": 0x9100}
        }},
        {"choice": "ipv6", "ipv6": {
            "src": {"choice": "decrement", "decrement": {"start": "2001::9", "step": "::2", "count": 4}}
        }},
        {"choice": "udp", "udp": {
            "src_port": {"choice": "random", "random": {"min": 5, "max": 9, "seed": 7, "count": 70_000}},
            "checksum": {"choice": "custom", "custom": 4660}
        }},
    ]))
    .unwrap();
    let names: Vec<&String> =
        found.headers.iter().flat_map(|header| header.as_object().unwrap().keys()).collect();
    assert_eq!(names, ["ethernet", "vlan", "vlan", "ipv6", "udp"]);
    assert_eq!(found.headers[0]["ethernet"]["destination"], "02:00:00:00:00:0a");
    assert_eq!(found.headers[1]["vlan"]["id"], 10);
    assert_eq!(found.headers[2]["vlan"], json!({"id": 5, "tpid": 0x9100, "priority": 0, "dei": false}));
    assert_eq!(found.headers[4]["udp"]["checksum"], 4660);
    assert_eq!(
        found.modifiers,
        [
            json!({"field": "vlan.id", "list": [10, 20]}),
            json!({"field": "vlan[1].id", "increment": {"step": 2, "count": 3, "wrap": true}}),
            json!({"field": "ipv6.source", "decrement": {"step": 2, "count": 4, "wrap": true}}),
            json!({"field": "udp.source", "random": {"seed": 7, "low": 5, "high": 9}}),
        ]
    );
}

#[test]
fn tcp_flags_and_service_bits_are_combined() {
    let tcp = headers(json!([{"choice": "tcp", "tcp": {
        "ctl_syn": {"choice": "value", "value": 1},
        "ctl_ack": {"choice": "value", "value": 1},
        "ecn_cwr": {"value": 1},
        "ctl_fin": {"value": 0}
    }}]));
    assert_eq!(tcp[0]["tcp"]["flags"], "SAC");
    for (priority, dscp, ecn) in [
        (json!({"choice": "dscp", "dscp": {"phb": {"value": 46}, "ecn": {"value": 1}}}), 46, 1),
        (json!({"choice": "raw", "raw": {"value": 0xb9}}), 46, 1),
        (
            json!({"choice": "tos", "tos": {"precedence": {"value": 5}, "delay": {"value": 1}, "unused": {"value": 1}}}),
            44,
            1,
        ),
    ] {
        let ip = headers(json!([{"choice": "ipv4", "ipv4": {"priority": priority}}]));
        assert_eq!(
            (&ip[0]["ipv4"]["dscp"], &ip[0]["ipv4"]["ecn"]),
            (&json!(dscp), &json!(ecn)),
            "{priority}"
        );
    }
}

#[test]
fn all_unsupported_members_are_named_by_path() {
    let problems = read(json!([
        {"choice": "gre", "gre": {}},
        {"choice": "ipv4", "ipv4": {
            "options": [{"choice": "router_alert"}],
            "total_length": {"choice": "value", "value": 100},
            "version": {"choice": "value", "value": 5},
            "src": {"choice": "auto", "auto": {"choice": "dhcp"}},
            "header_checksum": {"choice": "generated", "generated": "bad"},
            "priority": {"choice": "raw", "raw": {"choice": "values", "values": [1]}}
        }},
        {"choice": "tcp", "tcp": {"ctl_syn": {"choice": "values", "values": [1, 0]}}},
        {"choice": "custom", "custom": {"bytes": "abc"}},
        {"choice": "icmp", "icmp": {"choice": "echo", "echo": {"sequence": {}}}},
        {"choice": "udp", "udp": {"dst_port": {"value": 70_000}, "length": {"choice": "auto"}}},
    ]))
    .unwrap_err();
    let expected = [
        "packet[0].gre: not supported; supported are ethernet, vlan, mpls, ipv4, ipv6, udp, tcp, icmp, icmpv6, arp, vxlan, custom",
        "packet[1].ipv4.options: not supported; supported are version, header_length,",
        "packet[1].ipv4.version: 5 given; only 4 is supported",
        "packet[1].ipv4.total_length: 100 given, but it is always computed; leave it out",
        "packet[1].ipv4.header_checksum.generated: \"bad\" is not supported; give a custom checksum",
        "packet[1].ipv4.src.auto: not supported; supported are value, values, increment, decrement, random",
        "packet[1].ipv4.priority.raw.values: not supported; supported is value",
        "packet[2].tcp.ctl_syn.values: not supported; supported is value",
        "packet[3].custom.bytes: \"abc\" given; give pairs of hexadecimal digits",
        "packet[4].icmp.echo.sequence: not supported; supported are type, code, checksum, identifier, sequence_number",
        "packet[5].udp.dst_port.value: 70000 given; give a whole number from 0 to 65535",
    ];
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    for (found, expected) in problems.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
}

#[test]
fn every_variable_field_can_be_modified_by_a_stream() {
    for (header, fields) in HEADERS {
        let before: &[&str] = match header {
            "ethernet" => &[],
            "udp" | "tcp" | "icmp" => &["ethernet", "ipv4"],
            "icmpv6" => &["ethernet", "ipv6"],
            "vxlan" => &["ethernet", "ipv4", "udp"],
            _ => &["ethernet"],
        };
        let varying = fields
            .iter()
            .filter(|field| matches!(field.rule, Rule::Varies { .. } | Rule::VariesOrAuto { .. }));
        for field in varying {
            let [start, step] = [0, 1].map(|number| match field.kind {
                Kind::Bit => json!(number),
                kind => kind.written(number),
            });
            let counter = json!({"start": start, "step": step, "count": 2});
            let varied = json!({field.name: {"choice": "increment", "increment": counter}});
            let last = match header {
                "icmp" | "icmpv6" => {
                    json!({"choice": header, header: {"choice": "echo", "echo": varied}})
                }
                _ => json!({"choice": header, header: varied}),
            };
            let mut packet: Vec<Value> =
                before.iter().map(|name| json!({"choice": name, *name: {}})).collect();
            packet.push(last);
            let config = crate::config::Config::read(json!({
                "ports": [{"name": "a", "location": "vale0:a"}],
                "flows": [{
                    "name": "f", "tx_rx": {"port": {"tx_name": "a"}}, "packet": packet, "size": {"fixed": 128}
                }],
            }));
            let config = config.unwrap_or_else(|refusal| panic!("{}.{}: {refusal:?}", header, field.name));
            let mut source = config.flows[0].load.streams[0].compile(0).unwrap();
            let frames: Vec<Vec<u8>> = (0..3).map(|_| source.next_frame(0).to_vec()).collect();
            assert_ne!(frames[0], frames[1], "{}.{}", header, field.name);
            assert_eq!(frames[0], frames[2], "{}.{}", header, field.name);
        }
    }
}
