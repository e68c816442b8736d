//! Network namespaces and interfaces for tests.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;

use crate::interface::{checked, owned};

/// Runs `test` on a thread in a network namespace of its own, which vanishes with all that is in it.
pub(crate) fn in_own_namespace(test: impl FnOnce() + Send + 'static) {
    // SAFETY: no pointer is passed.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: needs root");
        return;
    }
    let thread = std::thread::spawn(move || {
        // SAFETY: only this thread's network namespace changes.
        checked(unsafe { libc::unshare(libc::CLONE_NEWNET) }).unwrap();
        // Nothing is to be on the wire but what the test sends.
        for interfaces in ["all", "default"] {
            let path = format!("/proc/sys/net/ipv6/conf/{interfaces}/disable_ipv6");
            if std::path::Path::new(&path).exists() {
                std::fs::write(path, "1").unwrap();
            }
        }
        ip("link set lo up");
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `ip` with the words of `arguments` in the namespace of this thread; its output.
pub(crate) fn ip(arguments: &str) -> String {
    run("ip", arguments)
}

/// Runs `program` in the namespace of this thread, which must succeed; its output.
pub(crate) fn run(program: &str, arguments: &str) -> String {
    let output = Command::new(program).args(arguments.split_whitespace()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// An Ethernet frame of the type for local experiments, from station `from` to all, that says `number`.
pub(crate) fn test_frame(from: u8, number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend_from_slice(&[2, 0, 0, 0, 0, from, 0x88, 0xb5]);
    frame.extend_from_slice(&number.to_be_bytes());
    frame.extend((frame.len()..len).map(|at| at as u8));
    frame
}

/// A raw packet socket on an interface: the far end of a test. Reads wait.
pub(crate) struct RawSocket(OwnedFd);

impl RawSocket {
    /// On `interface` in the namespace of this thread; it hears frames of `ethertype` only.
    pub(crate) fn open(interface: &str, ethertype: u16) -> Self {
        let index = crate::interface::Interfaces::of_this_namespace().unwrap().index(interface).unwrap();
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: no pointer is passed.
        let socket = owned(unsafe { libc::socket(libc::AF_PACKET, kind, 0) }).unwrap();
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: ethertype.to_be(),
            sll_ifindex: index as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let size = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the address is as large as said.
        checked(unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&address).cast(), size) })
            .unwrap();
        Self(socket).set_patience()
    }

    /// Room for what a test sends at once, and how long it waits for a frame before it fails.
    fn set_patience(self) -> Self {
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&self.0, 16 << 20).unwrap();
        let patience = Some(std::time::Duration::from_secs(20));
        rustix::net::sockopt::set_socket_timeout(&self.0, rustix::net::sockopt::Timeout::Recv, patience)
            .unwrap();
        self
    }

    /// Sends a frame.
    pub(crate) fn send(&self, frame: &[u8]) {
        assert_eq!(rustix::io::write(&self.0, frame).unwrap(), frame.len());
    }

    /// Waits for a frame.
    pub(crate) fn receive(&self) -> Vec<u8> {
        let mut frame = vec![0; 65536];
        let len = rustix::io::read(&self.0, &mut frame).unwrap();
        frame.truncate(len);
        frame
    }
}
