//! Tests of NIOCCTRL: the header, and every type of request.

use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::abi::{
    AttachBody, DetachBody, ListBody, LoopStartBody, NewInterfaceBody, PollingBody, PoolsBody,
    PortHeaderBody, PortInfoBody, RegisterBody, RequestHeader, request_type,
};

/// A header for `name`.
pub(super) fn header(request_type: u16, name: &str) -> RequestHeader {
    let mut header = RequestHeader { version: 14, request_type, ..RequestHeader::default() };
    header.name[..name.len()].copy_from_slice(name.as_bytes());
    header
}

/// Sends a request whose body is `body`.
pub(super) fn send<T>(
    device: &RecordingDescriptor,
    header: &mut RequestHeader,
    body: &mut T,
) -> Result<(), Errno> {
    header.body = address(body) as u64;
    control(device, u64::from(NIOCCTRL), address(header))
}

/// Sends a request without a body.
pub(super) fn send_bare(device: &RecordingDescriptor, header: &mut RequestHeader) -> Result<(), Errno> {
    control(device, u64::from(NIOCCTRL), address(header))
}

/// Size of the body of each type, bytes; 0: no body.
const BODIES: [(u16, usize); 16] = [
    (request_type::REGISTER, 56),
    (request_type::PORT_INFO_GET, 32),
    (request_type::VALE_ATTACH, 64),
    (request_type::VALE_DETACH, 8),
    (request_type::VALE_LIST, 8),
    (request_type::PORT_HDR_SET, 8),
    (request_type::PORT_HDR_GET, 8),
    (request_type::VALE_NEWIF, 16),
    (request_type::VALE_DELIF, 0),
    (request_type::VALE_POLLING_ENABLE, 16),
    (request_type::VALE_POLLING_DISABLE, 16),
    (request_type::POOLS_INFO_GET, 64),
    (request_type::SYNC_KLOOP_START, 8),
    (request_type::SYNC_KLOOP_STOP, 0),
    (request_type::CSB_ENABLE, 0),
    (99, 0),
];

#[test]
fn a_body_is_required_exactly_if_its_type_has_one() {
    for (request, bytes) in BODIES {
        let device = RecordingDescriptor::new();
        let mut asked = header(request, "vale0:a");
        let outcome = if bytes == 0 {
            send(&device, &mut asked, &mut [0_u64; 8])
        } else {
            send_bare(&device, &mut asked)
        };
        assert_eq!(outcome, Err(Errno::INVAL), "{request}");
        assert_eq!(device.asked(), [], "{request}");
    }
}

#[test]
fn a_missing_body_is_a_fault() {
    for (request, _) in BODIES.into_iter().filter(|(_, bytes)| *bytes > 0) {
        let device = RecordingDescriptor::new();
        let mut asked = RequestHeader { body: 8, ..header(request, "vale0:a") };
        assert_eq!(send_bare(&device, &mut asked), Err(Errno::FAULT), "{request}");
        assert_eq!(device.asked(), [], "{request}");
    }
}

#[test]
fn versions_and_the_reserved_field_are_checked_first() {
    let device = RecordingDescriptor::new();
    for (version, reserved, outcome) in [
        (13, 0, Err(Errno::INVAL)),
        (16, 0, Err(Errno::INVAL)),
        (14, 1, Err(Errno::INVAL)),
        (14, 0, Ok(())),
        (15, 0, Ok(())),
    ] {
        let mut asked = header(request_type::VALE_DELIF, "p");
        asked.version = version;
        asked.reserved = reserved;
        assert_eq!(send_bare(&device, &mut asked), outcome, "{version} {reserved}");
        // A missing body would be a fault if the call read it.
        if outcome.is_err() {
            asked.request_type = request_type::REGISTER;
            asked.body = 8;
            assert_eq!(send_bare(&device, &mut asked), outcome);
        }
    }
}

#[test]
fn unknown_types_are_invalid() {
    for request in [0, 16, 99, u16::MAX] {
        let device = RecordingDescriptor::new();
        assert_eq!(send_bare(&device, &mut header(request, "vale0:a")), Err(Errno::INVAL));
        assert_eq!(device.asked(), []);
    }
}

#[test]
fn a_binding_is_requested_and_its_reply_written() {
    let device = RecordingDescriptor::new();
    let sizes =
        PortSizes { tx_slots: 1, rx_slots: 2, tx_rings: 3, rx_rings: 4, host_tx_rings: 5, host_rx_rings: 6 };
    let register = RegisterBody {
        sizes,
        mem_id: 8,
        ring_id: 9,
        mode: 4,
        extra_buffers: 10,
        flags: 0x1800,
        ..RegisterBody::default()
    };
    let mut asked = header(request_type::REGISTER, "vale0:a");
    let before = asked;
    let mut body = register;
    assert_eq!(send(&device, &mut asked, &mut body), Ok(()));
    let expected = Register {
        name: "vale0:a".into(),
        sizes,
        mem_id: 8,
        ring_id: 9,
        mode: 4,
        extra_buffers: 10,
        flags: 0x1800,
        offsets: None,
        external_memory: None,
        needs_exclusive: false,
    };
    assert_eq!(device.asked(), [Asked::Register(expected, None, None)]);
    let answer = RegisterBody {
        offset: 192,
        memory_bytes: bound().geometry.pools_bytes(),
        sizes: BOUND_SIZES,
        mem_id: 7,
        ring_id: 9,
        mode: 4,
        extra_buffers: 11,
        padding: 0,
        flags: 0x500,
    };
    assert_eq!(body, answer);
    assert_eq!(RequestHeader { body: 0, ..asked }, before, "the header comes back unchanged");
}

#[test]
fn a_bound_device_cannot_be_bound() {
    let device = RecordingDescriptor::new();
    device.rings.set(Some((1, 1)));
    let outcome = send(&device, &mut header(request_type::REGISTER, "vale0:a"), &mut RegisterBody::default());
    assert_eq!(outcome, Err(Errno::BUSY));
    assert_eq!(device.asked(), []);
}

#[test]
fn names_end_at_the_last_byte() {
    let device = RecordingDescriptor::new();
    let mut asked = header(request_type::VALE_DELIF, &"n".repeat(64));
    assert_eq!(send_bare(&device, &mut asked), Ok(()));
    assert_eq!(device.asked_daemon(), NetmapRequest::ValeDeleteInterface { name: "n".repeat(63) });
}

/// Request, message to the daemon, its reply, and the body after it.
struct Question {
    request: u16,
    body: Vec<u8>,
    asks: NetmapRequest,
    reply: NetmapReply,
    answer: Vec<u8>,
}

fn questions() -> Vec<Question> {
    let name = || String::from("vale0:a");
    let sizes = PortSizes { tx_slots: 1, rx_slots: 2, tx_rings: 3, rx_rings: 4, ..PortSizes::default() };
    let register = RegisterBody { mode: 3, ring_id: 1, mem_id: 2, flags: 5, ..RegisterBody::default() };
    let polling = PollingBody { mode: 2, first_cpu: 1, cpus: 3, padding: 0 };
    vec![
        Question {
            request: request_type::PORT_INFO_GET,
            body: PortInfoBody { sizes, mem_id: 6, ..PortInfoBody::default() }.as_bytes().to_vec(),
            asks: NetmapRequest::PortInfo { name: name(), sizes, mem_id: 6 },
            reply: NetmapReply::PortInfo { memory_bytes: 1 << 33, sizes: BOUND_SIZES, mem_id: 7 },
            answer: PortInfoBody { memory_bytes: 1 << 33, sizes: BOUND_SIZES, mem_id: 7, padding: [0; 3] }
                .as_bytes()
                .to_vec(),
        },
        Question {
            request: request_type::VALE_ATTACH,
            body: AttachBody { register, ..AttachBody::default() }.as_bytes().to_vec(),
            asks: NetmapRequest::ValeAttach { name: name(), mode: 3, ring_id: 1, mem_id: 2 },
            reply: NetmapReply::PortIndex(5),
            answer: AttachBody { register, port_index: 5, padding: 0 }.as_bytes().to_vec(),
        },
        Question {
            request: request_type::VALE_DETACH,
            body: DetachBody::default().as_bytes().to_vec(),
            asks: NetmapRequest::ValeDetach { name: name() },
            reply: NetmapReply::PortIndex(5),
            answer: DetachBody { port_index: 5, padding: 0 }.as_bytes().to_vec(),
        },
        Question {
            request: request_type::PORT_HDR_SET,
            body: PortHeaderBody { bytes: 12, padding: 0 }.as_bytes().to_vec(),
            asks: NetmapRequest::PortHeaderSet { name: name(), bytes: 12 },
            reply: NetmapReply::HeaderBytes(12),
            answer: PortHeaderBody { bytes: 12, padding: 0 }.as_bytes().to_vec(),
        },
        Question {
            request: request_type::PORT_HDR_GET,
            body: PortHeaderBody { bytes: 99, padding: 0 }.as_bytes().to_vec(),
            asks: NetmapRequest::PortHeaderGet { name: name() },
            reply: NetmapReply::HeaderBytes(10),
            answer: PortHeaderBody { bytes: 10, padding: 0 }.as_bytes().to_vec(),
        },
        Question {
            request: request_type::VALE_NEWIF,
            body: NewInterfaceBody {
                tx_slots: 1,
                rx_slots: 2,
                tx_rings: 3,
                rx_rings: 4,
                mem_id: 6,
                padding: 0,
            }
            .as_bytes()
            .to_vec(),
            asks: NetmapRequest::ValeNewInterface { name: name(), sizes, mem_id: 6 },
            reply: NetmapReply::PortInfo { memory_bytes: 1, sizes: BOUND_SIZES, mem_id: 7 },
            answer: NewInterfaceBody {
                tx_slots: 512,
                rx_slots: 256,
                tx_rings: 2,
                rx_rings: 3,
                mem_id: 7,
                padding: 0,
            }
            .as_bytes()
            .to_vec(),
        },
        Question {
            request: request_type::VALE_DELIF,
            body: Vec::new(),
            asks: NetmapRequest::ValeDeleteInterface { name: name() },
            reply: NetmapReply::Done,
            answer: Vec::new(),
        },
        Question {
            request: request_type::VALE_POLLING_ENABLE,
            body: polling.as_bytes().to_vec(),
            asks: NetmapRequest::PollingEnable { name: name(), mode: 2, first_cpu: 1, cpus: 3 },
            reply: NetmapReply::Done,
            answer: polling.as_bytes().to_vec(),
        },
        Question {
            request: request_type::VALE_POLLING_DISABLE,
            body: polling.as_bytes().to_vec(),
            asks: NetmapRequest::PollingDisable { name: name() },
            reply: NetmapReply::Done,
            answer: polling.as_bytes().to_vec(),
        },
        Question {
            request: request_type::POOLS_INFO_GET,
            body: PoolsBody { mem_id: 6, memory_bytes: 1, ..PoolsBody::default() }.as_bytes().to_vec(),
            asks: NetmapRequest::PoolsInfo { name: name(), mem_id: 6 },
            reply: NetmapReply::Pools(POOLS),
            answer: PoolsBody::from(POOLS).as_bytes().to_vec(),
        },
    ]
}

fn send_question(
    device: &RecordingDescriptor,
    question: &Question,
    body: &mut [u64; 8],
) -> Result<(), Errno> {
    body.as_mut_bytes()[..question.body.len()].copy_from_slice(&question.body);
    let mut asked = header(question.request, "vale0:a");
    if question.body.is_empty() { send_bare(device, &mut asked) } else { send(device, &mut asked, body) }
}

#[test]
fn requests_reach_the_daemon_and_replies_fill_the_body() {
    for question in questions() {
        let device = RecordingDescriptor::replying(question.reply.clone());
        let mut body = [u64::MAX; 8];
        assert_eq!(send_question(&device, &question, &mut body), Ok(()), "{}", question.request);
        assert_eq!(device.asked_daemon(), question.asks);
        let (answer, behind) = body.as_bytes().split_at(question.answer.len());
        assert_eq!(answer, question.answer, "{}", question.request);
        assert!(behind.iter().all(|&byte| byte == 0xFF), "{}", question.request);
    }
}

#[test]
fn refused_requests_leave_the_body_unchanged() {
    let wrong = |request| {
        if request == request_type::VALE_DELIF { NetmapReply::PortIndex(3) } else { NetmapReply::Done }
    };
    for question in questions() {
        let mut outcomes = vec![(Err(Errno::SRCH), Errno::SRCH)];
        if question.reply != NetmapReply::Done {
            outcomes.push((Ok(wrong(question.request)), Errno::IO));
        }
        for (reply, errno) in outcomes {
            let device = RecordingDescriptor::new();
            *device.reply.borrow_mut() = reply;
            let mut body = [u64::MAX; 8];
            assert_eq!(send_question(&device, &question, &mut body), Err(errno), "{}", question.request);
            assert_eq!(body.as_bytes()[..question.body.len()], question.body, "{}", question.request);
        }
    }
}

#[test]
fn a_list_answers_in_the_name_too() {
    let reply = NetmapReply::Listed { name: "vale3:b".into(), switch_index: 3, port_index: 4 };
    let device = RecordingDescriptor::replying(reply);
    let mut asked = header(request_type::VALE_LIST, "");
    let mut body = ListBody { switch_index: 1, port_index: 2, padding: 0 };
    assert_eq!(send(&device, &mut asked, &mut body), Ok(()));
    let question = NetmapRequest::ValeList { name: String::new(), switch_index: 1, port_index: 2 };
    assert_eq!(device.asked_daemon(), question);
    assert_eq!(body, ListBody { switch_index: 3, port_index: 4, padding: 0 });
    assert_eq!(asked.name, header(0, "vale3:b").name);
    *device.reply.borrow_mut() = Err(Errno::NOENT);
    let before = asked;
    assert_eq!(send(&device, &mut asked, &mut body), Err(Errno::NOENT));
    assert_eq!(asked, before);
}

#[test]
fn an_unwritable_reply_is_a_fault() {
    static READ_ONLY: PortHeaderBody = PortHeaderBody { bytes: 1, padding: 0 };
    let device = RecordingDescriptor::replying(NetmapReply::HeaderBytes(0));
    let mut asked = header(request_type::PORT_HDR_GET, "vale0:a");
    asked.body = (&raw const READ_ONLY).expose_provenance() as u64;
    assert_eq!(send_bare(&device, &mut asked), Err(Errno::FAULT));
}

#[test]
fn a_sync_loop_is_stopped() {
    let device = RecordingDescriptor::new();
    assert_eq!(send_bare(&device, &mut header(request_type::SYNC_KLOOP_STOP, "")), Ok(()));
    assert_eq!(device.asked(), [Asked::StopLoop]);
}

#[test]
fn a_sync_loop_needs_a_binding_and_a_short_sleep() {
    let device = RecordingDescriptor::new();
    let start = |sleep_us| {
        let mut body = LoopStartBody { sleep_us, padding: 0 };
        send(&device, &mut header(request_type::SYNC_KLOOP_START, ""), &mut body)
    };
    assert_eq!(start(0), Err(Errno::NXIO));
    assert_eq!(start(1_000_001), Err(Errno::NXIO));
    device.rings.set(Some((1, 1)));
    assert_eq!(start(1_000_001), Err(Errno::INVAL));
    assert_eq!(device.asked(), []);
    assert_eq!(start(1_000_000), Ok(()));
    assert_eq!(device.asked(), [Asked::Loop(LoopPlan { sleep_us: 1_000_000, events: None, mode: 0 })]);
    for errno in [Errno::INVAL, Errno::BUSY] {
        device.looped.set(Err(LoopError::Request(errno)));
        assert_eq!(start(0), Err(errno));
    }
}

#[test]
fn bodies_are_read_at_any_alignment() {
    let device = RecordingDescriptor::new();
    let mut memory = [0_u8; 200];
    let start = address(&mut memory) + 1;
    let mut asked = header(request_type::REGISTER, "vale0:a");
    asked.body = start as u64 + 100;
    memory[1..89].copy_from_slice(asked.as_bytes());
    assert_eq!(control(&device, u64::from(NIOCCTRL), start), Ok(()));
    assert_eq!(RegisterBody::read_from_bytes(&memory[101..157]).unwrap().mem_id, 7);
}
