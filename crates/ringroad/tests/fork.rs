//! Tests of children of fork(2), which have copies of their parent's ports.

#![allow(clippy::unwrap_used, unsafe_code)]

use std::time::Duration;

use ringroad::{Embedded, EmbeddedThread, Interest, OpenError, Port, PortError};

/// A wait that only a failure reaches the end of.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `act` in a child; fails if the child does.
fn in_child(act: impl FnOnce()) {
    // SAFETY: the child uses no lock of another thread: the C library's allocator can be used after a fork.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: ends a child that hangs.
        unsafe { libc::alarm(PATIENCE.as_secs() as u32) };
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)).is_err();
        // SAFETY: ends the child, without the test harness.
        unsafe { libc::_exit(i32::from(failed)) };
    }
    let mut status = 0;
    // SAFETY: writes the status of the child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child failed");
}

fn pass(from: &mut Port, to: &mut Port, number: u8) {
    assert!(
        from.tx()
            .send(&[&[0xFF; 6][..], &[2, 0, 0, 0, 0, 1, 0x88, 0xB5, number], &[0; 45]].concat())
            .unwrap()
    );
    from.tx().sync().unwrap();
    assert!(to.wait(Interest::Rx, Some(PATIENCE)).unwrap());
    let mut frame = Vec::new();
    to.rx().receive(&mut frame).unwrap();
    to.rx().sync().unwrap();
    assert_eq!(frame[14], number);
}

/// Uses a port that the parent opened in every way.
fn assert_of_parent(port: &mut Port) {
    let of_parent = |result: Result<(), PortError>| matches!(result, Err(PortError::OtherProcess));
    for _ in 0..2 {
        assert!(of_parent(port.tx().sync().map(drop)));
        assert!(of_parent(port.rx().sync().map(drop)));
        assert!(of_parent(port.sync()));
        assert!(of_parent(port.check()));
        assert!(of_parent(port.arm(Interest::Both).map(drop)));
        assert!(of_parent(port.disarm()));
        assert!(of_parent(port.wait(Interest::Rx, None).map(drop)));
        // What needs no other side is done in the child's own pages.
        while port.tx().send(&[7; 60]).unwrap() {}
        let received = port.rx().available();
        port.rx().release(received);
    }
}

/// Checks a child's copies of two ports that can reach each other, and that they go on in the parent.
fn check(net: Embedded, names: [&str; 2]) {
    let [mut a, mut b] = names.map(|name| net.open(name).unwrap());
    pass(&mut a, &mut b, 1);
    // A frame that nobody has taken, and one that nobody has published.
    a.tx().send(&[0xFF; 60]).unwrap();
    a.tx().sync().unwrap();
    assert!(b.wait(Interest::Rx, Some(PATIENCE)).unwrap());
    b.tx().send(&[0xFF; 60]).unwrap();
    let (ports, switch) = ([a, b], net.clone());
    let mut ports = Some(ports);
    in_child(|| {
        let mut ports = ports.take().unwrap();
        assert_eq!(sum_of_first(&mut ports[1]), 0);
        ports.iter_mut().for_each(assert_of_parent);
        drop(ports);
        assert!(matches!(net.open("vale9:x"), Err(OpenError::NotHere { .. })));
        assert_eq!((net.step(), net.switch_counters("vale0")), (0, None));
        net.tick();
        drop(net);
        let own = Embedded::new();
        let [mut a, mut b] = names.map(|name| own.open(name).unwrap());
        pass(&mut a, &mut b, 2);
    });
    let [mut a, mut b] = ports.unwrap();
    assert_eq!(b.rx().available(), 1);
    b.rx().release(1);
    b.sync().unwrap();
    assert!(a.wait(Interest::Rx, Some(PATIENCE)).unwrap());
    a.rx().release(1);
    pass(&mut a, &mut b, 3);
    drop((a, b));
    drop(switch.open(names[0]).unwrap());
}

/// Sum of the bytes of the first received frame.
fn sum_of_first(port: &mut Port) -> u32 {
    let mut frame = Vec::new();
    port.rx().receive(&mut frame);
    frame.iter().map(|&byte| u32::from(byte)).sum()
}

#[test]
fn a_datapath_that_its_program_steps_is_the_parents() {
    check(Embedded::new(), ["vale0:a", "vale0:b"]);
}

#[test]
fn a_datapath_with_a_thread_is_the_parents() {
    check(Embedded::on_thread(&EmbeddedThread::default()).unwrap(), ["vale0:a", "vale0:b"]);
}

#[test]
fn a_pipe_is_the_parents() {
    check(Embedded::new(), ["x{1", "x}1"]);
}
