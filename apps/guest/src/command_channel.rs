//! Commands run in a guest over its second serial port: `scripts/ringroad-commands` is the other end.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::GuestError;
use crate::virtual_machine::{command_socket, until};

/// Longest script, bytes. In base64 it fits the buffer of the guest's kernel for a reader that has not opened the port
/// yet.
const SCRIPT_BYTES_MAX: usize = 32 << 10;

/// Longest wait between two checks of the stop flag.
const LONGEST_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Time limit for the guest to end a command whose user has disconnected.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// Line that reports that the guest is up.
const READY: &[u8] = b"ready\n";

/// The channel of one guest. Only one process at a time can use it.
#[derive(Debug)]
pub struct CommandChannel {
    socket: UnixStream,
    received: Vec<u8>,
    _turn: File,
}

impl CommandChannel {
    /// Waits until the channel of the guest in `folder` is free, and connects.
    ///
    /// # Errors
    /// [`GuestError`]: the guest has ended, or `stop` was set.
    pub fn connect(folder: &Path, stop: &AtomicBool) -> Result<Self, GuestError> {
        let path = command_socket(folder);
        let turn = File::create(path.with_extension("turn")).map_err(GuestError::file("make", &path))?;
        until(stop, None, || flock(&turn, FlockOperation::NonBlockingLockExclusive).is_ok())?;
        let socket = UnixStream::connect(&path).map_err(GuestError::file("connect to", &path))?;
        Ok(Self { socket, received: Vec::new(), _turn: turn })
    }

    /// Waits until the guest reports that it is up. The guest reports that once, to the connected program. Returns
    /// `false` if no report arrived by `end`.
    ///
    /// # Errors
    /// [`GuestError`]: the guest has ended, or `stop` was set.
    pub fn await_ready(&mut self, end: Instant, stop: &AtomicBool) -> Result<bool, GuestError> {
        while find(&self.received, READY).is_none() {
            if Instant::now() >= end {
                return Ok(false);
            }
            self.receive(stop)?;
        }
        self.received.clear();
        Ok(true)
    }

    /// Runs `script` in the guest's shell, with no input. Passes on the script's output and returns its exit status. If
    /// `stop` is set meanwhile, the script is ended.
    ///
    /// # Errors
    /// [`GuestError`]: the guest has ended, or does not begin with the script within `patience`; `stop` was set; the
    /// script is too long; writing the output failed.
    pub fn run(
        &mut self,
        script: &str,
        output: &mut dyn Write,
        patience: Duration,
        stop: &AtomicBool,
    ) -> Result<u8, GuestError> {
        if script.len() > SCRIPT_BYTES_MAX {
            return Err(GuestError::CommandTooLong { bytes: script.len(), most: SCRIPT_BYTES_MAX });
        }
        let mark = mark()?;
        let begun = self.begin(&mark, script, patience, stop);
        let result = begun.and_then(|()| self.pass_output(&mark, output, stop));
        if matches!(result, Err(GuestError::Interrupted | GuestError::File { .. })) {
            // A new request ends the previous one. Disconnecting before the new request has arrived would cut it off.
            let _ = self.begin(&format!("{mark}-end"), ":", END_PATIENCE, &AtomicBool::new(false));
        }
        result
    }

    /// Sends a request, and waits until the guest begins with it.
    fn begin(
        &mut self,
        mark: &str,
        script: &str,
        patience: Duration,
        stop: &AtomicBool,
    ) -> Result<(), GuestError> {
        // The newline ends a line that was cut off before. The dot shows that this line is complete.
        let request = format!("\n{mark} {} .\n", STANDARD.encode(script));
        self.socket.write_all(request.as_bytes()).map_err(|_| GuestError::GuestGone)?;
        let end = Instant::now() + patience;
        let begin = format!("{mark} begin\n");
        // Received bytes before the mark are the output of a command that was ended.
        loop {
            if let Some(at) = find(&self.received, begin.as_bytes()) {
                self.received.drain(..at + begin.len());
                return Ok(());
            }
            if Instant::now() >= end {
                return Err(GuestError::NoAnswer(patience));
            }
            self.receive(stop)?;
        }
    }

    fn pass_output(
        &mut self,
        mark: &str,
        output: &mut dyn Write,
        stop: &AtomicBool,
    ) -> Result<u8, GuestError> {
        let marker = format!("\n{mark} end ").into_bytes();
        loop {
            let found = find(&self.received, &marker);
            // The beginning of the marker may have arrived without its end.
            let sure = found.unwrap_or_else(|| self.received.len().saturating_sub(marker.len()));
            let written = output.write_all(self.received.get(..sure).unwrap_or_default());
            written
                .and_then(|()| output.flush())
                .map_err(GuestError::file("write", Path::new("the output")))?;
            self.received.drain(..sure);
            if found.is_some() {
                let status = self.received.get(marker.len()..).unwrap_or_default();
                if let Some(length) = find(status, b"\n") {
                    let text = String::from_utf8_lossy(status.get(..length).unwrap_or_default()).into_owned();
                    self.received.clear();
                    return text.parse().map_err(|_| GuestError::GuestGone);
                }
            }
            self.receive(stop)?;
        }
    }

    /// Receives some bytes, or none if none arrive for a while.
    fn receive(&mut self, stop: &AtomicBool) -> Result<(), GuestError> {
        if stop.load(Ordering::Relaxed) {
            return Err(GuestError::Interrupted);
        }
        // A signal ends the wait early.
        if poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&LONGEST_WAIT)).unwrap_or(0) == 0 {
            return Ok(());
        }
        let mut bytes = [0; 16 << 10];
        match self.socket.read(&mut bytes) {
            Ok(0) => Err(GuestError::GuestGone),
            Ok(count) => {
                self.received.extend_from_slice(bytes.get(..count).unwrap_or_default());
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(_) => Err(GuestError::GuestGone),
        }
    }
}

/// Makes a script of a command's words. Each word is quoted, so that the shell leaves it unchanged.
#[must_use]
pub fn quoted(words: &[String]) -> String {
    let quote = |word: &String| format!("'{}'", word.replace('\'', "'\\''"));
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// Returns a text that no output contains by accident.
fn mark() -> Result<String, GuestError> {
    let mut bytes = [0_u8; 16];
    getrandom(&mut bytes, GetRandomFlags::empty())
        .map_err(|errno| GuestError::file("read", Path::new("/dev/urandom"))(errno.into()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::virtual_machine::command_socket;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// Starts a guest that replies to each request with `answer`, in which the request's mark replaces `@`. The guest
    /// sends the reply byte by byte, then closes the connection.
    fn guest(answer: &'static str) -> (tempfile::TempDir, CommandChannel) {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(command_socket(folder.path())).unwrap();
        let channel = CommandChannel::connect(folder.path(), &AtomicBool::new(false)).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 64];
            let length = stream.read(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            assert!(request.ends_with(" bHM= .\n"), "{request}");
            let mark = request.split_whitespace().next().unwrap();
            for byte in answer.replace('@', mark).bytes() {
                if stream.write_all(&[byte]).is_err() {
                    return;
                }
            }
        });
        (folder, channel)
    }

    fn run(channel: &mut CommandChannel) -> Result<(u8, String), GuestError> {
        let mut output = Vec::new();
        let status = channel.run("ls", &mut output, PATIENCE, &AtomicBool::new(false))?;
        Ok((status, String::from_utf8(output).unwrap()))
    }

    #[test]
    fn output_and_status_are_separated_from_earlier_output() {
        let (_folder, mut channel) = guest("left over\n@ begin\none\ntwo\n\n@ end 3\n");
        assert_eq!(run(&mut channel).unwrap(), (3, "one\ntwo\n".to_owned()));
        let (_folder, mut channel) = guest("@ begin\n\n@ end 0\n");
        assert_eq!(run(&mut channel).unwrap(), (0, String::new()));
        let (_folder, mut channel) = guest("@ begin\nno newline, end 5\n @ end\n@ end 127\n");
        assert_eq!(run(&mut channel).unwrap().0, 127);
    }

    #[test]
    fn a_guest_that_ends_or_stalls_or_answers_garbage_is_an_error() {
        for answer in ["@ begin\nhalf", "", "@ begin\n\n@ end many\n"] {
            let (_folder, mut channel) = guest(answer);
            assert!(matches!(run(&mut channel), Err(GuestError::GuestGone)), "{answer}");
        }
        let folder = tempfile::tempdir().unwrap();
        let _listener = UnixListener::bind(command_socket(folder.path())).unwrap();
        let mut channel = CommandChannel::connect(folder.path(), &AtomicBool::new(false)).unwrap();
        let silent = channel.run("ls", &mut Vec::new(), Duration::ZERO, &AtomicBool::new(false));
        assert!(matches!(silent, Err(GuestError::NoAnswer(_))));
        let interrupted = channel.run("ls", &mut Vec::new(), PATIENCE, &AtomicBool::new(true));
        assert!(matches!(interrupted, Err(GuestError::Interrupted)));
        let long = "x".repeat(SCRIPT_BYTES_MAX + 1);
        let refused = channel.run(&long, &mut Vec::new(), PATIENCE, &AtomicBool::new(false));
        assert!(matches!(refused, Err(GuestError::CommandTooLong { .. })));
    }

    #[test]
    fn arguments_reach_the_guest_unchanged() {
        let words = ["echo", "it's", "$HOME; ls"].map(str::to_owned);
        assert_eq!(quoted(&words), r"'echo' 'it'\''s' '$HOME; ls'");
    }
}
