//! Tests of device failures: a program that steps its own datapath gets the error of its failed device, and programs of
//! other devices do not.

#![allow(clippy::unwrap_used)]

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ringroad::{Embedded, EmbeddedThread, Interest, Port, PortError, RingViolation};

/// Deadline that only a failure reaches: every wait below ends with an event.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

fn frame(number: u8) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1, 0x88, 0xb5, number]);
    frame.resize(60, number);
    frame
}

/// Sends frames from one port to another, until one has come: until their peers have connected, frames may be dropped.
fn pass(from: &mut Port, to: &mut Port) {
    let mut got = Vec::new();
    while to.rx().receive(&mut got).is_none() {
        from.tx().send(&frame(1)).unwrap();
        from.tx().sync().unwrap();
        // Each side connects in its own syncs, so a wait for the other side must be short.
        to.wait(Interest::Rx, Some(Duration::from_millis(1))).unwrap();
    }
    assert_eq!(got, frame(1));
    to.rx().sync().unwrap();
}

/// Overwrites each mapping of the memory files of this name, from `offset` bytes after the start. Only one test may
/// have such files.
fn scribble(name: &str, offset: u64, bytes: &[u8]) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let memory = OpenOptions::new().write(true).open("/proc/self/mem").unwrap();
    let mapped: Vec<&str> = maps.lines().filter(|line| line.contains(&format!("/memfd:{name} "))).collect();
    assert!(!mapped.is_empty());
    for line in mapped {
        let start = line.split('-').next().unwrap();
        memory.write_all_at(bytes, u64::from_str_radix(start, 16).unwrap() + offset).unwrap();
    }
}

/// Takes frames until the device fails. Returns the reason.
fn await_failure(port: &mut Port) -> String {
    loop {
        match port.wait(Interest::Rx, PATIENCE) {
            Ok(true) => {
                let frames = port.rx().available();
                port.rx().release(frames);
            }
            Err(PortError::Device(why)) => return why,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_end_of_a_capture_card_ends_the_wait_of_its_program_and_of_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["ends", "stays"].map(|name| folder.path().join(name));
    let cards = Embedded::new();
    let [ends, mut stays] =
        paths.each_ref().map(|path| cards.open(&format!("sze2:{}@channels=1", path.display())).unwrap());
    let net = Embedded::new();
    let [mut program, mut other] =
        paths.each_ref().map(|path| net.open(&format!("szedata:{}", path.display())).unwrap());
    pass(&mut stays, &mut other);
    let waits = std::thread::spawn(move || {
        let why = await_failure(&mut program);
        (program, why)
    });
    drop(ends);
    let (mut program, why) = waits.join().unwrap();
    assert!(why.contains("channel 0: the program that serves the card has ended"), "{why}");
    assert!(matches!(program.tx().sync(), Err(PortError::Device(_))), "what is sent is lost, too");
    pass(&mut stays, &mut other);
}

#[test]
fn the_end_of_a_capture_card_ends_the_wait_before_a_datapath_on_a_thread() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card");
    let card = Embedded::new().open(&format!("sze2:{}@channels=1", path.display())).unwrap();
    let net = Embedded::on_thread(&EmbeddedThread::default()).unwrap();
    let mut program = net.open(&format!("szedata:{}", path.display())).unwrap();
    let waits = std::thread::spawn(move || program.wait(Interest::Rx, PATIENCE));
    drop(card);
    let ended = waits.join().unwrap();
    assert!(matches!(ended, Err(PortError::RingStopped(RingViolation::DeviceGone))), "{ended:?}");
}

#[test]
fn a_memif_peer_that_breaks_a_ring_is_an_error_of_the_programs_wait() {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("memif:{}", folder.path().join("socket").display());
    let mut server = Port::open(&name).unwrap();
    let mut client = Port::open(&format!("{name}@role=client")).unwrap();
    pass(&mut client, &mut server);
    // Head of the first ring, by which a client publishes its frames.
    scribble("memif", 6, &[0xff; 2]);
    let why = await_failure(&mut server);
    assert!(why.contains("the rx ring 0 was stopped"), "{why}");
}

/// Lock of the tests that overwrite a guest's memory: they find the memory by its name, so one test runs at a time.
static GUESTS: Mutex<()> = Mutex::new(());

#[test]
fn a_guest_that_breaks_a_ring_is_an_error_of_the_programs_sync() {
    let _alone = GUESTS.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut program = Port::open(&format!("vhost-user:{}", path.display())).unwrap();
    let mut guest = Port::open(&format!("virtio-user:{}", path.display())).unwrap();
    pass(&mut guest, &mut program);
    pass(&mut program, &mut guest);
    // Descriptors of the first ring, in which the guest receives: they become invalid.
    scribble("ringroad-virtio-user", 0, &[0xff; 16 * 1024]);
    assert!(program.tx().send(&frame(2)).unwrap());
    let failed = program.tx().sync();
    assert!(
        matches!(&failed, Err(PortError::Device(why)) if why.contains("the guest's receive queue is stopped")),
        "{failed:?}"
    );
    // A program that only receives gets the error, too, after the frames that had come.
    await_failure(&mut program);
}

#[test]
fn a_back_end_that_breaks_a_ring_is_an_error_of_the_programs_wait() {
    let _alone = GUESTS.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut back_end = Port::open(&format!("vhost-user:{}", path.display())).unwrap();
    let mut program = Port::open(&format!("virtio-user:{}", path.display())).unwrap();
    pass(&mut back_end, &mut program);
    // Used ring of the first virtqueue: it follows 1024 descriptors and the available ring.
    scribble("ringroad-virtio-user", 1024 * (16 + 2), &[0xff; 1024]);
    let why = await_failure(&mut program);
    assert!(why.contains("broke a rule"), "{why}");
}

#[test]
fn the_end_of_a_capture_card_ends_the_waits_of_all_threads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card");
    let mut card = Embedded::new().open(&format!("sze2:{}@channels=2", path.display())).unwrap();
    let mut program = Embedded::new().open(&format!("szedata:{}@queues=2", path.display())).unwrap();
    card.sync().unwrap();
    program.sync().unwrap();
    let waits: Vec<_> = program
        .into_queues()
        .into_iter()
        .map(|mut queue| std::thread::spawn(move || queue.wait(Interest::Rx, PATIENCE)))
        .collect();
    drop(card);
    for wait in waits {
        let ended = wait.join().unwrap();
        assert!(matches!(ended, Err(PortError::Device(_))), "{ended:?}");
    }
}
