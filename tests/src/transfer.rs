//! Carries a real file between two network namespaces by the kernel's TCP.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::daemon::PATIENCE;
use crate::network::NetworkNamespace;

/// Returns the capture that the demo replays: real bytes, several MiB of them.
///
/// # Panics
/// If `make e2e` has not named the file.
#[must_use]
pub fn real_file() -> Vec<u8> {
    let path = std::env::var("RINGROAD_CAPTURE").expect("make e2e names a capture in RINGROAD_CAPTURE");
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Downloads `file` from `server` at `address` into `client`, uploads it back, and compares both copies with the
/// original.
///
/// If a copy differs, or if no byte moves within the time limit.
pub fn there_and_back(server: &NetworkNamespace, address: IpAddr, client: &NetworkNamespace, file: &[u8]) {
    let listener = server.inside(|| TcpListener::bind(SocketAddr::new(address, 0)).unwrap());
    let target = listener.local_addr().unwrap();
    let original = Arc::<[u8]>::from(file);
    let served = Arc::clone(&original);
    let serving = std::thread::spawn(move || {
        let patience = Timespec::try_from(PATIENCE.unwrap()).unwrap();
        let ready = poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&patience)).unwrap();
        assert!(ready > 0, "no client connected to {target}");
        let mut stream = patient(listener.accept().unwrap().0);
        stream.write_all(&served).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        read(stream)
    });
    let stream = client.inside(|| TcpStream::connect_timeout(&target, PATIENCE.unwrap()).unwrap());
    let mut stream = patient(stream);
    let downloaded = read(stream.try_clone().unwrap());
    stream.write_all(&downloaded).unwrap();
    drop(stream);
    let uploaded = serving.join().unwrap();
    assert!(downloaded == *original, "{} bytes came down of {}", downloaded.len(), original.len());
    assert!(uploaded == *original, "{} bytes came back of {}", uploaded.len(), original.len());
}

fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(PATIENCE).unwrap();
    stream.set_write_timeout(PATIENCE).unwrap();
    stream
}

fn read(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}
