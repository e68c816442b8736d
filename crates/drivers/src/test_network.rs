//! Network namespaces and interfaces for tests.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};

use crate::af_packet::socket;

/// Runs `test` on a thread in a new network namespace, which vanishes with its contents.
pub(crate) fn in_own_namespace(test: impl FnOnce() + Send + 'static) {
    if !ringroad_test_needs::is_root() {
        return;
    }
    let thread = std::thread::spawn(move || {
        enter_own_namespace();
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn enter_own_namespace() {
    // SAFETY: only this thread's network namespace changes.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }.unwrap();
    // Only the test's frames must be on the wire.
    for interfaces in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{interfaces}/disable_ipv6");
        if std::path::Path::new(&path).exists() {
            std::fs::write(path, "1").unwrap();
        }
    }
    ip("link set lo up");
}

type Task = Box<dyn FnOnce() + Send>;

/// A host in a network namespace of its own: a thread that runs tasks there.
pub(crate) struct Host {
    tasks: Sender<Task>,
    thread_id: i32,
}

impl Host {
    /// A host without interfaces.
    pub(crate) fn new() -> Self {
        let (tasks, inbox) = channel::<Task>();
        let (answer, started) = channel();
        std::thread::spawn(move || {
            enter_own_namespace();
            answer.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            while let Ok(task) = inbox.recv() {
                task();
            }
        });
        let thread_id = started.recv().unwrap();
        Self { tasks, thread_id }
    }

    /// Moves `interface` of the calling thread's namespace to this host, with an address, and sets it up.
    pub(crate) fn take(&self, interface: &str, address: &str) {
        ip(&format!("link set {interface} netns {}", self.thread_id));
        let commands = [format!("addr add {address} dev {interface}"), format!("link set {interface} up")];
        let interface = interface.to_owned();
        self.run(move || {
            commands.iter().for_each(|command| drop(ip(command)));
            wait_running(&interface);
        });
    }

    /// Runs `task` on this host, and waits for its end.
    pub(crate) fn run<T: Send + 'static>(&self, task: impl FnOnce() -> T + Send + 'static) -> T {
        let (answer, result) = channel();
        self.start(move || drop(answer.send(task())));
        result.recv().unwrap()
    }

    /// Runs `task` on this host, without waiting.
    pub(crate) fn start(&self, task: impl FnOnce() + Send + 'static) {
        self.tasks.send(Box::new(task)).unwrap();
    }
}

/// Runs `ip` with the words of `arguments` in the namespace of this thread. Returns its output.
pub(crate) fn ip(arguments: &str) -> String {
    run("ip", arguments)
}

/// Sets whether the card of `interface` takes frames with open checksums. For other cards the kernel fills them in.
pub(crate) fn set_tx_checksums(interface: &str, takes: bool) {
    /// `SIOCETHTOOL` of linux/sockios.h, `ETHTOOL_STXCSUM` of linux/ethtool.h.
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    const SET_TX_CHECKSUMS: u32 = 0x17;
    // struct ethtool_value: command, value.
    let mut value = [SET_TX_CHECKSUMS, takes.into()];
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    // SAFETY: the request names two integers, which live during the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Waits until `interface` runs. Frames that the host sends on it before are lost.
pub(crate) fn wait_running(interface: &str) {
    ringroad_netdev::link_monitor::wait_running(interface, std::time::Duration::from_secs(20)).unwrap();
}

/// Waits until `condition` holds. An object can briefly outlive the closing of its descriptor: another test's child
/// process has the descriptor, too, until it calls exec.
#[track_caller]
pub(crate) fn until(mut condition: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !condition() {
        assert!(std::time::Instant::now() < end, "the condition does not become true");
        std::thread::yield_now();
    }
}

/// Runs `program` in the namespace of this thread, which must succeed. Returns its output.
pub(crate) fn run(program: &str, arguments: &str) -> String {
    let output = Command::new(program).args(arguments.split_whitespace()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// An Ethernet frame of the type for local experiments, from station `from` to all, that carries `number`.
pub(crate) fn test_frame(from: u8, number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend_from_slice(&[2, 0, 0, 0, 0, from, 0x88, 0xb5]);
    frame.extend_from_slice(&number.to_be_bytes());
    frame.extend((frame.len()..len).map(|at| at as u8));
    frame
}

/// Number that was passed to [`test_frame`].
pub(crate) fn number_of(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[14..18].try_into().unwrap())
}

/// A raw packet socket on an interface, as the far end of a test. Reads block.
pub(crate) struct RawSocket(OwnedFd);

impl RawSocket {
    /// Opens a socket on `interface` in the namespace of this thread. It receives frames of `ethertype` only.
    pub(crate) fn open(interface: &str, ethertype: u16) -> Self {
        let socket = socket::open().unwrap();
        rustix::io::ioctl_fionbio(&socket, false).unwrap();
        let index = ringroad_netdev::link_by_name(interface).unwrap().index;
        socket::bind(&socket, index, ethertype.into()).unwrap();
        Self(socket).set_patience()
    }

    /// Sets the buffer size for the frames that a test sends at once, and the timeout after which a missing frame fails
    /// the test.
    fn set_patience(self) -> Self {
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&self.0, 16 << 20).unwrap();
        let patience = Some(std::time::Duration::from_secs(20));
        rustix::net::sockopt::set_socket_timeout(&self.0, rustix::net::sockopt::Timeout::Recv, patience)
            .unwrap();
        self
    }

    /// Marks all frames that are sent from now on.
    pub(crate) fn mark(&self, mark: u32) {
        socket::set_at(&self.0, libc::SOL_SOCKET, libc::SO_MARK, &mark).unwrap();
    }

    pub(crate) fn send(&self, frame: &[u8]) {
        assert_eq!(rustix::io::write(&self.0, frame).unwrap(), frame.len());
    }

    /// Waits for a frame and returns it.
    pub(crate) fn receive(&self) -> Vec<u8> {
        let mut frame = vec![0; 65536];
        let len = rustix::io::read(&self.0, &mut frame).unwrap();
        frame.truncate(len);
        frame
    }
}
