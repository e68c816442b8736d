//! A switch with flow tables alone, between ports without rings or bytes.

use std::sync::Arc;

use ringroad_flow_tables::control_frame::port_number;
use ringroad_flow_tables::forwarding_plane::FlowPlane;
use ringroad_flow_tables::state::{FlowState, TableLimits};
use ringroad_flow_tables::tables::TablePort;
use ringroad_openflow::action::Action;
use ringroad_openflow::instruction::Instructions;
use ringroad_openflow::message::{FlowMod, PortConfig};
use ringroad_openflow::oxm::{FieldMatch, FieldValue, Match, OxmField, VLAN_PRESENT};
use ringroad_port::clock::Clock;
use ringroad_port::port_index::{MAX_PORTS, PortIndex};

use crate::acl::{self, Masked};
use crate::paths::ProgramTurn;
use crate::replay::replay;
use crate::testbed::{Testbed, frame};
use crate::{Failure, counted};

/// Receiving port, the first of the switch.
const TO: PortIndex = PortIndex(0);
/// Sending port.
const FROM: PortIndex = PortIndex(1);
const CONTROLLERS: PortIndex = PortIndex(MAX_PORTS as u8 - 1);
/// Number of flows that a path uses in turn.
const FLOWS: u32 = 1000;
const IPV4: u128 = 0x0800;
const UDP: u128 = 17;
const VLAN: u16 = 100;

/// Table, priority, match and instructions of an entry.
type Entry = (u8, u16, Vec<FieldMatch>, Instructions);

fn exact(field: OxmField, value: u128) -> FieldMatch {
    FieldMatch::exact(field, value)
}

fn in_port() -> FieldMatch {
    exact(OxmField::InPort, port_number(FROM).0.into())
}

fn output() -> Action {
    Action::Output { port: port_number(TO), max_len: 0 }
}

fn apply(actions: Vec<Action>) -> Instructions {
    Instructions { apply: Some(actions), ..Instructions::default() }
}

fn goto(table: u8, actions: Vec<Action>) -> Instructions {
    let apply = (!actions.is_empty()).then_some(actions);
    Instructions { goto: Some(table), apply, ..Instructions::default() }
}

/// Makes a switch with these entries. One port sends bursts of the frames in turn; all go to the other port.
fn set_up(burst: u32, entries: Vec<Entry>, frames: Vec<Vec<u8>>) -> Result<ProgramTurn, Failure> {
    let (mut state, needs) = FlowState::new(1, TableLimits::default());
    for port in [TO, FROM] {
        let known = TablePort { config: PortConfig::default(), is_live: true };
        state.set_port(port_number(port), Some(known));
    }
    for (table, priority, fields, instructions) in entries {
        let matching = Match::new(fields).map_err(|error| format!("a match: {error:?}"))?;
        let request = FlowMod::add(table, priority, matching, instructions);
        state.flow_mod(&request, 0).map_err(|error| format!("an entry: {error:?}"))?;
    }
    state.publish();
    let needs = needs.into_iter().next().ok_or("the tables have a worker")?;
    let mut site = Testbed::new();
    site.attach("to", replay(&[], 0, 0))?;
    site.attach("from", replay(&frames, burst, u64::MAX))?;
    site.set_forwarding_plane(Box::new(move |switch, _| {
        Box::new(FlowPlane::new(needs.clone(), Arc::clone(&switch), CONTROLLERS, Clock::manual()))
    }))?;
    Ok(Box::new(move |moved| {
        let _ = &state;
        counted(|| site.step());
        *moved += u64::from(burst);
        Ok(())
    }))
}

pub(crate) fn one(burst: u32) -> Result<ProgramTurn, Failure> {
    set_up(burst, vec![(0, 1, vec![in_port()], apply(vec![output()]))], vec![frame(1, 2)])
}

/// Makes the frame of UDP flow `flow`, with its own addresses and ports.
fn udp_frame(flow: u32) -> Vec<u8> {
    let mut frame = frame(1, 2);
    let (addresses, ports) = (addresses(flow), ports(flow));
    frame.splice(26..34, [addresses.0.to_be_bytes(), addresses.1.to_be_bytes()].concat());
    frame.splice(34..38, [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat());
    frame
}

/// Returns the source and destination address of a flow.
fn addresses(flow: u32) -> (u32, u32) {
    (0x0a00_0000 + flow, 0xc612_0000 + flow / 3)
}

fn ports(flow: u32) -> (u16, u16) {
    (1000u16.wrapping_add(flow as u16), 2000u16.wrapping_add((flow / 7) as u16))
}

pub(crate) fn thousand(burst: u32) -> Result<ProgramTurn, Failure> {
    let entry = |flow: u32| {
        let (from, to) = addresses(flow);
        let (from_port, to_port) = ports(flow);
        let fields = vec![
            exact(OxmField::EthType, IPV4),
            exact(OxmField::IpProto, UDP),
            exact(OxmField::Ipv4Src, from.into()),
            exact(OxmField::Ipv4Dst, to.into()),
            exact(OxmField::UdpSrc, from_port.into()),
            exact(OxmField::UdpDst, to_port.into()),
        ];
        (0, 1, fields, apply(vec![output()]))
    };
    set_up(burst, (0..FLOWS).map(entry).collect(), (0..FLOWS).map(udp_frame).collect())
}

/// Makes flows of 20 shapes: pairs of source and destination mask. Shapes with longer masks have higher priorities.
pub(crate) fn twenty_shapes(burst: u32) -> Result<ProgramTurn, Failure> {
    let entry = |flow: u32| {
        let shape = flow % 20;
        let prefix = |address: u128, short: u32| {
            let mask = u128::from(u32::MAX << short);
            (address & mask, mask)
        };
        // Source network of each entry: from 10.0.0.0 to 10.3.231.255 in networks of 2^8 addresses.
        let (from, from_mask) = prefix(0x0a00_0000 + (u128::from(flow) << 8), shape % 5);
        let (to, to_mask) = prefix(0xc612_0000 + (u128::from(flow) << 4), shape / 5);
        let fields = vec![
            exact(OxmField::EthType, IPV4),
            FieldMatch { field: OxmField::Ipv4Src, value: from, mask: from_mask },
            FieldMatch { field: OxmField::Ipv4Dst, value: to, mask: to_mask },
        ];
        (0, 100 - shape as u16, fields, apply(vec![output()]))
    };
    let frame = |flow: u32| {
        let mut frame = udp_frame(flow);
        let from = 0x0a00_0000 + (flow << 8);
        let to = 0xc612_0000 + (flow << 4);
        frame.splice(26..34, [from.to_be_bytes(), to.to_be_bytes()].concat());
        frame
    };
    set_up(burst, (0..FLOWS).map(entry).collect(), (0..FLOWS).map(frame).collect())
}

/// Number of entries in the list of rules.
const ACL_ENTRIES: usize = 10_000;

/// Makes a list of rules, and a frame for each entry that UDP can match, in random order. An entry of higher priority
/// can match the frame, too.
pub(crate) fn access_list(burst: u32) -> Result<ProgramTurn, Failure> {
    let (rules, mut draw) = acl::entries(ACL_ENTRIES, 1);
    let masked = |field: OxmField, Masked { value, mask }: Masked| {
        (mask != 0).then(|| FieldMatch { field, value: value.into(), mask: mask.into() })
    };
    let entry = |rule: &acl::AclEntry| {
        let [source, target] = rule.addresses;
        let mut fields = vec![exact(OxmField::EthType, IPV4)];
        fields.extend((rule.proto != 0).then(|| exact(OxmField::IpProto, rule.proto.into())));
        fields.extend(
            [masked(OxmField::Ipv4Src, source), masked(OxmField::Ipv4Dst, target)].into_iter().flatten(),
        );
        let [from, to] = match rule.proto {
            6 => [OxmField::TcpSrc, OxmField::TcpDst],
            _ => [OxmField::UdpSrc, OxmField::UdpDst],
        };
        let [source, target] = rule.ports;
        fields.extend([masked(from, source), masked(to, target)].into_iter().flatten());
        (0, rule.priority, fields, apply(vec![output()]))
    };
    let entries = rules.iter().map(entry).collect();
    let mut frames: Vec<_> = rules
        .iter()
        .filter(|rule| matches!(rule.proto, 0 | 17))
        .map(|rule| {
            let mut frame = udp_frame(0);
            let addresses = rule.addresses.map(|one| draw.within(one).to_be_bytes());
            let ports = rule.ports.map(|one| (draw.within(one) as u16).to_be_bytes());
            frame.splice(26..38, [addresses.concat(), ports.concat()].concat());
            frame
        })
        .collect();
    draw.shuffle(&mut frames);
    set_up(burst, entries, frames)
}

/// Number of sending stations of a pipeline.
const STATIONS: u8 = 100;

fn station(number: u8) -> u128 {
    0x0200_0000_0000 + u128::from(number)
}

fn vlan() -> FieldMatch {
    exact(OxmField::VlanVid, VLAN_PRESENT | u128::from(VLAN))
}

/// Makes Faucet's tables: rules of ports, VLANs, sources, destinations, and flooding.
fn tables(enter: Instructions, arriving: Vec<FieldMatch>, leave: Vec<Action>) -> Vec<Entry> {
    let drop = Instructions::default;
    let ssh = vec![exact(OxmField::EthType, IPV4), exact(OxmField::IpProto, 6), exact(OxmField::TcpDst, 22)];
    let mut entries = vec![
        (0, 20, [vec![in_port()], ssh].concat(), drop()),
        (0, 10, vec![in_port()], goto(1, vec![])),
        (0, 0, vec![], drop()),
        (1, 4096, [vec![in_port()], arriving].concat(), enter),
        (1, 0, vec![], drop()),
        (2, 20490, vec![exact(OxmField::EthType, 0x9000)], drop()),
        (2, 20480, vec![exact(OxmField::EthSrc, 0xffff_ffff_ffff)], drop()),
        (2, 0, vec![], goto(3, vec![])),
        (3, 0, vec![], goto(4, vec![])),
        (4, 8192, vec![vlan()], apply(leave.clone())),
        (4, 0, vec![], drop()),
    ];
    for number in 0..STATIONS {
        let from = exact(OxmField::EthSrc, station(number));
        entries.push((2, 8191, vec![in_port(), vlan(), from], goto(3, vec![])));
        // Only every second destination is known.
        if number % 2 == 0 {
            let to = exact(OxmField::EthDst, station(100 + number));
            entries.push((3, 8192, vec![vlan(), to], apply(leave.clone())));
        }
    }
    entries
}

pub(crate) fn pipeline(burst: u32) -> Result<ProgramTurn, Failure> {
    let tagged = |number: u8| {
        let mut frame = frame(number, 100 + number);
        frame.splice(12..12, [0x81, 0, 0, VLAN as u8]);
        frame
    };
    let entries = tables(goto(2, vec![]), vec![vlan()], vec![output()]);
    set_up(burst, entries, (0..STATIONS).map(tagged).collect())
}

pub(crate) fn tags(burst: u32) -> Result<ProgramTurn, Failure> {
    let vid = FieldValue { field: OxmField::VlanVid, value: VLAN_PRESENT | u128::from(VLAN) };
    let enter = goto(2, vec![Action::PushVlan(0x8100), Action::SetField(vid)]);
    let entries = tables(enter, vec![exact(OxmField::VlanVid, 0)], vec![Action::PopVlan, output()]);
    set_up(burst, entries, (0..STATIONS).map(|number| frame(number, 100 + number)).collect())
}
