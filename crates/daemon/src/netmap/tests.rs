//! Tests of each request for other users' ports, and of the state after failed requests.

use ringroad_control::netmap::{Bound, PortSizes, Register};
use ringroad_control::peer::PeerCredentials;
use ringroad_datapath::fabric::Fabric;
use ringroad_switch::MacTableConfig;

use super::bind::{flag, mode};
use super::*;
use crate::config::Allow;
use crate::config::LimitsConfig;
use crate::devices::NamedDevice;
use crate::permissions::Permissions;
use crate::quotas::Quotas;

const ROOT: u32 = 0;
const OWNER: u32 = 65_534;
const OTHER_USER: u32 = 65_533;
const FRIEND: u32 = 65_532;

/// The daemon's netmap part alone.
struct Testbed {
    netmap: Netmap,
    ports: Ports,
    devices: u64,
}

impl Testbed {
    /// Creates the part with rules, each a pattern and a user id.
    fn new(rules: &[(&str, u32)]) -> Self {
        let rules: Vec<Allow> = rules
            .iter()
            .map(|&(port, uid)| Allow { port: port.to_owned(), uids: vec![uid], gids: vec![] })
            .collect();
        let fabric = Fabric::stepped(MacTableConfig::new(1)).0;
        let mut ports = Ports::new(fabric, Quotas::new(&LimitsConfig::default(), ROOT)).unwrap();
        ports.permissions = Permissions::new(ROOT, &rules).into();
        Self { netmap: Netmap::default(), ports, devices: 0 }
    }

    fn client(&mut self, uid: u32) -> Client {
        self.devices += 1;
        let peer = PeerCredentials { pid: None, uid, gid: uid };
        Client { id: self.devices, peer, program: "test".into() }
    }

    fn device(&mut self, uid: u32) -> Result<Badge, NetmapFailure> {
        let client = self.client(uid);
        self.netmap.open_device(client.id)
    }

    fn ask(&mut self, uid: u32, device: Option<Badge>, request: NetmapRequest) -> Result<NetmapReply, Errno> {
        let client = self.client(uid);
        let requester = Requester {
            ports: &mut self.ports,
            client: &client,
            scope: NamespaceScope::Own,
            workers_real_time: 0,
        };
        match self.netmap.answer(requester, device, request).reply {
            NetmapReply::Failed { errno, .. } => Err(Errno::from_raw_os_error(errno)),
            reply => Ok(reply),
        }
    }

    fn register(&mut self, uid: u32, register: Register) -> Result<(Badge, Bound), Errno> {
        let badge = self.device(uid).map_err(|failure| failure.errno)?;
        match self.ask(uid, Some(badge), NetmapRequest::Register(register))? {
            NetmapReply::Bound(bound) => Ok((badge, *bound)),
            other => panic!("{other:?}"),
        }
    }

    fn bind(&mut self, uid: u32, name: &str) -> Result<(Badge, Bound), Errno> {
        self.register(uid, plain(name))
    }

    fn close(&mut self, badge: Badge) {
        self.netmap.close_device(badge.device, &mut self.ports).unwrap();
    }

    fn keys(&self) -> Vec<String> {
        self.netmap.ports.keys().map(PortKey::to_string).collect()
    }
}

/// Binds all rings of a port.
fn plain(name: &str) -> Register {
    Register {
        name: name.to_owned(),
        sizes: PortSizes::default(),
        mem_id: 0,
        ring_id: 0,
        mode: mode::ALL_NIC,
        extra_buffers: 0,
        flags: 0,
        offsets: None,
        external_memory: None,
        needs_exclusive: false,
    }
}

/// Sends every request that is checked by the port it names, with its result for `uid`.
fn attempts(site: &mut Testbed, uid: u32, port: &str, mem_id: u16) -> Vec<(String, Result<(), Errno>)> {
    let mut results = Vec::new();
    let flags = [flag::MONITOR_TX, flag::MONITOR_RX, flag::ZCOPY_MON, flag::RX_RINGS_ONLY];
    let mut registers = vec![plain(port), plain(&format!("{port}{{new"))];
    registers.extend(flags.map(|flags| Register { flags, ..plain(port) }));
    registers.push(Register { mem_id, mode: mode::NULL, ..plain("null") });
    registers.push(Register { mem_id, ..plain("vale9:elsewhere") });
    for register in registers {
        let what = format!("{register:?}");
        let bound = site.register(uid, register).map(|(badge, _)| site.close(badge));
        results.push((what, bound));
    }
    let name = || port.to_owned();
    for request in [
        NetmapRequest::PortInfo { name: name(), sizes: PortSizes::default(), mem_id: 0 },
        NetmapRequest::PortInfo { name: String::new(), sizes: PortSizes::default(), mem_id },
        NetmapRequest::PoolsInfo { name: name(), mem_id: 0 },
        NetmapRequest::PortHeaderGet { name: name() },
        NetmapRequest::PortHeaderSet { name: name(), bytes: 12 },
    ] {
        let what = format!("{request:?}");
        results.push((what, site.ask(uid, None, request).map(drop)));
    }
    results
}

#[test]
fn no_request_gives_a_user_anothers_port() {
    // A user with access to the switch may not share the memory of its ports' users.
    let mut site = Testbed::new(&[("vale5:*", OWNER), ("vale5:*", OTHER_USER)]);
    let (_victim, bound) = site.bind(OWNER, "vale5:vic").unwrap();
    let before = site.keys();
    for (what, result) in attempts(&mut site, OTHER_USER, "vale5:vic", bound.mem_id) {
        assert_eq!(result, Err(Errno::ACCESS), "{what}");
    }
    assert_eq!(site.keys(), before);
    assert_eq!(
        site.ask(OWNER, None, NetmapRequest::PortHeaderGet { name: "vale5:vic".into() }),
        Ok(NetmapReply::HeaderBytes(0))
    );
}

#[test]
fn the_owner_administrators_and_named_users_share_a_port() {
    let mut site = Testbed::new(&[("vale5:vic", OWNER), ("vale5:vic", FRIEND)]);
    let (_victim, bound) = site.bind(OWNER, "vale5:vic").unwrap();
    for uid in [OWNER, ROOT, FRIEND] {
        let (badge, again) = site.bind(uid, "vale5:vic").unwrap();
        assert_eq!(again.mem_id, bound.mem_id);
        let monitor = Register { flags: flag::MONITOR_RX, ..plain("vale5:vic") };
        let (monitor, _) = site.register(uid, monitor).unwrap();
        let (pipe, _) = site.bind(uid, "vale5:vic{1").unwrap();
        for badge in [pipe, monitor, badge] {
            site.close(badge);
        }
        let header = NetmapRequest::PortHeaderSet { name: "vale5:vic".into(), bytes: 0 };
        assert_eq!(site.ask(uid, None, header), Ok(NetmapReply::HeaderBytes(0)));
    }
    assert_eq!(site.bind(OTHER_USER, "vale5:vic").unwrap_err(), Errno::ACCESS);
    assert_eq!(site.keys(), ["vale5:vic"]);
}

#[test]
fn a_user_named_for_one_port_gets_no_other_port_in_its_memory() {
    let mut site = Testbed::new(&[("vale5:vic", FRIEND), ("vale5:vic", OWNER)]);
    let (_victim, bound) = site.bind(OWNER, "vale5:vic").unwrap();
    let beside = Register { mem_id: bound.mem_id, ..plain("vale5:beside") };
    let (beside, _) = site.register(OWNER, beside).unwrap();
    assert_eq!(site.bind(FRIEND, "vale5:vic").unwrap_err(), Errno::ACCESS);
    site.close(beside);
    site.bind(FRIEND, "vale5:vic").unwrap();
}

#[test]
fn a_pipe_of_a_free_name_belongs_to_its_maker_and_ends_with_its_last_user() {
    let mut site = Testbed::new(&[("shared", OWNER), ("shared", FRIEND)]);
    let (one, _) = site.bind(OWNER, "x{1").unwrap();
    assert_eq!(site.bind(OTHER_USER, "x}1").unwrap_err(), Errno::ACCESS);
    assert_eq!(site.bind(OTHER_USER, "x}2").unwrap_err(), Errno::ACCESS, "x is the owner's");
    let (other, _) = site.bind(OWNER, "x}1").unwrap();
    site.close(one);
    site.close(other);
    assert_eq!(site.keys(), [""; 0]);
    let (one, _) = site.bind(OWNER, "shared{1").unwrap();
    let (other, _) = site.bind(FRIEND, "shared}1").unwrap();
    assert_eq!(site.bind(OTHER_USER, "shared}1").unwrap_err(), Errno::ACCESS);
    site.close(one);
    site.close(other);
    assert_eq!(site.keys(), [""; 0]);
}

#[test]
fn an_administrator_puts_no_new_port_into_an_untrusted_peers_memory() {
    let mut site = Testbed::new(&[]);
    let (_squatter, bound) = site.register(OTHER_USER, plain("vale1:squat")).unwrap();
    let request = Register { mem_id: bound.mem_id, ..plain("vale0:mine") };
    assert_eq!(site.register(ROOT, request).unwrap_err(), Errno::ACCESS);
    assert_eq!(site.keys(), ["vale1:squat"]);
}

#[test]
fn each_user_has_a_memory_1_that_no_other_user_can_take() {
    let mut site = Testbed::new(&[]);
    let memory_1 = |name: &str| Register { mem_id: 1, ..plain(name) };
    let (_squatter, theirs) = site.register(OTHER_USER, memory_1("vale1:squat")).unwrap();
    let (_first, own) = site.register(ROOT, memory_1("vale0:a")).unwrap();
    let (_second, same) = site.register(ROOT, memory_1("vale0:b")).unwrap();
    assert_eq!([theirs.mem_id, own.mem_id, same.mem_id], [1, 1, 1]);
    let memory = |key: &str| {
        let port = site.netmap.ports.iter().find(|(name, _)| name.to_string() == key);
        Arc::as_ptr(&port.unwrap().1.memory)
    };
    assert_eq!(memory("vale0:a"), memory("vale0:b"));
    assert_ne!(memory("vale0:a"), memory("vale1:squat"));
}

#[test]
fn no_name_of_a_port_is_the_key_of_a_monitor() {
    let mut site = Testbed::new(&[]);
    let (victim, _) = site.bind(OWNER, "vale0:a").unwrap();
    for device in 0..20 {
        assert_eq!(site.bind(OWNER, &format!("vale0:a/{device}")).unwrap_err(), Errno::INVAL);
        assert_eq!(site.bind(OWNER, &format!("null/{device}{{1")).unwrap_err(), Errno::INVAL);
    }
    let monitor = || Register { flags: flag::MONITOR_TX | flag::MONITOR_RX, ..plain("vale0:a") };
    let monitors: Vec<Badge> = (0..6).map(|_| site.register(OWNER, monitor()).unwrap().0).collect();
    assert_eq!(site.keys().len(), 7);
    let key = PortKey::Monitor {
        of: Box::new(PortKey::Switch { switch: "vale0".into(), port: "a".into() }),
        device: monitors[0].device,
    };
    let entry = site.netmap.ports.remove(&key).unwrap();
    site.netmap.insert(key.clone(), entry).unwrap();
    let other = NetmapPort::new(
        "x",
        Kind::Null,
        &site.client(OWNER),
        Arc::clone(&site.netmap.ports[&key].memory),
        PortSizes::default(),
        Holding::default(),
    );
    assert_eq!(site.netmap.insert(key, other).unwrap_err().errno, Errno::BUSY, "nothing is replaced");
    for badge in monitors.into_iter().chain([victim]) {
        site.close(badge);
    }
    assert_eq!(site.keys(), [""; 0]);
}

#[test]
fn a_binding_that_fails_leaves_nothing() {
    let mut site = Testbed::new(&[]);
    let wrong_mode = |name: &str| Register { mode: mode::SW, ..plain(name) };
    let wrong_ring = |name: &str| Register { mode: mode::ONE_NIC, ring_id: 99, ..plain(name) };
    for name in ["vale0:a", "x{1", "x}1", "vale0:a{1"] {
        for register in [wrong_mode(name), wrong_ring(name)] {
            assert_eq!(site.register(OWNER, register).unwrap_err(), Errno::INVAL, "{name}");
            assert_eq!((site.keys(), site.ports.quotas.memory.total()), (vec![], 0), "{name}");
        }
    }
    // A pipe that is refused removes its parent, which was made for it.
    let mut site = Testbed::new(&[("vale0:a[{]*", FRIEND)]);
    assert_eq!(site.bind(OWNER, "vale0:a{1").unwrap_err(), Errno::ACCESS);
    assert_eq!((site.keys(), site.ports.quotas.memory.total()), (vec![], 0));
    assert!(site.ports.is_empty());
    // The device can be bound as before.
    let badge = site.device(OWNER).unwrap();
    let mut bind = |register| site.ask(OWNER, Some(badge), NetmapRequest::Register(register));
    assert_eq!(bind(wrong_ring("vale0:b")), Err(Errno::INVAL));
    assert!(matches!(bind(plain("vale0:b")), Ok(NetmapReply::Bound(_))));
}

#[test]
fn a_port_that_only_its_pipes_hold_has_no_rings_and_is_on_no_switch() {
    let mut site = Testbed::new(&[]);
    let (port, _) = site.bind(OWNER, "vale0:a").unwrap();
    let (pipe, _) = site.bind(OWNER, "vale0:a{1").unwrap();
    let has_rings = |site: &Testbed| {
        let key = PortKey::Switch { switch: "vale0".into(), port: "a".into() };
        !site.netmap.ports[&key].rings.is_empty()
    };
    site.close(port);
    assert!(!has_rings(&site) && site.ports.is_empty());
    let wrong_ring = Register { mode: mode::ONE_NIC, ring_id: 99, ..plain("vale0:a") };
    assert_eq!(site.register(OWNER, wrong_ring).unwrap_err(), Errno::INVAL);
    assert!(!has_rings(&site) && site.ports.is_empty());
    let (port, _) = site.bind(OWNER, "vale0:a").unwrap();
    assert!(has_rings(&site) && site.ports.table.occupant("vale0:a").is_some());
    site.close(pipe);
    site.close(port);
    assert_eq!((site.keys(), site.ports.quotas.memory.total()), (vec![], 0));
}

#[test]
fn the_end_of_a_pipe_takes_no_port_of_others_off_the_switch() {
    let mut site = Testbed::new(&[]);
    let (pipe, _) = site.bind(OWNER, "vale0:a{1").unwrap();
    let client = site.client(OTHER_USER);
    let named = NamedDevice { spelled: "vale0:a".into(), name: "vale0:a".parse().unwrap(), netns: None };
    let opened = site.ports.open(&named, &Default::default(), &client);
    opened.unwrap();
    site.close(pipe);
    assert!(site.ports.table.occupant("vale0:a").is_some());
    site.ports.table.close_all_of(|owner| owner.id == client.id).unwrap();
    assert!(site.ports.is_empty() && site.ports.table.fabric().switch_names().next().is_none());
}

#[test]
fn ports_on_switches_are_listed_in_order_and_once() {
    let mut site = Testbed::new(&[]);
    let names = ["vale0:a", "vale0:b", "vale00:c", "vale1:a"];
    for name in names {
        site.bind(OWNER, name).unwrap();
    }
    let (mut at, mut found) = ((0, 0), Vec::new());
    loop {
        let request = NetmapRequest::ValeList { name: String::new(), switch_index: at.0, port_index: at.1 };
        match site.ask(OTHER_USER, None, request) {
            Ok(NetmapReply::Listed { name, switch_index, port_index }) => {
                found.push(name);
                at = (switch_index, port_index + 1);
            }
            other => {
                assert_eq!(other, Err(Errno::NOENT));
                break;
            }
        }
    }
    assert_eq!(found, names);
}

#[test]
fn reports_name_the_owner_of_each_port() {
    let mut site = Testbed::new(&[]);
    let (_port, _) = site.bind(OWNER, "vale0:a").unwrap();
    site.register(OWNER, Register { flags: flag::MONITOR_RX, ..plain("vale0:a") }).unwrap();
    site.bind(OTHER_USER, "x{1").unwrap();
    let reports: Vec<_> =
        site.netmap.reports(&site.ports, "").flat_map(|(_, reports)| reports.unwrap()).collect();
    let told: Vec<_> = reports
        .iter()
        .map(|report| (report.kind.as_str(), report.bound, report.owner.as_ref().map(|owner| owner.uid)))
        .collect();
    let (owner, other_user) = (Some(OWNER), Some(OTHER_USER));
    for wanted in [
        ("monitor", true, owner),
        ("pipe", true, other_user),
        ("pipe", false, other_user),
        ("netmap", false, other_user),
    ] {
        assert!(told.contains(&wanted), "{wanted:?} in {told:?}");
    }
    assert_eq!(told.len(), 4);
}

#[test]
fn programs_count_on_their_own_user_only_where_no_other_user_gets_the_eventfds() {
    let mut site = Testbed::new(&[("vale5:*", OTHER_USER), ("vale5:*", OWNER), ("vale5:shared", OTHER_USER)]);
    let mut binds = |uid, name| site.bind(uid, name).map(|(_, bound)| bound.is_single_user);
    assert_eq!(binds(OWNER, "vale5:own"), Ok(true));
    assert_eq!(binds(OWNER, "vale5:own{1"), Ok(true));
    assert_eq!(binds(OWNER, "vale5:shared"), Ok(false));
    assert_eq!(binds(OTHER_USER, "vale5:shared{1"), Ok(false));
    // An administrator does not count on the owner; the owner's programs still count on their user and administrators.
    assert_eq!(binds(ROOT, "vale5:own"), Ok(false));
    assert_eq!(binds(OWNER, "vale5:own"), Ok(true));
}

#[test]
fn a_new_rule_shares_a_port_after_the_programs_that_count_on_their_own_user() {
    let mut site = Testbed::new(&[]);
    let (badge, bound) = site.bind(OWNER, "vale5:a").unwrap();
    assert!(bound.is_single_user);
    let rule = Allow { port: "vale5:a".to_owned(), uids: vec![OTHER_USER, OWNER], gids: vec![] };
    site.ports.permissions = Permissions::new(ROOT, &[rule]).into();
    for name in ["vale5:a", "vale5:a{1"] {
        assert_eq!(site.bind(OTHER_USER, name).map(drop), Err(Errno::BUSY), "{name}");
    }
    assert!(site.bind(ROOT, "vale5:a").is_ok());
    let (later, bound) = site.bind(OWNER, "vale5:a").unwrap();
    assert!(!bound.is_single_user);
    site.close(badge);
    let (other, _) = site.bind(OTHER_USER, "vale5:a").unwrap();
    // Without the rule, too: that user may have kept the eventfds.
    site.ports.permissions = Permissions::new(ROOT, &[]).into();
    site.close(other);
    assert_eq!(site.bind(OWNER, "vale5:a").map(|(_, bound)| bound.is_single_user), Ok(false));
    site.close(later);
}
