//! Wake-ups of a guest's driver, and signals for its front end that a ring has failed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringroad_ring::eventfd;
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{AddressFamily, SendFlags, SocketType, send};

use crate::peer::wake_set::check_eventfd;

/// A descriptor of the front end. Ringing it never waits for its other holders.
#[derive(Debug)]
pub(super) enum Call {
    Eventfd(OwnedFd),
    /// Stream socket, from which the driver reads what it would read from an eventfd. User-mode Linux has sockets,
    /// because Linux sends no signal for the input of an eventfd.
    Socket(OwnedFd),
}

impl Call {
    /// Takes a descriptor from a message.
    ///
    /// # Errors
    /// The kind of the other descriptor, as text for users.
    pub(super) fn new(descriptor: OwnedFd) -> Result<Self, String> {
        if is_stream_socket(descriptor.as_fd()) {
            return Ok(Self::Socket(descriptor));
        }
        check_eventfd(descriptor.as_fd())?;
        Ok(Self::Eventfd(descriptor))
    }

    pub(super) fn ring(&self) {
        match self {
            Self::Eventfd(event) => eventfd::ring(event),
            // A full socket already has a signal that the driver has not read.
            Self::Socket(socket) => say(socket.as_fd(), &1u64.to_ne_bytes()),
        }
    }
}

impl AsFd for Call {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Eventfd(descriptor) | Self::Socket(descriptor) => descriptor.as_fd(),
        }
    }
}

/// Whether a descriptor is a stream socket of this machine, to which [`say`] never waits.
pub(super) fn is_stream_socket(descriptor: BorrowedFd<'_>) -> bool {
    socket_domain(descriptor) == Ok(AddressFamily::UNIX) && socket_type(descriptor) == Ok(SocketType::STREAM)
}

/// Sends a few bytes as a whole, or nothing if the socket is full or has no other end any more.
pub(super) fn say(socket: BorrowedFd<'_>, bytes: &[u8]) {
    let _ = send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_socket_gets_what_a_driver_reads_from_an_eventfd_and_never_blocks() {
        let (mut driver, own) = UnixStream::pair().unwrap();
        let call = Call::new(own.into()).unwrap();
        // Many more signals than the socket has room for. The socket is blocking.
        for _ in 0..100_000 {
            call.ring();
        }
        driver.set_nonblocking(true).unwrap();
        let mut signals = 0;
        let mut signal = [0; 8];
        while driver.read(&mut signal).is_ok_and(|bytes| bytes == 8) {
            assert_eq!(u64::from_ne_bytes(signal), 1);
            signals += 1;
        }
        assert!((1..100_000).contains(&signals), "{signals}");
        drop(driver);
        call.ring();
    }

    #[test]
    fn only_eventfds_and_stream_sockets_are_taken() {
        assert!(matches!(Call::new(eventfd::create().unwrap()), Ok(Call::Eventfd(_))));
        let (pipe, _writer) = rustix::pipe::pipe().unwrap();
        assert!(Call::new(pipe).unwrap_err().contains("pipe"));
        let datagrams = std::os::unix::net::UnixDatagram::unbound().unwrap();
        assert!(Call::new(datagrams.into()).unwrap_err().contains("socket"));
    }
}
