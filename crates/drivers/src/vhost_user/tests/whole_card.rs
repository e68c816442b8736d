//! Tests with a front end that emulates no card, as user-mode Linux: it sends what its driver does, and this side is
//! the whole card.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;

use ringroad_control::fd_passing;
use ringroad_ring::eventfd;

use super::*;

const STATION: [u8; 6] = [2, 0, 0, 0, 0, 0x77];
const CARD: u64 = MODERN
    | NET_MAC
    | NET_STATUS
    | NET_CTRL_VQ
    | NET_CTRL_RX
    | NET_CTRL_RX_EXTRA
    | NET_CTRL_VLAN
    | NET_CTRL_MAC_ADDR
    | NET_GUEST_ANNOUNCE;
/// Places of a command and of the byte for its answer in the memory.
const COMMAND: u64 = 0xf_0000;
const ANSWER: u64 = 0xf_8000;
const NO_ANSWER: u8 = 0xee;
const LINK_UP: u8 = 1;
const ANNOUNCE: u8 = 2;

const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_OWNER: u32 = 3;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const GET_PROTOCOL_FEATURES: u32 = 15;
const SET_PROTOCOL_FEATURES: u32 = 16;
const SET_VRING_ENABLE: u32 = 18;
const SET_BACKEND_REQ_FD: u32 = 21;
const GET_CONFIG: u32 = 24;
const SET_CONFIG: u32 = 25;
const SET_STATUS: u32 = 39;
const GET_STATUS: u32 = 40;

struct Guest {
    folder: tempfile::TempDir,
    options: String,
    device: Device,
    queues: Vec<Box<dyn PortQueue>>,
    socket: UnixStream,
    channel: UnixStream,
    file: OwnedFd,
    calls: Vec<UnixStream>,
    kicks: Vec<OwnedFd>,
    /// The front end's number of the control queue, and the number of commands in it so far.
    control: u64,
    commands: u16,
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn longs(longs: &[u64]) -> Vec<u8> {
    longs.iter().flat_map(|long| long.to_ne_bytes()).collect()
}

impl Guest {
    /// A guest whose driver has acknowledged `features`, at a port with `pairs` pairs of queues.
    fn new(features: u64, pairs: u64) -> Self {
        let own = if features & NET_MQ == 0 { 1 } else { pairs };
        let mut guest = Self::with_rings(features, pairs, 2 * own);
        if features & NET_CTRL_VQ != 0 {
            guest.start(2 * own);
        }
        guest
    }

    /// A guest whose front end has set up the first `rings` rings.
    fn with_rings(features: u64, pairs: u64, rings: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = format!("@mac=02:00:00:00:00:77,queues={pairs}");
        let mut device = crate::test_queue::open(&format!("{}{options}", name(&folder)));
        let queues = std::mem::take(&mut device.queues);
        let socket = UnixStream::connect(folder.path().join("s")).unwrap();
        socket.set_nonblocking(true).unwrap();
        let (channel, theirs) = UnixStream::pair().unwrap();
        channel.set_nonblocking(true).unwrap();
        let file = memory(MEMORY_BYTES);
        let (calls, kicks) = (Vec::new(), Vec::new());
        let control = rings;
        let mut guest = Self {
            folder,
            options,
            device,
            queues,
            socket,
            channel,
            file,
            calls,
            kicks,
            control,
            commands: 0,
        };
        guest.send((SET_OWNER, 1), &[], &[]);
        let offered = guest.number(GET_FEATURES);
        assert_eq!(offered & features, features, "{offered:#x}");
        let protocol = Protocol::REPLY_ACK | Protocol::BACKEND_REQ | Protocol::CONFIG | Protocol::STATUS;
        let offered = guest.number(GET_PROTOCOL_FEATURES);
        assert_eq!(offered & protocol.bits(), protocol.bits(), "{offered:#x}");
        guest.ask(SET_PROTOCOL_FEATURES, &longs(&[protocol.bits()]), &[]);
        guest.ask(SET_BACKEND_REQ_FD, &[], &[theirs.as_fd()]);
        guest.ask(SET_FEATURES, &longs(&[features | PROTOCOL_FEATURES]), &[]);
        // The table has room for two regions, and one region.
        let table = [words(&[1, 0]), longs(&[GUEST, MEMORY_BYTES, USER, 0]), vec![0; 32]].concat();
        assert_eq!(table.len(), 72);
        let file = guest.file.try_clone().unwrap();
        guest.ask(SET_MEM_TABLE, &table, &[file.as_fd()]);
        (0..rings).for_each(|ring| guest.start(ring));
        guest
    }

    fn start(&mut self, ring: u64) {
        let (call, theirs) = UnixStream::pair().unwrap();
        call.set_nonblocking(true).unwrap();
        self.ask(SET_VRING_CALL, &longs(&[ring]), &[theirs.as_fd()]);
        let number = ring as u32;
        self.ask(SET_VRING_NUM, &words(&[number, ENTRIES.into()]), &[]);
        self.ask(SET_VRING_BASE, &words(&[number, 0]), &[]);
        let start = USER + ring * RING_BYTES;
        let addresses = longs(&[start, start + USED, start + AVAILABLE, u64::MAX]);
        self.ask(SET_VRING_ADDR, &[words(&[number, 0]), addresses].concat(), &[]);
        let kick = eventfd::create().unwrap();
        self.ask(SET_VRING_KICK, &longs(&[ring]), &[kick.as_fd()]);
        self.ask(SET_VRING_ENABLE, &words(&[number, 1]), &[]);
        self.calls.push(call);
        self.kicks.push(kick);
    }

    /// Lets the workers continue.
    fn serve(&mut self) {
        for queue in &mut self.queues {
            queue.sleeper().unwrap().prepare_sleep(false);
        }
        thread::yield_now();
    }

    /// Sends a message with these flags.
    fn send(&self, (request, flags): (u32, u32), payload: &[u8], files: &[BorrowedFd<'_>]) {
        let message = [words(&[request, flags, payload.len() as u32]), payload.to_vec()].concat();
        assert_eq!(fd_passing::send(&self.socket, &message, files).unwrap(), message.len());
    }

    /// Sends a message, and returns the payload of its answer.
    fn ask(&mut self, request: u32, payload: &[u8], files: &[BorrowedFd<'_>]) -> Vec<u8> {
        self.send((request, 1 | 8), payload, files);
        let mut answer = vec![0; 256];
        let bytes = loop {
            match (&self.socket).read(&mut answer) {
                Ok(bytes) => break bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.serve(),
                Err(error) => panic!("message {request}: {error}"),
            }
        };
        answer.truncate(bytes);
        assert_eq!(answer.get(..8), Some(&words(&[request, 1 | 4])[..]), "message {request}");
        let answer = answer.split_off(12);
        let is_query = matches!(request, GET_FEATURES | GET_PROTOCOL_FEATURES | GET_CONFIG | GET_STATUS);
        assert!(is_query || answer == [0; 8], "message {request} was refused");
        answer
    }

    fn number(&mut self, request: u32) -> u64 {
        u64::from_ne_bytes(self.ask(request, &[], &[]).try_into().unwrap())
    }

    /// The whole configuration of the card.
    fn config(&mut self) -> Vec<u8> {
        self.ask(GET_CONFIG, &[words(&[0, 12, 0]), vec![0; 12]].concat(), &[]).split_off(12)
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        rustix::io::pwrite(&self.file, bytes, at).unwrap();
    }

    fn word(&self, at: u64) -> u16 {
        let mut word = [0; 2];
        rustix::io::pread(&self.file, &mut word, at).unwrap();
        u16::from_le_bytes(word)
    }

    /// Writes descriptors from `first` on: address, bytes, flags. Each leads to the next if its flags say so.
    fn describe(&self, ring: u64, first: u16, descriptors: &[(u64, u32, u16)]) {
        for (number, &(address, bytes, flags)) in (first..).zip(descriptors) {
            let mut descriptor = address.to_le_bytes().to_vec();
            descriptor.extend(bytes.to_le_bytes());
            descriptor.extend([flags, number + 1].map(u16::to_le_bytes).concat());
            self.write(ring * RING_BYTES + 16 * u64::from(number), &descriptor);
        }
    }

    /// Makes the chain that begins at descriptor `head` available, and kicks.
    fn offer(&self, ring: u64, head: u16) {
        let start = ring * RING_BYTES;
        let index = self.word(start + AVAILABLE + 2);
        self.write(start + AVAILABLE + 4 + 2 * u64::from(index % ENTRIES), &head.to_le_bytes());
        self.write(start + AVAILABLE + 2, &index.wrapping_add(1).to_le_bytes());
        eventfd::ring_own(
            &self.kicks[if ring == self.control { self.kicks.len() - 1 } else { ring as usize }],
        );
    }

    /// Sends a command, and returns its answer.
    fn command(&mut self, command: &[u8]) -> u8 {
        self.write(COMMAND, command);
        self.write(ANSWER, &[NO_ANSWER]);
        let (first, rest) = (command.len().min(2) as u32, command.len().saturating_sub(2) as u32);
        // The head and the data are separate pieces, as those of Linux.
        let mut chain = vec![(GUEST + COMMAND, first, DESC_NEXT)];
        if rest > 0 {
            chain.push((GUEST + COMMAND + 2, rest, DESC_NEXT));
        }
        chain.push((GUEST + ANSWER, 1, DESC_WRITE));
        self.describe(self.control, 0, &chain);
        self.offer(self.control, 0);
        self.commands += 1;
        while self.word(self.control * RING_BYTES + USED + 2) != self.commands {
            self.serve();
        }
        let mut answer = [0];
        rustix::io::pread(&self.file, &mut answer, ANSWER).unwrap();
        answer[0]
    }

    fn does(&mut self, command: &[u8]) -> bool {
        match self.command(command) {
            0 => true,
            1 => false,
            other => panic!("the answer to {command:?} is {other}"),
        }
    }

    /// Whether a frame to this address reaches the guest. Otherwise it must be filtered.
    fn gets(&mut self, to: [u8; 6], vlan: Option<u16>) -> bool {
        let mut frame = [to, [2, 0, 0, 0, 0, 9]].concat();
        frame.extend(vlan.iter().flat_map(|vlan| [[0x81, 0], vlan.to_be_bytes()].concat()));
        frame.resize(60, 0);
        let head = self.word(RECEIVE * RING_BYTES + AVAILABLE + 2) % ENTRIES;
        self.describe(RECEIVE, head, &[(GUEST + BUFFERS, 1600, DESC_WRITE)]);
        self.offer(RECEIVE, head);
        let delivery = deliver(&mut *self.queues[0], &[frame], 60);
        assert_eq!(delivery.frames + delivery.dropped.of(DropCause::Filtered), 1);
        delivery.frames == 1
    }

    fn peer(&self) -> crate::peer::watch::PeerStatus {
        self.device.peer.as_ref().unwrap().status()
    }
}

#[test]
fn a_front_end_that_emulates_no_card_gets_a_whole_one() {
    let mut guest = Guest::new(CARD, 1);
    let [config, status] = [guest.config(), vec![LINK_UP | ANNOUNCE, 0, 1, 0, 0, 0]];
    assert_eq!(config, [STATION.to_vec(), status].concat());
    assert_eq!(guest.peer().address.map(|address| address.octets()), Some(STATION));
    assert_eq!(guest.peer().active_queues, 1);
    assert!(guest.gets(STATION, None) && guest.gets([2, 0, 0, 0, 0, 1], Some(7)));
    // The driver reads its wake-ups from a socket.
    let mut signal = [0; 8];
    assert_eq!((&guest.calls[RECEIVE as usize]).read(&mut signal).unwrap(), 8);
    assert_eq!(u64::from_ne_bytes(signal), 1);
    guest.write(BUFFERS, &[[0; 12].to_vec(), b"from the guest".to_vec()].concat());
    guest.describe(TRANSMIT, 0, &[(GUEST + BUFFERS, 26, 0)]);
    guest.offer(TRANSMIT, 0);
    assert_eq!(take(&mut *guest.queues[0]), [b"from the guest"]);
    // The guest has announced itself.
    assert!(guest.does(&[3, 0]));
    assert_eq!(guest.config()[6], LINK_UP);
    assert_eq!(guest.number(GET_STATUS), 0);
    guest.ask(SET_STATUS, &longs(&[15]), &[]);
    assert_eq!(guest.number(GET_STATUS), 15);
    // Zero resets the card.
    guest.ask(SET_STATUS, &longs(&[0]), &[]);
    assert_eq!(guest.peer().active_queues, 0);
}

#[test]
fn the_driver_sets_the_frames_that_it_receives() {
    let mut guest = Guest::new(CARD, 1);
    let other = [2, 0, 0, 0, 0, 0x78];
    let group = [0x33, 0x33, 0, 0, 0, 1];
    assert!(guest.gets(other, None));
    assert!(guest.does(&[0, 0, 0]), "promiscuous mode off");
    assert!(guest.gets(STATION, None) && guest.gets([0xff; 6], None));
    assert!(!guest.gets(other, None) && !guest.gets(group, None));
    let lists = [&[1, 0, 1, 0, 0, 0][..], &other, &[1, 0, 0, 0], &group].concat();
    assert!(guest.does(&lists));
    assert!(guest.gets(other, None) && guest.gets(group, None));
    assert!(guest.does(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
    assert!(!guest.gets(STATION, Some(7)));
    assert!(guest.does(&[2, 0, 7, 0]) && guest.gets(STATION, Some(7)));
    assert!(guest.does(&[2, 1, 7, 0]) && !guest.gets(STATION, Some(7)));
    assert!(guest.does(&[0, 5, 1]) && !guest.gets([0xff; 6], None));
    // The new address counts at once, and users see it.
    assert!(guest.does(&[&[1, 1][..], &other].concat()));
    assert!(guest.gets(other, None) && !guest.gets(STATION, None));
    assert_eq!(guest.config()[..6], other);
    assert_eq!(guest.peer().address.map(|address| address.octets()), Some(other));
    assert!(guest.does(&[0, 0, 1]) && guest.gets([2, 0, 0, 0, 0, 9], Some(9)));
    // A driver that has not acknowledged the commands has no filter.
    let mut guest = Guest::new(MODERN | NET_CTRL_VQ, 1);
    assert!(!guest.does(&[0, 0, 0]) && !guest.does(&[&[1, 1][..], &other].concat()));
    assert!(guest.gets(other, Some(9)));
    // A front end that has the control queue itself may acknowledge the commands.
    let mut guest = Guest::new(CARD & !NET_CTRL_VQ, 1);
    assert!(guest.gets(other, Some(9)));
}

#[test]
fn the_driver_of_a_legacy_card_writes_its_address_into_the_configuration() {
    let write =
        |offset: u32, bytes: &[u8]| [words(&[offset, bytes.len() as u32, 0]), bytes.to_vec()].concat();
    let mut guest = Guest::new(CARD & !VERSION_1, 1);
    guest.ask(SET_CONFIG, &write(0, &[2, 0, 0, 0, 0, 1]), &[]);
    // Legacy drivers write byte by byte.
    guest.ask(SET_CONFIG, &write(5, &[0x78]), &[]);
    assert_eq!(guest.config()[..6], [2, 0, 0, 0, 0, 0x78]);
    assert_eq!(guest.peer().address.map(|address| address.octets()), Some([2, 0, 0, 0, 0, 0x78]));
    let group = [1, 0, 0, 0, 0, 1];
    for (features, offset, bytes) in [
        (CARD & !VERSION_1, 0, &group[..]),
        (CARD & !VERSION_1, 6, &[0, 0]),
        (CARD & !VERSION_1, 3, &group),
        (CARD, 0, &STATION),
    ] {
        let mut guest = Guest::new(features, 1);
        guest.send((SET_CONFIG, 1), &write(offset, bytes), &[]);
        while guest.peer().is_connected {
            guest.serve();
        }
        assert!(guest.peer().last_error.is_some(), "{offset}: {bytes:?}");
    }
}

#[test]
fn the_driver_sets_how_many_of_its_queues_get_frames() {
    let mut guest = Guest::new(CARD | NET_MQ, 3);
    assert_eq!(guest.config()[8..10], [3, 0]);
    assert_eq!(guest.peer().active_queues, 1);
    let pairs = |pairs: u16| [&[4, 0][..], &pairs.to_le_bytes()].concat();
    for (asked, outcome, active) in [(2, true, 2), (3, true, 3), (0, false, 3), (4, false, 3), (1, true, 1)] {
        assert_eq!(guest.does(&pairs(asked)), outcome, "{asked} pairs");
        assert_eq!(guest.peer().active_queues, active, "{asked} pairs");
    }
    // Frames that the driver sends from a pair that it no longer uses arrive.
    guest.write(BUFFERS, &[[0; 12].to_vec(), b"late".to_vec()].concat());
    guest.describe(5, 0, &[(GUEST + BUFFERS, 16, 0)]);
    guest.offer(5, 0);
    assert_eq!(take(&mut *guest.queues[2]), [b"late"]);
    // A driver that knows of one pair has its control queue behind this pair.
    let mut guest = Guest::new(CARD, 3);
    assert_eq!(guest.control, 2);
    assert!(guest.does(&[0, 0, 0]) && !guest.does(&pairs(1)));
    assert_eq!(guest.peer().active_queues, 1);
    // A front end that has the control queue itself enables the queues that its guest uses.
    let guest = Guest::with_rings(CARD | NET_MQ, 3, 6);
    assert_eq!(guest.peer().active_queues, 3);
}

#[test]
fn odd_commands_fail_and_change_nothing() {
    let mut guest = Guest::new(CARD, 1);
    let odd: [&[u8]; 12] = [
        &[0],
        &[0, 0],
        &[0, 6, 1],
        &[0, 0, 0, 0],
        &[1, 0],
        &[1, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        &[1, 1, 1, 0, 0, 0, 0, 1],
        &[1, 1, 2, 0, 0],
        &[2, 0, 0, 16],
        &[3, 0, 1],
        &[4, 0, 1, 0],
        &[200, 200, 200],
    ];
    for command in odd {
        assert!(!guest.does(command), "{command:?}");
    }
    assert!(guest.gets([2, 0, 0, 0, 0, 1], None));
    assert_eq!(guest.config()[..7], [&STATION[..], &[LINK_UP | ANNOUNCE]].concat());
    // Many commands at once are all carried out.
    guest.describe(2, 0, &[(GUEST + COMMAND, 2, DESC_NEXT), (GUEST + ANSWER, 1, DESC_WRITE)]);
    for _ in 0..100 {
        guest.write(COMMAND, &[3, 0]);
        for _ in 0..ENTRIES {
            guest.offer(2, 0);
        }
        guest.commands += ENTRIES;
        while guest.word(2 * RING_BYTES + USED + 2) != guest.commands {
            guest.serve();
        }
    }
    assert_eq!(guest.config()[6], LINK_UP);
}

#[test]
fn a_violation_in_the_control_queue_stops_this_queue_alone() {
    let (request, answer) = ((GUEST + COMMAND, 2, DESC_NEXT), (GUEST + ANSWER, 1, DESC_WRITE));
    // Descriptors, the first of the chain, and a part of the report.
    type BrokenChain<'a> = (&'a [(u64, u32, u16)], u16, &'a str);
    let broken: [BrokenChain<'_>; 6] = [
        (&[(GUEST + COMMAND, 2, 0)], 0, "other direction"),
        (&[(GUEST + ANSWER, 1, DESC_WRITE | DESC_NEXT), (GUEST + COMMAND, 2, 0)], 0, "other direction"),
        (&[(1, 2, DESC_NEXT), answer], 0, "not memory of the guest"),
        (&[request, (GUEST + MEMORY_BYTES, 1, DESC_WRITE)], 0, "not memory of the guest"),
        (&[(GUEST + COMMAND, 81_921, DESC_NEXT), answer], 0, "longer than"),
        (&[request, answer], 9, "descriptor 9"),
    ];
    for (chain, head, part) in broken {
        let mut guest = Guest::new(CARD, 1);
        guest.describe(2, 0, chain);
        guest.offer(2, head);
        while guest.peer().last_error.is_none() {
            guest.serve();
        }
        let fault = guest.peer().last_error.unwrap();
        assert!(fault.contains("control queue is stopped") && fault.contains(part), "{part}: {fault}");
        assert!(guest.peer().is_connected && guest.gets(STATION, None));
        // It works again once it is set up anew.
        guest.write(2 * RING_BYTES + AVAILABLE + 2, &[0, 0]);
        guest.ask(SET_VRING_BASE, &words(&[2, 0]), &[]);
        assert!(guest.does(&[3, 0]));
    }
}

#[test]
fn another_process_continues_with_the_settings_and_has_the_guest_announce_itself() {
    let mut guest = Guest::new(CARD, 1);
    let other = [2, 0, 0, 0, 0, 0x78];
    assert!(guest.does(&[3, 0]) && guest.does(&[0, 0, 0]) && guest.does(&[&[1, 1][..], &other].concat()));
    let mut message = [0; 64];
    assert_eq!((&guest.channel).read(&mut message).unwrap_err().kind(), ErrorKind::WouldBlock);
    let mut queue = guest.queues.pop().unwrap();
    while !queue.upgrade().unwrap().prepare() {
        thread::yield_now();
    }
    let left = queue.upgrade().unwrap().hand_over().unwrap();
    let mut next = resume(&format!("{}{}", name(&guest.folder), guest.options), left);
    guest.queues = std::mem::take(&mut next.queues);
    guest.device = next;
    drop(queue);
    assert!(!guest.gets(STATION, None) && guest.gets(other, None));
    guest.queues[0].upgrade().unwrap().resume();
    // The front end gets a message of a header alone: the configuration has changed.
    let bytes = loop {
        match (&guest.channel).read(&mut message) {
            Ok(bytes) => break bytes,
            Err(_) => guest.serve(),
        }
    };
    assert_eq!(message[..bytes], words(&[2, 1, 0]));
    assert_eq!(guest.config()[..7], [&other[..], &[LINK_UP | ANNOUNCE]].concat());
    assert!(guest.does(&[3, 0]) && guest.does(&[0, 0, 1]));
    assert_eq!(guest.config()[6], LINK_UP);
    assert!(guest.gets([2, 0, 0, 0, 0, 1], None));
}

#[test]
fn messages_that_only_this_side_reads_are_checked() {
    let refused = |request: u32, payload: &[u8], files: &[BorrowedFd<'_>]| {
        let mut guest = Guest::new(CARD, 1);
        guest.send((request, 1), payload, files);
        while guest.peer().is_connected {
            guest.serve();
        }
        assert!(guest.peer().last_error.is_some(), "message {request}");
    };
    let (file, event) = (memory(MEMORY_BYTES), eventfd::create().unwrap());
    let file = file.as_fd();
    let region = longs(&[GUEST, MEMORY_BYTES, USER, 0]);
    let table = |count: u32, rest: &[u8]| [words(&[count, 0]), rest.to_vec()].concat();
    refused(SET_MEM_TABLE, &table(2, &region), &[file, file]);
    refused(SET_MEM_TABLE, &table(0, &region), &[]);
    refused(SET_MEM_TABLE, &table(1, &region), &[]);
    refused(SET_MEM_TABLE, &table(1, &region), &[file, file]);
    refused(SET_MEM_TABLE, &table(u32::MAX, &region), &[file]);
    refused(SET_MEM_TABLE, &table(1, &longs(&[u64::MAX, 4096, USER, 0])), &[file]);
    refused(SET_MEM_TABLE, &table(1, &vec![0; 33 * 32]), &[file]);
    refused(SET_BACKEND_REQ_FD, &[], &[]);
    refused(SET_BACKEND_REQ_FD, &[], &[event.as_fd()]);
    refused(SET_STATUS, &[0; 4], &[]);
    refused(SET_VRING_ENABLE, &words(&[0, 2]), &[]);
}
