//! Tests of options: the walk along the list, statuses, and each option's effect.

use ringroad_control::netmap::{ExternalMemory, Offsets};
use zerocopy::IntoBytes;

use super::current::{header, send, send_bare};
use super::*;
use crate::abi::{
    CsbOption, EventPair, ExternalMemoryOption, ListedOption, LoopModeOption, LoopStartBody, OffsetsOption,
    OptionHeader, PoolsBody, RegisterBody, option_type, request_type,
};

const UNSUPPORTED: u32 = libc::EOPNOTSUPP as u32;
const INVALID: u32 = libc::EINVAL as u32;

fn option<T>(option_type: u32, body: T) -> ListedOption<T> {
    let header = OptionHeader { option_type, status: 0xDEAD, ..OptionHeader::default() };
    ListedOption { header, body }
}

fn plain(option_type: u32) -> OptionHeader {
    OptionHeader { option_type, status: 0xDEAD, ..OptionHeader::default() }
}

fn csb() -> ListedOption<CsbOption> {
    option(option_type::CSB, CsbOption { to_provider: 64, to_program: 128 })
}

/// Sends a binding whose list of options begins at `first`.
fn register(device: &RecordingDescriptor, first: usize) -> Result<(), Errno> {
    let mut asked = header(request_type::REGISTER, "vale0:a");
    asked.options = first as u64;
    let mut body = RegisterBody::default();
    let before = body;
    let outcome = send(device, &mut asked, &mut body);
    assert_eq!(outcome.is_err(), body == before, "bodies are written where all went well");
    assert_eq!(asked.options, first as u64);
    outcome
}

#[test]
fn unhandled_options_fail_a_binding() {
    for left_over in [option_type::SYNC_KLOOP_MODE, 6, 1234, u32::MAX] {
        let device = RecordingDescriptor::new();
        let mut option = option(left_over, LoopModeOption::default());
        assert_eq!(register(&device, address(&mut option)), Err(Errno::OPNOTSUPP), "{left_over}");
        assert_eq!(option.header.status, UNSUPPORTED, "{left_over}");
        assert_eq!(device.asked(), [], "nothing is bound");
    }
}

#[test]
fn other_requests_ignore_unhandled_options() {
    let device = RecordingDescriptor::new();
    let mut second = plain(1234);
    let mut first = csb();
    first.header.next = address(&mut second) as u64;
    let mut asked = header(request_type::VALE_DELIF, "p");
    asked.options = address(&mut first) as u64;
    assert_eq!(send_bare(&device, &mut asked), Ok(()));
    assert_eq!((first.header.status, second.status), (UNSUPPORTED, UNSUPPORTED));
    assert_eq!(first.header.next, address(&mut second) as u64);
}

#[test]
fn statuses_are_written_when_the_request_fails() {
    let device = RecordingDescriptor::new();
    *device.reply.borrow_mut() = Err(Errno::NXIO);
    let mut option = csb();
    let mut asked = header(request_type::VALE_DELIF, "p");
    asked.options = address(&mut option) as u64;
    assert_eq!(send_bare(&device, &mut asked), Err(Errno::NXIO));
    assert_eq!(option.header.status, UNSUPPORTED);
    asked.request_type = 99;
    option.header.status = 0;
    assert_eq!(send_bare(&device, &mut asked), Err(Errno::INVAL));
    assert_eq!(option.header.status, UNSUPPORTED);
}

#[test]
fn type_0_is_invalid() {
    let mut nothing = plain(0);
    let mut first = csb();
    first.header.next = address(&mut nothing) as u64;
    assert_eq!(register(&RecordingDescriptor::new(), address(&mut first)), Err(Errno::INVAL));
    assert_eq!((first.header.status, nothing.status), (UNSUPPORTED, INVALID));
}

#[test]
fn a_known_type_given_twice_is_invalid_in_both() {
    let device = RecordingDescriptor::new();
    let mut second = csb();
    let mut between = plain(77);
    let mut first = csb();
    between.next = address(&mut second) as u64;
    first.header.next = address(&mut between) as u64;
    assert_eq!(register(&device, address(&mut first)), Err(Errno::INVAL));
    let statuses = (first.header.status, between.status, second.header.status);
    assert_eq!(statuses, (INVALID, UNSUPPORTED, INVALID));
    assert_eq!(device.asked(), []);
}

#[test]
fn circular_lists_end() {
    let mut known = csb();
    known.header.next = address(&mut known) as u64;
    assert_eq!(register(&RecordingDescriptor::new(), address(&mut known)), Err(Errno::INVAL));
    assert_eq!(known.header.status, INVALID);
    let mut unknown = plain(1234);
    unknown.next = address(&mut unknown) as u64;
    assert_eq!(register(&RecordingDescriptor::new(), address(&mut unknown)), Err(Errno::MSGSIZE));
    assert_eq!(unknown.status, UNSUPPORTED);
}

#[test]
fn an_invalid_list_pointer_is_a_fault() {
    assert_eq!(register(&RecordingDescriptor::new(), 8), Err(Errno::FAULT));
    let mut first = csb();
    first.header.next = 8;
    assert_eq!(register(&RecordingDescriptor::new(), address(&mut first)), Err(Errno::FAULT));
    assert_eq!(first.header.status, UNSUPPORTED);
}

#[test]
fn the_size_of_a_list_is_limited() {
    // Unknown options take 32 bytes each: the 56 bytes of a binding leave room for 127 of them.
    for (count, outcome) in [(127, Errno::OPNOTSUPP), (128, Errno::MSGSIZE)] {
        let mut options = vec![plain(1234); count];
        let start = options.as_mut_ptr().expose_provenance();
        for (index, option) in options.iter_mut().enumerate().take(count - 1) {
            option.next = (start + (index + 1) * size_of::<OptionHeader>()) as u64;
        }
        assert_eq!(register(&RecordingDescriptor::new(), start), Err(outcome), "{count}");
    }
    // The largest single option with its body takes 56 + 24 + 4016 bytes.
    for (bytes, outcome) in
        [(24 + 4016, Errno::OPNOTSUPP), (24 + 4017, Errno::MSGSIZE), (u64::MAX, Errno::MSGSIZE)]
    {
        let mut large = option(option_type::SYNC_KLOOP_EVENTFDS, [0_u8; 4024]);
        large.header.bytes = bytes;
        assert_eq!(register(&RecordingDescriptor::new(), address(&mut large)), Err(outcome), "{bytes}");
    }
}

#[test]
fn csb_is_part_of_a_binding() {
    let device = RecordingDescriptor::new();
    let mut option = csb();
    assert_eq!(register(&device, address(&mut option)), Ok(()));
    assert_eq!(option.header.status, 0);
    match device.asked().as_slice() {
        [Asked::Register(request, None, Some(csb))] => {
            assert!(request.needs_exclusive);
            assert_eq!(*csb, CsbOption { to_provider: 64, to_program: 128 });
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_options_errors_are_in_its_status() {
    for (errno, status) in
        [(Errno::INVAL, INVALID), (Errno::FAULT, libc::EFAULT as u32), (Errno::NXIO, UNSUPPORTED)]
    {
        let device = RecordingDescriptor::new();
        *device.registered.borrow_mut() = Err(errno);
        let mut option = csb();
        assert_eq!(register(&device, address(&mut option)), Err(errno));
        assert_eq!(option.header.status, status, "{errno}");
    }
}

#[test]
fn csb_is_enabled_later() {
    let device = RecordingDescriptor::new();
    let mut asked = header(request_type::CSB_ENABLE, "");
    assert_eq!(send_bare(&device, &mut asked), Err(Errno::INVAL), "without the option");
    assert_eq!(device.asked(), []);
    let mut option = csb();
    asked.options = address(&mut option) as u64;
    assert_eq!(send_bare(&device, &mut asked), Ok(()));
    assert_eq!(option.header.status, 0);
    let addresses = CsbOption { to_provider: 64, to_program: 128 };
    assert_eq!(device.asked(), [Asked::EnableCsb(addresses)]);
    for errno in [Errno::INVAL, Errno::FAULT, Errno::BUSY, Errno::NXIO] {
        device.enabled.set(Err(errno));
        assert_eq!(send_bare(&device, &mut asked), Err(errno));
        assert_eq!(option.header.status, errno.raw_os_error() as u32);
    }
}

#[test]
fn offsets_must_fit_their_bits() {
    let refused = Err(Errno::INVAL);
    for (max, initial, bits, outcome) in [
        (100, 50, 0, Ok(())),
        (u64::MAX, 0, 64, Ok(())),
        (255, 255, 8, Ok(())),
        (256, 0, 8, refused),
        (100, 101, 0, refused),
        (0, 0, 65, refused),
    ] {
        let device = RecordingDescriptor::new();
        let mut option =
            option(option_type::OFFSETS, OffsetsOption { max, initial, bits, ..OffsetsOption::default() });
        assert_eq!(register(&device, address(&mut option)), outcome, "{max} {initial} {bits}");
        if outcome.is_ok() {
            assert_eq!(option.header.status, 0);
            assert_eq!(device.asked_register().offsets, Some(Offsets { max, initial, bits }));
        } else {
            assert_eq!(option.header.status, INVALID);
            assert_eq!(device.asked(), []);
        }
    }
}

#[test]
fn unsupported_offsets_are_reported() {
    for errno in [Errno::OPNOTSUPP, Errno::BUSY, Errno::INVAL] {
        let device = RecordingDescriptor::new();
        *device.registered.borrow_mut() = Err(errno);
        let mut option = option(option_type::OFFSETS, OffsetsOption { max: 64, ..OffsetsOption::default() });
        assert_eq!(register(&device, address(&mut option)), Err(errno));
        assert_eq!(option.header.status, errno.raw_os_error() as u32);
    }
}

/// Page of private memory.
#[repr(C, align(4096))]
struct Page([u8; 4096]);

fn external_memory(memory: usize) -> ListedOption<ExternalMemoryOption> {
    let pools = PoolsBody { memory_bytes: 4096, ..PoolsBody::default() };
    option(option_type::EXTMEM, ExternalMemoryOption { address: memory as u64, pools })
}

#[test]
fn external_memory_is_identified_and_its_geometry_returned() {
    let device = RecordingDescriptor::new();
    *device.registered.borrow_mut() = Ok(Bound { external_memory: Some(POOLS), ..bound() });
    let mut page = Box::new(Page([0; 4096]));
    let memory = address(&mut page.0);
    let mut option = external_memory(memory);
    assert_eq!(register(&device, address(&mut option)), Ok(()));
    assert_eq!(option.header.status, 0);
    assert_eq!(option.body.address, memory as u64, "pointers come back unchanged");
    assert_eq!(option.body.pools, POOLS.into());
    let expected = ExternalMemory {
        identity: [u64::from(std::process::id()), 0, memory as u64],
        pools: Pools { memory_bytes: 4096, ..Pools::default() },
    };
    match device.asked().as_slice() {
        [Asked::Register(request, Some(address), None)] => {
            assert_eq!((request.external_memory, *address), (Some(expected), memory));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn invalid_external_memory_is_reported_and_left_unchanged() {
    let mut page = Box::new(Page([0; 4096]));
    let memory = address(&mut page.0);
    for (memory, registered, errno) in [
        (memory + 64, Ok(bound()), Errno::INVAL),
        (4096, Ok(bound()), Errno::FAULT),
        (memory, Err(Errno::INVAL), Errno::INVAL),
        (memory, Err(Errno::NOMEM), Errno::NOMEM),
    ] {
        let device = RecordingDescriptor::new();
        *device.registered.borrow_mut() = registered;
        let mut option = external_memory(memory);
        let before = option.body;
        assert_eq!(register(&device, address(&mut option)), Err(errno));
        assert_eq!(option.header.status, errno.raw_os_error() as u32);
        assert_eq!(option.body.as_bytes(), before.as_bytes());
    }
}

/// Starts a loop on two rings with `pairs` eventfds, and direct tx.
fn start_loop(device: &RecordingDescriptor, bytes: u64) -> (Result<(), Errno>, u32, u32) {
    device.rings.set(Some((1, 1)));
    let mut mode =
        option(option_type::SYNC_KLOOP_MODE, LoopModeOption { mode: 1, ..LoopModeOption::default() });
    let pairs = [EventPair { kick: 5, interrupt: -1 }, EventPair { kick: 6, interrupt: 7 }];
    let mut events = option(option_type::SYNC_KLOOP_EVENTFDS, pairs);
    events.header.bytes = bytes;
    events.header.next = address(&mut mode) as u64;
    let mut asked = header(request_type::SYNC_KLOOP_START, "");
    asked.options = address(&mut events) as u64;
    let outcome = send(device, &mut asked, &mut LoopStartBody { sleep_us: 3, padding: 0 });
    (outcome, events.header.status, mode.header.status)
}

#[test]
fn a_sync_loop_has_eventfds_and_a_mode() {
    let device = RecordingDescriptor::new();
    assert_eq!(start_loop(&device, 40), (Ok(()), 0, 0));
    let events = vec![EventPair { kick: 5, interrupt: -1 }, EventPair { kick: 6, interrupt: 7 }];
    assert_eq!(device.asked(), [Asked::Loop(LoopPlan { sleep_us: 3, events: Some(events), mode: 1 })]);
}

#[test]
fn eventfd_lists_of_wrong_size_are_invalid() {
    for bytes in [0, 24, 32, 39] {
        let device = RecordingDescriptor::new();
        assert_eq!(start_loop(&device, bytes), (Err(Errno::INVAL), INVALID, UNSUPPORTED), "{bytes}");
        assert_eq!(device.asked(), []);
    }
}

#[test]
fn sync_loop_errors_are_in_the_faulty_options_status() {
    let bad = libc::EBADF as u32;
    for (error, errno, events, mode) in [
        (LoopError::Request(Errno::BUSY), Errno::BUSY, UNSUPPORTED, UNSUPPORTED),
        (LoopError::EventsOption(Errno::BADF), Errno::BADF, bad, UNSUPPORTED),
        (LoopError::ModeOption(Errno::INVAL), Errno::INVAL, 0, INVALID),
    ] {
        let device = RecordingDescriptor::new();
        device.looped.set(Err(error));
        assert_eq!(start_loop(&device, 40), (Err(errno), events, mode), "{error:?}");
    }
}
