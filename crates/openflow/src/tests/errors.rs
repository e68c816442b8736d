//! Tests of the errors that a switch sends for invalid messages.

use crate::message::{ErrorMessage, Hello};
use crate::{ControllerMessage, ErrorCode, SwitchMessage};

/// Makes a message of a kind with this body in hexadecimal, blanks ignored; the length in its header is right.
fn message(kind: u8, body: &str) -> Vec<u8> {
    let digits: Vec<_> = body.bytes().filter(u8::is_ascii_hexdigit).collect();
    let body =
        digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
    let mut bytes = vec![4, kind, 0, 0, 0, 0, 0, 7];
    bytes.extend(body);
    let length = (bytes.len() as u16).to_be_bytes();
    bytes[2..4].copy_from_slice(&length);
    bytes
}

fn error(message: &[u8]) -> ErrorCode {
    ControllerMessage::decode(message).expect_err("it is wrong")
}

/// Makes a flow-mod with these instructions and this match, to which type, length and padding are added.
fn flow_mod(matching: &str, instructions: &str) -> Vec<u8> {
    let bytes = matching.bytes().filter(u8::is_ascii_hexdigit).count() / 2;
    let padding = "00".repeat((4 + bytes).next_multiple_of(8) - 4 - bytes);
    let head = "00".repeat(16) + "00 00 0000 0000 8000 ffffffff ffffffff ffffffff 0000 0000";
    message(14, &format!("{head} 0001 {:04x} {matching} {padding} {instructions}", 4 + bytes))
}

#[test]
fn a_header_is_checked_before_all_else() {
    assert_eq!(error(&[4, 5, 0, 7, 0, 0, 0]), ErrorCode::REQUEST_BAD_LEN);
    assert_eq!(error(&[4, 5, 0, 9, 0, 0, 0, 1]), ErrorCode::REQUEST_BAD_LEN);
    assert_eq!(error(&[5, 5, 0, 8, 0, 0, 0, 1]), ErrorCode::REQUEST_BAD_VERSION);
    assert_eq!(error(&[4, 30, 0, 8, 0, 0, 0, 1]), ErrorCode::REQUEST_BAD_TYPE);
    // Message kind that only a switch sends.
    assert_eq!(error(&[4, 10, 0, 8, 0, 0, 0, 1]), ErrorCode::REQUEST_BAD_TYPE);
    assert_eq!(error(&message(5, "00")), ErrorCode::REQUEST_BAD_LEN);
}

#[test]
fn what_a_match_has_wrong_is_named() {
    let cases = [
        // Fields: an undefined one, one of an experimenter, one of Nicira.
        ("80005001 00", ErrorCode::MATCH_BAD_FIELD),
        ("ffff0008 4f4e4600 00000000", ErrorCode::MATCH_BAD_FIELD),
        ("00010002 0001", ErrorCode::MATCH_BAD_FIELD),
        // Lengths: in_port of three bytes, and an in_port cut off by the match.
        ("80000003 000001", ErrorCode::MATCH_BAD_LEN),
        ("80000004 0000", ErrorCode::MATCH_BAD_LEN),
        ("8000", ErrorCode::MATCH_BAD_LEN),
        // Masks: in_port with a mask; eth_dst with a value beyond its mask.
        ("80000108 00000001 ffffffff", ErrorCode::MATCH_BAD_MASK),
        ("8000070c 010000000001 010000000000", ErrorCode::MATCH_BAD_WILDCARDS),
        // Values: vlan_pcp of 8, a VID of 14 bits, a mask of 14 bits.
        ("80000c02 1064 80000e01 08", ErrorCode::MATCH_BAD_VALUE),
        ("80000c02 2064", ErrorCode::MATCH_BAD_VALUE),
        ("80000d04 1000 3000", ErrorCode::MATCH_BAD_MASK),
        // Prerequisites: tcp_dst without ip_proto, and with the wrong one; ip_proto without eth_type; vlan_pcp of a
        // frame without a tag.
        ("80001c02 0050", ErrorCode::MATCH_BAD_PREREQ),
        ("80000a02 0800 80001401 11 80001c02 0050", ErrorCode::MATCH_BAD_PREREQ),
        ("80001401 06", ErrorCode::MATCH_BAD_PREREQ),
        ("80000c02 0000 80000e01 01", ErrorCode::MATCH_BAD_PREREQ),
        ("80000004 00000001 80000004 00000001", ErrorCode::MATCH_DUP_FIELD),
    ];
    for (matching, expected) in cases {
        assert_eq!(error(&flow_mod(matching, "")), expected, "{matching}");
    }
    let with_type = |kind: u8| {
        let mut bytes = flow_mod("", "");
        bytes[49] = kind;
        bytes
    };
    assert!(ControllerMessage::decode(&with_type(1)).is_ok());
    assert_eq!(error(&with_type(0)), ErrorCode::MATCH_BAD_TYPE);
    for length in [0, 3, 9, 200] {
        let mut bytes = flow_mod("", "");
        bytes[51] = length;
        assert_eq!(error(&bytes), ErrorCode::MATCH_BAD_LEN, "{length}");
    }
}

#[test]
fn a_field_of_which_no_bit_counts_is_left_out() {
    let Ok((_, ControllerMessage::FlowMod(flow))) =
        ControllerMessage::decode(&flow_mod("80000510 0000000000000000 0000000000000000", ""))
    else {
        panic!("it is right");
    };
    assert!(flow.matching.fields().is_empty());
}

#[test]
fn what_instructions_have_wrong_is_named() {
    let cases = [
        ("0007 0008 00000000", ErrorCode::INSTRUCTION_UNKNOWN),
        ("0000 0008 00000000", ErrorCode::INSTRUCTION_UNKNOWN),
        ("ffff 0008 00000000", ErrorCode::INSTRUCTION_BAD_EXPERIMENTER),
        ("0001 0008 01000000 0001 0008 01000000", ErrorCode::INSTRUCTION_UNSUPPORTED),
        ("0001 0010 01000000 0000000000000000", ErrorCode::INSTRUCTION_BAD_LEN),
        ("0001 0004", ErrorCode::INSTRUCTION_BAD_LEN),
        ("0001 0003", ErrorCode::INSTRUCTION_BAD_LEN),
        ("0001 0018 01000000", ErrorCode::INSTRUCTION_BAD_LEN),
        ("0002 0010 00000000 0000000000000000", ErrorCode::INSTRUCTION_BAD_LEN),
        ("0001", ErrorCode::INSTRUCTION_BAD_LEN),
    ];
    for (instructions, expected) in cases {
        assert_eq!(error(&flow_mod("", instructions)), expected, "{instructions}");
    }
}

#[test]
fn what_actions_have_wrong_is_named() {
    let cases = [
        ("0001 0008 00000000", ErrorCode::ACTION_BAD_TYPE),
        ("ffff 0010 00002320 0000000000000000", ErrorCode::ACTION_BAD_EXPERIMENTER),
        ("0000 0008 00000001", ErrorCode::ACTION_BAD_LEN),
        ("0000 0018 00000001 0000 000000000000 0000000000000000", ErrorCode::ACTION_BAD_LEN),
        ("0012 0004", ErrorCode::ACTION_BAD_LEN),
        ("0012 0000", ErrorCode::ACTION_BAD_LEN),
        ("0012 0010 00000000", ErrorCode::ACTION_BAD_LEN),
        ("0012 0010 00000000 0000000000000000", ErrorCode::ACTION_BAD_LEN),
        // Ports: 0, any, and a reserved number without a meaning.
        ("0000 0010 00000000 0000 000000000000", ErrorCode::ACTION_BAD_OUT_PORT),
        ("0000 0010 ffffffff 0000 000000000000", ErrorCode::ACTION_BAD_OUT_PORT),
        ("0000 0010 ffffff01 0000 000000000000", ErrorCode::ACTION_BAD_OUT_PORT),
        ("0016 0008 ffffff01", ErrorCode::ACTION_BAD_OUT_GROUP),
        ("0011 0008 08000000", ErrorCode::ACTION_BAD_ARGUMENT),
        ("0013 0008 08000000", ErrorCode::ACTION_BAD_ARGUMENT),
        ("001a 0008 08000000", ErrorCode::ACTION_BAD_ARGUMENT),
        // Cases of set_field: in_port, an unknown field, a wrong length, a mask, a VID of 14 bits, a VID without the
        // tag's bit.
        ("0019 0010 80000004 00000001 00000000", ErrorCode::ACTION_BAD_SET_TYPE),
        ("0019 0010 00010002 0001 000000000000", ErrorCode::ACTION_BAD_SET_TYPE),
        ("0019 0010 80000c04 00001064 00000000", ErrorCode::ACTION_BAD_SET_LEN),
        ("0019 0010 80000d04 1064 1fff 00000000", ErrorCode::ACTION_BAD_SET_ARGUMENT),
        ("0019 0010 80000c02 3064 000000000000", ErrorCode::ACTION_BAD_SET_ARGUMENT),
        ("0019 0010 80000c02 0064 000000000000", ErrorCode::ACTION_BAD_SET_ARGUMENT),
    ];
    for (actions, expected) in cases {
        let bytes = actions.bytes().filter(u8::is_ascii_hexdigit).count() / 2;
        let packet_out = message(13, &format!("ffffffff fffffffd {bytes:04x} 000000000000 {actions}"));
        assert_eq!(error(&packet_out), expected, "{actions}");
        let flow = flow_mod("", &format!("0004 {:04x} 00000000 {actions}", 8 + bytes));
        assert_eq!(error(&flow), expected, "{actions}");
    }
}

#[test]
fn what_is_wrong_elsewhere_is_named() {
    let cases = [
        // Undefined commands, kinds, flags and roles.
        (15, "0003 00 00 00000001", ErrorCode::GROUP_BAD_COMMAND),
        (15, "0000 04 00 00000001", ErrorCode::GROUP_BAD_TYPE),
        (29, "0003 0001 00000001", ErrorCode::METER_BAD_COMMAND),
        (29, "0000 0010 00000001", ErrorCode::METER_BAD_FLAGS),
        (24, "00000004 00000000 0000000000000000", ErrorCode::ROLE_BAD_ROLE),
        (9, "0003 0080", ErrorCode::CONFIG_BAD_FLAGS),
        (18, "000e 0000 00000000", ErrorCode::REQUEST_BAD_MULTIPART),
        // Lengths of parts and of the whole.
        (15, "0000 00 00 00000001 0008 0000 ffffffff", ErrorCode::GROUP_BAD_BUCKET),
        (15, "0000 00 00 00000001 0000 0000 ffffffff ffffffff 00000000", ErrorCode::GROUP_BAD_BUCKET),
        (29, "0000 0001 00000001 0001 000c 00000001 00000001", ErrorCode::METER_BAD_BAND),
        (29, "0000 0001 00000001 0003 0010 00000001 00000001 00000000", ErrorCode::METER_BAD_BAND),
        (18, "000c 0000 00000000 0010 0000", ErrorCode::FEATURES_BAD_LEN),
        (18, "0001 0000 00000000", ErrorCode::REQUEST_BAD_LEN),
        (18, "0000 0000 00000000 00", ErrorCode::REQUEST_BAD_LEN),
        (9, "0000", ErrorCode::REQUEST_BAD_LEN),
        (13, "ffffffff fffffffd 0010 000000000000", ErrorCode::REQUEST_BAD_LEN),
    ];
    for (kind, body, expected) in cases {
        assert_eq!(error(&message(kind, body)), expected, "{kind} {body}");
    }
    let with = |at: usize, byte: u8| {
        let mut bytes = flow_mod("", "");
        bytes[at] = byte;
        bytes
    };
    assert_eq!(error(&with(25, 5)), ErrorCode::FLOW_BAD_COMMAND);
    assert_eq!(error(&with(45, 0x20)), ErrorCode::FLOW_BAD_FLAGS);
}

#[test]
fn padding_may_hold_anything() {
    let plain = message(24, "00000002 00000000 0000000000000001");
    let padded = message(24, "00000002 deadbeef 0000000000000001");
    assert_eq!(ControllerMessage::decode(&plain), ControllerMessage::decode(&padded));
    let plain = flow_mod("", "0004 0010 00000000 0012 0008 00000000");
    let padded = flow_mod("", "0004 0010 deadbeef 0012 0008 deadbeef");
    assert_eq!(ControllerMessage::decode(&plain), ControllerMessage::decode(&padded));
}

#[test]
fn a_hello_and_an_error_may_be_of_any_version() {
    let hello = |version: u8, body: &str| {
        let mut bytes = message(0, body);
        bytes[0] = version;
        let Ok((7, ControllerMessage::Hello(hello))) = ControllerMessage::decode(&bytes) else {
            panic!("it is right")
        };
        assert_eq!(hello.version, version);
        hello
    };
    assert!(!hello(1, "").speaks_ours());
    assert!(hello(4, "").speaks_ours());
    assert!(hello(6, "").speaks_ours());
    // Bitmaps: versions 1.0 to 1.5; 1.0 and 1.3; 1.5 alone; an unknown element first; missing padding.
    assert!(hello(6, "0001 0008 0000007e").speaks_ours());
    assert!(hello(4, "0001 0008 00000012").speaks_ours());
    assert!(!hello(6, "0001 0008 00000040").speaks_ours());
    assert!(hello(6, "0002 0005 00 000000 0001 0008 00000010").speaks_ours());
    assert!(!hello(6, "0001 0008 00000040 0002 0005 00").speaks_ours());
    assert!(Hello::ours().speaks_ours());

    let mut bytes = message(1, "0000 0000 6e6f");
    bytes[0] = 1;
    let Ok((7, ControllerMessage::Error(error))) = ControllerMessage::decode(&bytes) else {
        panic!("it is right")
    };
    assert_eq!((error.code, &*error.text()), (ErrorCode::HELLO_INCOMPATIBLE, "no"));
}

#[test]
fn an_error_holds_the_beginning_of_the_request() {
    let request = message(2, &"ab".repeat(3000));
    let about = ErrorMessage::about(&request, ErrorCode::REQUEST_EPERM);
    assert_eq!(about.data, request[..ErrorMessage::REQUEST_BYTES]);
    let mut bytes = Vec::new();
    SwitchMessage::Error(about.clone()).encode(7, &mut bytes).unwrap();
    assert_eq!(SwitchMessage::decode(&bytes), Ok((7, SwitchMessage::Error(about))));
}
