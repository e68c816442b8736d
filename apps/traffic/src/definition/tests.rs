use super::*;
use crate::line_rate::FrameSize;
use crate::signature::FormSet;

fn read(text: &str) -> Result<StreamList, ReadError> {
    StreamList::read(toml::Deserializer::parse(text).unwrap())
}

fn stream(fields: &str) -> StreamDefinition {
    read(&format!("[[stream]]\n{fields}")).unwrap().streams.remove(0)
}

#[test]
fn parse_errors_name_path_value_and_range() {
    const BEFORE: &str = "[[stream]]\n[[stream]]\n";
    for (fields, told) in [
        (
            "packet = [{ipv4 = {ttl = 300}}]",
            "stream[1].packet[0].ipv4.ttl: 300 is out of range: give 0 to 255",
        ),
        (
            "packet = [{ipv4 = {dscp = 64}}]",
            "stream[1].packet[0].ipv4.dscp: 64 is out of range: give 0 to 63",
        ),
        ("packet = [{ipv4 = {ecn = -1}}]", "ipv4.ecn: -1 is out of range: give 0 to 3"),
        (
            "packet = [{ipv4 = {ecn = 'x'}}]",
            "ipv4.ecn: invalid type: string \"x\", expected a number from 0 to 3",
        ),
        ("packet = [{vlan = {id = 4096}}]", "vlan.id: 4096 is out of range: give 0 to 4095"),
        ("packet = [{vlan = {tpid = 65536}}]", "vlan.tpid: 65536 is out of range: give 0 to 65535"),
        ("packet = [{mpls = {label = 1048576}}]", "mpls.label: 1048576 is out of range: give 0 to 1048575"),
        ("packet = [{vxlan = {vni = 16777216}}]", "vxlan.vni: 16777216 is out of range: give 0 to 16777215"),
        ("packet = [{ipv6 = {flow_label = 1048576}}]", "ipv6.flow_label: 1048576 is out of range"),
        ("packet = [{ipv4 = {source = '1.2.3'}}]", "ipv4.source: \"1.2.3\" is not an IPv4 address"),
        ("packet = [{ipv6 = {source = '1.2.3.4'}}]", "ipv6.source: \"1.2.3.4\" is not an IPv6 address"),
        ("packet = [{ethernet = {source = '02'}}]", "ethernet.source: \"02\" is not an Ethernet address"),
        (
            "packet = [{ipv4 = {tttl = 3}}]",
            "packet[0].ipv4.tttl: unknown field `tttl`, expected one of `source`",
        ),
        ("packet = [{ipv5 = {}}]", "packet[0]: unknown variant `ipv5`, expected one of `ethernet`"),
        ("packet = [{tcp = {flags = 'SX'}}]", "tcp.flags: \"SX\" is not a set of TCP flags"),
        (
            "packet = [{udp = {checksum = 'wrong'}}]",
            "udp.checksum: invalid value: string \"wrong\", expected \"right\"",
        ),
        (
            "packet = [{udp = {checksum = 65536}}]",
            "udp.checksum: invalid value: integer `65536`, expected \"right\", \"zero\" or a number from 0 to 65535",
        ),
        ("packet = [{raw = '123'}]", "raw: \"123\" is not bytes"),
        ("size = 63", "stream[1].size: \"63\" is not a frame size: give 64 to 65539 bytes"),
        ("size = 5000000000", "size: \"5000000000\" is not a frame size: give 64 to 65539"),
        ("size = -64", "size: \"-64\" is not a frame size"),
        ("size = 'emix'", "size: \"emix\" is not a size of frames: give"),
        ("size = [64, 65540]", "size[1]: \"65540\" is not a frame size"),
        ("size = {weighted = [[64, 7], [10, 1]]}", "size.weighted[1][0]: \"10\" is not a frame size"),
        ("size = {step = 7}", "size: give weighted, or range with or without step"),
        ("size = {range = [64, 128], weight = 1}", "size.weight: unknown field `weight`"),
        ("payload = 'xy'", "payload: \"xy\" is not bytes"),
        ("payload = {increment = false}", "payload: give increment = true or random_seed"),
        ("modify = [{field = 'ipv4.ttl'}]", "modify[0]: the modifier of \"ipv4.ttl\" needs one of increment"),
        (
            "modify = [{field = 'ipv4.ttl', list = [1], random = {seed = 1}}]",
            "modify[0]: the modifier of \"ipv4.ttl\" needs one of increment",
        ),
        (
            "modify = [{field = 'ipv4.ttl', list = [-1]}]",
            "list[0]: -1 is out of range: fields hold numbers from 0 on",
        ),
        ("name = 'stream 0'", "stream[1].name: stream[0] has the name \"stream 0\" already"),
        ("sizes = 64", "sizes: unknown field `sizes`"),
    ] {
        let error = read(&format!("{BEFORE}{fields}")).unwrap_err();
        let (path, told) = told.split_once(": ").unwrap();
        assert!(error.field.starts_with("stream[1]") && error.field.ends_with(path), "{fields}\n  {error}");
        assert!(error.reason.contains(told), "{fields}\n  {error}");
    }
}

#[test]
fn invalid_streams_are_named_with_field_value_and_range() {
    let tunnel = "{ethernet = {}}, {ipv4 = {}}, {udp = {}}, {vxlan = {}}";
    let deep = [tunnel; 9].join(", ");
    let many = (0..33).map(|at| format!("{{field = 'payload[{at}..{}]', list = [1]}}", at + 1));
    let many = many.collect::<Vec<_>>().join(", ");
    for (fields, told) in [
        ("weight = 0", "weight: 0 is out of range: give 1 to 10000"),
        ("weight = 10001", "weight: 10001 is out of range"),
        ("flows = 0", "flows: 0 is out of range: give 1 to 10000000"),
        ("flows = 10000001", "flows: 10000001 is out of range: give 1 to 10000000"),
        ("packet = []", "packet: no header is out of range: give 1 header at least"),
        (
            "packet = [{ipv4 = {}}]",
            "packet[0].ipv4: ipv4 cannot follow the start of the frame directly: begin with ethernet",
        ),
        (
            "packet = [{ethernet = {}}, {udp = {}}]",
            "packet[1].udp: udp cannot follow ethernet directly: put ipv4",
        ),
        (
            "packet = [{ethernet = {}}, {ipv4 = {}}, {arp = {}}]",
            "packet[2].arp: arp cannot follow ipv4 directly: IP carries udp",
        ),
        (
            "packet = [{ethernet = {}}, {ipv4 = {}}, {icmpv6 = {}}]",
            "packet[2].icmpv6: icmpv6 cannot follow ipv4 directly: use icmp",
        ),
        (
            "packet = [{ethernet = {}}, {ipv4 = {}}, {tcp = {}}, {udp = {}}]",
            "packet[3].udp: udp cannot follow tcp directly: only raw can",
        ),
        (
            "packet = [{ethernet = {}}, {ipv4 = {}}, {udp = {}}, {ipv4 = {}}]",
            "ipv4 cannot follow udp directly: UDP carries vxlan and raw",
        ),
        (
            "packet = [{ethernet = {}}, {mpls = {}}, {udp = {}}]",
            "udp cannot follow mpls directly: MPLS carries",
        ),
        (
            "packet = [{ethernet = {}}, {ipv4 = {}}, {udp = {}}, {vxlan = {}}, {ipv4 = {}}]",
            "ipv4 cannot follow vxlan directly",
        ),
        (
            "packet = [{ethernet = {}}, {raw = '00'}, {udp = {}}]",
            "packet[2].udp: its checksum needs the addresses of an IP header before it",
        ),
        (
            "packet = [{ethernet = {}}, {ipv6 = {}}, {raw = '00'}, {udp = {}}]",
            "packet[3].udp: the raw bytes between it and its IP header are an odd number",
        ),
        (
            &format!("size = 1518\npacket = [{deep}]"),
            "packet: 9 checksums that vary is out of range: give at most 8",
        ),
        (
            "packet = [{ethernet = {}}, {ipv6 = {}}, {udp = {}}]",
            "size: frames of 64 bytes are too short: 62 bytes of headers, 6 of the shortest signature, with 4 bytes of FCS, take at least 72",
        ),
        (
            "signature = false\npacket = [{ethernet = {}}, {ipv6 = {}}, {tcp = {}}]",
            "frames of 64 bytes are too short: 74 bytes of headers, with 4 bytes of FCS, take at least 78",
        ),
        (
            "modify = [{field = 'payload[10..16]', list = [1]}]",
            "42 bytes of headers, 16 to the end of what is modified in the payload, 6 of the shortest signature, with 4 bytes of FCS, take at least 68",
        ),
        ("size = {range = [64, 65539]}", "size: 65476 sizes are too many: give at most 16384"),
        ("size = {range = [128, 64]}", "size.range: [128, 64] is out of range: give the lower size first"),
        ("size = {range = [64, 128], step = 0}", "size.step: 0 is out of range: give 1 or more bytes"),
        ("size = {weighted = [[64, 0]]}", "size.weighted: 1 weights with sum 0 is out of range"),
        (
            "size = {weighted = [[64, 65536], [65, 1]]}",
            "size.weighted: 2 weights with sum 65537 is out of range",
        ),
        ("size = []", "size: no size is out of range: give 1 size at least"),
        (
            "modify = [{field = 'ipv4.source', list = [1], every = 0}]",
            "modify[0].every: 0 is out of range: give 1 or more frames",
        ),
        (
            "modify = [{field = 'ipv6.source', list = [1]}]",
            "modify[0].field: the frame has no field \"ipv6.source\": it has ethernet, ipv4, udp, payload, frame",
        ),
        (
            "modify = [{field = 'ipv4[1].source', list = [1]}]",
            "modify[0].field: the frame has no field \"ipv4[1].source\"",
        ),
        (
            "modify = [{field = 'udp.port', list = [1]}]",
            "the frame has no field \"udp.port\": it has source, destination, checksum",
        ),
        ("modify = [{field = 'udp', list = [1]}]", "modify[0].field: \"udp\" is not a field: write it like"),
        ("modify = [{field = 'udp[0..x]', list = [1]}]", "\"udp[0..x]\" is not a field: write it like"),
        (
            "modify = [{field = 'udp[4..9]', list = [1]}]",
            "udp[4..9] is out of range: give 1 to 8 bytes of udp[0..8]",
        ),
        (
            "modify = [{field = 'payload[0..9]', list = [1]}]",
            "payload[0..9] is out of range: give 1 to 8 bytes of payload[0..18]",
        ),
        ("modify = [{field = 'payload[4..4]', list = [1]}]", "payload[4..4] is out of range"),
        ("modify = [{field = 'frame[18446744073709551615..3]', list = [1]}]", "is out of range"),
        (
            "modify = [{field = 'udp.length', list = [1]}]",
            "\"udp.length\" cannot be modified: the rest of the frame depends",
        ),
        (
            "modify = [{field = 'udp.checksum', list = [1]}]",
            "\"udp.checksum\" cannot be modified: lengths and checksums are computed",
        ),
        (
            "modify = [{field = 'frame[16..18]', list = [1]}]",
            "\"frame[16..18]\" cannot be modified: lengths and checksums are computed",
        ),
        (
            "modify = [{field = 'frame[32..36]', list = [1]}]",
            "modify[0].field: a checksum covers some of its bytes and some not",
        ),
        (
            "modify = [{field = 'ipv4.ttl', list = [256]}]",
            "modify[0].list[0]: 256 is out of range: give 0 to 255",
        ),
        (
            "modify = [{field = 'ipv4.ttl', list = []}]",
            "modify[0].list: a list of 0 is out of range: give 1 to 65536 values",
        ),
        (
            "modify = [{field = 'ipv4.ttl', list = ['ten']}]",
            "modify[0].list[0]: \"ten\" is not a number like 16 or 0x10",
        ),
        (
            "modify = [{field = 'ipv4.source', list = ['1.2.3']}]",
            "modify[0].list[0]: \"1.2.3\" is not an IPv4 address",
        ),
        ("modify = [{field = 'ethernet.source', list = ['02']}]", "\"02\" is not an Ethernet address"),
        (
            "modify = [{field = 'ipv4.ttl', increment = {count = 193}}]",
            "modify[0].increment.count: 193 is out of range: give 1 to 192 values with step 1 from 64 on",
        ),
        (
            "modify = [{field = 'ipv4.ttl', decrement = {count = 66}}]",
            "modify[0].decrement.count: 66 is out of range: give 1 to 65 values with step 1 from 64 on; with wrap = true",
        ),
        (
            "modify = [{field = 'ipv4.ttl', increment = {count = 0}}]",
            "modify[0].increment.count: 0 is out of range",
        ),
        (
            "modify = [{field = 'ipv4.ttl', increment = {count = 1, start = 256}}]",
            "modify[0].increment.start: 256 is out of range: give 0 to 255",
        ),
        (
            "modify = [{field = 'ipv4.ttl', random = {seed = 1, low = 9, high = 8}}]",
            "modify[0].random.high: 8 is out of range: give no less than random.low",
        ),
        (
            "modify = [{field = 'ipv4.ttl', random = {seed = 1, high = 256}}]",
            "modify[0].random.high: 256 is out of range: give 0 to 255",
        ),
        (
            "modify = [{field = 'ipv4.ttl', list = [1]}, {field = 'ipv4[8..10]', list = [1]}]",
            "modify[1].field: \"ipv4[8..10]\" overlaps the bytes that modify[0] varies",
        ),
        (
            "flows = 9\nmodify = [{field = 'udp.source', list = [1]}]",
            "modify[0].field: \"udp.source\" overlaps the bytes that flows varies",
        ),
        (
            &format!("size = 128\nmodify = [{many}]"),
            "modify: 33 modifiers is out of range: give at most 32, those of flows included",
        ),
        (
            "flows = 10000000\npacket = [{ethernet = {}}, {ipv4 = {source = '255.255.255.250'}}, {udp = {}}]",
            "flows: 10000000 is out of range: give 1 to 98304, or a lower source address",
        ),
        (
            "flow_macs = true\nflows = 2\npacket = [{raw = '00'}]\nsignature = false",
            "flow_macs: the frame has no ethernet header",
        ),
        ("fix_checksums = true", "fix_checksums: it is for templates"),
        ("frame = '00'\nsize = 64", "size: a template has its own"),
        ("frame = '00'\npacket = []", "packet: a template has its own"),
        ("frame = '00'\npayload = '00'", "payload: a template has its own"),
        (
            "pcap = {file = 'a.pcap', index = 3}",
            "pcap: frame 3 of a.pcap must be read before the stream is compiled",
        ),
    ] {
        let error = stream(&format!("name = 'web'\n{fields}")).compile(1).unwrap_err().to_string();
        assert!(error.starts_with("stream \"web\": "), "{error}");
        assert!(error.contains(told), "{fields}\n  {error}");
    }
}

#[test]
fn errors_possible_only_from_code_are_reported() {
    let default = StreamDefinition { name: "web".to_owned(), ..StreamDefinition::default() };
    let vlan = crate::header::Vlan { id: 4096, ..Default::default() };
    for (wrong, told) in [
        (
            StreamDefinition {
                packet: Some(vec![Header::Ethernet(Ethernet::default()), Header::Vlan(vlan)]),
                ..default.clone()
            },
            "packet[1].vlan.id: 4096 is out of range: give 0 to 4095",
        ),
        (
            StreamDefinition { payload: Some(Payload::Pattern(HexBytes(vec![]))), ..default.clone() },
            "payload: no bytes is out of range: give 1 byte at least",
        ),
        (
            default.clone().with_template(vec![0; 65536]),
            "frame: a template of 65536 bytes is out of range: give 1 to 65535 bytes",
        ),
    ] {
        assert_eq!(wrong.compile(1).unwrap_err().to_string(), format!("stream \"web\": {told}"));
    }
    // The shorter signatures have room for 256 streams.
    let tcp = stream("name = 'web'\npacket = [{ethernet = {}}, {ipv4 = {}}, {tcp = {}}]");
    assert!(tcp.compile(255).is_ok());
    let error = tcp.compile(256).unwrap_err().to_string();
    assert!(error.contains("signature: in frames of 64 bytes: stream: 256 does not fit"), "{error}");
}

#[test]
fn definitions_round_trip_through_toml_and_json() {
    let text = "
        name = 'all'
        weight = 7
        size = {weighted = [[64, 7], [1518, 1]], random_seed = 3}
        payload = {random_seed = 9}
        flows = 100
        flow_macs = true
        packet = [
            {ethernet = {ether_type = 0x88b5}}, {vlan = {id = 7, tpid = 0x9100}}, {mpls = {bottom = true}},
            {ipv4 = {protocol = 7, checksum = 'zero'}}, {ipv6 = {next_header = 59}},
            {udp = {destination = 53, checksum = 0x1234}}, {tcp = {flags = 'SA'}}, {icmp = {type = 13}},
            {icmpv6 = {code = 3}}, {arp = {operation = 2}}, {vxlan = {vni = 5}}, {raw = 'de:ad be ef'},
        ]
        modify = [
            {field = 'ipv4.ttl', increment = {count = 3, step = 2, start = '0x10'}, every = 9},
            {field = 'ipv4.ttl', decrement = {count = 3}},
            {field = 'ipv4.ttl', random = {seed = 3, low = 1, high = 9}},
            {field = 'ipv4.ttl', list = [1, '2', 3]},
        ]";
    let definition = stream(text);
    assert_eq!(definition.modify.len(), 4);
    let json = serde_json::to_string(&definition).unwrap();
    assert_eq!(serde_json::from_str::<StreamDefinition>(&json).unwrap(), definition);
    let toml = toml::to_string(&definition).unwrap();
    assert_eq!(toml::from_str::<StreamDefinition>(&toml).unwrap(), definition);

    for sizes in ["64", "[64, 128]", "'imix'", "{range = [64, 128], step = 3}", "'1500'"] {
        for rest in
            ["payload = {increment = true}", "payload = '0xff'", "frame = '00'", "pcap = {file = 'a'}"]
        {
            let definition = stream(&format!("size = {sizes}\n{rest}"));
            let json = serde_json::to_string(&definition).unwrap();
            assert_eq!(serde_json::from_str::<StreamDefinition>(&json).unwrap(), definition);
        }
    }
}

#[test]
fn streams_without_a_name_are_named_by_position() {
    let list = read("[[stream]]\n[[stream]]\nname = 'b'\n[[stream]]").unwrap();
    let names: Vec<&str> = list.streams.iter().map(|stream| stream.name.as_str()).collect();
    assert_eq!(names, ["stream 0", "b", "stream 2"]);
}

/// The sizes of the first `frames` frames.
fn sizes(fields: &str, frames: usize) -> Vec<u32> {
    let mut source = stream(fields).compile(1).unwrap();
    (0..frames).map(|_| source.next_frame(0).len() as u32 + 4).collect()
}

#[test]
fn sizes_keep_the_given_order() {
    assert_eq!(sizes("size = [64, 512, 64, 1518]", 5), [64, 512, 64, 1518, 64]);
    assert_eq!(sizes("size = {range = [64, 70], step = 3}", 4), [64, 67, 70, 64]);
    assert_eq!(
        sizes("size = {weighted = [[100, 1], [200, 3]]}", 8),
        [200, 100, 200, 200, 200, 100, 200, 200]
    );
    let random = sizes("size = {range = [64, 1518], random_seed = 1}", 1000);
    assert_eq!(random, sizes("size = {range = [64, 1518], random_seed = 1}", 1000));
    assert_ne!(random, sizes("size = {range = [64, 1518], random_seed = 2}", 1000));
    let mean = random.iter().sum::<u32>() / 1000;
    // The bounds are four standard errors; the numbers are the same in each run.
    assert!((738..844).contains(&mean), "{mean}");
}

#[test]
fn signatures_take_the_longest_form_behind_modified_fields() {
    use crate::signature::SignatureForm::{Compact, Full, Short, Tiny};
    for (fields, forms) in [
        ("", vec![Compact]),
        ("signature = false", vec![]),
        ("size = 74", vec![Full]),
        ("size = 73", vec![Compact]),
        ("modify = [{field = 'payload[7..8]', list = [1]}]", vec![Short]),
        ("packet = [{ethernet = {}}, {ipv4 = {}}, {tcp = {}}]\nsize = [64, 1518]", vec![Tiny, Full]),
    ] {
        let source = stream(fields).compile(1).unwrap();
        assert_eq!(source.forms(), forms.into_iter().collect::<FormSet>(), "{fields}");
    }
}

#[test]
fn the_payload_follows_the_definition() {
    let payload = |fields: &str| {
        let mut source = stream(&format!("signature = false\nsize = 400\n{fields}")).compile(1).unwrap();
        source.next_frame(0)[42..].to_vec()
    };
    assert_eq!(payload(""), vec![0; 354]);
    assert!(payload("payload = '01 02 03'").chunks(3).all(|chunk| chunk == [1, 2, 3]));
    assert!(payload("payload = {increment = true}").iter().zip(0..).all(|(byte, at)| *byte == at as u8));
    let random = payload("payload = {random_seed = 4}");
    assert_eq!(random, payload("payload = {random_seed = 4}"));
    assert_ne!(random, payload("payload = {random_seed = 5}"));
    assert_eq!(FrameSize::new(400).unwrap().slot_bytes(), 42 + random.len());
}
