//! Tests of the loop, one turn at a time, with hostile peers. The tests run in one thread.

use std::collections::BTreeSet;
use std::io;
use std::io::{Read, Write};
use std::path::Path;

use ringroad_control::PROTOCOL_VERSION;
use ringroad_control::codec::{FrameDecoder, MAX_REPLY_BYTES, decode_reply, encode_request};
use ringroad_control::message::{ErrorKind, Reply, Request};
use ringroad_control::netmap::{NetmapReply, NetmapRequest};
use ringroad_datapath::fabric::Fabric;
use ringroad_switch::MacTableConfig;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde_json::{Map, Value};

use super::sessions::TURN_REQUESTS;
use super::*;
use crate::listen::{StartFiles, listen};

struct Testbed {
    server: Server,
    folder: tempfile::TempDir,
}

impl Testbed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("r.sock");
        let (fabric, _engine) = Fabric::stepped(MacTableConfig::new(0));
        let (reader, writer) = UnixStream::pair().unwrap();
        let listener = listen(&socket, 0o600, None, false, &mut StartFiles::default()).unwrap();
        let parts = ServerParts {
            socket,
            config: Config::default(),
            config_path: None,
            ports: Ports::new(fabric, crate::quotas::Quotas::new(&crate::config::LimitsConfig::default(), 0))
                .unwrap(),
            signals: Signals::with_pipe(reader, writer, SignalOnly, [0; 0]).unwrap(),
            log: RunningLog::silent(),
            arguments: Vec::new(),
        };
        Self { server: Server::new(listener, StartedBy::Command, parts).unwrap(), folder }
    }

    fn connect(&mut self) -> Peer {
        let socket = UnixStream::connect(self.folder.path().join("r.sock")).unwrap();
        socket.set_nonblocking(true).unwrap();
        self.settle();
        Peer { socket, decoder: FrameDecoder::new(MAX_REPLY_BYTES) }
    }

    /// Runs the part of the loop between two waits.
    fn turn(&mut self) {
        self.server.take_events(Duration::ZERO).unwrap();
        self.server.keep_time(Instant::now()).unwrap();
        self.server.serve_next().unwrap();
    }

    /// Runs until the loop would wait.
    fn settle(&mut self) {
        self.turn();
        while !self.server.requests.is_empty() || self.has_events() {
            self.turn();
        }
    }

    fn has_events(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.server.epoll, PollFlags::IN)], Some(&now)).unwrap() > 0
    }
}

/// A program that never waits.
struct Peer {
    socket: UnixStream,
    decoder: FrameDecoder,
}

impl Peer {
    fn ask(&mut self, request: &Request) {
        self.socket.write_all(&encode_request(request).unwrap()).unwrap();
    }

    /// Replies that have arrived; `None` if the daemon has ended the connection.
    fn replies(&mut self) -> Option<Vec<Reply>> {
        let mut replies = Vec::new();
        let mut piece = vec![0; 64 << 10];
        loop {
            match self.socket.read(&mut piece) {
                Ok(0) => return None,
                Ok(count) => {
                    let mut input = &piece[..count];
                    while let Some(body) = self.decoder.take_frame(&mut input).unwrap() {
                        replies.push(decode_reply(&body).unwrap());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Some(replies),
                Err(_) => return None,
            }
        }
    }
}

/// A request whose reply names `number`.
fn numbered(number: usize) -> Request {
    Request::MacTable { switch: format!("s{number}"), after: None, after_vlan: None }
}

fn is_answer_to(reply: &Reply, number: usize) -> bool {
    matches!(reply, Reply::Error(error) if error.message == format!("there is no switch s{number}"))
}

#[test]
fn a_client_that_does_not_read_harms_no_other_and_gets_its_replies_later() {
    let mut site = Testbed::new();
    let mut silent = site.connect();
    let request = encode_request(&Request::Status).unwrap();
    let mut asked = 0;
    loop {
        let before = asked;
        while silent.socket.write(&request).is_ok_and(|count| count == request.len()) {
            asked += 1;
        }
        site.settle();
        if asked == before {
            break;
        }
    }
    let session = site.server.sessions.values().next().unwrap();
    assert_eq!(session.interest, EventFlags::OUT | EventFlags::ET, "more requests are not waited for");
    assert!(!site.has_events() && site.server.requests.is_empty(), "the loop would spin");

    let mut other = site.connect();
    other.ask(&Request::List);
    site.settle();
    assert!(matches!(other.replies().unwrap()[..], [Reply::List(_)]));

    let mut answered = 0;
    while answered < asked {
        answered += silent.replies().unwrap().len();
        site.settle();
    }
    assert_eq!(site.server.sessions.values().next().unwrap().interest & EventFlags::OUT, EventFlags::empty());
}

#[test]
fn a_flood_of_requests_is_answered_in_order_between_other_clients() {
    let mut site = Testbed::new();
    let (mut flooder, mut bystander) = (site.connect(), site.connect());
    let count = 500;
    let flood: Vec<u8> = (0..count).flat_map(|number| encode_request(&numbered(number)).unwrap()).collect();
    flooder.socket.write_all(&flood).unwrap();
    bystander.ask(&Request::List);
    // Each of the two clients gets one turn.
    site.turn();
    site.turn();
    assert!(matches!(bystander.replies().unwrap()[..], [Reply::List(_)]));
    let mut answers = flooder.replies().unwrap();
    assert!(answers.len() <= TURN_REQUESTS, "{} requests in one turn", answers.len());
    // The other requests lie in the daemon's memory, where the kernel does not see them.
    while answers.len() < count {
        let before = answers.len();
        site.settle();
        answers.extend(flooder.replies().unwrap());
        assert!(answers.len() > before, "requests were left lying");
    }
    for (number, answer) in answers.iter().enumerate() {
        assert!(is_answer_to(answer, number), "{number}: {answer:?}");
    }
}

#[test]
fn a_silent_client_or_half_a_request_ends_the_connection() {
    let mut site = Testbed::new();
    let [mut mute, mut half, mut slow, mut good] = [(); 4].map(|()| site.connect());
    half.socket.write_all(&[5]).unwrap();
    slow.ask(&Request::List);
    slow.socket.write_all(&encode_request(&Request::List).unwrap()[..6]).unwrap();
    good.ask(&Request::List);
    site.settle();
    assert_eq!(slow.replies().unwrap().len(), 1);
    assert_eq!(good.replies().unwrap().len(), 1);
    let later = Instant::now() + REQUEST_PATIENCE;
    site.server.keep_time(later).unwrap();
    for gone in [&mut mute, &mut half, &mut slow] {
        assert_eq!(gone.replies(), None);
    }
    assert_eq!(site.server.sessions.len(), 1);
    good.ask(&Request::List);
    site.settle();
    assert_eq!(good.replies().unwrap().len(), 1);
    assert!(site.server.due.is_empty());
}

#[test]
fn a_client_waiting_for_its_turn_does_not_count_as_silent() {
    let mut site = Testbed::new();
    let mut peer = site.connect();
    peer.ask(&Request::List);
    site.server.take_events(Duration::ZERO).unwrap();
    site.server.keep_time(Instant::now() + REQUEST_PATIENCE).unwrap();
    site.settle();
    assert_eq!(peer.replies().unwrap().len(), 1);
}

#[test]
fn a_closed_netmap_device_is_released_before_the_next_device_request() {
    let mut site = Testbed::new();
    let mut device = site.connect();
    device.ask(&Request::NetmapOpen);
    let mut requester = site.connect();
    requester.ask(&Request::List);
    site.settle();
    let device_id = *site.server.sessions.keys().next().unwrap();
    assert!(site.server.netmap.is_device(device_id));
    drop(device);
    requester.ask(&Request::Netmap { device: None, request: NetmapRequest::Settle });
    // The loop processes the request before the event of the device's end.
    let requester_id = *site.server.sessions.keys().next_back().unwrap();
    site.server.line_up(requester_id);
    site.server.serve_next().unwrap();
    assert!(!site.server.netmap.is_device(device_id));
    assert_eq!(site.server.sessions.len(), 1);
}

#[test]
fn a_write_to_a_netmap_device_closes_it() {
    let mut site = Testbed::new();
    let mut device = site.connect();
    device.ask(&Request::NetmapOpen);
    site.settle();
    assert_eq!(site.server.sessions.len(), 1);
    device.ask(&Request::List);
    site.settle();
    assert_eq!(site.server.sessions.len(), 0);
}

#[test]
fn a_programs_chosen_name_cannot_control_a_terminal() {
    let mut site = Testbed::new();
    let mut peer = site.connect();
    let program = "\u{1b}[2Jprog\u{202e}".to_owned();
    peer.ask(&Request::Hello { protocol: PROTOCOL_VERSION, program });
    site.settle();
    let session = site.server.sessions.values().next().unwrap();
    assert_eq!(session.client.program, "\u{fffd}[2Jprog\u{fffd}");
}

/// The shortest values that a schema allows; for an enum, each variant.
fn shortest(schema: &Value, types: &Value) -> Vec<Value> {
    if let Some(name) = schema["$ref"].as_str() {
        return shortest(&types[name.trim_start_matches("#/$defs/")], types);
    }
    if let Some(variants) = schema["oneOf"].as_array() {
        return variants.iter().flat_map(|variant| shortest(variant, types)).collect();
    }
    if let Some(word) = schema.get("const") {
        return vec![word.clone()];
    }
    match schema["type"].as_str() {
        Some("string") => vec!["".into()],
        Some("integer") => vec![0.into()],
        Some("boolean") => vec![false.into()],
        Some("object") => {
            let keys = schema["required"].as_array().into_iter().flatten().map(|key| key.as_str().unwrap());
            let mut objects = vec![Map::new()];
            for key in keys {
                let values = shortest(&schema["properties"][key], types);
                let with = |object: &Map<String, Value>, value: &Value| {
                    let mut object = object.clone();
                    object.insert(key.to_owned(), value.clone());
                    object
                };
                let each =
                    objects.iter().flat_map(|object| values.iter().map(move |value| with(object, value)));
                objects = each.collect();
            }
            objects.into_iter().map(Value::from).collect()
        }
        _ => panic!("no value is known for {schema}"),
    }
}

/// Name of an enum's variant in JSON; for netmap's requests, with the inner variant.
fn variant(value: &Value) -> String {
    let Some((name, inner)) = value.as_object().and_then(|object| object.iter().next()) else {
        return value.as_str().unwrap().to_owned();
    };
    if name == "netmap" { format!("netmap {}", variant(&inner["request"])) } else { name.clone() }
}

#[test]
fn an_unknown_user_is_refused_every_request_but_those_that_change_nothing_or_are_checked_by_name() {
    const OTHER_USER: u32 = 4242;
    const FOR_ALL: [&str; 18] = [
        "hello",
        "list",
        "list_from",
        "mac_table",
        "mirrors",
        "netmap binding",
        "netmap monitors",
        "netmap pools_info",
        "netmap port_header_get",
        "netmap port_header_set",
        "netmap port_info",
        "netmap register",
        "netmap settle",
        "netmap vale_list",
        "netmap_open",
        "open",
        "open_flow",
        "status",
    ];
    // The schema has every request: a test compares it with the types.
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/control-protocol.schema.json");
    let schema: Value = serde_json::from_slice(&std::fs::read(schema).unwrap()).unwrap();
    let requests = shortest(&schema["$defs"]["Request"], &schema["$defs"]);

    let mut site = Testbed::new();
    let mut other_user = site.connect();
    site.server.sessions.values_mut().next().unwrap().client.peer.uid = OTHER_USER;
    let mut for_all = BTreeSet::new();
    for value in requests {
        let request: Request = serde_json::from_value(value.clone()).unwrap();
        let Some(what) = request.privilege() else {
            for_all.insert(variant(&value));
            continue;
        };
        other_user.ask(&request);
        site.settle();
        let replies = other_user.replies().unwrap();
        match (&request, &replies[..]) {
            (Request::Netmap { .. }, [Reply::Netmap(NetmapReply::Failed { errno, .. })]) => {
                assert_eq!(*errno, Errno::ACCESS.raw_os_error(), "{value}");
            }
            (_, [Reply::Error(refusal)]) => {
                assert_eq!(refusal.kind, ErrorKind::PermissionDenied, "{value}: {refusal}");
                assert_eq!(refusal.message, format!("user {OTHER_USER} may not {what}"));
            }
            (_, replies) => panic!("{value} was answered with {replies:?}"),
        }
    }
    assert_eq!(for_all.iter().map(String::as_str).collect::<Vec<_>>(), FOR_ALL);
    assert!(!site.server.stopping);

    site.server.sessions.values_mut().next().unwrap().client.peer.uid = 0;
    other_user.ask(&Request::Config);
    site.settle();
    assert!(matches!(other_user.replies().unwrap()[..], [Reply::Config(_)]));
}
