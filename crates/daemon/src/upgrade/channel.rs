//! Socket between the two processes, for whole messages with descriptors, each within a deadline.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use ringroad_control::fd_passing::{MAX_DESCRIPTORS, receive, send};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::UpgradeMessage;

/// Maximum length of a message, bytes: far more than the maximum number of ports needs.
const MOST_BYTES: usize = 1 << 30;
/// Length of a message's header, bytes: the number of bytes of the message, and of descriptors behind it.
const PREFIX_BYTES: usize = 16;

/// Reason why a message cannot be sent or received.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The other process has ended.
    #[error("the other process has ended")]
    Ended,
    /// The deadline has passed.
    #[error("the other process takes too long")]
    Late,
    /// The kernel reported an error.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The bytes are not a valid message.
    #[error("the other process sent an invalid message: {0}")]
    NoMessage(#[from] serde_json::Error),
}

/// One end of the socket pair.
#[derive(Debug)]
pub struct UpgradeChannel(OwnedFd);

impl UpgradeChannel {
    /// Takes `socket` as an end of the channel.
    #[must_use]
    pub fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Sends a message with descriptors.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub fn send(
        &self,
        message: &UpgradeMessage,
        descriptors: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> Result<(), ChannelError> {
        let body = serde_json::to_vec(message)?;
        let mut bytes = Vec::with_capacity(PREFIX_BYTES + body.len());
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.extend((descriptors.len() as u64).to_le_bytes());
        bytes.extend(body);
        self.send_all(&bytes, &[], deadline)?;
        // The receiver takes the descriptors of one byte out of the socket before the next byte arrives.
        descriptors.chunks(MAX_DESCRIPTORS).try_for_each(|chunk| self.send_all(&[0], chunk, deadline))
    }

    fn send_all(
        &self,
        mut bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> Result<(), ChannelError> {
        while !bytes.is_empty() {
            match send(&self.0, bytes, descriptors) {
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(PollFlags::OUT, deadline)?
                }
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(ChannelError::Ended),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Receives a message with its descriptors.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub fn receive(&self, deadline: Instant) -> Result<(UpgradeMessage, Vec<OwnedFd>), ChannelError> {
        let mut descriptors = Vec::new();
        let mut prefix = [0; PREFIX_BYTES];
        self.receive_all(&mut prefix, &mut descriptors, deadline)?;
        let [bytes, expected] = [0, 8].map(|at| {
            let number = prefix.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
            usize::try_from(u64::from_le_bytes(number)).unwrap_or(usize::MAX)
        });
        if bytes > MOST_BYTES {
            return Err(io::Error::other(format!("a message of {bytes} bytes is too long")).into());
        }
        let mut body = vec![0; bytes];
        self.receive_all(&mut body, &mut descriptors, deadline)?;
        while descriptors.len() < expected {
            let before = descriptors.len();
            self.receive_all(&mut [0], &mut descriptors, deadline)?;
            if descriptors.len() == before {
                return Err(io::Error::other(
                    "descriptors were lost: is their limit (ulimit -n) lower here?",
                )
                .into());
            }
        }
        Ok((serde_json::from_slice(&body)?, descriptors))
    }

    /// Waits until the other process has ended.
    ///
    /// # Errors
    /// [`ChannelError::Late`], or the kernel's.
    pub fn await_end(&self, deadline: Instant) -> Result<(), ChannelError> {
        match self.receive_all(&mut [0], &mut Vec::new(), deadline) {
            Err(ChannelError::Ended) => Ok(()),
            other => other,
        }
    }

    fn receive_all(
        &self,
        mut bytes: &mut [u8],
        descriptors: &mut Vec<OwnedFd>,
        deadline: Instant,
    ) -> Result<(), ChannelError> {
        while !bytes.is_empty() {
            match receive(&self.0, bytes, descriptors) {
                Ok(received) if received.bytes == 0 => return Err(ChannelError::Ended),
                Ok(received) => bytes = bytes.get_mut(received.bytes..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(PollFlags::IN, deadline)?
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(ChannelError::Ended);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn wait(&self, flags: PollFlags, deadline: Instant) -> Result<(), ChannelError> {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(&self.0, flags)], Some(&left)) {
            Ok(0) => Err(ChannelError::Late),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(ChannelError::System(error.into())),
        }
    }
}

impl AsFd for UpgradeChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
