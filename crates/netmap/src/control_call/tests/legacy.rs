//! Tests of legacy calls: their requests, and the replies.

use super::*;
use crate::abi::{LegacyRequest, register_flag};

fn legacy(name: &str) -> LegacyRequest {
    let mut request = LegacyRequest { version: 14, ..LegacyRequest::default() };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    request
}

fn register(device: &RecordingDescriptor, request: &mut LegacyRequest) -> Result<(), Errno> {
    control(device, u64::from(NIOCREGIF), address(request))
}

fn information(device: &RecordingDescriptor, request: &mut LegacyRequest) -> Result<(), Errno> {
    control(device, u64::from(NIOCGINFO), address(request))
}

#[test]
fn versions_from_14_on_are_accepted() {
    for (version, outcome) in [(13, Err(Errno::INVAL)), (14, Ok(())), (15, Ok(())), (1000, Ok(()))] {
        let device = RecordingDescriptor::new();
        let mut request = LegacyRequest { version, ..legacy("vale0:a") };
        assert_eq!(register(&device, &mut request), outcome, "{version}");
        assert_eq!(request.version, version);
    }
    let mut old = LegacyRequest { version: 13, ..legacy("vale0:a") };
    assert_eq!(information(&RecordingDescriptor::new(), &mut old), Err(Errno::INVAL));
}

#[test]
fn a_binding_and_its_reply_are_translated() {
    let device = RecordingDescriptor::new();
    let mut request = LegacyRequest {
        tx_slots: 1,
        rx_slots: 2,
        tx_rings: 3,
        rx_rings: 4,
        ring_id: 0x9002,
        argument_1: 77,
        argument_2: 8,
        argument_3: 10,
        flags: 0x804,
        ..legacy("vale0:a")
    };
    let before = request;
    assert_eq!(register(&device, &mut request), Ok(()));
    let asked = Register {
        name: "vale0:a".into(),
        sizes: PortSizes { tx_slots: 1, rx_slots: 2, tx_rings: 3, rx_rings: 4, ..PortSizes::default() },
        mem_id: 8,
        ring_id: 2,
        mode: 4,
        extra_buffers: 10,
        flags: 0x3_0800,
        offsets: None,
        external_memory: None,
        needs_exclusive: false,
    };
    assert_eq!(device.asked_register(), asked);
    let answer = LegacyRequest {
        offset: 192,
        memory_bytes: bound().geometry.pools_bytes() as u32,
        tx_slots: 512,
        rx_slots: 256,
        tx_rings: 2,
        rx_rings: 3,
        argument_2: 7,
        argument_3: 11,
        ..before
    };
    assert_eq!(request, answer);
}

#[test]
fn requests_of_2012_need_no_version_and_know_no_commands() {
    let device = RecordingDescriptor::new();
    let spare = LegacyRequest {
        command: 1,
        argument_1: 2,
        argument_2: 3,
        argument_3: 4,
        flags: 0x804,
        ..LegacyRequest::default()
    };
    let mut request = LegacyRequest { ring_id: 0xD002, version: 3, name: legacy("vale0:a").name, ..spare };
    assert_eq!(control(&device, u64::from(NIOCREGIF_2012), address(&mut request)), Ok(()));
    let asked = device.asked_register();
    assert_eq!((asked.name.as_str(), asked.mode, asked.ring_id, asked.mem_id), ("vale0:a", 4, 2, 0));
    assert_eq!((asked.extra_buffers, asked.flags), (0, register_flag::OF_2012 | register_flag::NO_TX_POLL));
    assert_eq!((request.offset, request.tx_slots, request.rx_rings, request.version), (192, 512, 3, 3));

    let device = RecordingDescriptor::replying(NetmapReply::PortInfo {
        memory_bytes: 4096,
        sizes: BOUND_SIZES,
        mem_id: 7,
    });
    let mut request = LegacyRequest { name: legacy("vale0:a").name, ..spare };
    assert_eq!(control(&device, u64::from(NIOCGINFO_2012), address(&mut request)), Ok(()));
    let asks = NetmapRequest::PortInfo { name: "vale0:a".into(), sizes: PortSizes::default(), mem_id: 0 };
    assert_eq!(device.asked(), [Asked::Daemon(asks), Asked::ExpectMapping("vale0:a".into())]);
    assert_eq!((request.memory_bytes, request.rx_slots), (4096, 256));
}

#[test]
fn a_program_of_2012_that_mapped_first_gets_the_binding_that_the_mapping_made() {
    let bind = |ring_id, device: &RecordingDescriptor| {
        let mut request = LegacyRequest { ring_id, name: legacy("vale0:a").name, ..LegacyRequest::default() };
        (control(device, u64::from(NIOCREGIF_2012), address(&mut request)), request)
    };
    let device = RecordingDescriptor::new();
    device.rings.set(Some((2, 3)));
    device.early.set(Some(bound()));
    let (outcome, request) = bind(0, &device);
    assert_eq!((outcome, request.offset, request.tx_rings, request.rx_rings), (Ok(()), 192, 2, 3));
    assert_eq!(device.asked(), []);
    assert_eq!(bind(0, &device).0, Err(Errno::BUSY), "once");
    // The mapping has bound all rings.
    device.early.set(Some(bound()));
    assert_eq!(bind(0x4001, &device).0, Err(Errno::BUSY));
}

#[test]
fn modes_come_from_the_flags_or_from_the_ring() {
    for (flags, ring_id, name, mode, ring, translated) in [
        (0, 0, "p", 1, 0, 0),
        (0, 0x2003, "p", 2, 3, 0),
        (0, 0x4003, "p", 4, 3, 0),
        (0, 0x1000, "p", 1, 0, 0x2_0000),
        (0, 0x8000, "p", 1, 0, 0x1_0000),
        (1, 0x4003, "p", 1, 3, 0),
        (2, 0, "p", 2, 0, 0),
        (0x103, 0, "p", 3, 0, 0x100),
        (5, 7, "p{7", 1, 0, 0),
        (6, 0x1007, "p}7", 1, 0, 0x2_0000),
        (7, 0, "p", 7, 0, 0),
    ] {
        let device = RecordingDescriptor::new();
        let mut request = LegacyRequest { flags, ring_id, ..legacy("p") };
        assert_eq!(register(&device, &mut request), Ok(()));
        let asked = device.asked_register();
        let comes_to = (asked.name.as_str(), asked.mode, asked.ring_id, asked.flags);
        assert_eq!(comes_to, (name, mode, ring, translated), "{flags:#x} {ring_id:#x}");
        assert_eq!((request.flags, request.ring_id), (flags, ring_id), "they stay as given");
        assert_eq!(request.name, legacy("p").name);
    }
}

#[test]
fn failed_calls_leave_the_structure_unchanged() {
    for command in [0, 1, 2, 5, 6, 7, 10, 11, 12] {
        let device = RecordingDescriptor::new();
        *device.registered.borrow_mut() = Err(Errno::NXIO);
        *device.reply.borrow_mut() = Err(Errno::NXIO);
        let mut request = LegacyRequest { command, tx_slots: 5, ..legacy("vale0:a") };
        let before = request;
        assert_eq!(register(&device, &mut request), Err(Errno::NXIO), "{command}");
        assert_eq!(request, before, "{command}");
        let outcome = information(&device, &mut request);
        assert_eq!((outcome, request), (Err(Errno::NXIO), before), "{command}");
    }
    let device = RecordingDescriptor::new();
    device.rings.set(Some((1, 1)));
    assert_eq!(register(&device, &mut legacy("vale0:a")), Err(Errno::BUSY));
}

#[test]
fn unavailable_commands_are_invalid() {
    for command in [3, 4, 8, 9, 13, u16::MAX] {
        let device = RecordingDescriptor::new();
        let mut request = LegacyRequest { command, ..legacy("vale0:a") };
        assert_eq!(register(&device, &mut request), Err(Errno::INVAL), "{command}");
        assert_eq!(device.asked(), []);
    }
}

#[test]
fn commands_reach_the_daemon() {
    let name = || String::from("vale0:a");
    let sizes = PortSizes { tx_slots: 1, rx_slots: 2, tx_rings: 3, rx_rings: 4, ..PortSizes::default() };
    let given = LegacyRequest {
        tx_slots: 1,
        rx_slots: 2,
        tx_rings: 3,
        rx_rings: 4,
        argument_1: 12,
        argument_2: 6,
        ..legacy("vale0:a")
    };
    let made =
        LegacyRequest { tx_slots: 512, rx_slots: 256, tx_rings: 2, rx_rings: 3, argument_2: 7, ..given };
    let attach = |mode| NetmapRequest::ValeAttach { name: name(), mode, ring_id: 0, mem_id: 6 };
    let polling = |mode| NetmapRequest::PollingEnable { name: name(), mode, first_cpu: 3, cpus: 12 };
    let polled = LegacyRequest { ring_id: 3, ..given };
    let header = NetmapReply::HeaderBytes(10);
    let info = NetmapReply::PortInfo { memory_bytes: 1, sizes: BOUND_SIZES, mem_id: 7 };
    for (command, given, asks, reply, answer) in [
        (1, given, attach(1), NetmapReply::PortIndex(9), given),
        (
            1,
            LegacyRequest { argument_1: 1, ..given },
            attach(3),
            NetmapReply::PortIndex(9),
            LegacyRequest { argument_1: 1, ..given },
        ),
        (2, given, NetmapRequest::ValeDetach { name: name() }, NetmapReply::PortIndex(9), given),
        (
            5,
            given,
            NetmapRequest::PortHeaderSet { name: name(), bytes: 12 },
            NetmapReply::HeaderBytes(12),
            given,
        ),
        (
            12,
            given,
            NetmapRequest::PortHeaderGet { name: name() },
            header,
            LegacyRequest { argument_1: 10, ..given },
        ),
        (6, given, NetmapRequest::ValeNewInterface { name: name(), sizes, mem_id: 6 }, info, made),
        (7, given, NetmapRequest::ValeDeleteInterface { name: name() }, NetmapReply::Done, given),
        (
            10,
            LegacyRequest { flags: 1, ..polled },
            polling(1),
            NetmapReply::Done,
            LegacyRequest { flags: 1, ..polled },
        ),
        (
            10,
            LegacyRequest { flags: 4, ..polled },
            polling(2),
            NetmapReply::Done,
            LegacyRequest { flags: 4, ..polled },
        ),
        (10, polled, polling(0), NetmapReply::Done, polled),
        (11, polled, NetmapRequest::PollingDisable { name: name() }, NetmapReply::Done, polled),
    ] {
        let device = RecordingDescriptor::replying(reply);
        let mut request = LegacyRequest { command, ..given };
        assert_eq!(register(&device, &mut request), Ok(()), "{command}");
        assert_eq!(device.asked_daemon(), asks);
        assert_eq!(request, LegacyRequest { command, ..answer }, "{command}");
    }
}

#[test]
fn ports_are_described_and_listed() {
    let sizes = BOUND_SIZES;
    let device = RecordingDescriptor::replying(NetmapReply::PortInfo {
        memory_bytes: 0x1_0000_1000,
        sizes,
        mem_id: 7,
    });
    let mut request = LegacyRequest { argument_2: 6, ..legacy("vale0:a") };
    assert_eq!(information(&device, &mut request), Ok(()));
    let asks = NetmapRequest::PortInfo { name: "vale0:a".into(), sizes: PortSizes::default(), mem_id: 6 };
    assert_eq!(device.asked_daemon(), asks);
    let told = (request.memory_bytes, request.tx_slots, request.rx_slots, request.tx_rings, request.rx_rings);
    assert_eq!((told, request.argument_2), ((0x1000, 512, 256, 2, 3), 7), "the size is cut to 32 bits");

    let name = String::from("vale3:a-very-long-name");
    let device = RecordingDescriptor::replying(NetmapReply::Listed { name, switch_index: 3, port_index: 4 });
    let mut request = LegacyRequest { command: 4, argument_1: 1, argument_2: 2, ..legacy("") };
    assert_eq!(information(&device, &mut request), Ok(()));
    let asks = NetmapRequest::ValeList { name: String::new(), switch_index: 1, port_index: 2 };
    assert_eq!(device.asked_daemon(), asks);
    assert_eq!((request.argument_1, request.argument_2), (3, 4));
    assert_eq!(&request.name, b"vale3:a-very-lo\0");
}
