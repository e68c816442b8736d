//! Ports whose frames are datagrams, with real peers: QEMU, and a script.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};

use ringroad::{Interest, Port};
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::{Daemon, PATIENCE};
use ringroad_tests::frames::{numbered, station};
use ringroad_tests::network::finished;

/// A peer process, which ends with the test.
struct Peer(std::process::Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn attach(daemon: &Daemon, port: &str, socket: &Path) {
    finished(&mut daemon.ringroad(&["attach", port, "--driver", &format!("dgram:{}", socket.display())]));
}

/// Waits until the peer program has its socket at `socket.peer`, so that no frame is lost.
fn await_peer(daemon: &Daemon, socket: &Path) {
    let peer = socket.with_extension("peer");
    daemon.await_status("a peer's socket", |_| {
        match UnixDatagram::unbound().unwrap().connect(&peer) {
            Ok(()) => true,
            // The socket exists, and receives only from the port.
            Err(error) => error.kind() == ErrorKind::PermissionDenied,
        }
    });
}

/// Sends frames one by one and compares each with the received frame: the kernel queues only few datagrams.
fn carry(from: &mut Port, to: &mut Port, frames: u64) {
    let mut got = Vec::new();
    for number in 0..frames {
        let frame = numbered([0xFF; 6], station(1), number, [60, 61, 777, 1514][number as usize % 4]);
        assert!(from.tx().send(&frame).unwrap());
        from.tx().sync().unwrap();
        got.clear();
        while to.rx().receive(&mut got).is_none() {
            assert!(to.wait(Interest::Rx, PATIENCE).unwrap(), "frame {number} did not come");
        }
        assert_eq!(got, frame, "frame {number}");
    }
}

#[test]
fn frames_pass_from_switch_to_switch_through_qemu() {
    let daemon = Daemon::start();
    let sockets = ["one", "two"].map(|name| daemon.folder().join(name));
    let mut qemu = Command::new("qemu-system-x86_64");
    // QEMU has no machine: it is only the hub between its two network back ends.
    qemu.args(["-machine", "none", "-nodefaults", "-display", "none", "-monitor", "none"]);
    for (number, socket) in sockets.iter().enumerate() {
        attach(&daemon, &format!("vale{number}:q"), socket);
        let path = socket.display();
        qemu.arg("-netdev").arg(format!(
            "dgram,id=d{number},local.type=unix,local.path={path}.peer,remote.type=unix,remote.path={path}"
        ));
        qemu.arg("-netdev").arg(format!("hubport,id=h{number},hubid=0,netdev=d{number}"));
    }
    let _qemu = Peer(qemu.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
    sockets.iter().for_each(|socket| await_peer(&daemon, socket));
    let mut one = Port::open_with("vale0:p", &daemon.options()).unwrap();
    let mut two = Port::open_with("vale1:p", &daemon.options()).unwrap();
    carry(&mut one, &mut two, 400);
    carry(&mut two, &mut one, 400);
    await_conserved(&daemon);
}

#[test]
fn a_script_of_a_few_lines_is_a_station_on_the_switch() {
    let daemon = Daemon::start();
    let socket = daemon.folder().join("s");
    attach(&daemon, "vale0:script", &socket);
    let script = "import socket, sys\n\
                  port = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n\
                  port.bind(sys.argv[1] + '.peer')\n\
                  port.connect(sys.argv[1])\n\
                  while True: port.send(port.recv(65536))\n";
    let mut python = Command::new("python3");
    let _echo = Peer(python.args(["-c", script]).arg(&socket).spawn().unwrap());
    await_peer(&daemon, &socket);
    let mut sender = Port::open_with("vale0:a", &daemon.options()).unwrap();
    // The peer returns frames with the sender's own source address, so the switch delivers them to another port.
    let mut witness = Port::open_with("vale0:b", &daemon.options()).unwrap();
    let frame = numbered([0xFF; 6], station(3), 1, 99);
    sender.tx().send(&frame).unwrap();
    sender.tx().sync().unwrap();
    for copy in 0..2 {
        let mut got = Vec::new();
        while witness.rx().receive(&mut got).is_none() {
            assert!(witness.wait(Interest::Rx, PATIENCE).unwrap(), "copy {copy} did not come");
        }
        assert_eq!(got, frame);
    }
}

#[test]
fn relative_paths_are_those_of_the_command() {
    let daemon = Daemon::start();
    let folder = daemon.folder().to_owned();
    finished(daemon.ringroad(&["attach", "vale0:s", "--driver", "dgram:here"]).current_dir(&folder));
    assert!(folder.join("here").exists());
    finished(
        daemon
            .ringroad(&["attach", "vale0:c", "--driver", "sze2:card.sock@channels=1,buffer=1M"])
            .current_dir(&folder),
    );
    assert!(folder.join("card.sock").exists());
}
