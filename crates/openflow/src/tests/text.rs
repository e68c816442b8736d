//! Tests of flows as text.

use proptest::prelude::*;

use super::sample::Sample;
use crate::message::{FlowCommand, FlowMod};
use crate::text::FlowText;
use crate::{Action, PortNo};

/// Output of `ovs-ofctl dump-flows --no-names` for flows of a controller, Faucet 1.10, in Open vSwitch.
const DUMP: &str = include_str!("faucet.flows");

#[test]
fn each_line_of_a_dump_is_read_and_what_is_printed_of_it_means_the_same() {
    let mut lines = 0;
    for line in DUMP.lines() {
        let flow: FlowText = line.parse().unwrap_or_else(|error| panic!("{line}: {error}"));
        let (_, entry) = line.split_once("n_bytes=").unwrap().1.split_once(", ").unwrap();
        let (_, printed) = flow
            .to_string()
            .split_once(&format!("table={},", flow.table.unwrap()))
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .unwrap();
        // A dump has a space after the timeouts.
        assert_eq!(printed.replace(' ', ""), entry.replace(' ', ""));
        assert_eq!(flow.to_string().parse(), Ok(flow));
        lines += 1;
    }
    assert_eq!(lines, 23);
}

#[test]
fn zero_is_written_as_open_vswitch_writes_it() {
    let flow = "priority=1,tun_id=0,metadata=0/0x8000 actions=write_metadata:0/0xff,goto_table:3";
    assert_eq!(flow.parse::<FlowText>().unwrap().to_string(), flow);
}

/// Reduces actions to what text can express: only the controller gets a part of a packet.
fn in_words(actions: &mut [Action]) {
    for action in actions {
        if let Action::Output { port, max_len } = action
            && *port != PortNo::CONTROLLER
        {
            *max_len = 0;
        }
    }
}

proptest! {
    #[test]
    fn a_flow_is_read_as_it_was_printed(mut flow in FlowMod::sample()) {
        flow.instructions.apply.iter_mut().chain(&mut flow.instructions.write).for_each(|list| in_words(list));
        flow.instructions.apply = flow.instructions.apply.filter(|list| !list.is_empty());
        let text = FlowText {
            table: Some(flow.table),
            priority: Some(flow.priority),
            cookie: Some((flow.cookie, Some(flow.cookie_mask))),
            idle_timeout_s: flow.idle_timeout_s,
            hard_timeout_s: flow.hard_timeout_s,
            flags: flow.flags,
            out_port: Some(flow.out_port),
            out_group: Some(flow.out_group),
            matching: flow.matching.clone(),
            instructions: Some(flow.instructions.clone()),
        };
        flow.buffer_id = None;
        prop_assert_eq!(&text.to_string().parse(), &Ok(text.clone()), "{}", text);
        prop_assert_eq!(text.flow_mod(flow.command), flow);
    }

    #[test]
    fn any_words_end_in_an_error_or_in_something(text in "\\PC{0,60}", near in "[a-z_=:,()/x0-9>.-]{0,60}") {
        for text in [&text, &near, &format!("actions={near}")] {
            if let Err(error) = text.parse::<FlowText>() {
                // The error's word is in the text, at the error's position.
                let found = text.get(error.at..).is_some_and(|rest| rest.starts_with(&error.word));
                prop_assert!(found, "{error:?}");
            }
        }
    }
}

#[test]
fn an_error_names_the_word_and_its_position() {
    let cases = [
        (
            "in_port=1,foo=2,actions=drop",
            "\"foo=2\" at byte 10: no field, shorthand or setting of a flow has this name",
        ),
        ("tp_dst=80,actions=drop", "\"tp_dst=80\" at byte 0: this needs tcp or tcp6 beside it"),
        ("ip,nw_dst=10.0.0.256", "\"10.0.0.256\" at byte 10: this is not an IPv4 address"),
        ("ip,nw_dst=10.0.0.1/33", "\"33\" at byte 19: this prefix is too long"),
        ("in_port=1/2", "\"1/2\" at byte 8: in_port takes no mask"),
        (
            "dl_src=00:11:22:33:44",
            "\"00:11:22:33:44\" at byte 7: this is not a MAC address, as 00:11:22:33:44:55",
        ),
        ("ip,ipv6", "\"ipv6\" at byte 3: this contradicts \"ip\""),
        ("priority=65536", "\"65536\" at byte 9: this number is too large here"),
        ("priority", "\"priority\" at byte 0: a value is missing"),
        ("actions=outptu:1", "\"outptu:1\" at byte 8: no action or port has this name"),
        ("actions=write_actions(output:0)", "\"output:0\" at byte 22: nothing can be sent to this port"),
        (
            "actions=write_actions(output:1",
            "\"write_actions(output:1\" at byte 8: a parenthesis is not closed",
        ),
        ("actions=drop,output:1", "\"drop\" at byte 8: nothing can stand beside drop"),
        ("actions=goto_table:1,goto_table:2", "\"goto_table:2\" at byte 21: this is there twice"),
        ("actions=set_field:1->in_port", "\"set_field:1->in_port\" at byte 8: this field cannot be set"),
        ("actions=set_field:5000->udp_foo", "\"udp_foo\" at byte 24: no field has this name"),
        ("actions=set_field:70000->udp_dst", "\"70000\" at byte 18: udp_dst has 16 bits"),
        ("actions=learn(table=1)", "\"learn(table=1)\" at byte 8: no action or port has this name"),
    ];
    for (text, expected) in cases {
        assert_eq!(text.parse::<FlowText>().unwrap_err().to_string(), expected);
    }
}

#[test]
fn without_a_table_flows_are_added_to_the_first_and_deleted_from_all() {
    let flow: FlowText = "cookie=5/-1,out_port=3,in_port=1".parse().unwrap();
    assert_eq!(flow.flow_mod(FlowCommand::Add).table, 0);
    let delete = flow.flow_mod(FlowCommand::Delete);
    assert_eq!((delete.table, delete.cookie, delete.cookie_mask), (crate::table_id::ALL, 5, u64::MAX));
    assert_eq!(delete.out_port, PortNo(3));
    let stats = flow.stats_request();
    assert_eq!((stats.table, stats.cookie_mask), (crate::table_id::ALL, u64::MAX));
}
