//! Comparison with Open vSwitch and Wireshark, which read our bytes and text.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use ringroad_test_needs::has_program;

use super::sample::Sample;
use super::tools::{ovs_parsed_flows, ovs_printed, reply, request, tshark_fields};
use crate::message::{
    Bucket, ErrorMessage, FlowCommand, FlowFlags, FlowMod, FlowStats, GroupCommand, GroupKind, GroupMod,
    MeterBand, MeterCommand, MeterFlags, MeterMod, MultipartReply, MultipartReplyMessage,
};
use crate::text::FlowText;
use crate::{
    Action, ControllerMessage, ErrorCode, FieldMatch, FieldValue, Instructions, Match, OxmField, PortNo,
    SwitchMessage, group_id, meter_id,
};

/// Rules as people write them.
const RULES: &str = include_str!("rules.flows");

fn flow_mod_of(rule: &str) -> FlowMod {
    rule.parse::<FlowText>().unwrap_or_else(|error| panic!("{rule}: {error}")).flow_mod(FlowCommand::Add)
}

/// Flows in Open vSwitch's output about flow-mods.
fn added(lines: &str) -> Vec<String> {
    let messages = lines.lines().filter(|line| line.starts_with("OFPT"));
    let flow = |line: &str| line.split_once("): ADD").unwrap_or_else(|| panic!("{line}")).1.trim().to_owned();
    messages.map(flow).collect()
}

/// Sample values, the same in each run.
fn samples<T: Sample>(count: usize) -> Vec<T> {
    let mut runner = TestRunner::deterministic();
    let strategy = T::sample();
    (0..count).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

#[test]
fn rules_mean_to_us_what_they_mean_to_open_vswitch() {
    if !has_program("ovs-ofctl") {
        return;
    }
    let rules: Vec<_> = RULES.lines().collect();
    let theirs = added(&ovs_parsed_flows(&rules));
    assert_eq!(theirs.len(), rules.len());
    let bytes: Vec<_> =
        rules.iter().flat_map(|rule| request(&ControllerMessage::FlowMod(flow_mod_of(rule)))).collect();
    let ours = added(&ovs_printed(&bytes));
    assert_eq!(ours.len(), rules.len());
    for ((rule, theirs), ours) in rules.iter().zip(&theirs).zip(&ours) {
        assert_eq!(ours, theirs, "{rule}");
        // Open vSwitch prints the fields of a flow-mod with a colon.
        assert_eq!(flow_mod_of(theirs), flow_mod_of(rule), "{rule}");
    }
    let printed: Vec<_> = rules.iter().map(|rule| rule.parse::<FlowText>().unwrap().to_string()).collect();
    assert_eq!(added(&ovs_parsed_flows(&printed)), theirs);
}

/// Whether Open vSwitch has this field.
fn has(field: OxmField) -> bool {
    !matches!(field, OxmField::InPhyPort | OxmField::PbbIsid | OxmField::Ipv6Exthdr)
}

/// Adapts a flow to Open vSwitch, which has no PBB, copies no TTL, and refuses actions that do not fit the match.
fn for_open_vswitch(mut flow: FlowMod) -> FlowMod {
    // Open vSwitch has neighbour discovery only with code 0, and warns about other codes.
    let is_discovery =
        flow.matching.fields().iter().any(|matched| (31..=33).contains(&(matched.field as u8)));
    let known = |field: OxmField| has(field) && !(is_discovery && field == OxmField::Icmpv6Code);
    // Open vSwitch has ARP operations up to 255. It takes an IPv6 mask that begins with a digit for a prefix length.
    let is_prefix = |mask: u128| mask.leading_ones() + mask.trailing_zeros() == u128::BITS;
    let fits = |matched: &FieldMatch| match matched.field {
        OxmField::ArpOp => matched.value < 256,
        OxmField::Ipv6Src | OxmField::Ipv6Dst | OxmField::Ipv6NdTarget => {
            is_prefix(matched.mask) || matched.mask.leading_ones() > 3
        }
        field => known(field),
    };
    let known = flow.matching.fields().iter().copied().filter(fits);
    flow.matching = Match::new(known).unwrap();
    (flow.command, flow.cookie_mask, flow.table, flow.buffer_id) =
        (FlowCommand::Add, 0, flow.table % 200, None);
    (flow.out_port, flow.out_group) = (PortNo::ANY, group_id::ANY);
    let fits = |action: &Action| match action {
        // Open vSwitch has ports up to this number.
        Action::Output { port, .. } => (1..=65279).contains(&port.0),
        Action::SetField(set) => {
            matches!(set.field, OxmField::EthSrc | OxmField::EthDst | OxmField::TunnelId)
        }
        Action::Group(_) | Action::SetQueue(_) => true,
        _ => false,
    };
    let instructions = &mut flow.instructions;
    for list in [&mut instructions.apply, &mut instructions.write].into_iter().flatten() {
        list.retain(fits);
        for action in list {
            if let Action::Output { max_len, .. } = action {
                *max_len = 0;
            }
        }
    }
    // Open vSwitch treats an empty list of actions as no list.
    for list in [&mut instructions.apply, &mut instructions.write] {
        *list = list.take().filter(|actions| !actions.is_empty());
    }
    instructions.goto = instructions.goto.filter(|goto| *goto > flow.table && *goto < 255);
    instructions.meter = instructions.meter.filter(|meter| (1..=meter_id::MAX).contains(meter));
    if *instructions == Instructions::default() {
        instructions.clear = true;
    }
    flow
}

fn text_of(flow: &FlowMod) -> FlowText {
    FlowText {
        table: Some(flow.table),
        priority: Some(flow.priority),
        cookie: Some((flow.cookie, None)),
        idle_timeout_s: flow.idle_timeout_s,
        hard_timeout_s: flow.hard_timeout_s,
        flags: flow.flags,
        out_port: None,
        out_group: None,
        matching: flow.matching.clone(),
        instructions: Some(flow.instructions.clone()),
    }
}

#[test]
fn any_flow_means_to_open_vswitch_the_same_in_our_bytes_and_in_our_words() {
    if !has_program("ovs-ofctl") {
        return;
    }
    let flows: Vec<_> = samples::<FlowMod>(400).into_iter().map(for_open_vswitch).collect();
    let bytes: Vec<_> =
        flows.iter().flat_map(|flow| request(&ControllerMessage::FlowMod(flow.clone()))).collect();
    let texts: Vec<_> = flows.iter().map(|flow| text_of(flow).to_string()).collect();
    let (of_bytes, of_texts) = (added(&ovs_printed(&bytes)), added(&ovs_parsed_flows(&texts)));
    assert_eq!(of_bytes.len(), flows.len());
    assert_eq!(of_texts.len(), flows.len());
    for ((of_bytes, of_text), (flow, text)) in of_bytes.iter().zip(&of_texts).zip(flows.iter().zip(&texts)) {
        assert_eq!(of_bytes, of_text, "{text}");
        assert_eq!(flow_mod_of(text), *flow, "{text}");
        assert_eq!(flow_mod_of(of_bytes), *flow, "{text}");
    }
}

#[test]
fn a_dump_of_flows_reads_in_open_vswitch_as_we_print_it() {
    if !has_program("ovs-ofctl") {
        return;
    }
    let flows: Vec<_> = samples::<FlowMod>(200)
        .into_iter()
        .map(for_open_vswitch)
        .zip(samples::<u32>(200))
        .map(|(flow, number)| FlowStats {
            table: flow.table,
            duration_s: number,
            duration_ns: number % 1000 * 1_000_000,
            priority: flow.priority,
            idle_timeout_s: flow.idle_timeout_s,
            hard_timeout_s: flow.hard_timeout_s,
            // Open vSwitch omits flags that do not concern the entry's current state.
            flags: FlowFlags(flow.flags.0 & FlowFlags::SEND_FLOW_REM.0),
            cookie: flow.cookie,
            packets: number.into(),
            bytes: number.into(),
            matching: flow.matching,
            instructions: flow.instructions,
        })
        .collect();
    let message = MultipartReplyMessage { more: false, reply: MultipartReply::Flows(flows.clone()) };
    let printed = ovs_printed(&reply(&SwitchMessage::Multipart(message)));
    let lines: Vec<_> = printed.lines().skip(1).map(str::trim).collect();
    assert_eq!(lines.len(), flows.len(), "{:?}", lines.iter().find(|line| line.contains("error")));
    for (line, flow) in lines.iter().zip(&flows) {
        assert_eq!(*line, flow.to_string());
    }
}

#[test]
fn groups_and_meters_mean_to_open_vswitch_what_they_mean_to_us() {
    if !has_program("ovs-ofctl") {
        return;
    }
    let to = |port: u32| Action::Output { port: PortNo(port), max_len: 0 };
    let bucket = |weight: u16, watch_port: PortNo, watch_group: u32, actions: &[Action]| Bucket {
        weight,
        watch_port,
        watch_group,
        actions: actions.to_vec(),
    };
    let alone = |weight: u16, actions: &[Action]| bucket(weight, PortNo::ANY, group_id::ANY, actions);
    let address = FieldValue { field: OxmField::EthDst, value: 1 };
    let groups = [
        (
            (1, GroupKind::Select, vec![alone(100, &[to(1)]), alone(2, &[to(2), to(3)])]),
            "group_id=1,type=select,bucket=weight:100,actions=output:1,bucket=weight:2,actions=output:2,output:3",
        ),
        (
            (
                group_id::MAX,
                GroupKind::FastFailover,
                vec![bucket(0, PortNo(1), group_id::ANY, &[to(1)]), bucket(0, PortNo(2), 3, &[to(2)])],
            ),
            "group_id=4294967040,type=ff,bucket=watch_port:1,actions=output:1,bucket=watch_port:2,watch_group:3,actions=output:2",
        ),
        (
            (3, GroupKind::All, vec![alone(0, &[Action::PopVlan, to(1)]), alone(0, &[])]),
            "group_id=3,type=all,bucket=actions=pop_vlan,output:1,bucket=actions=drop",
        ),
        (
            (4, GroupKind::Indirect, vec![alone(0, &[Action::SetField(address), Action::Group(5)])]),
            "group_id=4,type=indirect,bucket=actions=set_field:00:00:00:00:00:01->eth_dst,group:5",
        ),
    ];
    for ((group, kind, buckets), expected) in groups {
        let request_of = GroupMod { command: GroupCommand::Add, kind, group, buckets };
        let printed = ovs_printed(&request(&ControllerMessage::GroupMod(request_of)));
        let (_, theirs) = printed.trim_end().split_once("ADD ").unwrap_or_else(|| panic!("{printed}"));
        assert_eq!(theirs, expected);
    }
    let drop = |rate, burst| MeterBand::Drop { rate, burst };
    let meters = [
        (
            (1, MeterFlags::KBPS | MeterFlags::BURST, vec![drop(100, 10)]),
            "meter=1 kbps burst bands= type=drop rate=100 burst_size=10",
        ),
        (
            (
                7,
                MeterFlags::PKTPS | MeterFlags::STATS,
                vec![drop(5, 0), MeterBand::DscpRemark { rate: 3, burst: 0, levels: 1 }],
            ),
            "meter=7 pktps stats bands= type=drop rate=5 type=dscp_remark rate=3 prec_level=1",
        ),
        (
            (meter_id::CONTROLLER, MeterFlags::KBPS, vec![drop(1, 0)]),
            "meter=controller kbps bands= type=drop rate=1",
        ),
    ];
    for ((meter, flags, bands), expected) in meters {
        let request_of = MeterMod { command: MeterCommand::Add, flags, meter, bands };
        let printed = ovs_printed(&request(&ControllerMessage::MeterMod(request_of)));
        let (_, theirs) = printed.trim_end().split_once("ADD ").unwrap_or_else(|| panic!("{printed}"));
        assert_eq!(theirs.split_whitespace().collect::<Vec<_>>().join(" "), expected);
    }
}

#[test]
fn every_error_has_its_number_and_its_name_in_open_vswitch() {
    if !has_program("ovs-ofctl") {
        return;
    }
    // Errors that Open vSwitch names as other versions do.
    let renamed = [
        ("OFPBRC_BAD_MULTIPART", "OFPBRC_BAD_STAT"),
        ("OFPBRC_BAD_EXPERIMENTER", "OFPBRC_BAD_VENDOR"),
        ("OFPBRC_BAD_EXP_TYPE", "OFPBRC_BAD_SUBTYPE"),
        ("OFPBRC_IS_SLAVE", "OFPBRC_IS_SECONDARY"),
        ("OFPBAC_BAD_EXPERIMENTER", "OFPBAC_BAD_VENDOR"),
        ("OFPBAC_BAD_EXP_TYPE", "OFPBAC_BAD_VENDOR_TYPE"),
        ("OFPTFFC_BAD_TYPE", "OFPBPC_BAD_TYPE"),
        ("OFPTFFC_BAD_LEN", "OFPBPC_BAD_LEN"),
        ("OFPTFFC_BAD_ARGUMENT", "OFPBPC_BAD_VALUE"),
    ];
    let about = request(&ControllerMessage::Barrier);
    let message = |code: &ErrorCode| reply(&SwitchMessage::Error(ErrorMessage::about(&about, *code)));
    let printed = ovs_printed(&ErrorCode::ALL.iter().flat_map(message).collect::<Vec<_>>());
    let names: Vec<_> =
        printed.lines().filter_map(|line| line.strip_prefix("OFPT_ERROR (OF1.3) (xid=0x1): ")).collect();
    assert_eq!(names.len(), ErrorCode::ALL.len());
    for (code, theirs) in ErrorCode::ALL.iter().zip(names) {
        let ours = code.name().unwrap();
        let expected = renamed.iter().find(|(name, _)| *name == ours).map_or(ours, |(_, theirs)| theirs);
        assert_eq!(theirs, expected);
    }
}

/// Severity of a note in Wireshark.
const NOTE: u32 = 0x40_0000;

#[test]
fn wireshark_finds_every_message_well_formed() {
    if !has_program("tshark") {
        return;
    }
    let requests =
        samples::<ControllerMessage>(600).into_iter().map(|message| (message.kind(), request(&message)));
    let replies = samples::<SwitchMessage>(600).into_iter().map(|message| (message.kind(), reply(&message)));
    // Hellos and errors of other versions are for other dissectors. Wireshark reads past the end of an experimenter's
    // reply.
    let is_for_it = |bytes: &[u8]| {
        let is_experimenters = bytes[1] == 19 && bytes[8..10] == [0xff, 0xff];
        bytes[0] == crate::message::VERSION && !is_experimenters
    };
    let (kinds, messages): (Vec<_>, Vec<_>) =
        requests.chain(replies).filter(|(_, bytes)| is_for_it(bytes)).unzip();
    let lines = tshark_fields(
        &messages,
        &[
            "openflow_v4.type",
            "openflow_v4.length",
            "_ws.malformed",
            "_ws.expert.severity",
            "_ws.expert.message",
        ],
    );
    assert_eq!(lines.len(), messages.len());
    for ((line, kind), message) in lines.iter().zip(kinds).zip(&messages) {
        let fields: Vec<_> = line.split('|').collect();
        // An error can contain bytes that look like another message; Wireshark adds its fields after a comma.
        let first = |at: usize| fields[at].split(',').next().unwrap();
        assert_eq!(
            (first(0), first(1)),
            (&*kind.to_string(), &*message.len().to_string()),
            "{line} {message:x?}"
        );
        // Wireshark notes parts that it does not parse, such as an experimenter's body; a warning is more severe.
        let is_note = |severity: &str| severity.is_empty() || severity.parse::<u32>().unwrap() <= NOTE;
        let is_well = match kind {
            1 => true,
            // The packet inside may be malformed: its bytes are random.
            10 | 13 => !fields[2].contains("OpenFlow"),
            _ => fields[2].is_empty() && fields[3].split(',').all(is_note),
        };
        assert!(is_well, "{line} {message:x?}");
    }
}
