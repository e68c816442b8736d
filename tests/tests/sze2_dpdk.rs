//! Capture cards in software with Debian's testpmd behind them, through the DPDK driver of `satellites/dpdk-szedata2`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use ringroad::{Interest, Port, wait_any};
use ringroad_sze2::card::design::DESIGN_NAMES;
use ringroad_sze2::card::filter::MAX_RULES;
use ringroad_sze2::card::program_rule::RuleStatus;
use ringroad_sze2::card::settings::AddressCheck;
use ringroad_sze2::client::CardClient;
use ringroad_sze2::message::{CardRequest, CardStatus, ChannelStatus};
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::{Daemon, PATIENCE};
use ringroad_tests::frames::{numbered, read_capture, receive, send, station};
use ringroad_tests::passage::{both_ways, carry};
use ringroad_tests::szedata_plugin::SzedataPlugin;
use ringroad_tests::testpmd::{Memory, Testpmd};
use rustix::process::Signal;
use tempfile::TempDir;

/// Lengths of frames that fit into an mbuf of 2 KiB.
const SHORT: [usize; 7] = [60, 61, 64, 512, 1023, 1500, 1514];
/// Lengths of frames, some of which do not fit.
const JUMBO: [usize; 8] = [60, 1514, 1518, 2048, 2049, 4096, 8999, 9018];
/// Maximum number of frames in flight from one side.
const UNDER_WAY: usize = 40;
/// Option of testpmd for RTE_ETH_RX_OFFLOAD_SCATTER.
const SCATTER: &str = "--rx-offloads=0x2000";
const MULTI_SEGS: &str = "--tx-offloads=0x8000";

/// Two cards, each on a switch with a program's port. Each card has as many channels as testpmd will have queues, since
/// a card spreads frames over all its channels.
struct Testbed {
    daemon: Daemon,
    _folder: TempDir,
    cards: [PathBuf; 2],
    options: String,
    a: Port,
    b: Port,
}

impl Testbed {
    fn new(channels: u16) -> Self {
        Self::with_options(&format!("channels={channels},buffer=1M"))
    }

    /// Cards with these options.
    fn with_options(options: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("ringroad-sze2-").tempdir().unwrap();
        let cards = [0, 1].map(|number| folder.path().join(format!("szedataII{number}")));
        let (daemon, a, b) = Self::start(&cards, options);
        Self { daemon, _folder: folder, cards, options: options.to_owned(), a, b }
    }

    fn start(cards: &[PathBuf; 2], options: &str) -> (Daemon, Port, Port) {
        let port = |number: usize| {
            let path = cards[number].display();
            format!("[[port]]\nname = \"vale{number}:card\"\ndriver = \"sze2:{path}@{options}\"\n")
        };
        let daemon = Daemon::with_config(&(port(0) + &port(1)));
        let (a, b) = (daemon.open("vale0:a@slots=1024"), daemon.open("vale1:b@slots=1024"));
        (daemon, a, b)
    }

    /// Kills the daemon, and sets everything up again.
    fn restart(&mut self) {
        self.daemon.signal(Signal::KILL);
        self.daemon.await_end();
        (self.daemon, self.a, self.b) = Self::start(&self.cards, &self.options);
    }

    /// Sends broadcast frames of one length to the first card, from number `first` on, and waits until they are there.
    fn send(&mut self, first: u64, count: u64, length: usize) {
        let frames: Vec<_> = (first..first + count).map(|number| broadcast(number, length)).collect();
        self.deliver(&frames);
    }

    /// Sends frames to the first card, and waits until they are there.
    fn deliver(&mut self, frames: &[Vec<u8>]) {
        let before = self.status(0).ibuf_counters.total();
        for frame in frames {
            send(&mut self.a, frame);
        }
        self.a.tx().sync().unwrap();
        self.await_status(0, |card| card.ibuf_counters.total() == before + frames.len() as u64);
    }

    /// Rules of programs at the first card, once there are so many.
    fn await_rules(&self, count: usize) -> Vec<RuleStatus> {
        let card = CardClient::open(&self.cards[0], "test").unwrap();
        let end = Instant::now() + PATIENCE.unwrap();
        loop {
            let rules = card.rules().unwrap();
            if rules.len() == count {
                return rules;
            }
            assert!(Instant::now() < end, "{rules:#?}");
            std::thread::yield_now();
        }
    }

    fn paths(&self) -> [&Path; 2] {
        [&self.cards[0], &self.cards[1]]
    }

    fn status(&self, card: usize) -> CardStatus {
        CardClient::open(&self.cards[card], "test").unwrap().status().unwrap()
    }

    /// Waits until the status of a card meets the condition.
    fn await_status(&self, card: usize, requested: impl Fn(&CardStatus) -> bool) -> CardStatus {
        let end = Instant::now() + PATIENCE.unwrap();
        loop {
            let status = self.status(card);
            if requested(&status) {
                return status;
            }
            assert!(Instant::now() < end, "{status:#?}");
            std::thread::yield_now();
        }
    }
}

fn broadcast(number: u64, length: usize) -> Vec<u8> {
    numbered([0xFF; 6], station(1), number, length)
}

/// Counters that `show port stats` prints.
#[derive(Debug, PartialEq, Eq)]
struct Statistics {
    received: u64,
    missed: u64,
    received_bytes: u64,
    receive_errors: u64,
    no_mbuf: u64,
    sent: u64,
    send_errors: u64,
    sent_bytes: u64,
}

fn number_behind(line: &str, name: &str) -> u64 {
    let (_, rest) = line.split_once(name).unwrap_or_else(|| panic!("{name} in {line:?}"));
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

fn statistics(testpmd: &mut Testpmd, port: u16) -> Statistics {
    testpmd.tell(&format!("show port stats {port}"));
    testpmd.await_line(&format!("NIC statistics for port {port}"));
    let first = testpmd.await_line("RX-packets:");
    let errors = testpmd.await_line("RX-errors:");
    let no_mbuf = testpmd.await_line("RX-nombuf:");
    let sent = testpmd.await_line("TX-packets:");
    Statistics {
        received: number_behind(&first, "RX-packets:"),
        missed: number_behind(&first, "RX-missed:"),
        received_bytes: number_behind(&first, "RX-bytes:"),
        receive_errors: number_behind(&errors, "RX-errors:"),
        no_mbuf: number_behind(&no_mbuf, "RX-nombuf:"),
        sent: number_behind(&sent, "TX-packets:"),
        send_errors: number_behind(&sent, "TX-errors:"),
        sent_bytes: number_behind(&sent, "TX-bytes:"),
    }
}

/// Value of a counter of `show port xstats`.
fn xstat(testpmd: &mut Testpmd, port: u16, name: &str) -> u64 {
    testpmd.tell(&format!("show port xstats {port}"));
    number_behind(&testpmd.await_line(&format!("{name}:")), ":")
}

/// Sums of frames and bytes over channels.
fn frames_of(channels: &[ChannelStatus]) -> (u64, u64) {
    channels.iter().fold((0, 0), |(frames, bytes), channel| {
        (frames + channel.counters.frames, bytes + channel.counters.bytes)
    })
}

fn start(testpmd: &mut Testpmd) {
    testpmd.tell("start");
    testpmd.await_line("packets/burst=");
}

/// Stops forwarding. testpmd sends all received frames first.
fn stop(testpmd: &mut Testpmd) {
    testpmd.tell("stop");
    testpmd.await_line("Done.");
}

#[test]
fn frames_come_back_unchanged_from_testpmd() {
    let Some(plugin) = SzedataPlugin::find() else { return };
    let two = ["--rxq=2", "--txq=2"];
    let jumbo = ["--max-pkt-len=9100", SCATTER, MULTI_SEGS];
    let kinds: [(&[&str], &[usize]); 3] = [(&[], &SHORT), (&jumbo, &JUMBO), (&two, &SHORT)];
    for (options, lengths) in kinds {
        for is_huge in [false, true] {
            let queues = if options == two { 2 } else { 1 };
            let mut site = Testbed::new(queues);
            let Some(memory) = (if is_huge { Memory::huge() } else { Some(Memory::Ordinary) }) else {
                continue;
            };
            let mut testpmd = plugin.testpmd(memory, &site.paths(), "", "io", options);
            start(&mut testpmd);
            // With two queues, frames may leave in another order.
            if queues == 2 {
                carry_in_any_order(&mut site, lengths);
            } else {
                both_ways(site.a.queue(), site.b.queue(), lengths, 3, 300);
            }
            stop(&mut testpmd);
            await_conserved(&site.daemon);
            for port in [0, 1] {
                let (counted, card) = (statistics(&mut testpmd, port), site.status(port.into()));
                assert_eq!((counted.received, counted.received_bytes), frames_of(&card.receive), "{card:#?}");
                assert_eq!((counted.sent, counted.sent_bytes), frames_of(&card.transmit), "{card:#?}");
                assert_eq!(
                    (counted.sent, counted.sent_bytes),
                    (card.obuf_counters.frames, card.obuf_counters.bytes)
                );
                let overflow = card.ibuf_counters.overflow;
                assert_eq!(counted.missed, overflow);
                assert_eq!((counted.receive_errors, counted.no_mbuf, counted.send_errors), (0, 0, 0));
                assert_eq!(xstat(&mut testpmd, port, "rx_card_packets"), card.ibuf_counters.frames);
                assert_eq!(xstat(&mut testpmd, port, "tx_card_bytes"), card.obuf_counters.bytes);
            }
            testpmd.quit();
        }
    }
}

/// Checks that frames come back unchanged in any order. All frames differ, and each is in flight at most once.
fn carry_in_any_order(site: &mut Testbed, lengths: &[usize]) {
    for number in 0..200 {
        let frame = numbered(station(2), station(1), number, lengths[number as usize % lengths.len()]);
        send(&mut site.a, &frame);
        site.a.tx().sync().unwrap();
        assert_eq!(receive(&mut site.b), frame);
    }
}

/// Side of each frame's sender, one of two. Stations that communicate are on different sides.
fn sides(frames: &[Vec<u8>]) -> Vec<bool> {
    let mut sides: HashMap<&[u8], bool> = HashMap::new();
    let sender_sides = frames.iter().map(|frame| {
        let (destination, source) = (&frame[..6], &frame[6..12]);
        let other = sides.get(destination).copied();
        let side = *sides.entry(source).or_insert(other.is_some_and(|other| !other));
        if destination[0] & 1 == 0 {
            assert_ne!(
                *sides.entry(destination).or_insert(!side),
                side,
                "the capture has a triangle of talkers"
            );
        }
        side
    });
    sender_sides.collect()
}

#[test]
fn a_real_capture_passes_testpmd_and_two_cards_unchanged() {
    let Some(plugin) = SzedataPlugin::find() else { return };
    let capture = std::env::var("RINGROAD_CAPTURE").expect("make e2e names a capture in RINGROAD_CAPTURE");
    let frames = read_capture(capture.as_ref());
    let sides = sides(&frames);
    let mut site = Testbed::new(1);
    let mut testpmd = plugin.testpmd(Memory::Ordinary, &site.paths(), "", "io", &[]);
    start(&mut testpmd);
    // Frames sent before both sides are up would be lost.
    both_ways(site.a.queue(), site.b.queue(), &SHORT, 3, 1);
    // Each side's frames are sent in their order, and beside those of the other side.
    let of_side = |wanted: bool| {
        let frames = frames.iter().zip(&sides).filter(move |(_, side)| **side == wanted);
        frames.map(|(frame, _)| frame).collect::<Vec<_>>()
    };
    let mut ways = [false, true].map(|side| (of_side(side), 0, 0));
    let mut ports = [&mut site.a, &mut site.b];
    while ways.iter().any(|(frames, _, came)| *came < frames.len()) {
        for (port, (frames, sent, came)) in ports.iter_mut().zip(&mut ways) {
            while *sent < frames.len() && *sent - *came < UNDER_WAY {
                send(port, frames[*sent]);
                *sent += 1;
            }
            port.sync().unwrap();
        }
        let mut waits = ports.each_mut().map(|port| port.awaiting(Interest::Rx));
        assert!(wait_any(&mut waits, PATIENCE).unwrap(), "nothing comes");
        let mut frame = Vec::new();
        for (port, (frames, _, came)) in ports.iter_mut().rev().zip(&mut ways) {
            while port.rx().receive(&mut frame).is_some() {
                assert!(frame == *frames[*came], "frame {came} of a side came changed");
                *came += 1;
                frame.clear();
            }
        }
    }
    stop(&mut testpmd);
    await_conserved(&site.daemon);
    for port in [0, 1] {
        let (counted, card) = (statistics(&mut testpmd, port), site.status(port.into()));
        assert_eq!((counted.received, counted.received_bytes), frames_of(&card.receive), "{card:#?}");
        assert_eq!((counted.sent, counted.sent_bytes), frames_of(&card.transmit), "{card:#?}");
    }
    testpmd.quit();
}

#[test]
fn testpmd_and_the_card_count_the_same_frames() {
    let Some(plugin) = SzedataPlugin::find() else { return };
    let mut site = Testbed::new(1);
    let mut testpmd = plugin.testpmd(Memory::Ordinary, &[&site.cards[0]], "", "rxonly", &[]);
    start(&mut testpmd);
    for number in 0..1000 {
        send(&mut site.a, &numbered([0xFF; 6], station(1), number, 60 + number as usize));
    }
    site.a.tx().sync().unwrap();
    // Frames longer than an mbuf are counted, not lost silently.
    for _ in 0..7 {
        send(&mut site.a, &numbered([0xFF; 6], station(1), 0, 4000));
    }
    site.a.tx().sync().unwrap();
    let card = site.await_status(0, |card| {
        card.receive.iter().all(|c| c.used_bytes == 0) && card.ibuf_counters.total() == 1007
    });
    stop(&mut testpmd);
    let counted = statistics(&mut testpmd, 0);
    assert_eq!(
        (counted.received, counted.receive_errors, counted.missed),
        (1000 - card.ibuf_counters.overflow, 7, card.ibuf_counters.overflow)
    );
    assert_eq!(card.ibuf_counters.overflow, 0);
    assert_eq!(counted.received_bytes, (0..1000).map(|number| 60 + number).sum::<u64>());
    assert_eq!(xstat(&mut testpmd, 0, "rx_q0_too_long"), 7);
    assert_eq!(xstat(&mut testpmd, 0, "rx_card_packets"), 1007);

    // The counters restart at zero, for this port alone.
    testpmd.tell("clear port stats 0");
    testpmd.await_line("cleared");
    assert_eq!(statistics(&mut testpmd, 0).received, 0);
    assert_eq!(xstat(&mut testpmd, 0, "rx_card_packets"), 0);
    assert_eq!(site.status(0).ibuf_counters.total(), 1007);

    testpmd.tell("set fwd txonly");
    testpmd.await_line("Set txonly packet forwarding mode");
    start(&mut testpmd);
    while site.status(0).obuf_counters.frames < 100_000 {
        site.a.rx().sync().unwrap();
        let mut frame = Vec::new();
        while site.a.rx().receive(&mut frame).is_some() {
            frame.clear();
        }
    }
    stop(&mut testpmd);
    let counted = statistics(&mut testpmd, 0);
    let card = site.await_status(0, |card| card.transmit.iter().all(|c| c.used_bytes == 0));
    assert_eq!((counted.sent, counted.sent_bytes), frames_of(&card.transmit));
    assert_eq!((counted.sent, counted.sent_bytes), (card.obuf_counters.frames, card.obuf_counters.bytes));
    await_conserved(&site.daemon);
    testpmd.quit();
}

#[test]
fn frames_wait_in_the_buffer_while_no_mbuf_is_free() {
    let Some(plugin) = SzedataPlugin::find() else { return };
    // testpmd holds back the frames that it receives, up to more than it has mbufs for.
    let holding =
        ["--total-num-mbufs=1100", "--noisy-tx-sw-buffer-size=4096", "--noisy-tx-sw-buffer-flushtime=20"];
    for (scatter, length) in [(None, 60), (Some([SCATTER, MULTI_SEGS]), 5000)] {
        let mut site = Testbed::new(1);
        let options: Vec<&str> = holding.into_iter().chain(scatter.into_iter().flatten()).collect();
        let mut testpmd = plugin.testpmd(Memory::Ordinary, &site.paths(), "", "noisy", &options);
        let mut came = 0;
        start(&mut testpmd);
        while statistics(&mut testpmd, 0).no_mbuf == 0 {
            for _ in 0..100 {
                send(&mut site.a, &numbered([0xFF; 6], station(1), came, length));
                came += 1;
            }
            site.a.tx().sync().unwrap();
            // The next 100 frames have room in the buffer, too.
            site.await_status(0, |card| {
                card.ibuf_counters.total() == came && card.receive[0].used_bytes < 256 << 10
            });
        }
        let card = site
            .await_status(0, |card| card.receive[0].used_bytes == 0 && card.ibuf_counters.total() == came);
        assert_eq!((card.ibuf_counters.overflow, card.ibuf_counters.frames), (0, came));
        stop(&mut testpmd);
        let counted = statistics(&mut testpmd, 0);
        assert_eq!((counted.received, counted.received_bytes), (came, came * length as u64));
        assert!(counted.no_mbuf > 0);
        // testpmd drops frames that a full channel does not take at once.
        let sent = statistics(&mut testpmd, 1).sent;
        site.await_status(1, |card| card.obuf_counters.frames == sent);
        testpmd.quit();
    }
}

/// Sends frames that a testpmd in mode macswap sends back with swapped addresses.
fn await_swapped(site: &mut Testbed) {
    for (number, length) in SHORT.iter().cycle().take(100).enumerate() {
        let frame = numbered(station(9), station(1), number as u64, *length);
        send(&mut site.a, &frame);
        site.a.tx().sync().unwrap();
        let mut swapped = frame;
        swapped[..6].copy_from_slice(&station(1));
        swapped[6..12].copy_from_slice(&station(9));
        assert_eq!(receive(&mut site.a), swapped);
    }
}

#[test]
fn macswap_exchanges_addresses_and_finds_a_recreated_card() {
    let Some(plugin) = SzedataPlugin::find() else { return };
    let mut site = Testbed::new(1);
    let mut testpmd =
        plugin.testpmd(Memory::Ordinary, &[&site.cards[0]], "", "macswap", &["--port-topology=loop"]);
    start(&mut testpmd);
    await_swapped(&mut site);
    site.restart();
    stop(&mut testpmd);
    testpmd.tell("show port info 0");
    assert!(testpmd.await_line("Link status:").contains("down"));
    testpmd.tell("port stop 0");
    testpmd.tell("port start 0");
    start(&mut testpmd);
    await_swapped(&mut site);
    testpmd.tell("show port info 0");
    assert!(testpmd.await_line("Link status:").contains("up"));
    testpmd.quit();
}

#[test]
fn a_dpdk_port_configures_its_card() {
    let Some(plugin) = SzedataPlugin::find() else { return };
    let site = Testbed::new(1);
    let mut testpmd = plugin.testpmd(Memory::Ordinary, &[&site.cards[0]], "", "rxonly", &[]);
    let own = site.status(0).info.address;
    let check = |command: &str, testpmd: &mut Testpmd, requested: AddressCheck| {
        testpmd.tell(command);
        site.await_status(0, |card| card.ibuf.address_check == requested);
    };
    check("set promisc 0 off", &mut testpmd, AddressCheck::Broadcast);
    check("set allmulti 0 on", &mut testpmd, AddressCheck::Multicast);
    check("set promisc 0 on", &mut testpmd, AddressCheck::Promiscuous);
    check("set allmulti 0 off", &mut testpmd, AddressCheck::Promiscuous);
    check("set promisc 0 off", &mut testpmd, AddressCheck::Broadcast);
    testpmd.tell("mac_addr add 0 02:00:00:00:00:05");
    site.await_status(0, |card| card.ibuf.addresses == [own, [2, 0, 0, 0, 0, 5]]);
    testpmd.tell("mac_addr set 0 02:00:00:00:00:06");
    site.await_status(0, |card| card.ibuf.addresses == [[2, 0, 0, 0, 0, 6], [2, 0, 0, 0, 0, 5]]);
    testpmd.tell("mac_addr remove 0 02:00:00:00:00:05");
    site.await_status(0, |card| card.ibuf.addresses == [[2, 0, 0, 0, 0, 6]]);
    let runs = |site: &Testbed, command: &str, testpmd: &mut Testpmd, requested: (bool, bool)| {
        testpmd.tell(command);
        site.await_status(0, |card| (card.receive[0].running, card.transmit[0].running) == requested);
    };
    runs(&site, "port 0 rxq 0 stop", &mut testpmd, (false, true));
    runs(&site, "port 0 txq 0 stop", &mut testpmd, (false, false));
    runs(&site, "port 0 rxq 0 start", &mut testpmd, (true, false));
    runs(&site, "port 0 txq 0 start", &mut testpmd, (true, true));
    runs(&site, "port stop 0", &mut testpmd, (false, false));
    testpmd.tell("port config mtu 0 1000");
    site.await_status(0, |card| card.ibuf.max_frame_bytes == 1022);
    testpmd.tell("port start 0");
    testpmd.tell("set link-down port 0");
    site.await_status(0, |card| !card.ibuf.enabled && !card.obuf_enabled);
    testpmd.tell("show port info 0");
    assert!(testpmd.await_line("Link status:").contains("down"));
    testpmd.tell("set link-up port 0");
    site.await_status(0, |card| card.ibuf.enabled && card.obuf_enabled);
    testpmd.tell("show port info 0");
    assert!(testpmd.await_line("Link status:").contains("up"));
    assert!(testpmd.await_line("Link speed:").contains("100 Gbps"));
    let card = CardClient::open(&site.cards[0], "test").unwrap();
    for design in DESIGN_NAMES {
        // The port finds the card again when it is started.
        card.set(&CardRequest::Boot { design: design.to_owned() }).unwrap();
        testpmd.tell("port stop 0");
        testpmd.tell("port start 0");
        testpmd.tell("show port info 0");
        let version = testpmd.await_line("Firmware-version:");
        assert!(version.contains(&card.design().unwrap().to_string()), "{version}");
    }
    testpmd.quit();
}

#[test]
fn a_card_is_used_again_after_it_was_detached_or_its_program_killed() {
    let Some(plugin) = SzedataPlugin::find() else { return };
    let mut site = Testbed::new(1);
    for turn in 0..2 {
        let mut testpmd = plugin.testpmd(Memory::Ordinary, &site.paths(), "", "io", &[]);
        start(&mut testpmd);
        carry(site.a.queue(), site.b.queue(), &SHORT, 3, 100);
        stop(&mut testpmd);
        if turn == 0 {
            testpmd.tell("port stop 1");
            testpmd.tell("port close 1");
            site.await_status(1, |card| card.receive.iter().all(|channel| channel.subscriber.is_none()));
            testpmd.tell(&format!("port attach eth_szedata2_again,dev_path={}", site.cards[1].display()));
            testpmd.await_line("is attached");
            testpmd.tell("port start 1");
            start(&mut testpmd);
            both_ways(site.a.queue(), site.b.queue(), &SHORT, 3, 100);
            stop(&mut testpmd);
            testpmd.tell("port stop 1");
            testpmd.tell("port detach 1");
            testpmd.await_line("is detached");
            site.await_status(1, |card| card.receive.iter().all(|channel| channel.subscriber.is_none()));
        }
        start(&mut testpmd);
        testpmd.kill();
        for card in [0, 1] {
            site.await_status(card, |card| {
                card.receive
                    .iter()
                    .chain(&card.transmit)
                    .all(|channel| channel.subscriber.is_none() && !channel.running)
            });
        }
        // The sender's frames are now lost, and the counters still balance.
        send(&mut site.a, &numbered([0xFF; 6], station(1), 0, 60));
        site.a.tx().sync().unwrap();
        await_conserved(&site.daemon);
    }
}

/// One channel, whose buffer has room for some dozens of frames.
const SMALL: &str = "channels=1,buffer=128K";
/// Room of a frame of 1500 bytes in the buffer.
const SEGMENT_BYTES: u64 = 1512;

#[test]
fn external_buffers_are_given_back_in_any_order() {
    let Some(plugin) = SzedataPlugin::find() else { return };
    let mut site = Testbed::with_options(SMALL);
    let mut keeper = plugin.keeper(&site.cards[0], ",extbuf=1", &[]);
    site.send(0, 20, 1500);
    site.send(20, 1, 60);
    keeper.carry_out("take 21");
    for number in 0..20 {
        let frame = keeper.frame(number);
        assert!(frame.is_external && frame.bytes == broadcast(number as u64, 1500), "{number}: {frame:?}");
    }
    let short = keeper.frame(20);
    assert!(!short.is_external && short.bytes == broadcast(20, 60), "{short:?}");
    // The card has back what is before the oldest frame that is out, once the queue is polled.
    for (freed, oldest) in [(5, 0), (1, 0), (0, 2), (2, 3), (19, 3), (3, 4), (4, 6)] {
        keeper.carry_out(&format!("free {freed}"));
        site.send(21, 1, 60);
        keeper.carry_out("pass 1");
        let in_buffer = site.status(0).receive[0].used_bytes;
        assert_eq!(in_buffer / SEGMENT_BYTES, 20 - oldest, "{freed} is free");
        assert_eq!(keeper.frame(18).bytes, broadcast(18, 1500));
    }
    for freed in (6..19).rev() {
        keeper.carry_out(&format!("free {freed}"));
    }
    site.send(21, 1, 60);
    keeper.carry_out("pass 1");
    assert_eq!(site.status(0).receive[0].used_bytes, 0);
    assert_eq!(keeper.number("count rx_q0_external_buffers"), 20);
    assert_eq!(keeper.number("count rx_q0_copied_while_held"), 0);
}

#[test]
fn a_frame_that_is_kept_for_long_holds_up_no_others() {
    let Some(plugin) = SzedataPlugin::find() else { return };
    let mut site = Testbed::with_options(SMALL);
    let mut keeper = plugin.keeper(&site.cards[0], ",extbuf=1", &[]);
    site.send(0, 2, 1500);
    keeper.carry_out("take 2");
    keeper.carry_out("free 1");
    // Several buffers full.
    for round in 0..20 {
        site.send(2 + 30 * round, 30, 1500);
        keeper.carry_out("pass 30");
    }
    let kept = keeper.frame(0);
    assert!(kept.is_external && kept.bytes == broadcast(0, 1500), "{kept:?}");
    let (renewed, copied) =
        (keeper.number("count rx_q0_renewed_buffers"), keeper.number("count rx_q0_copied_while_held"));
    assert_eq!(renewed, 1);
    assert_eq!(copied + keeper.number("count rx_q0_external_buffers"), 602);
    assert!(copied > 500, "{copied}");
    // While it is out, a frame kept in addition is a copy, and the buffer is empty.
    site.send(602, 1, 1500);
    keeper.carry_out("take 1");
    let copy = keeper.frame(2);
    assert!(!copy.is_external && copy.bytes == broadcast(602, 1500), "{copy:?}");
    assert_eq!(site.status(0).receive[0].used_bytes, 0);
    // After a pause, frames are external again.
    keeper.carry_out("free 0");
    for round in 0..70 {
        site.send(round * 1000, 1000, 60);
        keeper.carry_out("pass 1000");
    }
    site.send(603, 1, 1500);
    keeper.carry_out("take 1");
    let kept = keeper.frame(3);
    assert!(kept.is_external && kept.bytes == broadcast(603, 1500), "{kept:?}");
    let card = site.status(0);
    assert_eq!((card.ibuf_counters.frames, card.ibuf_counters.total()), (70_604, 70_604));
    await_conserved(&site.daemon);
}

#[test]
fn frames_that_are_out_outlive_the_stop_of_their_port() {
    let Some(plugin) = SzedataPlugin::find() else { return };
    let mut site = Testbed::with_options(SMALL);
    let mut keeper = plugin.keeper(&site.cards[0], ",extbuf=1", &[]);
    site.send(0, 7, 1500);
    keeper.carry_out("take 5");
    keeper.carry_out("free 1");
    keeper.carry_out("stop");
    let card = site.await_status(0, |card| !card.receive[0].running);
    assert!(card.receive[0].subscriber.is_none(), "{card:?}");
    assert_eq!(keeper.number("count rx_q0_discarded_at_stop"), 2);
    keeper.carry_out("free 3");
    keeper.carry_out("start");
    site.send(7, 3, 1500);
    keeper.carry_out("take 3");
    for (number, frame) in [(0, 0), (2, 2), (4, 4), (5, 7), (6, 8), (7, 9)] {
        let kept = keeper.frame(number);
        assert!(kept.is_external && kept.bytes == broadcast(frame, 1500), "{number}: {kept:?}");
    }
    for number in [4, 5, 0, 7, 2, 6] {
        keeper.carry_out(&format!("free {number}"));
    }
    site.send(10, 1, 60);
    keeper.carry_out("pass 1");
    assert_eq!(site.status(0).receive[0].used_bytes, 0);
}

#[test]
fn another_thread_frees_frames_while_their_port_receives_and_stops() {
    let Some(plugin) = SzedataPlugin::find() else { return };
    let mut site = Testbed::with_options(SMALL);
    let mut keeper = plugin.keeper(&site.cards[0], ",extbuf=1", &[]);
    for round in 0..60 {
        site.send(30 * round, 30, 1500);
        keeper.carry_out("relay 30");
        if round % 3 == 2 {
            // Frames are still out.
            keeper.carry_out("stop");
            keeper.carry_out("start");
        }
    }
    // The last ones come back as well.
    let end = Instant::now() + PATIENCE.unwrap();
    loop {
        site.send(0, 1, 60);
        keeper.carry_out("pass 1");
        if site.status(0).receive[0].used_bytes == 0 {
            break;
        }
        assert!(Instant::now() < end, "{:#?}", site.status(0));
    }
    let card = site.status(0).ibuf_counters;
    assert_eq!((card.overflow, card.unclaimed), (0, 0));
    assert_eq!(keeper.number("count rx_q0_discarded_at_stop"), 0);
}

/// A frame of 60 bytes to all stations with a UDP or TCP packet to `port`, behind a VLAN tag if one is named. Nobody
/// reads its checksums.
fn packet(vlan: Option<u16>, protocol: u8, source: [u8; 4], port: u16) -> Vec<u8> {
    let mut frame = [[0xFF; 6], station(1)].concat();
    if let Some(vlan) = vlan {
        frame.extend([0x81, 0]);
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend([0x08, 0x00, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0]);
    frame.extend(source);
    frame.extend([198, 51, 100, 1, 0x9C, 0x40]);
    frame.extend(port.to_be_bytes());
    frame.resize(60, 0);
    frame
}

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Frames and bytes that a flow rule counted.
fn hits(testpmd: &mut Testpmd, rule: u32) -> (u64, u64) {
    testpmd.tell(&format!("flow query 0 {rule} count"));
    let mut number = |name: &str| number_behind(&testpmd.await_line(name), name);
    (number("hits: "), number("bytes: "))
}

#[test]
fn flow_rules_choose_the_queues_of_frames_and_go_with_their_program() {
    let Some(plugin) = SzedataPlugin::find() else { return };
    let mut site = Testbed::with_options("channels=3,buffer=1M");
    let queues = ["--rxq=3", "--txq=3"];
    let mut testpmd = plugin.testpmd(Memory::Ordinary, &[&site.cards[0]], "", "rxonly", &queues);
    for (number, rule) in [
        "priority 1 pattern eth / ipv4 src spec 192.0.2.0 src prefix 24 / udp dst is 53 / end \
         actions queue index 2 / count / end",
        "priority 0 pattern ipv4 src is 192.0.2.9 / udp / end actions drop / count / end",
        "priority 2 pattern eth / vlan vid is 5 / end actions rss types none end queues 0 1 end / end",
        "priority 2 pattern eth type is 0x0800 / ipv4 / tcp dst spec 80 dst last 90 dst mask 65535 / end \
         actions queue index 1 / end",
    ]
    .into_iter()
    .enumerate()
    {
        testpmd.tell(&format!("flow create 0 ingress {rule}"));
        testpmd.await_line(&format!("Flow rule #{number} created"));
    }
    let rules = site.await_rules(4);
    let texts: Vec<_> = rules.iter().map(|rule| (rule.priority, rule.rule.as_str())).collect();
    assert_eq!(
        texts,
        [
            (0, "deny if ipv4 src 192.0.2.9/32 udp dport 0-65535"),
            (1, "allow 2 if ipv4 src 192.0.2.0/24 udp dport 0-65535 dport 53-53"),
            (2, "allow 0,1 if vlan 5 tags 1-8"),
            (2, "allow 1 if ethertype 2048 ipv4 tcp dport 0-65535 dport 80-90 tags 0-0"),
        ]
    );
    assert!(rules.iter().all(|rule| rule.program.program.contains("testpmd")), "{rules:#?}");

    let mut frames = vec![packet(None, UDP, [192, 0, 2, 1], 53); 3];
    frames.extend(vec![packet(None, UDP, [192, 0, 2, 9], 53); 2]);
    // The tagged packets fit the rule of their VLAN alone: that of TCP is for untagged ones.
    frames.extend(vec![packet(Some(5), TCP, [192, 0, 2, 9], 85); 4]);
    frames.extend([80, 85, 90].map(|port| packet(None, TCP, [192, 0, 2, 9], port)));
    site.deliver(&frames);
    let card = site.status(0);
    let by_channel: Vec<_> = card.receive.iter().map(|channel| channel.counters.frames).collect();
    assert_eq!((by_channel, card.ibuf_counters.denied), (vec![2, 5, 3], 2));
    assert_eq!((hits(&mut testpmd, 0), hits(&mut testpmd, 1)), ((3, 180), (2, 120)));

    testpmd.tell("flow destroy 0 rule 2");
    site.await_rules(3);
    testpmd.tell("flow flush 0");
    site.await_rules(0);
    testpmd.tell("flow create 0 ingress pattern end actions drop / end");
    assert_eq!(site.await_rules(1)[0].rule, "deny if tags 0-8");
    testpmd.kill();
    site.await_rules(0);
}

#[test]
fn flow_rules_act_while_their_port_is_started_and_outlive_its_stop() {
    let Some(plugin) = SzedataPlugin::find() else { return };
    let mut site = Testbed::with_options(SMALL);
    let mut keeper = plugin.keeper(&site.cards[0], "", &[]);
    keeper.carry_out("drop 53");
    let rule = "deny if udp dport 0-65535 dport 53-53";
    assert_eq!(site.await_rules(1)[0].rule, rule);
    let dns = packet(None, UDP, [192, 0, 2, 1], 53);
    site.deliver(&[dns.clone(), dns.clone(), packet(None, UDP, [192, 0, 2, 1], 54)]);
    assert_eq!((site.status(0).ibuf_counters.denied, keeper.number("dropped")), (2, 2));
    keeper.carry_out("stop");
    site.await_rules(0);
    site.deliver(std::slice::from_ref(&dns));
    assert_eq!((site.status(0).ibuf_counters.unclaimed, keeper.number("dropped")), (1, 2));
    keeper.carry_out("start");
    assert_eq!(site.await_rules(1)[0].rule, rule);
    site.deliver(std::slice::from_ref(&dns));
    assert_eq!(keeper.number("dropped"), 3);
    // A new card has the rule again. What the old one counted since the start is lost with it.
    site.restart();
    keeper.carry_out("stop");
    keeper.carry_out("start");
    assert_eq!(site.await_rules(1)[0].rule, rule);
    site.deliver(&[dns.clone(), dns]);
    assert_eq!((site.status(0).ibuf_counters.denied, keeper.number("dropped")), (2, 4));
}

#[test]
fn flow_rules_that_a_card_cannot_carry_out_are_refused() {
    let Some(plugin) = SzedataPlugin::find() else { return };
    let site = Testbed::new(1);
    let mut testpmd = plugin.testpmd(Memory::Ordinary, &[&site.cards[0]], "", "rxonly", &[]);
    let patterns = [
        ("eth / udp", "specific pattern item", "none is left out between two"),
        ("ipv6 / icmp", "specific pattern item", "none is left out between two"),
        ("eth / vxlan", "specific pattern item", "the card does not match this"),
        ("eth type is 0x0800 / vlan", "specific pattern item", "no frame has such tags"),
        ("eth type is 0x8100", "item specification", "types of VLAN tags"),
        ("eth / vlan pcp is 3", "item specification", "number of the outermost VLAN"),
        ("eth / vlan / vlan vid is 3", "item specification", "number of the outermost VLAN"),
        ("ipv4 ttl is 5", "item specification", "not other fields"),
        ("ipv6 proto is 6", "item specification", "not other fields"),
        ("tcp flags is 2", "item specification", "not other fields"),
        ("eth dst spec 02:00:00:00:00:01 dst mask ff:ff:ff:00:00:00", "item specification", "as a whole"),
        ("ipv4 src spec 192.0.2.1 src mask 255.0.255.0", "item specification", "as a whole"),
        ("ipv4 src spec 192.0.2.1 src last 192.0.2.9", "item specification", "only ports can be a range"),
        ("udp dst spec 9 dst last 5", "item specification", "ends before it begins"),
    ];
    let patterns = patterns.map(|(pattern, kind, reason)| {
        (format!("ingress pattern {pattern} / end actions drop / end"), kind, reason)
    });
    let actions = [
        ("queue index 1", "action configuration", "no receive queue of this number"),
        ("rss queues 0 end", "action configuration", "leave function, level, types and key"),
        ("rss types none end queues end", "action configuration", "name queues"),
        ("drop / queue index 0", "specific action", "one of drop, queue and rss"),
        ("mark id 1", "specific action", "the card has drop, queue, rss and count"),
        ("count", "number of actions", "choose drop, queue or rss"),
    ];
    let actions = actions.map(|(actions, kind, reason)| {
        (format!("ingress pattern eth / end actions {actions} / end"), kind, reason)
    });
    let attributes = [
        ("ingress group 1", "group field", "one group of rules"),
        ("egress", "egress field", "received frames only"),
        ("ingress transfer", "transfer field", "no other ports"),
    ];
    let attributes = attributes.map(|(attributes, kind, reason)| {
        (format!("{attributes} pattern eth / end actions drop / end"), kind, reason)
    });
    for (rule, kind, reason) in patterns.into_iter().chain(actions).chain(attributes) {
        testpmd.tell(&format!("flow create 0 {rule}"));
        let complaint = testpmd.await_line("Caught PMD error");
        assert!(complaint.contains(kind) && complaint.contains(reason), "{rule}: {complaint}");
    }
    let all = "ingress pattern end actions drop / end";
    let card = CardClient::open(&site.cards[0], "test").unwrap();
    assert_eq!(card.rules().unwrap(), []);
    for _ in 0..MAX_RULES {
        card.add_rule("deny if tcp", 0, false).unwrap();
    }
    testpmd.tell(&format!("flow validate 0 {all}"));
    let complaint = testpmd.await_line("Caught PMD error");
    assert!(complaint.contains("1024 rules"), "{complaint}");
    card.set(&CardRequest::Boot { design: "NIC_100G1_LR4".to_owned() }).unwrap();
    testpmd.tell("port stop 0");
    testpmd.tell("port start 0");
    testpmd.tell(&format!("flow create 0 {all}"));
    let complaint = testpmd.await_line("Caught PMD error");
    assert!(complaint.contains("NIC_100G1_LR4 has no filter"), "{complaint}");
    testpmd.quit();
}

/// Time, ns since the Unix epoch.
fn now_ns() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64
}

#[test]
fn mbufs_have_the_time_at_which_their_frame_came() {
    let Some(plugin) = SzedataPlugin::find() else { return };
    for (metadata, arguments) in [(1, ""), (1, ",extbuf=1"), (0, "")] {
        let mut site = Testbed::with_options(&format!("{SMALL},metadata={metadata}"));
        let times: &[&str] = if metadata == 1 { &["times"] } else { &[] };
        let mut keeper = plugin.keeper(&site.cards[0], arguments, times);
        let mut last = now_ns();
        for number in 0..3 {
            site.send(number, 1, 1500);
            keeper.carry_out("take 1");
            let frame = keeper.frame(number as usize);
            assert_eq!(frame.bytes, broadcast(number, 1500));
            if metadata == 1 {
                let clock = keeper.number("clock");
                assert!(last <= frame.time_ns && frame.time_ns <= clock && clock <= now_ns(), "{frame:?}");
                last = frame.time_ns;
            } else {
                assert_eq!(frame.time_ns, 0);
            }
        }
    }
}

#[test]
fn the_feature_matrix_names_what_the_driver_has() {
    let Some(plugin) = SzedataPlugin::find() else { return };
    let matrix =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../satellites/dpdk-szedata2/doc/features/szedata2.ini");
    let matrix = std::fs::read_to_string(matrix).unwrap();
    let mut section = String::new();
    let mut stated = BTreeSet::new();
    for line in matrix.lines().filter(|line| !line.starts_with(';') && !line.is_empty()) {
        match line.split_once('=') {
            Some((feature, _)) => drop(stated.insert(format!("{section}{}", feature.trim()))),
            None if line == "[Features]" => section.clear(),
            None => section = format!("{}: ", line.trim_matches(['[', ']'])),
        }
    }
    // These are properties of the source, not of the device.
    for other in ["Linux", "x86-64", "Usage doc"] {
        assert!(stated.remove(other), "{other}");
    }
    let site = Testbed::with_options("channels=1,buffer=128K,metadata=1");
    assert_eq!(plugin.keeper(&site.cards[0], "", &[]).features(), stated);
}

#[test]
fn arguments_and_masks_choose_the_channels() {
    let Some(plugin) = SzedataPlugin::find() else { return };
    let site = Testbed::new(2);
    let arguments = ",rx_ifaces=0x2,tx_ifaces=1,tx_ifaces=02,copy=1";
    let mut testpmd =
        plugin.testpmd(Memory::Ordinary, &[&site.cards[0]], arguments, "rxonly", &["--rxq=1", "--txq=2"]);
    let card = site.status(0);
    let has = |channels: &[ChannelStatus]| channels.iter().map(|c| c.running).collect::<Vec<_>>();
    assert_eq!((has(&card.receive), has(&card.transmit)), (vec![false, true], vec![true, true]));
    for (wrong, printed) in [
        (format!("dev_path={},rx_ifaces=4", site.cards[1].display()), "the card has 2 channels"),
        ("rx_ifaces=1".to_owned(), "dev_path is needed"),
        (format!("dev_path={},copy=2", site.cards[1].display()), "choose a number from 0 to 0x1"),
        (format!("dev_path={},copy=0,extbuf=1", site.cards[1].display()), "choose one"),
        ("dev_path=/nonexistent".to_owned(), "/nonexistent"),
    ] {
        testpmd.tell(&format!("port attach net_szedata2_wrong,{wrong}"));
        testpmd.await_line(printed);
    }
    testpmd.tell(&format!("port attach net_szedata2_raw,dev_path={},copy=0", site.cards[1].display()));
    // testpmd's log and its replies come through different streams, so only one of them is awaited.
    testpmd.await_line("for measuring only");
    // A channel in use is not available.
    testpmd.tell(&format!("port attach net_szedata2_second,dev_path={}", site.cards[0].display()));
    testpmd.await_line("Port 2 is attached");
    testpmd.tell("port start 2");
    testpmd.await_line("another program has channel mask");
    testpmd.quit();
}
