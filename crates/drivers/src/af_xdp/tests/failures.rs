//! Tests with interfaces that are occupied, down or gone, with impossible requests, and with killed processes.
#![allow(unsafe_code)]

use super::*;

#[test]
fn a_program_of_others_is_replaced_only_by_force() {
    in_own_namespace(|| {
        let (near, far) = veth(1, 1500);
        let theirs = open(&config(near, AfXdpMode::Generic)).unwrap();
        for mode in [AfXdpMode::Generic, AfXdpMode::Native, AfXdpMode::Auto] {
            let error = open(&config(near, mode)).unwrap_err().to_string();
            assert!(error.contains("ip link set dev near xdp off") && error.contains("force=1"), "{error}");
        }
        // The other device's socket is bound to the queue, too. Only its program can be detached.
        let error =
            open(&XdpConfig { force: true, ..config(near, AfXdpMode::Native) }).unwrap_err().to_string();
        assert!(error.contains("another AF_XDP socket holds this queue"), "{error}");
        drop(theirs);
        assert_detached();
        let map = ringroad_bpf::map::XskMap::create(1).unwrap();
        let program = ringroad_bpf::program::XdpProgram::to_sockets(&map, false, None).unwrap();
        let _link = ringroad_bpf::link::BpfLink::attach_xdp(
            &program,
            near,
            ringroad_bpf::link::XdpAttachMode::Native,
        )
        .unwrap();
        assert!(open(&config(near, AfXdpMode::Native)).is_err());
        let mut device = open(&XdpConfig { force: true, ..config(near, AfXdpMode::Native) }).unwrap();
        far.send(&frame(7, 200));
        assert_eq!(receive(&mut device.queues[0], 1), [frame(7, 200)]);
    });
}

#[test]
fn an_interface_without_carrier_loses_nothing_silently() {
    in_own_namespace(|| {
        let (near, _) = veth(1, 1500);
        let mut device = open(&config(near, AfXdpMode::Native)).unwrap();
        let queue = &mut device.queues[0];
        for command in ["link set near down", "link set far down"] {
            ip(command);
            // Frames are refused one by one until the kernel has notified of the lost carrier. They are counted later.
            until(|| {
                deliver(queue, &[frame(1, 60)]);
                queue.diagnosis().unwrap().fault().is_some_and(|fault| fault.contains("interface near"))
            });
            deliver(queue, &[frame(1, 60)]);
            let delivery = deliver(queue, &[frame(2, 60), frame(3, 60)]);
            assert_eq!((delivery.frames, delivery.dropped.of(DropCause::LinkDown)), (0, 2), "{command}");
            assert_eq!(
                queue.backpressure().unwrap().room(60),
                256,
                "dropped and counted rather than held back"
            );
            ip(&command.replace("down", "up"));
            let far = RawSocket::open("far", TEST_TYPE);
            let sent = frame(4, 60);
            until(|| deliver(queue, std::slice::from_ref(&sent)).frames == 1);
            assert_eq!(queue.diagnosis().unwrap().fault(), None);
            while far.receive() != sent {}
            far.send(&frame(5, 60));
            assert_eq!(receive(queue, 1), [frame(5, 60)]);
        }
    });
}

#[test]
fn what_waits_for_an_interface_that_loses_its_carrier_is_refused_and_not_left_to_a_poll() {
    in_own_namespace(|| {
        let (near, _far) = veth(1, 1500);
        let mut device = open(&config(near, AfXdpMode::Generic)).unwrap();
        let queue = &mut device.queues[0];
        let sent_before = link_by_name("near").unwrap().statistics.tx_packets;
        assert_eq!(put(queue, &[frame(1, 60), frame(2, 61), frame(3, 62)]).frames, 3);
        ip("link set far down");
        until(|| queue.diagnosis().unwrap().fault().is_some());
        queue.flush();
        assert_eq!(queue.diagnosis().unwrap().waiting().frames, 0);
        queue.poll_socket();
        let refused = queue.diagnosis().unwrap().refused();
        assert_eq!((refused.dropped.of(DropCause::LinkDown), refused.bytes), (3, 183));
        assert_eq!(link_by_name("near").unwrap().statistics.tx_packets, sent_before);
    });
}

#[test]
fn an_interface_that_vanishes_is_a_fault_and_no_hang() {
    in_own_namespace(|| {
        let (near, _far) = veth(1, 1500);
        let mut device = open(&config(near, AfXdpMode::Native)).unwrap();
        let queue = &mut device.queues[0];
        assert_eq!(deliver(queue, &[frame(1, 60)]).frames, 1);
        ip("link del far");
        until(|| queue.diagnosis().unwrap().fault().as_deref() == Some("interface near is gone"));
        queue.sleeper().unwrap().prepare_sleep(true);
        assert!(queue.sleeper().unwrap().wake_descriptor().is_none(), "nothing will ever come");
        assert!(!queue.sleeper().unwrap().has_waiting());
        assert_eq!(deliver(queue, &[frame(2, 60)]).dropped.of(DropCause::LinkDown), 1);
        assert_eq!(queue.lender().unwrap().returned(), queue.lender().unwrap().lent());
        let mut batch = Batch::new();
        queue.receive(&mut batch);
        assert_eq!(batch.frames(), 0);
    });
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    in_own_namespace(|| {
        let (near, _far) = veth(1, 1500);
        let good = config(near, AfXdpMode::Native);
        let says = |config: &XdpConfig, part: &str| {
            let error = open(config).unwrap_err().to_string();
            assert!(error.contains(part), "{error:?} does not contain {part:?}");
        };
        says(&XdpConfig { ring_size: 100, ..good.clone() }, "power of two");
        says(&XdpConfig { queues: 0, ..good.clone() }, "at least 1");
        says(&XdpConfig { queues: 5, ..good.clone() }, "fewer queues");
        says(&XdpConfig { ifindex: 4242, ..good.clone() }, "no interface with index 4242");
        let small = region(1024, 1024);
        let error = XdpDevice::open(&good, &small, buffers(1, 512, 0)).unwrap_err().to_string();
        assert!(error.contains("buf-size=2048"), "{error}");
        let few = XdpDevice::open(&good, &region(1024, 2048), buffers(1, 511, 0)).unwrap_err().to_string();
        assert!(few.contains("511 buffers") && few.contains("512 needed"), "{few}");
        let outside = XdpDevice::open(&good, &region(64, 2048), buffers(1, 512, 0)).unwrap_err().to_string();
        assert!(outside.contains("in the region"), "{outside}");
        // No program stays attached.
        assert_detached();
    });
}

#[test]
fn frames_too_short_for_a_header_are_counted() {
    in_own_namespace(|| {
        let (near, far) = veth(1, 1500);
        let mut device = open(&config(near, AfXdpMode::Native)).unwrap();
        let queue = &mut device.queues[0];
        let delivery = deliver(queue, &[vec![0; 13], vec![], frame(1, 1519), frame(2, 60)]);
        assert_eq!(delivery.dropped.of(DropCause::TooShort), 2);
        assert_eq!(delivery.dropped.of(DropCause::TooLong), 1);
        assert_eq!(delivery.frames, 1);
        assert_eq!(far.receive(), frame(2, 60));
        assert_eq!(queue.diagnosis().unwrap().fault(), None);
    });
}

/// Helper process, no test of its own: opens the interface whose index is in the environment and waits to be killed.
#[test]
#[ignore = "the other half of a_killed_process_leaves_the_interface_as_it_was"]
fn holder() {
    let Ok(index) = std::env::var("RINGROAD_TEST_HOLD") else { return };
    let _device = open(&config(index.parse().unwrap(), AfXdpMode::Native)).unwrap();
    println!("\nheld");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_killed_process_leaves_the_interface_as_it_was() {
    in_own_namespace(|| {
        let (near, far) = veth(1, 1500);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "af_xdp::tests::failures::holder", "--ignored", "--nocapture"])
            .env("RINGROAD_TEST_HOLD", near.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let held = BufReader::new(child.stdout.take().unwrap()).lines().any(|line| line.unwrap() == "held");
        let attached = near_details();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(held && attached.contains("xdp"), "the child did not open it");
        assert!(!near_details().contains("xdp"), "{}", near_details());
        let host = RawSocket::open("near", TEST_TYPE);
        far.send(&frame(1, 60));
        assert_eq!(host.receive(), frame(1, 60), "the host stack gets the frames again");
    });
}
