//! Tests of a program's end with correct and faulty daemons, each a thread behind its own socket.
#![allow(clippy::unwrap_used)]

mod opened;

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use opened::opened;
use ringroad_control::codec::{PREFIX_BYTES, decode_request, encode_reply};
use ringroad_control::message::{ErrorKind, ErrorReply, PortProperties, PortSpec};
use ringroad_control::report::{ListReport, MacEntryReport, StartedBy};
use ringroad_control::{
    Connection, ControlError, PROTOCOL_VERSION, Reply, Request, ServerConnection, fd_passing,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{FdFlags, fcntl_getfd};

/// A daemon that handles its only connection with `serve`.
struct Daemon {
    path: PathBuf,
    _directory: tempfile::TempDir,
    thread: JoinHandle<()>,
}

impl Daemon {
    fn new(serve: impl FnOnce(UnixStream) + Send + 'static) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ringroad.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let thread = std::thread::spawn(move || serve(listener.accept().unwrap().0));
        Self { path, _directory: directory, thread }
    }

    /// A daemon that runs the documented loop, and answers with `answer`.
    fn answering(mut answer: impl FnMut(&Request) -> (Reply, Vec<OwnedFd>) + Send + 'static) -> Self {
        Self::new(move |socket| {
            let mut server = ServerConnection::new(socket).unwrap();
            loop {
                server.flush();
                while let Some(request) = server.next_request() {
                    let (reply, descriptors) = match request {
                        Ok(request) => answer(&request),
                        Err(refusal) => (Reply::Error(refusal), Vec::new()),
                    };
                    let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
                    server.send(&reply, &borrowed);
                }
                if server.is_closed() {
                    return;
                }
                let mut events = PollFlags::empty();
                events.set(PollFlags::IN, !server.wants_write());
                events.set(PollFlags::OUT, server.wants_write());
                poll(&mut [PollFd::new(&server, events)], None).unwrap();
            }
        })
    }

    /// A daemon that answers the first request with `bytes`, and waits for the program to hang up.
    fn replying(bytes: Vec<u8>) -> Self {
        Self::new(move |mut socket| {
            read_request(&mut socket);
            socket.write_all(&bytes).unwrap();
            let _ = socket.read(&mut [0]);
        })
    }

    fn connect(&self) -> Connection {
        Connection::connect(&self.path).unwrap()
    }

    fn finish(self) {
        self.thread.join().unwrap();
    }
}

fn read_request(socket: &mut UnixStream) -> Request {
    let mut prefix = [0; PREFIX_BYTES];
    socket.read_exact(&mut prefix).unwrap();
    let mut body = vec![0; u32::from_le_bytes(prefix) as usize];
    socket.read_exact(&mut body).unwrap();
    decode_request(&body).unwrap()
}

fn files(count: usize) -> Vec<OwnedFd> {
    (0..count).map(|_| tempfile::tempfile().unwrap().into()).collect()
}

fn hello(protocol: u32, version: &str) -> Reply {
    let (version, started) = (version.to_owned(), StartedBy::OnDemand);
    Reply::Hello { protocol, version, pid: 1, instance: 5, started }
}

fn open_request() -> Request {
    Request::Open { name: "vale0:a".to_owned(), properties: PortProperties::default() }
}

#[test]
fn hello_reports_the_daemons_version() {
    let daemon = Daemon::answering(|request| {
        assert_eq!(*request, Request::Hello { protocol: PROTOCOL_VERSION, program: "test".to_owned() });
        (hello(PROTOCOL_VERSION, "1.2.3"), Vec::new())
    });
    let mut connection = daemon.connect();
    let daemon_itself = connection.hello("test").unwrap();
    assert_eq!((daemon_itself.version.as_str(), daemon_itself.instance), ("1.2.3", 5));
    assert_eq!(daemon_itself.started, StartedBy::OnDemand);
    assert_eq!(connection.daemon().pid, Some(std::process::id()));
    drop(connection);
    daemon.finish();
}

#[test]
fn a_daemon_of_another_protocol_is_refused() {
    let daemon = Daemon::answering(|_| (hello(PROTOCOL_VERSION + 1, "9"), Vec::new()));
    let error = daemon.connect().hello("test").unwrap_err();
    assert!(matches!(error, ControlError::Refused(reply) if reply.kind == ErrorKind::VersionMismatch));
}

#[test]
fn descriptors_of_an_opened_port_arrive_close_on_exec() {
    let daemon = Daemon::answering(|_| (opened(16, "4 KiB pages"), files(33)));
    let (reply, descriptors) = daemon.connect().request(&open_request()).unwrap();
    assert_eq!(reply, opened(16, "4 KiB pages"));
    assert_eq!(descriptors.len(), 33);
    for descriptor in &descriptors {
        assert!(fcntl_getfd(descriptor).unwrap().contains(FdFlags::CLOEXEC));
    }
    daemon.finish();
}

#[test]
fn a_reply_is_not_mixed_up_with_the_next_one_and_its_descriptors() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ringroad.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut connection = Connection::connect(&path).unwrap();
    let (mut daemon, _) = listener.accept().unwrap();
    // Both replies are sent before the requests: if the client reads too much, it gets them as one.
    daemon.write_all(&encode_reply(&Reply::Done).unwrap()).unwrap();
    let files = files(3);
    let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    fd_passing::send(&daemon, &encode_reply(&opened(1, "4 KiB pages")).unwrap(), &borrowed).unwrap();

    let (reply, descriptors) = connection.request(&Request::Reload).unwrap();
    assert_eq!((reply, descriptors.len()), (Reply::Done, 0));
    let (reply, descriptors) = connection.request(&open_request()).unwrap();
    assert_eq!((reply, descriptors.len()), (opened(1, "4 KiB pages"), 3));
}

#[test]
fn a_long_reply_arrives_whole() {
    let entry = MacEntryReport {
        mac: "02:00:00:00:00:01".to_owned(),
        vlan: None,
        port: "vale0:a".to_owned(),
        age_s: 3,
        is_static: false,
    };
    let table = Reply::MacTable(vec![entry; 100_000]);
    let answer = table.clone();
    let daemon = Daemon::answering(move |_| (answer.clone(), Vec::new()));
    let mut connection = daemon.connect();
    let request = Request::MacTable { switch: "vale0".to_owned(), after: None, after_vlan: None };
    assert!(connection.request(&request).unwrap().0 == table);
    assert!(connection.request(&request).unwrap().0 == table);
}

#[test]
fn a_long_list_is_requested_in_several_replies() {
    let address = |number: u32| format!("02:00:00:00:00:{number:02x}");
    // The third address is in two VLANs.
    let entry = move |number| MacEntryReport {
        mac: address(if number < 3 { number } else { number - 1 }),
        vlan: (number == 3).then_some(10),
        port: "vale0:a".to_owned(),
        age_s: 3,
        is_static: false,
    };
    let daemon = Daemon::answering(move |request| {
        let page = |next: Option<&str>| ListReport { next: next.map(str::to_owned), ..ListReport::default() };
        let reply = match request {
            Request::List => Reply::List(page(Some("there is nothing, and it continues"))),
            Request::ListFrom { .. } => Reply::List(page(Some("and on"))),
            Request::MacTable { after: None, .. } => Reply::MacTable((0..3).map(entry).collect()),
            Request::MacTable { after: Some(last), after_vlan: None, .. } if *last == address(2) => {
                Reply::MacTable((3..4).map(entry).collect())
            }
            Request::MacTable { after: Some(last), after_vlan: Some(10), .. } if *last == address(2) => {
                Reply::MacTable((4..5).map(entry).collect())
            }
            _ => Reply::MacTable(Vec::new()),
        };
        (reply, Vec::new())
    });
    let mut connection = daemon.connect();
    assert_eq!(connection.mac_table("vale0").unwrap(), (0..5).map(entry).collect::<Vec<_>>());
    // A daemon that sends empty pages without an end is not polled for ever.
    assert_eq!(connection.list().unwrap(), ListReport::default());
}

#[test]
fn a_refusal_leaves_the_connection_usable() {
    let mut first = true;
    let daemon = Daemon::answering(move |_| {
        let refusal = ErrorReply::new(ErrorKind::NoSuchPort, "no port vale0:b", "see `ringroad list`");
        let reply = if std::mem::take(&mut first) { Reply::Error(refusal) } else { Reply::Done };
        (reply, Vec::new())
    });
    let mut connection = daemon.connect();
    let error = connection
        .request(&Request::Detach { name: "vale0:b".to_owned(), take: false, number: None })
        .unwrap_err();
    assert_eq!(error.to_string(), "no port vale0:b: see `ringroad list`");
    assert!(matches!(error, ControlError::Refused(reply) if reply.kind == ErrorKind::NoSuchPort));
    assert_eq!(connection.request(&Request::Reload).unwrap().0, Reply::Done);
}

#[test]
fn a_request_too_long_is_not_sent_and_the_connection_stays_usable() {
    let daemon = Daemon::answering(|_| (Reply::Done, Vec::new()));
    let mut connection = daemon.connect();
    let error = connection
        .request(&Request::Detach { name: "x".repeat(100_000), take: false, number: None })
        .unwrap_err();
    assert!(matches!(error, ControlError::Unsendable(_)));
    assert_eq!(connection.request(&Request::Reload).unwrap().0, Reply::Done);
}

#[test]
fn no_socket_and_no_listener_both_mean_that_no_daemon_runs() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ringroad.sock");
    for _ in 0..2 {
        let error = Connection::connect(&path).unwrap_err();
        assert!(matches!(error, ControlError::DaemonNotRunning { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(path.to_str().unwrap()) && text.contains("`ringroad up`"), "{text}");
        // The second round has a socket without a listener.
        drop(UnixListener::bind(&path));
    }
}

#[test]
fn a_path_too_long_for_a_socket_is_named() {
    let path = PathBuf::from("/tmp").join("x".repeat(200));
    let error = Connection::connect(&path).unwrap_err();
    assert!(matches!(error, ControlError::Connect { .. }), "{error}");
}

#[test]
fn a_daemon_that_hangs_up_is_gone_and_the_connection_unusable() {
    let daemon = Daemon::new(drop);
    let mut connection = daemon.connect();
    let error = connection.request(&Request::Status).unwrap_err();
    assert!(matches!(error, ControlError::DaemonGone { .. }), "{error}");
    assert!(matches!(connection.request(&Request::Status), Err(ControlError::ConnectionUnusable)));
    daemon.finish();
}

#[test]
fn a_daemon_that_hangs_up_in_mid_reply_is_gone() {
    let daemon = Daemon::new(|mut socket| {
        read_request(&mut socket);
        socket.write_all(&encode_reply(&Reply::Done).unwrap()[..5]).unwrap();
    });
    let error = daemon.connect().request(&Request::Status).unwrap_err();
    assert!(matches!(error, ControlError::DaemonGone { .. }), "{error}");
}

#[test]
fn replies_sent_before_the_daemon_hung_up_are_read() {
    let (said, heard) = channel();
    let daemon = Daemon::new(move |mut socket| {
        let busy = ErrorReply::new(ErrorKind::Busy, "too many connections", "close some");
        socket.write_all(&encode_reply(&Reply::Error(busy)).unwrap()).unwrap();
        drop(socket);
        said.send(()).unwrap();
    });
    let mut connection = daemon.connect();
    heard.recv().unwrap();
    let error = connection.request(&Request::Status).unwrap_err();
    assert!(matches!(error, ControlError::Refused(reply) if reply.kind == ErrorKind::Busy));
}

#[test]
fn a_daemon_that_does_not_answer_times_out_and_the_connection_is_unusable() {
    let daemon = Daemon::new(|mut socket| while socket.read(&mut [0; 64]).unwrap() > 0 {});
    let mut connection = Connection::connect_within(&daemon.path, Duration::from_millis(20)).unwrap();
    let error = connection.request(&Request::Status).unwrap_err();
    assert!(matches!(error, ControlError::Timeout { timeout_ms: 20, .. }), "{error}");
    assert!(matches!(connection.request(&Request::Status), Err(ControlError::ConnectionUnusable)));
    drop(connection);
    daemon.finish();
}

#[test]
fn a_request_that_takes_long_is_waited_for_and_the_wait_is_reported() {
    static REPORTS: Mutex<Option<Sender<Duration>>> = Mutex::new(None);
    let (reported, reports) = channel();
    *REPORTS.lock().unwrap() = Some(reported);
    // The daemon answers after two reports of the wait.
    let daemon = Daemon::answering(move |_| {
        let waits = [reports.recv().unwrap(), reports.recv().unwrap()];
        assert!(waits[0] < waits[1]);
        (Reply::Attached(Vec::new()), Vec::new())
    });
    let mut connection = Connection::connect_within(&daemon.path, Duration::from_millis(20)).unwrap();
    connection.report_waits(|waited| {
        // The test no longer listens for reports once it is done.
        let _ = REPORTS.lock().unwrap().as_ref().unwrap().send(waited);
    });
    let port = PortSpec::for_device("vale0:eth0", "eth0");
    let request = Request::Attach { port, for_program: false, host: false, take: false, provisional: false };
    assert_eq!(connection.request(&request).unwrap().0, Reply::Attached(Vec::new()));
    drop(connection);
    daemon.finish();
}

#[test]
fn a_daemon_that_does_not_accept_times_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ringroad.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    let mut waiting = Vec::new();
    // The backlog is finite, so this loop ends.
    let error = loop {
        match Connection::connect_within(&path, Duration::from_millis(20)) {
            Ok(connection) => waiting.push(connection),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, ControlError::Timeout { .. }), "{error}");
}

#[test]
fn replies_out_of_bounds_break_the_protocol() {
    let garbage: [&[u8]; 3] = [b"\x03\0\0\0???", &u32::MAX.to_le_bytes(), b"\x05\0\0\0\"fly\""];
    for bytes in garbage {
        let daemon = Daemon::replying(bytes.to_vec());
        let error = daemon.connect().request(&Request::Status).unwrap_err();
        assert!(matches!(error, ControlError::ProtocolViolation(_)), "{error}");
        daemon.finish();
    }
}

#[test]
fn a_wrong_number_of_descriptors_breaks_the_protocol() {
    for count in [0, 2, 4, fd_passing::MAX_DESCRIPTORS] {
        let daemon = Daemon::new(move |mut socket| {
            read_request(&mut socket);
            let files = files(count);
            let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
            fd_passing::send(&socket, &encode_reply(&opened(1, "4 KiB pages")).unwrap(), &borrowed).unwrap();
            let _ = socket.read(&mut [0]);
        });
        let error = daemon.connect().request(&open_request()).unwrap_err();
        assert!(matches!(error, ControlError::ProtocolViolation(_)), "{count}: {error}");
        daemon.finish();
    }
}
