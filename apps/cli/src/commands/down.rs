//! `ringroad down`.

use std::os::fd::AsFd;

use clap::Args;
use ringroad_control::{Connection, ControlError, Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::failure::Failure;
use crate::options::Global;
use crate::output::Output;
use crate::verb::{Done, MainVerb, request};

/// Time limit for the daemon to end.
const LONGEST_END_S: i64 = 10;

/// Stop the daemon, and with it all switches and ports
#[derive(Debug, Args)]
pub(crate) struct DownArgs {}

impl MainVerb for DownArgs {
    const EXAMPLES: &str = "ringroad down";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        if let Err(ControlError::DaemonNotRunning { path }) = Connection::connect(global.socket_path()) {
            return Err(Failure::new(
                format!("no daemon listens on {}, so there is nothing to stop", path.display()),
                "--socket or $RINGROAD_SOCKET names the socket of another daemon",
            ));
        }
        let mut connection = global.connect()?;
        request!(connection, &Request::Stop, Reply::Done => ())?;
        // The connection is hung up when the daemon has ended.
        let mut set = [PollFd::new(&connection, PollFlags::RDHUP)];
        let limit = Timespec { tv_sec: LONGEST_END_S, tv_nsec: 0 };
        let gone = rustix::io::retry_on_intr(|| poll(&mut set, Some(&limit)))
            .map_err(|error| Failure::new(format!("waiting for the daemon to end: {error}"), ""))?;
        if gone == 0 {
            let pid = ringroad_control::peer::PeerCredentials::of(connection.as_fd())
                .ok()
                .and_then(|peer| peer.pid);
            let whom = pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
            return Err(Failure::new(
                format!("the daemon{whom} agreed to end, but still runs after {LONGEST_END_S} s"),
                "read its log, or kill that process",
            ));
        }
        output.result(&Done { done: "stopped", name: None }, |_| "the daemon has stopped".to_owned())
    }
}
