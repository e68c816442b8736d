//! Tests of a card whose network side the test serves, and of its programs.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use ringroad_port::batch::Batch;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::port_queue::Delivery;
use ringroad_sze2::ChannelState;
use ringroad_sze2::card::counters::RuleCounters;
use ringroad_sze2::card::distribution::{ChannelDistribution, DistributionMode};
use ringroad_sze2::card::filter::{MAX_RULES, MAX_TEXT_BYTES};
use ringroad_sze2::card::metadata::FrameInfo;
use ringroad_sze2::card::program_rule::MAX_RULE_BYTES;
use ringroad_sze2::card::settings::AddressCheck;
use ringroad_sze2::client::{CardClient, CardError, Wanted};
use ringroad_sze2::message::{CardRequest, CardStatus, MessageError};
use tempfile::TempDir;

use crate::catalogue::port_name::PortName;
use crate::device::{Device, DeviceRole};
use crate::test_queue::{deliver, open, take, try_open};

/// A card under test.
struct Testbed {
    _folder: TempDir,
    path: PathBuf,
    device: Device,
}

impl Testbed {
    fn new(options: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("szedataII0");
        let device = open(&format!("sze2:{}{options}", path.display()));
        Self { _folder: folder, path, device }
    }

    fn program(&self) -> CardClient {
        CardClient::open(&self.path, "test").unwrap()
    }

    /// A program that has started its `receive` and `transmit` channels.
    fn started(&self, receive: u32, transmit: u32) -> CardClient {
        let mut card = self.program();
        assert_eq!(card.subscribe(receive, transmit).unwrap(), (receive, transmit));
        card.start().unwrap();
        card
    }

    fn status(&self) -> CardStatus {
        self.program().status().unwrap()
    }

    /// Delivers frames from the network, each in fragments of `part` bytes.
    fn come(&mut self, queue: usize, frames: &[Vec<u8>], part: usize) -> Delivery {
        deliver(&mut *self.device.queues[queue], frames, part)
    }

    /// Takes frames that go to the network.
    fn go(&mut self, queue: usize) -> Vec<Vec<u8>> {
        take(&mut *self.device.queues[queue])
    }
}

fn frame(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 31 + at * 7) as u8 & 0xFE).collect()
}

/// Takes the waiting frames of a channel, and gives their segments back.
fn received(card: &mut CardClient, channel: u16) -> Vec<Vec<u8>> {
    let reader = card.reader(channel).unwrap();
    let mut frames = Vec::new();
    while let Some(segment) = reader.take().unwrap() {
        let mut bytes = vec![0; segment.frame().len()];
        segment.frame().read(&mut bytes);
        frames.push(bytes);
    }
    reader.release_all();
    card.publish_received(channel);
    frames
}

fn transmit(card: &mut CardClient, channel: u16, frame: &[u8]) {
    let segment = card.writer(channel).unwrap().reserve(&[], frame.len()).unwrap();
    assert_eq!(segment.unwrap().write(frame), frame.len());
    card.publish_transmitted(channel);
}

const ONE: &str = "@channels=1,buffer=128K,block=4K";

#[test]
fn received_frames_lie_in_the_channel_unchanged_over_many_laps() {
    let mut site = Testbed::new(ONE);
    let mut card = site.started(1, 0);
    let lengths = [14, 60, 61, 64, 777, 1500, 1514, 9018, 65527];
    let (mut frames_in, mut bytes_in) = (0, 0);
    for number in 0..300 {
        let frames: Vec<Vec<u8>> = (0..2).map(|at| frame(number + at, lengths[(number + at) % 8])).collect();
        let delivery = site.come(0, &frames, [64, 100_000][number % 2]);
        assert_eq!((delivery.frames, delivery.dropped.total()), (2, 0));
        assert_eq!(received(&mut card, 0), frames);
        frames_in += 2;
        bytes_in += delivery.bytes;
    }
    let longest = vec![frame(1, lengths[8])];
    assert_eq!(site.come(0, &longest, 65535).frames, 1);
    assert_eq!(received(&mut card, 0), longest);
    let status = site.status();
    assert_eq!((status.ibuf_counters.frames, status.ibuf_counters.bytes), (frames_in + 1, bytes_in + 65527));
    assert_eq!(status.ibuf_counters.total(), frames_in + 1);
    let channel = &status.receive[0];
    assert_eq!((channel.counters.frames, channel.counters.bytes), (frames_in + 1, bytes_in + 65527));
    assert_eq!((channel.running, channel.used_bytes), (true, 0));
    let subscriber = channel.subscriber.as_ref().unwrap();
    assert_eq!((subscriber.pid, subscriber.program.as_str()), (Some(std::process::id()), "test"));
}

#[test]
fn frames_beyond_the_channels_room_are_dropped_and_counted() {
    let mut site = Testbed::new(ONE);
    let mut card = site.started(1, 0);
    let frames: Vec<Vec<u8>> = (0..200).map(|number| frame(number, 1514)).collect();
    let delivery = site.come(0, &frames, 65535);
    // Each segment has 1528 bytes, and 8 bytes stay free.
    let fitting = (128 * 1024 - 8) / 1528;
    assert_eq!((delivery.frames, delivery.dropped.of(DropCause::NoSpace)), (fitting, 200 - fitting));
    let counters = site.status().ibuf_counters;
    assert_eq!(
        (counters.overflow, counters.total(), counters.total() - counters.overflow - counters.frames),
        (u64::from(200 - fitting), 200, 0)
    );
    assert_eq!(site.status().receive[0].used_bytes, u64::from(fitting) * 1528);
    assert_eq!(received(&mut card, 0), frames[..fitting as usize]);
    assert_eq!(site.come(0, &frames[..10], 65535).frames, 10);
}

#[test]
fn frames_for_a_channel_that_is_not_started_are_not_bound() {
    let mut site = Testbed::new("@channels=2,buffer=128K,block=4K");
    let frames = [frame(0, 60), frame(1, 60)];
    assert_eq!(site.come(0, &frames, 100).dropped.of(DropCause::NotBound), 2);
    let mut card = site.program();
    assert_eq!(card.subscribe(0b111, 0b100).unwrap(), (0b11, 0), "what the card does not have is not given");
    assert_eq!(card.ends(0).0.map(|reader| reader.memory().state()), Some(ChannelState::Stopped));
    assert_eq!(site.come(0, &frames, 100).dropped.of(DropCause::NotBound), 2);
    card.start().unwrap();
    assert_eq!(card.ends(0).0.map(|reader| reader.memory().state()), Some(ChannelState::Running));
    assert_eq!(site.come(0, &frames, 100).frames, 2);
    assert_eq!(received(&mut card, 0).len() + received(&mut card, 1).len(), 2);
    card.stop().unwrap();
    assert_eq!(site.come(0, &frames, 100).dropped.of(DropCause::NotBound), 2);
    assert_eq!(site.status().ibuf_counters.unclaimed, 6);
}

#[test]
fn a_channel_belongs_to_one_program_until_it_leaves() {
    let mut site = Testbed::new("@channels=4,buffer=128K,block=4K");
    let mut first = site.started(0b0011, 0b0001);
    let mut second = site.program();
    assert_eq!(second.subscribe(0b1111, 0b0011).unwrap(), (0b1100, 0b0010));
    transmit(&mut first, 0, &frame(7, 60));
    drop(first);
    // The server learns of the end some time later.
    let mut given = (0, 0);
    while given != (0b0011, 0b0001) {
        let more = second.subscribe(0b0011, 0b0001).unwrap();
        given = (given.0 | more.0, given.1 | more.1);
    }
    second.start().unwrap();
    // Frames that the first program had published are sent before those of the second.
    transmit(&mut second, 0, &frame(8, 60));
    let mut went = site.go(0);
    went.extend(site.go(0));
    assert_eq!(went, [frame(7, 60), frame(8, 60)]);
}

#[test]
fn frames_that_programs_transmit_reach_the_network_in_order() {
    let mut site = Testbed::new("@channels=3,buffer=128K,block=4K,queues=2");
    let mut card = site.started(0, 0b111);
    let mut went: [Vec<Vec<u8>>; 2] = [Vec::new(), Vec::new()];
    for number in 0..500 {
        for channel in 0..3 {
            transmit(
                &mut card,
                channel,
                &frame(3 * number + usize::from(channel), [60, 1514, 9018][number % 3]),
            );
        }
        for (queue, went) in went.iter_mut().enumerate() {
            went.extend(site.go(queue));
        }
    }
    // The first queue serves channels 0 and 2.
    assert_eq!((went[0].len(), went[1].len()), (1000, 500));
    for (number, frames) in went[0].chunks(2).enumerate() {
        let mut expected = [0, 2].map(|channel| frame(3 * number + channel, [60, 1514, 9018][number % 3]));
        if frames[0] != expected[0] {
            expected.reverse();
        }
        assert!(frames == expected);
    }
    let status = site.status();
    assert_eq!(status.obuf_counters.frames, 1500);
    assert_eq!(status.transmit.iter().map(|channel| channel.counters.frames).collect::<Vec<_>>(), [500; 3]);
}

#[test]
fn a_program_that_breaks_a_rule_is_stopped_alone() {
    let mut site = Testbed::new("@channels=2,buffer=128K,block=4K");
    let (mut bad, mut good) = (site.started(0b01, 0b01), site.started(0b10, 0b10));
    transmit(&mut bad, 0, &frame(1, 60));
    // The test writes a segment of no bytes.
    let writer = bad.writer(0).unwrap();
    writer.memory().data(writer.position(), 8).write(&[0; 8]);
    assert!(writer.skip(64).unwrap());
    bad.publish_transmitted(0);
    transmit(&mut good, 1, &frame(2, 60));
    let mut went = site.go(0);
    went.sort();
    assert_eq!(went, [frame(1, 60), frame(2, 60)]);
    assert_eq!(bad.transmit_state(0), Some(ChannelState::Faulty));
    assert_eq!(good.transmit_state(1), Some(ChannelState::Running));
    let channel = &site.status().transmit[0];
    assert_eq!(channel.faults, 1);
    assert!(channel.fault.as_ref().unwrap().contains("shorter than its own header"), "{channel:?}");
    assert_eq!(site.device.queues[0].diagnosis().unwrap().violations(), 1);
    transmit(&mut good, 1, &frame(3, 60));
    assert_eq!(site.go(0), [frame(3, 60)]);
    // A new subscription starts from the beginning.
    bad.stop().unwrap();
    assert_eq!(bad.subscribe(0, 0b01).unwrap(), (0, 0b01));
    bad.start().unwrap();
    transmit(&mut bad, 0, &frame(4, 60));
    assert_eq!(site.go(0), [frame(4, 60)]);
    assert_eq!(site.status().transmit[0].fault, None);
}

#[test]
fn settings_hold_from_the_next_batch_on() {
    let mut site = Testbed::new("@channels=2,buffer=128K,block=4K,mac=00:11:17:00:00:05");
    let mut card = site.started(0b11, 0b01);
    let own = [vec![0, 0x11, 0x17, 0, 0, 5], vec![0; 54]].concat();
    let (group, other) = ([vec![1; 6], vec![0; 54]].concat(), [vec![2; 6], vec![0; 54]].concat());
    let all = [own.clone(), group, other];
    let mut ibuf = site.status().ibuf;
    ibuf.address_check = AddressCheck::Listed;
    card.set(&CardRequest::SetIbuf { ibuf: ibuf.clone() }).unwrap();
    let delivery = site.come(0, &all, 100);
    assert_eq!((delivery.frames, delivery.dropped.of(DropCause::Filtered)), (1, 2));
    ibuf.enabled = false;
    card.set(&CardRequest::SetIbuf { ibuf: ibuf.clone() }).unwrap();
    assert_eq!(site.come(0, &all, 100).dropped.of(DropCause::LinkDown), 3);
    (ibuf.enabled, ibuf.address_check, ibuf.max_frame_bytes) = (true, AddressCheck::Promiscuous, 59);
    card.set(&CardRequest::SetIbuf { ibuf: ibuf.clone() }).unwrap();
    assert_eq!(site.come(0, &all, 100).dropped.of(DropCause::TooLong), 3);
    (ibuf.max_frame_bytes, ibuf.min_frame_bytes) = (100, 61);
    card.set(&CardRequest::SetIbuf { ibuf: ibuf.clone() }).unwrap();
    assert_eq!(site.come(0, &all, 100).dropped.of(DropCause::TooShort), 3);
    ibuf.min_frame_bytes = 0;
    card.set(&CardRequest::SetIbuf { ibuf }).unwrap();
    received(&mut card, 0);
    received(&mut card, 1);
    card.set(&CardRequest::SetFilter { rules: "default allow 1\ndeny if dmac 02:02:02:02:02:02".into() })
        .unwrap();
    assert_eq!(site.come(0, &all, 100).dropped.of(DropCause::Filtered), 1);
    assert_eq!((received(&mut card, 0).len(), received(&mut card, 1).len()), (0, 2));
    let counters = site.status().ibuf_counters;
    assert_eq!((counters.total(), counters.frames, counters.address, counters.denied), (15, 3, 2, 1));
    assert_eq!((counters.disabled, counters.long, counters.short), (3, 3, 3));
    let hash = ChannelDistribution { spread: DistributionMode::Hash, ports: true };
    card.set(&CardRequest::SetFilter { rules: "default allow 0-1".into() }).unwrap();
    card.set(&CardRequest::SetDistribution { distribution: hash }).unwrap();
    assert_eq!(site.come(0, &vec![own.clone(); 20], 100).frames, 20);
    assert!(received(&mut card, 0).len().is_multiple_of(20));

    card.set(&CardRequest::SetObuf { enabled: false }).unwrap();
    transmit(&mut card, 0, &own);
    assert!(site.go(0).is_empty());
    card.set(&CardRequest::SetObuf { enabled: true }).unwrap();
    transmit(&mut card, 0, &own);
    assert_eq!(site.go(0), [own]);
    let status = site.status();
    assert_eq!((status.obuf_counters.frames, status.obuf_counters.disabled), (1, 1));
    card.set(&CardRequest::ClearCounters).unwrap();
    assert_eq!(site.status().ibuf_counters.total(), 0);
}

#[test]
fn invalid_settings_are_refused_and_change_nothing() {
    let site = Testbed::new(ONE);
    let (card, before) = (site.program(), site.status());
    let mut ibuf = before.ibuf.clone();
    ibuf.addresses = vec![[1; 6]];
    let refused = |request| match card.set(&request) {
        Err(CardError::Refused(reason)) => reason,
        other => panic!("{other:?}"),
    };
    assert!(refused(CardRequest::SetIbuf { ibuf }).contains("group"));
    assert!(refused(CardRequest::SetFilter { rules: "default allow 0-1".into() }).contains("channel 1"));
    assert!(refused(CardRequest::SetFilter { rules: "deny everything".into() }).contains("line 1"));
    assert_eq!(site.status(), before);
}

#[test]
fn rules_of_programs_come_before_the_filter_and_go_with_their_program() {
    let mut site = Testbed::new("@channels=4,buffer=128K,block=4K");
    let mut card = site.started(0xF, 0);
    card.set(&CardRequest::SetFilter { rules: "default deny".into() }).unwrap();
    let (first, second) = (site.program(), site.program());
    let frame =
        |station: u8| [&[2, 0, 0, 0, 0, station][..], &[4; 6], &[0x88, 0xb5], &[station; 46]].concat();
    let mut channels = |site: &mut Testbed, stations: &[u8]| {
        let frames: Vec<_> = stations.iter().map(|station| frame(*station)).collect();
        site.come(0, &frames, 100);
        [0, 1, 2, 3].map(|channel| received(&mut card, channel).len())
    };
    // The rules of the earlier connection come first, although the later one adds its rule before.
    second.add_rule("allow 3 if tags 0", 0, false).unwrap();
    let late = first.add_rule("allow 2 if smac 04:04:04:04:04:04", 2, true).unwrap();
    let early = first.add_rule("  deny if\tdmac 02:00:00:00:00:01", 1, true).unwrap();
    first.add_rule("allow 1 if dmac 02:00:00:00:00:02", 1, false).unwrap();
    first.add_rule("allow 0 if dmac 02:00:00:00:00:02", 1, false).unwrap();
    assert_eq!(channels(&mut site, &[1, 2, 2, 3]), [0, 2, 1, 0]);
    let counted = |program: &CardClient, rule| {
        let RuleCounters { frames, bytes } = program.rule_counters(rule).unwrap();
        (frames, bytes)
    };
    assert_eq!((counted(&first, early), counted(&first, late)), ((1, 60), (1, 60)));
    let rules = site.program().rules().unwrap();
    let order: Vec<_> = rules.iter().map(|rule| (rule.priority, rule.rule.as_str())).collect();
    assert_eq!(
        order,
        [
            (1, "deny if dmac 02:00:00:00:00:01"),
            (1, "allow 1 if dmac 02:00:00:00:00:02"),
            (1, "allow 0 if dmac 02:00:00:00:00:02"),
            (2, "allow 2 if smac 04:04:04:04:04:04"),
            (0, "allow 3 if tags 0"),
        ]
    );
    assert_eq!((rules[0].counters.unwrap().frames, rules[1].counters), (1, None));

    let refused = |result: Result<u64, CardError>| match result {
        Err(CardError::Refused(reason)) => reason,
        other => panic!("{other:?}"),
    };
    let none = |rule| second.remove_rule(rule).map(|counters| counters.frames);
    assert!(refused(none(early)).contains("has no rule"), "it is another program's");
    assert_eq!(first.remove_rule(early).unwrap().frames, 1);
    assert!(refused(first.remove_rule(early).map(|_| 0)).contains("has no rule"));
    assert_eq!(channels(&mut site, &[1]), [0, 0, 1, 0]);
    for (rule, reason) in [
        ("allow 4 if tcp", "channel 4, and the card has 0 to 3"),
        ("default allow 0", "a rule begins with"),
        ("allow 1", "ends with `if`"),
        (&format!("deny if {}", "tcp ".repeat(200)), "512 is the most"),
    ] {
        assert!(refused(first.add_rule(rule, 0, false)).contains(reason), "{rule}");
        assert!(first.check_rule(rule).unwrap_err().to_string().contains(reason), "{rule}");
    }
    // A subscription's end leaves the rules; the connection's takes them.
    let mut first = first;
    first.stop().unwrap();
    assert_eq!(channels(&mut site, &[2]), [0, 1, 0, 0]);
    drop(first);
    // The server sees the hang-up before the next request.
    assert_eq!(second.rules().unwrap().len(), 1);
    assert_eq!(channels(&mut site, &[2]), [0, 0, 0, 1]);
    second.set(&CardRequest::Boot { design: "HANIC_100G1_LR4".into() }).unwrap();
    assert_eq!(second.rules().unwrap(), []);
}

#[test]
fn a_card_has_a_limited_number_of_rules_and_reports_them_all() {
    let site = Testbed::new(ONE);
    let programs = [site.program(), site.program()];
    let longest = format!(
        "deny if src {0} dst {0} {1}",
        "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff/128",
        "tcp ".repeat(98)
    );
    assert!(longest.trim_end().len() > MAX_RULE_BYTES - 20);
    for number in 0..MAX_RULES {
        programs[number % 2].add_rule(&longest, 0, true).unwrap();
    }
    let refused = programs[0].add_rule("deny if tcp", 0, false).unwrap_err();
    assert!(refused.to_string().contains("programs have 1024 rules"), "{refused}");
    let rules = site.program().rules().unwrap();
    assert!(rules.len() == MAX_RULES && rules.iter().all(|rule| rule.rule == longest.trim_end()));
}

#[test]
fn a_sleeping_program_is_woken() {
    let mut site = Testbed::new(ONE);
    let mut card = site.started(1, 1);
    let wanted = Wanted { receive: 1, transmit: 0, transmit_bytes: 0 };
    assert_eq!(card.wait(&wanted, Some(Duration::ZERO)).unwrap(), (0, 0));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| card.wait(&wanted, None).map(|ready| (ready, card)));
        // The frame arrives whether the program sleeps already or not.
        assert_eq!(site.come(0, &[frame(1, 60)], 100).frames, 1);
        let (ready, mut card) = waiting.join().unwrap().unwrap();
        assert_eq!(ready, (1, 0));
        assert_eq!(received(&mut card, 0), [frame(1, 60)]);

        let queue = &mut site.device.queues[0];
        queue.sleeper().unwrap().drain_wake();
        queue.sleeper().unwrap().prepare_sleep(true);
        assert!(!queue.sleeper().unwrap().has_waiting());
        transmit(&mut card, 0, &frame(2, 60));
        let wake = queue.sleeper().unwrap().wake_descriptor().unwrap();
        let mut waits = [rustix::event::PollFd::from_borrowed_fd(wake, rustix::event::PollFlags::IN)];
        assert_eq!(rustix::event::poll(&mut waits, None).unwrap(), 1);
        queue.sleeper().unwrap().prepare_sleep(false);
        assert!(queue.sleeper().unwrap().has_waiting());
        assert_eq!(site.go(0), [frame(2, 60)]);

        // The transmit buffer is full, so that room must wake the program.
        while card.writer(0).unwrap().reserve(&[], 9000).unwrap().is_some() {}
        card.publish_transmitted(0);
        let wanted = Wanted { receive: 0, transmit: 1, transmit_bytes: 100_000 };
        let waiting = scope.spawn(move || card.wait(&wanted, None).unwrap());
        while !site.go(0).is_empty() {}
        assert_eq!(waiting.join().unwrap(), (0, 1));
    });
}

#[test]
fn the_end_of_a_card_ends_the_wait() {
    let site = Testbed::new(ONE);
    let mut card = site.started(1, 0);
    let path = site.path.clone();
    let waiting = std::thread::spawn(move || {
        let ended = card.wait(&Wanted { receive: 1, ..Wanted::default() }, None);
        (ended, card.ends(0).0.map(|reader| reader.memory().state()))
    });
    drop(site);
    let (ended, state) = waiting.join().unwrap();
    assert!(matches!(ended, Err(CardError::Message { source: MessageError::Gone, .. })));
    assert_eq!(state, Some(ChannelState::Gone));
    assert!(matches!(CardClient::open(&path, "test"), Err(CardError::NotThere { .. })));
}

#[test]
fn a_channel_gets_a_new_buffer_without_losing_a_frame() {
    let mut site = Testbed::new(ONE);
    let mut card = site.started(1, 0);
    let frames: Vec<Vec<u8>> = (0..240).map(|number| frame(number, 1514)).collect();
    assert_eq!(site.come(0, &frames[..80], 65535).frames, 80);
    // The first frame stays out, so the old buffer has no room for all that come.
    let old = Arc::clone(card.reader(0).unwrap().memory());
    let first = card.reader(0).unwrap().take().unwrap().unwrap().frame().as_ptr();
    card.renew(0).unwrap();
    assert_eq!(old.state(), ChannelState::Stopped);
    assert_eq!(site.status().receive[0].used_bytes, 0, "the card reports the new buffer");
    assert_eq!(site.come(0, &frames[80..160], 65535).frames, 80);
    assert!(!card.leave_empty_buffer(0).unwrap(), "the old buffer still has frames");
    assert_eq!(received(&mut card, 0), frames[1..80]);
    // A wait goes on to the new buffer as well.
    let wanted = Wanted { receive: 1, ..Wanted::default() };
    assert_eq!(card.wait(&wanted, None).unwrap(), (1, 0));
    assert_eq!(received(&mut card, 0), frames[80..160]);
    let mut kept = vec![0; 1514];
    old.data(first.addr() as u64 - old.data(0, 0).as_ptr().addr() as u64, 1514).read(&mut kept);
    assert_eq!(kept, frames[0]);
    assert_eq!(site.come(0, &frames[160..], 65535).frames, 80);
    assert_eq!(received(&mut card, 0), frames[160..]);
    let status = site.status();
    assert_eq!((status.ibuf_counters.frames, status.ibuf_counters.total()), (240, 240));
    assert_eq!(status.receive[0].counters.frames, 240);
    // Only the owner of a running channel gets one.
    let refused = |card: &mut CardClient, channel| card.renew(channel).unwrap_err().to_string();
    assert!(refused(&mut card, 1).contains("has not subscribed receive channel 1"));
    assert!(refused(&mut site.program(), 0).contains("has not subscribed receive channel 0"));
    card.stop().unwrap();
    assert!(refused(&mut card, 0).contains("has not subscribed"));
    assert_eq!(card.subscribe(1, 0).unwrap(), (1, 0));
    assert!(refused(&mut card, 0).contains("receive channel 0 is not running"));
}

#[test]
fn a_program_subscribes_all_channels_of_a_card() {
    let site = Testbed::new("@channels=32,buffer=128K,block=4K");
    // Programs of before version 0.3 make one request.
    let at_once = CardRequest::Subscribe { receive: u32::MAX, transmit: u32::MAX };
    assert!(site.program().set(&at_once).unwrap_err().to_string().contains("by a request each"));
    assert_eq!(site.started(u32::MAX, u32::MAX).subscribed(), (u32::MAX, u32::MAX));
}

#[test]
fn the_status_of_a_card_with_the_longest_filter_is_one_message() {
    let site = Testbed::new("@channels=32,buffer=128K,block=4K");
    let _card = site.started(u32::MAX, u32::MAX);
    let mut rules = "default allow 1\n#".to_owned();
    // A quotation mark takes two bytes of a message.
    rules.extend(std::iter::repeat_n('"', MAX_TEXT_BYTES - rules.len()));
    let set = |rules: &str| site.program().set(&CardRequest::SetFilter { rules: rules.to_owned() });
    set(&rules).unwrap();
    assert_eq!(site.status().filter, rules);
    rules.push('#');
    assert!(set(&rules).unwrap_err().to_string().contains("the filter has 49153 bytes"));
    assert!(set("default deny\n# \u{1b}[2J").unwrap_err().to_string().contains("line 2"));
}

#[test]
fn a_design_sets_what_a_card_can_do_and_booting_one_ends_all_subscriptions() {
    let mut site = Testbed::new("@channels=16,buffer=128K,block=4K,design=NIC_100G1_LR4");
    let card = site.started(0xFF, 1);
    let design = card.design().unwrap();
    assert_eq!((design.to_string().as_str(), design.channels), ("NIC_100G1_LR4", 8));
    assert_eq!((site.status().info.receive_channels, site.status().receive.len()), (8, 8));
    assert_eq!(site.program().subscribe(0x100, 0x100).unwrap(), (0, 0), "the design has no ninth channel");
    let program = site.program();
    let filter = CardRequest::SetFilter { rules: "default allow 9".into() };
    let hash = ChannelDistribution { spread: DistributionMode::Hash, ports: true };
    let distribution = CardRequest::SetDistribution { distribution: hash };
    for request in [&filter, &distribution] {
        let refused = program.set(request).unwrap_err().to_string();
        assert!(refused.contains("design NIC_100G1_LR4 has no"), "{refused}");
    }
    program.set(&CardRequest::SetObuf { enabled: false }).unwrap();
    assert_eq!(site.come(0, &[frame(1, 60)], 100).frames, 1);

    let boot = |design: &str| program.set(&CardRequest::Boot { design: design.into() });
    assert!(boot("HANIC").unwrap_err().to_string().contains("choose RINGROAD, NIC_100G1_LR4"));
    boot("RINGROAD").unwrap();
    assert!(matches!(card.status(), Err(CardError::Message { source: MessageError::Gone, .. })));
    assert_eq!(card.transmit_state(0), Some(ChannelState::Gone));
    let status = program.status().unwrap();
    assert!(status.receive.iter().chain(&status.transmit).all(|channel| channel.subscriber.is_none()));
    assert_eq!((status.receive.len(), status.obuf_enabled, status.ibuf_counters.total()), (16, true, 0));
    program.set(&filter).unwrap();
    program.set(&distribution).unwrap();
    assert_eq!(site.started(0xFFFF, 0xFFFF).subscribed(), (0xFFFF, 0xFFFF));
    boot("HANIC_100G1_LR4").unwrap();
    assert_eq!(program.design().unwrap().to_string(), "HANIC_100G1_LR4 4.1");
    assert!(program.set(&filter).unwrap_err().to_string().contains("channel 9"));
}

#[test]
fn frames_carry_their_arrival_time() {
    let mut site = Testbed::new("@channels=1,buffer=128K,block=4K,metadata=1");
    let mut card = site.started(1, 0);
    assert_eq!(site.come(0, &[frame(1, 60)], 100).frames, 1);
    let segment = card.reader(0).unwrap().take().unwrap().unwrap();
    let mut metadata = [0; 12];
    assert_eq!(segment.metadata().read(&mut metadata), 12);
    let info = FrameInfo::from_bytes(&metadata).unwrap();
    // The time is later than the writing of this test.
    assert!(info.timestamp_ns > 1_700_000_000_000_000_000 && info.interface == 0);
    assert_eq!(segment.frame().len(), 60);
}

#[test]
fn garbage_at_the_socket_is_answered_and_ends_the_connection() {
    let site = Testbed::new(ONE);
    assert!(UnixStream::connect(&site.path).is_err(), "the socket is for packets");
    let kind = rustix::net::SocketType::SEQPACKET;
    let socket = rustix::net::socket(rustix::net::AddressFamily::UNIX, kind, None).unwrap();
    rustix::net::connect(&socket, &rustix::net::SocketAddrUnix::new(&site.path).unwrap()).unwrap();
    let mut stream = UnixStream::from(socket);
    stream.write_all(b"{\"request\":\"hello\",\"version\":").unwrap();
    let mut answer = [0; 4096];
    let bytes = rustix::io::read(&stream, &mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer[..bytes]).into_owned();
    assert!(answer.contains("refused") && answer.contains("invalid message"), "{answer}");
    assert_eq!(rustix::io::read(&stream, &mut [0; 8]).unwrap(), 0);
    // Other programs are still served.
    let _card = site.started(1, 1);
}

#[test]
fn impossible_cards_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = |options: &str| {
        let name = format!("sze2:{}{options}", folder.path().join("c").display());
        match name.parse::<PortName>() {
            Ok(_) => try_open(&name, DeviceRole::SwitchPort).unwrap_err().to_string(),
            Err(error) => error.to_string(),
        }
    };
    assert!(refusal("@channels=33").contains("1 to 32"));
    assert!(refusal("@buffer=3M").contains("powers of two"));
    assert!(refusal("@buffer=1M,block=2M").contains("no larger than it"));
}

#[test]
fn a_port_of_the_programs_side_passes_frames_both_ways() {
    let mut site = Testbed::new("@channels=2,buffer=128K,block=4K,metadata=1");
    let name = format!("szedata:{}@channel=1", site.path.display());
    let mut port = open(&name);
    let refused = try_open(&name, DeviceRole::Program).unwrap_err();
    assert!(refused.to_string().contains("channel 1"), "{refused}");
    let queue = &mut port.queues[0];
    site.program().set(&CardRequest::SetFilter { rules: "default allow 1".into() }).unwrap();
    assert_eq!(site.come(0, &[frame(1, 1514), frame(2, 60)], 100).frames, 2);
    let mut batch = Batch::new();
    batch.reset(256);
    queue.receive(&mut batch);
    assert_eq!((batch.frames(), batch.frame_bytes(0), batch.frame_bytes(1)), (2, 1514, 60));
    assert!(batch.meta(1).timestamp_ns > 1_700_000_000_000_000_000);
    let delivery = queue.deliver(&mut batch, &[1, 0]);
    assert_eq!(delivery.frames, 2);
    queue.release(2);
    queue.flush();
    assert_eq!(site.go(0), [frame(2, 60), frame(1, 1514)]);
    assert_eq!(site.status().receive[1].used_bytes, 0);
    // Backpressure lasts from the moment without room until there is room again.
    while queue.backpressure().unwrap().room(1514) > 0 {
        assert_eq!(queue.deliver(&mut batch, &[0]).frames, 1);
    }
    assert_eq!(queue.deliver(&mut batch, &[0]).dropped.of(DropCause::NoSpace), 1);
    queue.flush();
    assert!(!queue.backpressure().unwrap().await_room());
    queue.sleeper().unwrap().prepare_sleep(true);
    assert!(queue.backpressure().unwrap().await_room());
    while !site.go(0).is_empty() {}
    let wake = queue.sleeper().unwrap().wake_descriptor().unwrap();
    let mut waits = [rustix::event::PollFd::from_borrowed_fd(wake, rustix::event::PollFlags::IN)];
    assert_eq!(rustix::event::poll(&mut waits, None).unwrap(), 1);
    assert!(queue.backpressure().unwrap().room(1514) > 0);
    queue.sleeper().unwrap().drain_wake();
    assert!(!queue.diagnosis().unwrap().is_gone());
    drop(site);
    queue.sleeper().unwrap().drain_wake();
    assert!(queue.diagnosis().unwrap().is_gone());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn nothing_that_a_program_writes_makes_the_card_panic(
        bytes in proptest::collection::vec(any::<u8>(), 8..4000), skip in 1usize..500, rounds in 1usize..5
    ) {
        let mut site = Testbed::new(ONE);
        let mut card = site.started(1, 1);
        for round in 0..rounds {
            let writer = card.writer(0).unwrap();
            writer.memory().data(writer.position() + 8 * (round as u64), bytes.len()).write(&bytes);
            let _ = writer.skip(skip * 8);
            card.publish_transmitted(0);
            let went = site.go(0);
            prop_assert!(went.iter().map(Vec::len).sum::<usize>() <= skip * 8 * rounds);
            let frames: Vec<Vec<u8>> = (0..10).map(|number| frame(number, 1514)).collect();
            let delivery = site.come(0, &frames, 65535);
            prop_assert_eq!(delivery.frames + delivery.dropped.total(), 10);
        }
    }
}
