//! Messages that other projects captured: test data of os-ken, from real switches and controllers and from its own
//! library.
//!
//! `make unit` fetches the messages and names their folder in RINGROAD_OPENFLOW_PACKETS.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ringroad_openflow::{ControllerMessage, ErrorCode, SwitchMessage};

/// Messages with invalid parts, or parts that OpenFlow 1.3 itself does not define, and the expected errors.
const REFUSED: &[(&str, &[&str])] = &[
    // Actions of Nicira.
    (
        "OFPBAC_BAD_EXPERIMENTER",
        &[
            "ovs-ofctl-of13-action_controller.packet",
            "ovs-ofctl-of13-action_controller2.packet",
            "ovs-ofctl-of13-action_ct_nat.packet",
            "ovs-ofctl-of13-action_ct_nat_v6.packet",
            "ovs-ofctl-of13-action_dec_ttl_cnt_ids.packet",
            "ovs-ofctl-of13-action_fintimeout.packet",
            "ovs-ofctl-of13-action_note.packet",
            "ovs-ofctl-of13-action_output_trunc.packet",
            "ovs-ofctl-of13-action_sample.packet",
            "ovs-ofctl-of13-action_sample2.packet",
            "ovs-ofctl-of13-action_stack_pop.packet",
            "ovs-ofctl-of13-action_stack_push.packet",
        ],
    ),
    // A VLAN VID is set without the bit for "tag present"; Open vSwitch refuses that, too.
    ("OFPBAC_BAD_SET_ARGUMENT", &["4-12-ofp_flow_stats_reply.packet", "4-2-ofp_flow_mod.packet"]),
    // Fields of Nicira and of an experimenter.
    (
        "OFPBMC_BAD_FIELD",
        &[
            "4-59-ofp_packet_in.packet",
            "4-60-ofp_flow_mod.packet",
            "libofproto-OFP13-flow_mod.packet",
            "libofproto-OFP13-flow_mod_conjunction.packet",
            "libofproto-OFP13-flow_mod_match_conj.packet",
            "libofproto-OFP13-flow_removed.packet",
            "libofproto-OFP13-packet_in.packet",
            "ovs-ofctl-of13-action_conjunction.packet",
            "ovs-ofctl-of13-action_ct.packet",
            "ovs-ofctl-of13-action_ct_clear.packet",
            "ovs-ofctl-of13-action_ct_exec.packet",
            "ovs-ofctl-of13-action_learn.packet",
            "ovs-ofctl-of13-action_resubmit.packet",
            "ovs-ofctl-of13-match_conj.packet",
            "ovs-ofctl-of13-match_load_nx_register.packet",
            "ovs-ofctl-of13-match_move_nx_register.packet",
            "ovs-ofctl-of13-match_pkt_mark.packet",
            "ovs-ofctl-of13-match_pkt_mark_masked.packet",
        ],
    ),
    // A message that is cut off.
    ("OFPBRC_BAD_LEN", &["libofproto-OFP13-flow_mod.truncated64"]),
    // A meter band of an experimenter.
    ("OFPMMFC_BAD_BAND", &["4-45-ofp_meter_mod.packet"]),
    // A table property of an experimenter.
    ("OFPTFFC_BAD_TYPE", &["4-55-ofp_table_features_request.packet", "4-56-ofp_table_features_reply.packet"]),
];

/// Reads a message, and writes it again.
fn again(bytes: &[u8]) -> Result<Vec<u8>, ErrorCode> {
    let mut out = Vec::new();
    match ControllerMessage::decode(bytes) {
        Ok((xid, request)) => request.encode(xid, &mut out).map_err(|_| ErrorCode::REQUEST_BAD_LEN)?,
        Err(ErrorCode::REQUEST_BAD_TYPE) => {
            let (xid, reply) = SwitchMessage::decode(bytes)?;
            reply.encode(xid, &mut out).map_err(|_| ErrorCode::REQUEST_BAD_LEN)?;
        }
        Err(error) => return Err(error),
    }
    Ok(out)
}

#[test]
fn captured_messages_are_written_as_they_were_read() {
    let Ok(folder) = std::env::var("RINGROAD_OPENFLOW_PACKETS") else {
        ringroad_test_needs::skip("the messages that `make unit` fetches");
        return;
    };
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut refused: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let mut different = Vec::new();
    for file in &files {
        let bytes = std::fs::read(file).unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        match again(&bytes) {
            Ok(written) if written == bytes => {}
            Ok(written) => {
                assert_eq!(again(&written).as_ref(), Ok(&written), "{name}");
                different.push(name);
            }
            Err(error) => {
                refused.entry(error.name().unwrap()).or_default().push(name);
            }
        }
    }
    assert_eq!(files.len(), 105);
    // This message has padding that is not zero, which is ignored.
    assert_eq!(different, ["4-4-ofp_packet_in.packet"]);
    let expected =
        REFUSED.iter().map(|(error, names)| (*error, names.iter().map(|name| name.to_string()).collect()));
    assert_eq!(refused, expected.collect());
}
