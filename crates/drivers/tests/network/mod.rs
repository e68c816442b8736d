//! Network namespaces, veth pairs and a foreign peer for the tests of drivers. Everything vanishes with its thread.
#![allow(unsafe_code, dead_code, clippy::unwrap_used, clippy::expect_used)]

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{RecvFlags, SendFlags};
use rustix::thread::UnshareFlags;

/// EtherType for local experiments (IEEE 802).
pub const LOCAL_EXPERIMENTAL: [u8; 2] = [0x88, 0xB5];

/// Runs `test` in a new network namespace without IPv6, which would send frames of its own.
pub fn in_namespace(test: impl FnOnce() + Send) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: only the network namespace of this thread changes; no descriptor is unshared.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
            for which in ["all", "default"] {
                let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"), "1");
            }
            test();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Runs `ip` with these words, in the namespace of the calling thread.
pub fn ip(arguments: &str) {
    let output =
        Command::new("ip").args(arguments.split_whitespace()).output().expect("iproute2 is installed");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// What `ip -d link show` says of an interface.
pub fn describe(interface: &str) -> String {
    let output =
        Command::new("ip").args(["-d", "link", "show", interface]).output().expect("iproute2 is installed");
    String::from_utf8(output.stdout).unwrap()
}

/// Index of an interface in the namespace of the calling thread.
pub fn index_of(interface: &str) -> u32 {
    let socket =
        rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::DGRAM, None).unwrap();
    rustix::net::netdevice::name_to_index(&socket, interface).unwrap()
}

/// A veth pair `near` and `far`, both up, with so many queues each way and this MTU. Returns the index of `near` and a
/// raw socket on `far`.
pub fn veth(queues: u16, mtu: u32) -> (u32, Peer) {
    let each = format!("numrxqueues {queues} numtxqueues {queues} mtu {mtu}");
    ip(&format!("link add near {each} type veth peer name far {each}"));
    ip("link set near up");
    ip("link set far up");
    (index_of("near"), Peer::open("far"))
}

/// A raw socket on an interface.
pub struct Peer {
    socket: OwnedFd,
}

impl Peer {
    /// Opens a socket that gets all frames that `interface` receives.
    pub fn open(interface: &str) -> Self {
        const ETH_P_ALL: u16 = 3;
        let protocol = ETH_P_ALL.to_be();
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: makes a descriptor, touches no memory.
        let socket = unsafe { libc::socket(libc::AF_PACKET, kind, i32::from(protocol)) };
        assert!(socket >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: just made, and nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        // SAFETY: all zero is a valid socket address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index_of(interface) as i32;
        let (at, bytes) = (std::ptr::from_ref(&address).cast(), size_of::<libc::sockaddr_ll>() as u32);
        // SAFETY: an address of that size, which lives during the call.
        let result = unsafe { libc::bind(socket.as_raw_fd(), at, bytes) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 8 << 20).unwrap();
        const PACKET_IGNORE_OUTGOING: i32 = 23;
        let on = 1_i32;
        let (at, bytes) = (std::ptr::from_ref(&on).cast(), size_of::<i32>() as u32);
        // SAFETY: the option is an int, which lives during the call.
        let result = unsafe {
            libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, at, bytes)
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        Self { socket }
    }

    /// Sends a frame; `false` where the interface does not take it now.
    pub fn send(&self, frame: &[u8]) -> bool {
        rustix::net::send(&self.socket, frame, SendFlags::DONTWAIT).is_ok()
    }

    /// The next frame of ours; waits for it.
    pub fn receive(&self) -> Vec<u8> {
        let mut buffer = vec![0; 70_000];
        loop {
            await_readable(&self.socket, "a frame at the far end");
            let (length, _) = rustix::net::recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT).unwrap();
            if buffer[12..14] == LOCAL_EXPERIMENTAL {
                buffer.truncate(length);
                return buffer;
            }
        }
    }

    /// The next frame of ours, if one is there already.
    pub fn try_receive(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 70_000];
        loop {
            let (length, _) = rustix::net::recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT).ok()?;
            if buffer[12..14] == LOCAL_EXPERIMENTAL {
                buffer.truncate(length);
                return Some(buffer);
            }
        }
    }
}

/// Waits until `descriptor` is readable.
pub fn await_readable(descriptor: &impl AsFd, what: &str) {
    let mut wanted = [PollFd::new(descriptor, PollFlags::IN)];
    let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut wanted, Some(&limit)).unwrap(), 1, "waited for {what} in vain");
}

/// A frame of `length` bytes with its number and recognisable content.
pub fn frame(number: u32, length: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(LOCAL_EXPERIMENTAL);
    frame.extend(number.to_be_bytes());
    while frame.len() < length {
        let place = frame.len() as u32;
        frame.push((place.wrapping_mul(31).wrapping_add(number)) as u8);
    }
    frame
}
