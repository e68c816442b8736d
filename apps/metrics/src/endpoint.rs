//! An HTTP server for metrics and health: `GET /metrics`, `/healthz`, `/readyz`.
//!
//! Every client that reaches the address can send requests. Their cost is limited: [`MOST_CONNECTIONS`] at a time,
//! [`PATIENCE`] for a whole request and its answer, [`MOST_REQUEST_BYTES`] for a request; and the daemon is queried
//! once in [`FRESH`], however many clients there are. Clients that send no request, or do not read the answer, make
//! room for new ones.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringroad_control::Connection;
use ringroad_control::report::{StatusReport, WorkerState};

use crate::exposition::exposition;

/// Maximum number of connections at a time. A further connection ends the oldest of those that wait for their client;
/// if all others wait for the daemon, it is closed without a reply.
pub const MOST_CONNECTIONS: usize = 16;
/// Time limit of a connection, from its acceptance to the end of the reply.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Longest request, bytes.
pub const MOST_REQUEST_BYTES: usize = 8192;
/// Greatest age of a report that is used for another reply.
pub const FRESH: Duration = Duration::from_millis(500);
/// Time limit for the daemon's report.
const REPORT_TIME: Duration = Duration::from_secs(2);
/// Maximum number of header fields in a request.
const MOST_HEADERS: usize = 64;
/// Pause after a failure to accept, such as for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// A listening HTTP server.
pub struct Endpoint {
    listener: Listener,
    asking: Asking,
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Errors that keep the endpoint from starting.
#[derive(Debug, thiserror::Error)]
#[error(
    "metrics at {address}: {source}; give an address such as 127.0.0.1:9464, or the path of a new socket"
)]
pub struct EndpointError {
    address: String,
    source: io::Error,
}

/// A stream with time limits, which another thread can end.
trait Stream: Read + Write + Send {
    fn limit(&self, time: Duration) -> io::Result<()>;
    /// Another handle of the same connection.
    fn handle(&self) -> io::Result<Box<dyn Stream>>;
    /// Ends the connection; reads and writes in progress return.
    fn hang_up(&self);
}

macro_rules! stream {
    ($stream:ty) => {
        impl Stream for $stream {
            fn limit(&self, time: Duration) -> io::Result<()> {
                // A time of zero would mean no limit.
                let time = Some(time.max(Duration::from_millis(1)));
                self.set_read_timeout(time)?;
                self.set_write_timeout(time)
            }

            fn handle(&self) -> io::Result<Box<dyn Stream>> {
                Ok(Box::new(self.try_clone()?))
            }

            fn hang_up(&self) {
                // The client may have ended the connection.
                let _ = self.shutdown(Shutdown::Both);
            }
        }
    };
}

stream!(std::net::TcpStream);
stream!(std::os::unix::net::UnixStream);

impl Endpoint {
    /// Listens at `address`: `HOST:PORT`, or the path of a UNIX socket, which has a `/`. A socket left by a killed
    /// process is replaced. `daemon` is the path of the daemon's control socket.
    ///
    /// # Errors
    /// [`EndpointError`]: the address is taken, or invalid.
    pub fn listen(address: &str, daemon: &Path) -> Result<Self, EndpointError> {
        let failed = |source| EndpointError { address: address.to_owned(), source };
        let listener = if address.contains('/') {
            Listener::Unix(listen_at(Path::new(address)).map_err(failed)?)
        } else {
            Listener::Tcp(TcpListener::bind(address).map_err(failed)?)
        };
        Ok(Self { listener, asking: Asking::new(daemon.to_owned()) })
    }

    /// Returns the listening address, with the number that the kernel chose for port 0.
    ///
    /// # Errors
    /// Error of the kernel.
    pub fn address(&self) -> io::Result<String> {
        match &self.listener {
            Listener::Tcp(listener) => listener.local_addr().map(|address| address.to_string()),
            Listener::Unix(listener) => {
                let address = listener.local_addr()?;
                Ok(address.as_pathname().map(|path| path.display().to_string()).unwrap_or_default())
            }
        }
    }

    /// Answers requests forever.
    pub fn serve(self) -> ! {
        let asking = Arc::new(self.asking);
        loop {
            let accepted: io::Result<Box<dyn Stream>> = match &self.listener {
                Listener::Tcp(listener) => listener.accept().map(|(stream, _)| Box::new(stream) as _),
                Listener::Unix(listener) => listener.accept().map(|(stream, _)| Box::new(stream) as _),
            };
            match accepted {
                Ok(stream) => Asking::answer_apart(&asking, stream),
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }
}

/// Listens at a path, unless another process listens there.
fn listen_at(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            use std::os::unix::fs::FileTypeExt;
            let is_socket = std::fs::symlink_metadata(path)?.file_type().is_socket();
            if !is_socket || std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        result => result,
    }
}

/// The daemon's report, or the error of the request for it.
type Report = Arc<Result<StatusReport, String>>;

/// The open connections, by number: the oldest first. A connection that waits for its client has a handle here, which
/// can end it. A connection that waits for the daemon has no handle.
#[derive(Default)]
struct OpenConnections {
    open: BTreeMap<u64, Option<Box<dyn Stream>>>,
    last_number: u64,
}

impl OpenConnections {
    /// Admits a connection, and returns its number; `None` if there is no room.
    fn admit(&mut self, handle: Box<dyn Stream>) -> Option<u64> {
        if self.open.len() >= MOST_CONNECTIONS {
            let number = self.open.iter().find_map(|(number, handle)| handle.as_ref().map(|_| *number))?;
            if let Some(Some(oldest)) = self.open.remove(&number) {
                oldest.hang_up();
            }
        }
        self.last_number += 1;
        self.open.insert(self.last_number, Some(handle));
        Some(self.last_number)
    }

    /// Takes the handle of a connection, which then cannot be ended; `None` if it was ended.
    fn begin_work(&mut self, number: u64) -> Option<Box<dyn Stream>> {
        self.open.get_mut(&number)?.take()
    }

    fn end_work(&mut self, number: u64, handle: Box<dyn Stream>) {
        self.open.insert(number, Some(handle));
    }
}

/// Client of the daemon, with a cache of the last report.
struct Asking {
    daemon: PathBuf,
    connections: Mutex<OpenConnections>,
    last: Mutex<Option<(Instant, Report)>>,
}

struct Answer {
    status: &'static str,
    content_type: &'static str,
    body: String,
}

impl Answer {
    fn plain(status: &'static str, line: impl Into<String>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: line.into() + "\n" }
    }
}

impl Asking {
    fn new(daemon: PathBuf) -> Self {
        Self { daemon, connections: Mutex::default(), last: Mutex::new(None) }
    }

    fn connections(&self) -> MutexGuard<'_, OpenConnections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers on a new thread, or closes the connection if there is no room for it.
    fn answer_apart(this: &Arc<Self>, mut stream: Box<dyn Stream>) {
        let handle = stream.handle().ok();
        let Some(number) = handle.and_then(|handle| this.connections().admit(handle)) else { return };
        let asking = Arc::clone(this);
        let answer = move || {
            // A client that disconnects or sends nothing gets no reply.
            let _ = asking.answer(number, &mut *stream);
            asking.connections().open.remove(&number);
        };
        if std::thread::Builder::new().name("metrics".to_owned()).spawn(answer).is_err() {
            this.connections().open.remove(&number);
        }
    }

    fn answer(&self, number: u64, stream: &mut dyn Stream) -> io::Result<()> {
        let end = Instant::now() + PATIENCE;
        let mut request = Vec::new();
        let answer = loop {
            let Some(handle) = self.connections().begin_work(number) else { return Ok(()) };
            let answer = self.answer_to(&request);
            self.connections().end_work(number, handle);
            if let Some(answer) = answer {
                break answer;
            }
            let mut bytes = [0; 1024];
            stream.limit(left(end)?)?;
            match stream.read(&mut bytes)? {
                0 => return Ok(()),
                count => request.extend_from_slice(bytes.get(..count).unwrap_or(&[])),
            }
        };
        let Answer { status, content_type, body } = answer;
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let answer = head + &body;
        let mut rest = answer.as_bytes();
        while !rest.is_empty() {
            stream.limit(left(end)?)?;
            let written = stream.write(rest)?;
            rest = rest.get(written..).unwrap_or(&[]);
        }
        Ok(())
    }

    /// Returns the reply to the received part of a request; `None` until the request is complete.
    fn answer_to(&self, request: &[u8]) -> Option<Answer> {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut parsed = httparse::Request::new(&mut headers);
        match parsed.parse(request) {
            Ok(httparse::Status::Complete(_)) => {}
            Ok(httparse::Status::Partial) if request.len() < MOST_REQUEST_BYTES => return None,
            Ok(httparse::Status::Partial) => {
                return Some(Answer::plain(
                    "431 Request Header Fields Too Large",
                    "a shorter request, please",
                ));
            }
            Err(error) => return Some(Answer::plain("400 Bad Request", error.to_string())),
        }
        let path = parsed.path.unwrap_or_default().split('?').next().unwrap_or_default();
        Some(match (parsed.method.unwrap_or_default(), path) {
            ("GET", "/metrics" | "/healthz" | "/readyz") => self.answer_about_daemon(path),
            ("GET", "/") => Answer::plain("200 OK", "Ringroad: /metrics, /healthz, /readyz"),
            ("GET", _) => Answer::plain("404 Not Found", "there are /metrics, /healthz and /readyz"),
            _ => Answer::plain("405 Method Not Allowed", "GET only"),
        })
    }

    /// Answers a request that needs the daemon's report. A daemon is healthy that replies and whose workers live; it is
    /// ready if, in addition, no port waits for its device.
    fn answer_about_daemon(&self, path: &str) -> Answer {
        let report = self.report();
        let status = match &*report {
            Ok(status) => status,
            Err(problem) => return unavailable(problem),
        };
        if path == "/metrics" {
            let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            return Answer { status: "200 OK", content_type, body: exposition(status.clone()) };
        }
        if path == "/readyz" && !status.waiting.is_empty() {
            let lines = status.waiting.iter().map(|(port, reason)| format!("{port}: {reason}"));
            return unavailable(&lines.collect::<Vec<_>>().join("\n"));
        }
        match status.workers.iter().find(|worker| worker.state == WorkerState::Stopped) {
            Some(worker) => unavailable(&format!("worker {} has ended", worker.index)),
            None => Answer::plain("200 OK", "ok"),
        }
    }

    /// Returns the daemon's report, not older than [`FRESH`].
    fn report(&self) -> Report {
        // The lock makes requests that arrive meanwhile wait for the same report.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, report)) = &*last
            && at.elapsed() < FRESH
        {
            return Arc::clone(report);
        }
        let report = Arc::new(self.ask().map_err(|error| format!("the daemon does not answer: {error}")));
        *last = Some((Instant::now(), Arc::clone(&report)));
        report
    }

    fn ask(&self) -> Result<StatusReport, ringroad_control::ControlError> {
        let mut daemon = Connection::connect_within(&self.daemon, REPORT_TIME)?;
        daemon.hello("metrics")?;
        daemon.status()
    }
}

fn unavailable(problem: &str) -> Answer {
    Answer::plain("503 Service Unavailable", problem)
}

/// Returns the time until `end`.
fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::net::TcpStream;

    use super::*;

    fn answered(mut client: TcpStream) -> String {
        client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn silent_clients_do_not_keep_out_one_that_asks() {
        let endpoint = Endpoint::listen("127.0.0.1:0", Path::new("/nowhere")).unwrap();
        let address = endpoint.address().unwrap();
        std::thread::spawn(move || endpoint.serve());
        let connect = || TcpStream::connect(&address).unwrap();
        let silent: Vec<TcpStream> = (0..2 * MOST_CONNECTIONS).map(|_| connect()).collect();
        for _ in 0..MOST_CONNECTIONS {
            let answer = answered(connect());
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer:?}");
        }
        // The oldest made room.
        assert_eq!((&silent[0]).read(&mut [0]).unwrap(), 0);
    }
}
