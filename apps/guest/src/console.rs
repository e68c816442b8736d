//! Connection of a user's terminal to a guest's console.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcsetattr};

use crate::error::GuestError;
use crate::virtual_machine::CONSOLE_SOCKET;

/// Key that leaves the console: Ctrl-], as in telnet.
const LEAVE: u8 = 0x1d;

/// Longest wait between two checks of the stop flag.
const LONGEST_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Reasons why the user is no longer on the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsoleExit {
    /// The user pressed Ctrl-], or a signal arrived.
    Leaving,
    /// The guest ended, or another program took the console.
    Ended,
}

/// Returns the path of a guest's console socket. One client at a time can be connected.
#[must_use]
pub fn socket(folder: &Path) -> PathBuf {
    folder.join(CONSOLE_SOCKET)
}

/// Joins standard input and output with the console of the guest in `folder`, until Ctrl-], `stop`, or the guest's end.
/// An input that is a terminal passes on every key meanwhile. The end of the input does not end the output.
///
/// # Errors
/// [`GuestError::File`]: the console cannot be reached, or the output cannot be written.
pub fn attach(folder: &Path, stop: &AtomicBool) -> Result<ConsoleExit, GuestError> {
    let path = socket(folder);
    let console = UnixStream::connect(&path).map_err(GuestError::file("connect to", &path))?;
    let _raw = RawTerminal::enter();
    relay(&console, stop).map_err(GuestError::file("use", &path))
}

fn relay(mut console: &UnixStream, stop: &AtomicBool) -> io::Result<ConsoleExit> {
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let mut input_goes_on = true;
    let mut bytes = [0; 4096];
    while !stop.load(Ordering::Relaxed) {
        let wanted = if input_goes_on { PollFlags::IN } else { PollFlags::empty() };
        let stdin = io::stdin();
        let mut set = [PollFd::new(console, PollFlags::IN), PollFd::from_borrowed_fd(stdin.as_fd(), wanted)];
        // An ended input is always ready, so it is no longer polled.
        let asked = if input_goes_on { &mut set[..] } else { &mut set[..1] };
        if poll(asked, Some(&LONGEST_WAIT)).unwrap_or(0) == 0 {
            continue;
        }
        let [from_console, from_input] = [set[0].revents(), set[1].revents()];
        if !from_console.is_empty() {
            match console.read(&mut bytes) {
                Ok(0) => return Ok(ConsoleExit::Ended),
                Ok(count) => output.write_all(&bytes[..count]).and_then(|()| output.flush())?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(ConsoleExit::Ended),
                Err(error) => return Err(error),
            }
        }
        if input_goes_on && !from_input.is_empty() {
            let count = match input.read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                result => result?,
            };
            let typed = &bytes[..count];
            let kept = typed.iter().position(|byte| *byte == LEAVE).unwrap_or(count);
            match console.write_all(&typed[..kept]) {
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(ConsoleExit::Ended),
                result => result?,
            }
            if kept < count {
                return Ok(ConsoleExit::Leaving);
            }
            input_goes_on = count > 0;
        }
    }
    Ok(ConsoleExit::Leaving)
}

/// A terminal in raw mode, which passes every key on, until dropped.
struct RawTerminal(Option<Termios>);

impl RawTerminal {
    fn enter() -> Self {
        let stdin = io::stdin();
        let former = isatty(&stdin).then(|| tcgetattr(&stdin).ok()).flatten();
        if let Some(mut raw) = former.clone() {
            raw.make_raw();
            // A terminal that refuses raw mode still works, with an echo.
            let _ = tcsetattr(&stdin, OptionalActions::Drain, &raw);
        }
        Self(former)
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Some(former) = &self.0 {
            // A destructor cannot report this error.
            let _ = tcsetattr(io::stdin(), OptionalActions::Drain, former);
        }
    }
}
