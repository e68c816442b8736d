//! Programs, maps and links against the running kernel, each test in a network namespace of its own.
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ringroad_bpf::attached::detach_xdp;
use ringroad_bpf::error::BpfError;
use ringroad_bpf::link::{BpfLink, TcxSide, XdpAttachMode};
use ringroad_bpf::map::XskMap;
use ringroad_bpf::program::{RedirectPath, TcxProgram, XdpProgram};
use ringroad_netdev::link::{LinkXdpState, XdpReportedMode};
use ringroad_netdev::link_by_index;
use rustix::io::Errno;
use rustix::thread::UnshareFlags;

/// Runs `test` in a new network namespace, which ends with its thread.
fn in_namespace(test: impl FnOnce() + Send) {
    if !ringroad_test_needs::is_root() {
        return;
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: only the network namespace of this thread changes; no descriptor is unshared.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
            test();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

fn ip(arguments: &str) {
    let status =
        Command::new("ip").args(arguments.split_whitespace()).status().expect("iproute2 is installed");
    assert!(status.success(), "ip {arguments}");
}

fn index_of(interface: &str) -> u32 {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    rustix::net::netdevice::name_to_index(&socket, interface).unwrap()
}

/// A veth pair `veth-a`, `veth-b`, both up; returns their indexes.
fn veth() -> (u32, u32) {
    ip("link set lo up");
    ip("link add veth-a type veth peer name veth-b");
    ip("link set veth-a up");
    ip("link set veth-b up");
    (index_of("veth-a"), index_of("veth-b"))
}

/// Waits for a condition that no descriptor announces.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < limit, "waited in vain until {what}");
        std::thread::yield_now();
    }
}

fn attached_xdp(interface: u32) -> Option<LinkXdpState> {
    link_by_index(interface).unwrap().xdp
}

fn xdp_program() -> (XskMap, XdpProgram) {
    let map = XskMap::create(4).unwrap();
    let program = XdpProgram::to_sockets(&map, true, None).unwrap();
    (map, program)
}

#[test]
fn xdp_ends_with_its_link_in_either_mode() {
    in_namespace(|| {
        let (a, _) = veth();
        let (_map, program) = xdp_program();
        assert!(program.multi_buffer(), "the kernel of these tests knows multi-buffer programs");
        for (mode, reported) in [
            (XdpAttachMode::Native, XdpReportedMode::Native),
            (XdpAttachMode::Generic, XdpReportedMode::Generic),
        ] {
            let link = BpfLink::attach_xdp(&program, a, mode).unwrap();
            let found = attached_xdp(a).expect("attached");
            assert_eq!(found.mode, reported);
            assert_ne!(found.prog_id, 0);
            // Another test's child process has the descriptor too between fork and exec. That must not matter.
            let copy = link.as_fd().try_clone_to_owned().unwrap();
            drop(link);
            assert_eq!(attached_xdp(a), None);
            drop(copy);
        }
    });
}

#[test]
fn a_driver_without_xdp_is_named_with_the_other_mode() {
    in_namespace(|| {
        let (_map, program) = xdp_program();
        let lo = index_of("lo");
        let error = BpfLink::attach_xdp(&program, lo, XdpAttachMode::Native).unwrap_err();
        assert!(matches!(error, BpfError::NotNative { source: Errno::OPNOTSUPP }), "{error}");
        assert!(error.to_string().contains("mode=generic"), "{error}");
        BpfLink::attach_xdp(&program, lo, XdpAttachMode::Generic).unwrap();
    });
}

#[test]
fn an_occupied_interface_error_names_a_remedy() {
    in_namespace(|| {
        let (a, _) = veth();
        let (_map, program) = xdp_program();
        let _first = BpfLink::attach_xdp(&program, a, XdpAttachMode::Native).unwrap();
        let error = BpfLink::attach_xdp(&program, a, XdpAttachMode::Native).unwrap_err();
        assert!(matches!(&error, BpfError::Occupied { interface, .. } if interface == "veth-a"), "{error}");
        assert!(error.to_string().contains("ip link set dev veth-a xdp off"), "{error}");
        let other_mode = BpfLink::attach_xdp(&program, a, XdpAttachMode::Generic).unwrap_err();
        assert!(matches!(other_mode, BpfError::Occupied { .. }), "{other_mode}");
    });
}

#[test]
fn force_takes_a_link_of_others_off() {
    in_namespace(|| {
        let (a, b) = veth();
        let (_map, program) = xdp_program();
        let theirs = BpfLink::attach_xdp(&program, a, XdpAttachMode::Native).unwrap();
        let bystander = BpfLink::attach_xdp(&program, b, XdpAttachMode::Native).unwrap();
        detach_xdp(a).unwrap();
        assert_eq!(attached_xdp(a), None);
        assert!(attached_xdp(b).is_some(), "only the requested interface");
        detach_xdp(a).unwrap();
        drop((theirs, bystander));
    });
}

#[test]
fn a_missing_interface_is_named() {
    in_namespace(|| {
        let (_map, program) = xdp_program();
        let error = BpfLink::attach_xdp(&program, 4242, XdpAttachMode::Native).unwrap_err();
        assert!(error.to_string().contains("4242"), "{error}");
        assert!(detach_xdp(4242).unwrap_err().to_string().contains("4242"));
        let tcx = TcxProgram::drop_unless_marked(1).unwrap();
        assert!(BpfLink::attach_tcx(&tcx, 4242, TcxSide::Ingress).unwrap_err().to_string().contains("4242"));
    });
}

#[test]
fn a_map_takes_only_sockets_of_its_queues() {
    in_namespace(|| {
        let map = XskMap::create(2).unwrap();
        assert_eq!(map.queues(), 2);
        let udp = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        assert!(matches!(
            map.set(0, udp.as_fd()),
            Err(BpfError::System { source: Errno::OPNOTSUPP | Errno::NOTSOCK, .. })
        ));
        assert!(matches!(map.set(2, udp.as_fd()), Err(BpfError::System { .. })));
        map.clear(1).unwrap();
    });
}

/// A UDP socket on address `host` of 10.9.0.0/24, and the destination for packets to it.
fn receiver(host: u8) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::new(10, 9, 0, host), 4000)).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

#[test]
fn dropping_lets_only_the_mark_through() {
    const MARK: u32 = 0xF000_0001;
    in_namespace(|| {
        ip("link set lo up");
        ip("addr add 10.9.0.1/24 dev lo");
        let lo = index_of("lo");
        let program = TcxProgram::drop_unless_marked(MARK).unwrap();
        let socket = receiver(1);
        let sender = UdpSocket::bind((Ipv4Addr::new(10, 9, 0, 1), 0)).unwrap();
        let mut buffer = [0; 16];
        // Loopback delivers before send returns or soon after: a dropped frame is detected by the frame after it.
        let link = BpfLink::attach_tcx(&program, lo, TcxSide::Ingress).unwrap();
        sender.send_to(b"unmarked", socket.local_addr().unwrap()).unwrap();
        set_mark(&sender, MARK);
        sender.send_to(b"marked", socket.local_addr().unwrap()).unwrap();
        await_readable(&socket);
        let (length, _) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"marked");
        drop(link);
        set_mark(&sender, 0);
        sender.send_to(b"unmarked", socket.local_addr().unwrap()).unwrap();
        await_readable(&socket);
        let (length, _) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"unmarked");
    });
}

#[test]
fn redirection_reaches_the_ingress_of_another_interface_with_a_mark() {
    const MARK: u32 = 0x5252_4F44;
    in_namespace(|| {
        // Frames sent through `veth-a` are received on `veth-c` instead, which drops all unmarked ones.
        let (a, _) = veth();
        ip("link add veth-c type veth peer name veth-d");
        ip("link set veth-c up");
        ip("link set veth-d up");
        ip("addr add 10.9.0.2/24 dev veth-c");
        let into_host = TcxProgram::redirect(index_of("veth-c"), RedirectPath::Ingress, Some(MARK)).unwrap();
        let only_marked = TcxProgram::drop_unless_marked(MARK).unwrap();
        let _redirect = BpfLink::attach_tcx(&into_host, a, TcxSide::Egress).unwrap();
        let _guard = BpfLink::attach_tcx(&only_marked, index_of("veth-c"), TcxSide::Ingress).unwrap();
        for file in ["all", "veth-c"] {
            std::fs::write(format!("/proc/sys/net/ipv4/conf/{file}/rp_filter"), "0").unwrap();
            std::fs::write(format!("/proc/sys/net/ipv4/conf/{file}/accept_local"), "1").unwrap();
        }
        let mac = Command::new("ip").args(["-o", "link", "show", "veth-c"]).output().unwrap();
        let text = String::from_utf8(mac.stdout).unwrap();
        let mac = text.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
        let socket = receiver(2);
        let packet =
            rustix::net::socket(rustix::net::AddressFamily::PACKET, rustix::net::SocketType::RAW, None)
                .unwrap();
        send_udp(&packet, a, &mac, [10, 9, 0, 9], [10, 9, 0, 2], 4000, b"hello");
        await_readable(&socket);
        let mut buffer = [0; 16];
        let (length, _) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"hello");
    });
}

/// Sends one UDP packet through an AF_PACKET socket on interface `index`.
fn send_udp(
    socket: &impl AsFd,
    index: u32,
    to: &str,
    from_ip: [u8; 4],
    to_ip: [u8; 4],
    port: u16,
    payload: &[u8],
) {
    let mut frame = Vec::new();
    frame.extend(to.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()));
    frame.extend([2, 0, 0, 0, 0, 9, 8, 0]);
    let total = (28 + payload.len()) as u16;
    let mut header = vec![0x45, 0];
    header.extend(total.to_be_bytes());
    header.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    header.extend(from_ip);
    header.extend(to_ip);
    let sum: u32 = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = !((sum & 0xFFFF) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(header);
    frame.extend(4001_u16.to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.extend((8 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    use std::os::fd::AsRawFd;
    // SAFETY: all zero is a valid socket address.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = index as i32;
    // SAFETY: the buffers have the stated lengths and live during the call.
    let sent = unsafe {
        libc::sendto(
            socket.as_fd().as_raw_fd(),
            frame.as_ptr().cast(),
            frame.len(),
            0,
            std::ptr::from_ref(&address).cast(),
            size_of::<libc::sockaddr_ll>() as u32,
        )
    };
    assert_eq!(sent, frame.len() as isize, "{}", std::io::Error::last_os_error());
}

fn set_mark(socket: &UdpSocket, mark: u32) {
    use std::os::fd::AsRawFd;
    // SAFETY: the option is a u32, and lives during the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MARK,
            std::ptr::from_ref(&mark).cast(),
            size_of::<u32>() as u32,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

fn await_readable(socket: &UdpSocket) {
    let mut wanted = [rustix::event::PollFd::new(socket, rustix::event::PollFlags::IN)];
    let limit = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut wanted, Some(&limit)).unwrap(), 1, "nothing arrived");
}

/// Helper process, no test of its own: attaches to the interface whose index is in the environment and waits to be
/// killed.
#[test]
#[ignore = "the other half of a_killed_process_leaves_nothing_attached"]
fn holder() {
    let Ok(index) = std::env::var("RINGROAD_TEST_HOLD") else { return };
    let (_map, program) = xdp_program();
    let _link = BpfLink::attach_xdp(&program, index.parse().unwrap(), XdpAttachMode::Native).unwrap();
    println!("\nheld");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_killed_process_leaves_nothing_attached() {
    in_namespace(|| {
        let (a, _) = veth();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "holder", "--ignored", "--nocapture"])
            .env("RINGROAD_TEST_HOLD", a.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let held = BufReader::new(child.stdout.take().unwrap()).lines().any(|line| line.unwrap() == "held");
        let attached = attached_xdp(a);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(held && attached.is_some(), "the child did not attach");
        until("nothing is attached", || attached_xdp(a).is_none());
    });
}
