//! A port opened without the library, as a hostile program can open it.

use std::os::fd::OwnedFd;

use ringroad::HugePages;
use ringroad::control::Connection;
use ringroad::control::message::{OpenedPort, PortProperties, Reply, Request};

use crate::daemon::Daemon;

/// A port opened by the control protocol alone.
#[derive(Debug)]
pub struct RawPort {
    /// Reply of the daemon to the request for the port.
    pub opened: OpenedPort,
    /// Descriptors of the port: the region's memory, then the kick and notify eventfds of each queue.
    pub descriptors: Vec<OwnedFd>,
    _connection: Connection,
}

impl RawPort {
    /// Opens a port of a daemon by its control socket.
    ///
    /// # Panics
    /// If the daemon refuses.
    #[must_use]
    pub fn open(daemon: &Daemon, name: &str) -> Self {
        let mut connection = Connection::connect(daemon.socket()).unwrap();
        // Huge pages are off, since write(2) to a memfd of huge pages fails.
        let properties = PortProperties { huge_pages: HugePages::Never, ..PortProperties::default() };
        let request = Request::Open { name: name.to_owned(), properties };
        let (Reply::Opened(opened), descriptors) = connection.request(&request).unwrap() else {
            panic!("{name} was refused")
        };
        Self { opened, descriptors, _connection: connection }
    }

    /// Announces a sleep on all rings, makes the notify eventfd blocking, and fills its counter: a write to it would
    /// block for ever.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn lie_in_wait(&self) {
        let placement = &self.opened.placement;
        for &ring in placement.tx_rings.iter().chain(&placement.rx_rings) {
            let sleeping = self.opened.geometry.control_offset(ring) + 8;
            rustix::io::pwrite(&self.descriptors[0], &77u32.to_ne_bytes(), sleeping).unwrap();
        }
        let notify = &self.descriptors[2];
        rustix::io::write(notify, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        rustix::fs::fcntl_setfl(notify, rustix::fs::OFlags::empty()).unwrap();
    }
}
