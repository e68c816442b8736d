//! Random flows for a switch and for Open vSwitch, which must decide the same.
//!
//! The flows avoid cases that the two switches decide differently, or that the specification (OpenFlow 1.3.5) leaves
//! open:
//!
//! - A VLAN tag that is pushed onto a tagged frame begins as a copy of that tag (5.12.1, table 6). Open vSwitch begins
//!   with VLAN 0. Here each new tag gets its VLAN and its priority at once.
//! - Open vSwitch handles two VLAN tags. Here frames arrive with one at most, and get one more at most.
//! - The choice of a bucket in a select group is up to the switch (5.6.1). Here groups are `all`, `indirect` and fast
//!   failover.
//! - Among overlapping entries of equal priority any may win (5.3). Here each entry of a table has its own priority.
//! - A frame that no entry of a table matches is dropped (5.4). Open vSwitch does the frame's action set before, if
//!   another table came first. Here each later table has an entry for all frames.
//! - Before a routing header with segments left Open vSwitch does not update the checksum of the transport after a new
//!   source. Here flows set the destination alone, which is not in this checksum (RFC 8200, 8.1).
//! - NORMAL is a switch's own way of forwarding (5.1). Here no flow has it.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::random::Random;

/// Number of ports that the flows are for.
pub const PORTS: u32 = 4;
const TABLES: u32 = 4;
/// Addresses of frames: those of stations, and a multicast address as the last one.
pub const STATIONS: [&str; 5] =
    ["02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03", "06:00:00:00:00:01", "01:00:5e:00:00:05"];

/// A match, and the properties of matching frames that are known from it.
struct FlowMatch {
    text: String,
    protocol: &'static str,
    /// Whether frames have a tag, if the match determines this.
    is_tagged: Option<bool>,
}

fn matched(random: &mut Random, table: u32) -> FlowMatch {
    let mut text = String::new();
    let protocol = random.of(&[
        "",
        "",
        "",
        "ip",
        "ip",
        "tcp",
        "tcp",
        "udp",
        "icmp",
        "arp",
        "ipv6",
        "tcp6",
        "dl_type=0x88b5",
    ]);
    if !protocol.is_empty() {
        write!(text, ",{protocol}").unwrap();
    }
    if random.one_of(2) {
        write!(text, ",in_port={}", random.below(u64::from(PORTS)) + 1).unwrap();
    }
    match random.below(8) {
        0 | 1 => write!(text, ",dl_dst={}", random.of(&STATIONS)).unwrap(),
        2 => text.push_str(",dl_dst=01:00:00:00:00:00/01:00:00:00:00:00"),
        3 => text.push_str(",dl_dst=02:00:00:00:00:00/ff:ff:00:00:00:00"),
        _ => {}
    }
    if random.one_of(6) {
        write!(text, ",dl_src={}", random.of(&STATIONS[..4])).unwrap();
    }
    let is_tagged = match random.below(6) {
        0 => {
            text.push_str(",vlan_tci=0x0000/0x1fff");
            Some(false)
        }
        1 => {
            text.push_str(",vlan_tci=0x1000/0x1000");
            Some(true)
        }
        2 => {
            write!(text, ",dl_vlan={}", 5 + random.below(3)).unwrap();
            Some(true)
        }
        _ => None,
    };
    match protocol {
        "ip" | "tcp" | "udp" | "icmp" => {
            if random.one_of(2) {
                let prefix = random.of(&["8", "16", "24", "30", "32", "255.255.0.3"]);
                write!(text, ",nw_dst=10.0.{}.{}/{prefix}", random.below(2), random.below(4)).unwrap();
            }
            if random.one_of(4) {
                write!(text, ",nw_src=0.0.0.{}/0.0.0.3", random.below(4)).unwrap();
            }
            if random.one_of(6) {
                write!(text, ",nw_tos={}", [0, 32, 184][random.below(3) as usize]).unwrap();
            }
        }
        "arp" if random.one_of(2) => write!(text, ",arp_op={}", random.below(2) + 1).unwrap(),
        "ipv6" | "tcp6" if random.one_of(2) => {
            write!(text, ",ipv6_dst=fd00::{}/126", random.below(8)).unwrap();
        }
        _ => {}
    }
    if matches!(protocol, "tcp" | "udp" | "tcp6") && random.one_of(2) {
        match random.below(2) {
            0 => write!(text, ",tp_dst={}", [80, 53, 1000][random.below(3) as usize]).unwrap(),
            _ => text.push_str(",tp_dst=0x3e8/0xfff8"),
        }
    }
    if table > 0 && random.one_of(4) {
        write!(text, ",metadata={:#x}/0x3", random.below(4)).unwrap();
    }
    FlowMatch { text, protocol, is_tagged }
}

/// Random actions on the headers of the frames of a match, and outputs.
fn actions(random: &mut Random, of: &FlowMatch, most: u64, may_push: bool) -> Vec<String> {
    let mut list = Vec::new();
    let (mut is_tagged, mut may_push) = (of.is_tagged, may_push);
    let is_ip = matches!(of.protocol, "ip" | "tcp" | "udp" | "icmp");
    let is_ipv6 = matches!(of.protocol, "ipv6" | "tcp6");
    for _ in 0..random.below(most + 1) {
        match random.below(14) {
            0..4 => list.push(format!("output:{}", random.below(u64::from(PORTS)) + 1)),
            4 => list.push(random.of(&["IN_PORT", "FLOOD", "ALL", "CONTROLLER:64"]).to_owned()),
            5 => list.push(format!("set_field:{}->eth_dst", random.of(&STATIONS))),
            6 => list.push(format!("set_field:{}->eth_src", random.of(&STATIONS[..4]))),
            7 if is_ipv6 => list.push(format!("set_field:fd00::9:{}->ipv6_dst", random.below(4))),
            7 if is_ip => list.push(format!("set_field:10.0.9.{}->nw_dst", random.below(4))),
            8 if is_ip => list.push(format!("set_field:10.9.0.{}->nw_src", random.below(4))),
            9 if is_ip => list.push("dec_ttl".to_owned()),
            10 if is_ip => list.push(format!("set_field:{}->ip_dscp", 8 * random.below(8))),
            11 if matches!(of.protocol, "tcp" | "udp") => {
                list.push(format!("set_field:{}->{}_dst", 1000 + random.below(9), of.protocol));
            }
            12 if is_tagged == Some(true) => {
                if random.one_of(2) {
                    list.push("pop_vlan".to_owned());
                    is_tagged = None;
                } else {
                    list.push(format!("set_field:{}->vlan_vid", 4096 + 5 + random.below(4)));
                }
            }
            13 if may_push => {
                list.push("push_vlan:0x8100".to_owned());
                list.push(format!("set_field:{}->vlan_vid", 4096 + 100 + random.below(9)));
                list.push(format!("set_field:{}->vlan_pcp", random.below(8)));
                (is_tagged, may_push) = (Some(true), false);
            }
            _ => {}
        }
    }
    list
}

fn flow(random: &mut Random, table: u32, priority: u32) -> String {
    let of = matched(random, table);
    let may_push = table == 2 || table == 1 && of.is_tagged == Some(false);
    let mut words = actions(random, &of, 3, may_push && table != 3);
    if random.one_of(8) {
        words.push(format!("group:{}", 1 + random.below(4)));
    }
    if random.one_of(12) {
        words.push("clear_actions".to_owned());
    }
    if random.one_of(3) {
        // An action set has one action of each kind.
        let mut kinds = BTreeMap::new();
        for action in actions(random, &FlowMatch { is_tagged: None, text: String::new(), ..of }, 3, false) {
            let kind =
                action.split_once("->").map_or_else(|| kind_of(&action), |(_, field)| field.to_owned());
            kinds.insert(kind, action);
        }
        if !kinds.is_empty() {
            words.push(format!("write_actions({})", kinds.into_values().collect::<Vec<_>>().join(",")));
        }
    }
    if random.one_of(4) {
        words.push(format!("write_metadata:{:#x}/{:#x}", random.below(4), 1 + random.below(3)));
    }
    if table + 1 < TABLES && !random.one_of(4) {
        words.push(format!(
            "goto_table:{}",
            u64::from(table) + 1 + random.below(u64::from(TABLES - table - 1))
        ));
    }
    if words.is_empty() {
        words.push("drop".to_owned());
    }
    format!("table={table},priority={priority}{} actions={}", of.text, words.join(","))
}

fn kind_of(action: &str) -> String {
    match action {
        "dec_ttl" => "dec_ttl".to_owned(),
        _ => "output".to_owned(),
    }
}

/// Entries for the frames that no other entry of a later table matches.
pub const LAST_FLOWS: &str = "\
table=1,priority=0 actions=drop
table=2,priority=0 actions=drop
table=3,priority=0 actions=drop
";

/// Makes flows for all tables, `each` for a table. They need [`LAST_FLOWS`].
#[must_use]
pub fn flows(random: &mut Random, each: u32) -> Vec<String> {
    let positions = (0..TABLES).flat_map(|table| (1..=each).rev().map(move |priority| (table, priority)));
    positions.map(|(table, priority)| flow(random, table, priority)).collect()
}

/// Groups that the flows use, for `ovs-ofctl add-groups`.
pub const GROUPS: &str = "\
group_id=1,type=all,bucket=output:1,bucket=set_field:02:00:00:00:00:77->eth_dst,output:2,bucket=output:3
group_id=2,type=indirect,bucket=set_field:02:00:00:00:00:78->eth_src,output:4
group_id=3,type=all,bucket=group:2,bucket=output:1
group_id=4,type=ff,bucket=watch_port:3,set_field:02:00:00:00:00:79->eth_dst,output:3,bucket=watch_port:1,output:1
";

/// Returns the bytes of an address.
///
/// # Panics
/// If the text is no address.
#[must_use]
pub fn mac(text: &str) -> [u8; 6] {
    let mut bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap());
    std::array::from_fn(|_| bytes.next().unwrap())
}
