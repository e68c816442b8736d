//! A card with a loopback plug as its network. Segments of a transmit channel come back in the receive channel of the
//! same number, with metadata.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use ringroad_ring::eventfd;
use ringroad_sze2::ChannelState;
use ringroad_sze2::card::counters::{ChannelCounters, IbufCounters, ObufCounters};
use ringroad_sze2::card::design::DESIGNS;
use ringroad_sze2::card::distribution::ChannelDistribution;
use ringroad_sze2::card::program_rule::{ProgramRule, ProgramRules};
use ringroad_sze2::card::settings::IbufSettings;
use ringroad_sze2::memory::{ChannelGeometry, ChannelMemory, MIN_BUFFER_BYTES};
use ringroad_sze2::message::{
    CardInfo, CardReply, CardRequest, CardStatus, ChannelStatus, Subscriber, receive, send,
};
use ringroad_sze2::reader::SegmentReader;
use ringroad_sze2::writer::{ChannelSide, SegmentWriter};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Metadata of each frame.
pub const METADATA: &[u8] = b"from the plug";
/// First bytes of frames that are garbled in the receive buffer, as a broken card would do.
pub const GARBLE: &[u8] = b"garble";
const CHANNELS: u16 = 4;
const ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PATIENCE: Duration = Duration::from_secs(60);

struct Receive {
    writer: SegmentWriter,
    event: OwnedFd,
}

struct Transmit {
    reader: SegmentReader,
    event: OwnedFd,
}

/// Channels of the card, each with the number of its program.
struct State {
    receive: HashMap<u16, (u64, Receive)>,
    transmit: HashMap<u16, (u64, Transmit)>,
    ibuf: IbufSettings,
    obuf_enabled: bool,
    rules: ProgramRules,
    added_rules: u64,
    received: [ChannelCounters; CHANNELS as usize],
    transmitted: [ChannelCounters; CHANNELS as usize],
    faults: [u64; CHANNELS as usize],
}

/// A running card, which ends when the value is dropped.
pub struct LoopbackCard {
    path: PathBuf,
    ends: Arc<AtomicBool>,
    mover: Option<JoinHandle<()>>,
}

impl LoopbackCard {
    /// Serves a socket at `path`.
    pub fn start(path: &Path) -> Self {
        let listener =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(path).unwrap()).unwrap();
        rustix::net::listen(&listener, 16).unwrap();
        let state = Arc::new(Mutex::new(State {
            receive: HashMap::new(),
            transmit: HashMap::new(),
            ibuf: IbufSettings::new(ADDRESS),
            obuf_enabled: true,
            rules: ProgramRules::default(),
            added_rules: 0,
            received: Default::default(),
            transmitted: Default::default(),
            faults: Default::default(),
        }));
        let ends = Arc::new(AtomicBool::new(false));
        let served = Arc::clone(&state);
        // The thread ends with the process: nothing can wake it from accept.
        std::thread::spawn(move || {
            for number in 0.. {
                let socket = rustix::net::accept(&listener).unwrap();
                let state = Arc::clone(&served);
                std::thread::spawn(move || serve(&socket, &state, number));
            }
        });
        let ended = Arc::clone(&ends);
        let mover = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let moved = move_frames(&mut state.lock().unwrap());
                if !moved {
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
        });
        Self { path: path.to_owned(), ends, mover: Some(mover) }
    }
}

impl Drop for LoopbackCard {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = self.mover.take().map(JoinHandle::join);
        let _ = std::fs::remove_file(&self.path);
    }
}

fn info() -> CardInfo {
    CardInfo {
        name: "plug".to_owned(),
        receive_channels: CHANNELS,
        transmit_channels: CHANNELS,
        receive_buffer_bytes: MIN_BUFFER_BYTES,
        transmit_buffer_bytes: MIN_BUFFER_BYTES,
        address: ADDRESS,
    }
}

/// Moves as many frames as there are and as there is room for. Returns whether frames moved.
fn move_frames(state: &mut State) -> bool {
    let mut moved = false;
    let State { receive, transmit, received, transmitted, faults, .. } = state;
    for (&channel, (_, transmit)) in transmit {
        if transmit.reader.memory().state() != ChannelState::Running {
            continue;
        }
        let mut counted = ChannelCounters::default();
        let mut receive = receive
            .get_mut(&channel)
            .map(|(_, receive)| receive)
            .filter(|receive| receive.writer.memory().state() == ChannelState::Running);
        loop {
            // The plug waits for room, where a wire would lose the frame.
            if let Some(receive) = &mut receive
                && receive.writer.room(1 << 16).unwrap() < 1 << 16
            {
                break;
            }
            let segment = match transmit.reader.take() {
                Ok(Some(segment)) => segment,
                Ok(None) => break,
                Err(_) => {
                    transmit.reader.memory().set_state(ChannelState::Faulty);
                    faults[usize::from(channel)] += 1;
                    break;
                }
            };
            let mut frame = vec![0; segment.frame().len()];
            segment.frame().read(&mut frame);
            counted.frames += 1;
            counted.bytes += frame.len() as u64;
            if let Some(receive) = &mut receive {
                let at = receive.writer.position();
                let mut reserved = receive.writer.reserve(METADATA, frame.len()).unwrap().unwrap();
                reserved.write(&frame);
                if frame.starts_with(GARBLE) {
                    receive.writer.memory().data(at, 4).write(&[3, 0, 0, 0]);
                }
            }
        }
        moved |= counted.frames > 0;
        transmitted[usize::from(channel)].frames += counted.frames;
        transmitted[usize::from(channel)].bytes += counted.bytes;
        transmit.reader.release_all();
        if transmit.reader.publish() {
            eventfd::ring(&transmit.event);
        }
        if let Some(receive) = receive {
            received[usize::from(channel)].frames += counted.frames;
            received[usize::from(channel)].bytes += counted.bytes;
            if receive.writer.publish() {
                eventfd::ring(&receive.event);
            }
        }
    }
    moved
}

/// Replies to one program until it ends.
fn serve(socket: &OwnedFd, state: &Mutex<State>, number: u64) {
    let event = eventfd::create().unwrap();
    while let Ok((request, _)) = receive::<CardRequest>(socket, PATIENCE) {
        if matches!(request, CardRequest::Stop) {
            stop(state, number);
        }
        let (reply, descriptors) = reply(&mut state.lock().unwrap(), number, &event, request);
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        if send(socket, &reply, &descriptors, PATIENCE).is_err() {
            break;
        }
    }
    stop(state, number);
}

/// Ends the program's subscriptions, after its segments have been sent or the card has stopped it.
fn stop(state: &Mutex<State>, number: u64) {
    loop {
        let mut state = state.lock().unwrap();
        move_frames(&mut state);
        let waits = state.transmit.values_mut().any(|(owner, transmit)| {
            *owner == number
                && transmit.reader.memory().state() == ChannelState::Running
                && transmit.reader.available().is_ok_and(|bytes| bytes > 0)
        });
        // A program that would receive its own segments reads no more, so they are not awaited.
        if !waits || state.receive.values().any(|(owner, _)| *owner == number) {
            state.receive.retain(|_, (owner, _)| *owner != number);
            state.transmit.retain(|_, (owner, _)| *owner != number);
            return;
        }
    }
}

fn memory() -> (Arc<ChannelMemory>, OwnedFd) {
    let geometry = ChannelGeometry { buffer_bytes: MIN_BUFFER_BYTES, block_bytes: 4096 };
    let memory = ChannelMemory::create(geometry).unwrap();
    let file = memory.as_fd().try_clone_to_owned().unwrap();
    (Arc::new(memory), file)
}

fn reply(state: &mut State, number: u64, event: &OwnedFd, request: CardRequest) -> (CardReply, Vec<OwnedFd>) {
    let copy = || event.try_clone().unwrap();
    let refused = |reason| CardReply::Refused { reason };
    match request {
        CardRequest::Hello { .. } => (CardReply::Hello { info: info() }, vec![copy()]),
        CardRequest::Subscribe { receive, transmit } => {
            let (mut given, mut files) = ((0, 0), Vec::new());
            for channel in (0..CHANNELS).filter(|channel| receive >> channel & 1 == 1) {
                if let Entry::Vacant(vacant) = state.receive.entry(channel) {
                    let (memory, file) = memory();
                    let writer = SegmentWriter::new(memory, ChannelSide::Card);
                    vacant.insert((number, Receive { writer, event: copy() }));
                    given.0 |= 1 << channel;
                    files.push(file);
                }
            }
            for channel in (0..CHANNELS).filter(|channel| transmit >> channel & 1 == 1) {
                if let Entry::Vacant(vacant) = state.transmit.entry(channel) {
                    let (memory, file) = memory();
                    let reader = SegmentReader::new(memory, ChannelSide::Card);
                    vacant.insert((number, Transmit { reader, event: copy() }));
                    given.1 |= 1 << channel;
                    // The mover polls, so it needs no wake-up.
                    files.extend([file, eventfd::create().unwrap()]);
                }
            }
            (CardReply::Subscribed { receive: given.0, transmit: given.1 }, files)
        }
        CardRequest::Start => {
            for (owner, receive) in state.receive.values() {
                if *owner == number {
                    receive.writer.memory().set_state(ChannelState::Running);
                }
            }
            for (owner, transmit) in state.transmit.values() {
                if *owner == number && transmit.reader.memory().state() == ChannelState::Stopped {
                    transmit.reader.memory().set_state(ChannelState::Running);
                }
            }
            (CardReply::Done, Vec::new())
        }
        CardRequest::Status => (CardReply::Status { status: Box::new(status(state)) }, Vec::new()),
        CardRequest::SetIbuf { ibuf } => match ibuf.check() {
            Ok(()) => {
                state.ibuf = ibuf;
                (CardReply::Done, Vec::new())
            }
            Err(reason) => (CardReply::Refused { reason }, Vec::new()),
        },
        CardRequest::SetObuf { enabled } => {
            state.obuf_enabled = enabled;
            (CardReply::Done, Vec::new())
        }
        CardRequest::Renew { channel } => match state.receive.get_mut(&channel) {
            Some((owner, receive)) if *owner == number => {
                let (memory, file) = memory();
                memory.set_state(ChannelState::Running);
                receive.writer = SegmentWriter::new(memory, ChannelSide::Card);
                (CardReply::Subscribed { receive: 1 << channel, transmit: 0 }, vec![file])
            }
            _ => (CardReply::Refused { reason: format!("channel {channel} is another's") }, Vec::new()),
        },
        CardRequest::CheckRule { rule } => {
            (ProgramRule::new(&rule, CHANNELS).map_or_else(refused, |_| CardReply::Done), Vec::new())
        }
        CardRequest::AddRule { rule, priority, counts } => {
            let program = Subscriber { pid: None, program: String::new() };
            let rule = ProgramRule::new(&rule, CHANNELS).unwrap();
            state.rules.add(number, state.added_rules, program, priority, rule, counts);
            state.added_rules += 1;
            (CardReply::RuleAdded { number: state.added_rules - 1 }, Vec::new())
        }
        CardRequest::RemoveRule { number: rule } => {
            let removed = state.rules.remove(number, rule);
            (removed.map_or_else(refused, |counters| CardReply::RuleCounters { counters }), Vec::new())
        }
        CardRequest::RuleCounters { number: rule } => {
            let present = state.rules.counters(number, rule);
            (present.map_or_else(refused, |counters| CardReply::RuleCounters { counters }), Vec::new())
        }
        CardRequest::Design => (CardReply::Design { design: DESIGNS[2].info() }, Vec::new()),
        CardRequest::ClearCounters => {
            state.received = Default::default();
            state.transmitted = Default::default();
            (CardReply::Done, Vec::new())
        }
        _ => (CardReply::Done, Vec::new()),
    }
}

fn status(state: &State) -> CardStatus {
    let sum = |channels: &[ChannelCounters]| {
        channels
            .iter()
            .fold((0, 0), |(frames, bytes), channel| (frames + channel.frames, bytes + channel.bytes))
    };
    let ((received, received_bytes), (sent, sent_bytes)) = (sum(&state.received), sum(&state.transmitted));
    let channel = |counters: ChannelCounters, running, faults| ChannelStatus {
        running,
        counters,
        faults,
        ..ChannelStatus::default()
    };
    CardStatus {
        info: info(),
        ibuf: state.ibuf.clone(),
        ibuf_counters: IbufCounters { frames: received, bytes: received_bytes, ..IbufCounters::default() },
        obuf_enabled: state.obuf_enabled,
        obuf_counters: ObufCounters { frames: sent, bytes: sent_bytes, disabled: 0 },
        distribution: ChannelDistribution::default(),
        filter: "default allow 0-3\n".to_owned(),
        timestamps: false,
        receive: (0..CHANNELS)
            .map(|number| {
                let running = state
                    .receive
                    .get(&number)
                    .is_some_and(|(_, receive)| receive.writer.memory().state() == ChannelState::Running);
                channel(state.received[usize::from(number)], running, 0)
            })
            .collect(),
        transmit: (0..CHANNELS)
            .map(|number| {
                let at = usize::from(number);
                channel(state.transmitted[at], state.transmit.contains_key(&number), state.faults[at])
            })
            .collect(),
    }
}
