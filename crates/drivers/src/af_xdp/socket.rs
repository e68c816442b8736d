//! An AF_XDP socket: it is created, bound to one queue of an interface, and called (kernel documentation, "AF_XDP").
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING,
    XDP_UMEM_PGOFF_FILL_RING, XdpDesc, XdpStatistics, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::error::{BIND, XdpError};
use super::rings::{ConsumerRing, ProducerRing};
use super::umem::{TX_REQUEST_BYTES, Umem};
use super::{Attempt, XdpConfig};

/// `XDP_MAX_TX_SKB_BUDGET` (Linux 6.17): frames that one call sends in copy mode; 32 by default.
const MAX_TX_SKB_BUDGET: i32 = 9;
/// `XDP_UMEM_TX_METADATA_LEN` (Linux 6.11): requests to the kernel can lie in front of frames to send.
const TX_METADATA: XdpUmemRegFlags = XdpUmemRegFlags::from_bits_retain(1 << 2);
/// `SO_PREFER_BUSY_POLL` and `SO_BUSY_POLL_BUDGET` (Linux 5.11).
const PREFER_BUSY_POLL: i32 = 69;
const BUSY_POLL_BUDGET: i32 = 70;
/// Frames that one busy poll may process.
const BUSY_POLL_FRAMES: i32 = 64;
/// Number of attempts to bind a busy queue: the kernel releases a queue some time after its socket was closed, and no
/// event announces that.
const BUSY_ATTEMPTS: u32 = 9;

/// A bound socket with its rings.
#[derive(Debug)]
pub(super) struct XdpSocket {
    pub(super) fill: ProducerRing<u64>,
    pub(super) completion: ConsumerRing<u64>,
    pub(super) rx: ConsumerRing<XdpDesc>,
    pub(super) tx: ProducerRing<XdpDesc>,
    /// Whether the kernel takes requests in front of frames.
    pub(super) takes_requests: bool,
    descriptor: OwnedFd,
}

impl XdpSocket {
    /// Creates a socket on `umem` and binds it to queue `queue` of an interface.
    pub(super) fn open(
        umem: &Umem,
        queue: u16,
        config: &XdpConfig,
        attempt: Attempt,
    ) -> Result<Self, XdpError> {
        let at = |step| move |source| XdpError::socket(&config.interface, queue, step, source);
        let family = AddressFamily::XDP;
        let descriptor = rustix::net::socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, None)
            .map_err(at("making an AF_XDP socket"))?;
        let registration = XdpUmemReg {
            addr: umem.area.as_ptr() as u64,
            len: umem.area_bytes as u64,
            chunk_size: umem.chunk_bytes,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        let with_requests =
            XdpUmemReg { flags: TX_METADATA, tx_metadata_len: TX_REQUEST_BYTES as u32, ..registration };
        let takes_requests = leaves_checksums(umem, config, attempt)
            && sockopt::set_xdp_umem_reg(&descriptor, with_requests).is_ok();
        if !takes_requests {
            sockopt::set_xdp_umem_reg(&descriptor, registration)
                .map_err(at("registering the region as UMEM"))?;
        }
        let size = config.ring_size;
        sockopt::set_xdp_umem_fill_ring_size(&descriptor, size).map_err(at("sizing the fill ring"))?;
        sockopt::set_xdp_umem_completion_ring_size(&descriptor, size)
            .map_err(at("sizing the completion ring"))?;
        sockopt::set_xdp_rx_ring_size(&descriptor, size).map_err(at("sizing the rx ring"))?;
        sockopt::set_xdp_tx_ring_size(&descriptor, size).map_err(at("sizing the tx ring"))?;
        let offsets = sockopt::xdp_mmap_offsets(&descriptor).map_err(at("querying where its rings are"))?;
        let socket = descriptor.as_fd();
        let fill = ProducerRing::map(socket, XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, size)
            .map_err(at("mapping the fill ring"))?;
        let completion = ConsumerRing::map(socket, XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr, size)
            .map_err(at("mapping the completion ring"))?;
        let rx = ConsumerRing::map(socket, XDP_PGOFF_RX_RING, &offsets.rx, size)
            .map_err(at("mapping the rx ring"))?;
        let tx = ProducerRing::map(socket, XDP_PGOFF_TX_RING, &offsets.tx, size)
            .map_err(at("mapping the tx ring"))?;

        // The options are hints: not every kernel has the options that send more per call or wait less.
        let _ = set_option(socket, libc::SOL_XDP, MAX_TX_SKB_BUDGET, size.min(i32::MAX as u32).cast_signed());
        // Frames in flight are limited by the tx ring. The socket's own limit is raised, because it would stop sending
        // in the middle of the ring.
        let in_flight = (size as usize).saturating_mul(2 * umem.chunk_bytes as usize);
        let _ = sockopt::set_socket_send_buffer_size_force(&descriptor, in_flight.min(i32::MAX as usize / 2));
        if config.busy_poll_us > 0 {
            let time = i32::try_from(config.busy_poll_us).unwrap_or(i32::MAX);
            for (option, value) in
                [(PREFER_BUSY_POLL, 1), (libc::SO_BUSY_POLL, time), (BUSY_POLL_BUDGET, BUSY_POLL_FRAMES)]
            {
                set_option(socket, libc::SOL_SOCKET, option, value)
                    .map_err(at("enabling busy polling (Linux 5.11)"))?;
            }
        }
        bind(socket, queue, config, attempt).map_err(at(BIND))?;
        Ok(Self { fill, completion, rx, tx, takes_requests, descriptor })
    }

    /// Makes the kernel process the tx ring.
    pub(super) fn send(&self) -> Result<(), Errno> {
        rustix::net::send(&self.descriptor, &[], SendFlags::DONTWAIT).map(drop)
    }

    /// Wakes the driver even if the socket prefers busy polling. [`Self::send`] would then only poll the interface.
    pub(super) fn wake_driver(&self) {
        let mut poll = [PollFd::new(&self.descriptor, PollFlags::OUT)];
        let _ = rustix::event::poll(&mut poll, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    }

    /// Makes the kernel process the fill ring, and the interface if it busy-polls.
    pub(super) fn wake_rx(&self) {
        let _ = rustix::net::recv(&self.descriptor, &mut [0_u8; 0][..], RecvFlags::DONTWAIT);
    }

    /// The kernel's counters of this socket.
    pub(super) fn statistics(&self) -> Result<XdpStatistics, Errno> {
        sockopt::xdp_statistics(&self.descriptor)
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Whether frames may leave with open checksums: requested, copied by the kernel, and with room for the request beside
/// the longest frame.
fn leaves_checksums(umem: &Umem, config: &XdpConfig, attempt: Attempt) -> bool {
    let fits = attempt.multi_buffer || config.max_frame_bytes() + TX_REQUEST_BYTES <= umem.capacity();
    config.leaves_checksums && !attempt.zero_copy && fits
}

fn bind(socket: BorrowedFd<'_>, queue: u16, config: &XdpConfig, attempt: Attempt) -> Result<(), Errno> {
    let mut flags = match attempt.zero_copy {
        true => SocketAddrXdpFlags::XDP_ZEROCOPY,
        false => SocketAddrXdpFlags::XDP_COPY,
    };
    flags.set(SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP, config.need_wakeup);
    flags.set(SocketAddrXdpFlags::XDP_USE_SG, attempt.multi_buffer);
    let address = SocketAddrXdp::new(flags, config.ifindex, u32::from(queue));
    let mut pause = Duration::from_millis(1);
    for _ in 1..BUSY_ATTEMPTS {
        match rustix::net::bind(socket, &address) {
            Err(Errno::BUSY) => {
                std::thread::sleep(pause);
                pause *= 2;
            }
            done => return done,
        }
    }
    rustix::net::bind(socket, &address)
}

fn set_option(socket: BorrowedFd<'_>, level: i32, option: i32, value: i32) -> Result<(), Errno> {
    let (value, bytes) = (std::ptr::from_ref(&value).cast(), size_of::<i32>() as u32);
    // SAFETY: the option's value is an int of that size, which lives during the call.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, bytes) };
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}
