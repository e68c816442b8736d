//! Byte streams of connections: over TCP or a UNIX socket, by TLS or plain. No function here waits.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::SendFlags;
use rustls::Connection;

use crate::tls::problem;

/// Maximum number of bytes read from one connection in one turn, so that the others need not wait.
const READ_BYTES: usize = 64 * 1024;

/// A TCP or UNIX socket.
#[derive(Debug)]
struct StreamSocket(OwnedFd);

impl Read for StreamSocket {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        Ok(rustix::io::read(&self.0, bytes)?)
    }
}

impl Write for StreamSocket {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        Ok(rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A stream to a controller or a tool.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: StreamSocket,
    tls: Option<Box<Connection>>,
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.0.as_fd()
    }
}

impl Stream {
    /// Makes a stream over TCP, by TLS or plain.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn tcp(stream: TcpStream, tls: Option<Connection>) -> Result<Self> {
        stream.set_nonblocking(true)?;
        // A small answer must not wait for a larger one.
        stream.set_nodelay(true)?;
        Ok(Self { socket: StreamSocket(stream.into()), tls: tls.map(Box::new) })
    }

    /// Makes a stream over a UNIX socket.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn unix(stream: UnixStream) -> Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { socket: StreamSocket(stream.into()), tls: None })
    }

    /// Whether the TLS handshake is not finished yet.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Whether there is something to send. `session_has` tells whether the session has output.
    pub(crate) fn has_to_send(&self, session_has: bool) -> bool {
        match &self.tls {
            Some(tls) => tls.wants_write() || session_has && !tls.is_handshaking(),
            None => session_has,
        }
    }

    /// Reads bytes, at most those of one turn. An empty result means that the peer has closed the connection.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has come; else the error that ends the connection.
    pub(crate) fn read(&mut self) -> Result<Vec<u8>> {
        let Some(tls) = &mut self.tls else {
            let mut bytes = vec![0; READ_BYTES];
            let len = self.socket.read(&mut bytes)?;
            bytes.truncate(len);
            return Ok(bytes);
        };
        let (mut bytes, mut wire_bytes) = (Vec::new(), 0);
        // Decrypted bytes are read each time, so that no bytes stay in TLS, where poll would not report them.
        while wire_bytes < READ_BYTES {
            let len = match tls.read_tls(&mut self.socket) {
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            wire_bytes += len;
            if let Err(error) = tls.process_new_packets() {
                // The peer gets the reason, if it still reads.
                let _ = tls.write_tls(&mut self.socket);
                return Err(Error::new(ErrorKind::InvalidData, problem(&error)));
            }
            // The end of the input is reported by `len`.
            let _ = tls.reader().read_to_end(&mut bytes);
            if len == 0 {
                return match tls.is_handshaking() {
                    true => Err(Error::other("it closed the connection during the TLS handshake")),
                    false => Ok(bytes),
                };
            }
        }
        match bytes.is_empty() {
            true => Err(ErrorKind::WouldBlock.into()),
            false => Ok(bytes),
        }
    }

    /// Sends some of these bytes, and returns their number.
    ///
    /// # Errors
    /// `WouldBlock` if no bytes can be sent now; else the error that ends the connection.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.flush()?;
        let Some(tls) = &mut self.tls else { return self.socket.write(bytes) };
        if tls.is_handshaking() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let taken = tls.writer().write(bytes)?;
        match self.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// Sends TLS's own records, and the data given before.
    ///
    /// # Errors
    /// `WouldBlock` if a part cannot be sent now; else the error that ends the connection.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.wants_write() {
            match tls.write_tls(&mut self.socket) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                sent => {
                    sent?;
                }
            }
        }
        Ok(())
    }
}
