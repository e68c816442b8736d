use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::JoinHandle;

use serde_json::{Value, json};

use super::*;
use crate::connection_limit::MAX_CONNECTIONS;
use crate::requests::MAX_REQUEST_BYTES;

/// Options of a server over plain HTTP at a free port of the loopback interface.
fn options(token: Option<&Token>) -> ServerOptions {
    ServerOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        encryption: Encryption::None,
        token: token.cloned(),
        host_names: Vec::new(),
        locations: Locations::default(),
        ports: OpenOptions { no_start: true, ..OpenOptions::default() },
        session: SessionOptions::default(),
    }
}

/// A server in a thread of its own, stopped even when a test fails.
struct RunningServer {
    listen: Listen,
    authorization: String,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl RunningServer {
    fn start() -> Self {
        let token = Token::random().unwrap();
        let server = OtgServer::bind(&options(Some(&token))).unwrap();
        assert_eq!(server.url(None), format!("http://{}", server.listen()));
        assert_eq!(server.url(Some(&token)), format!("http://otg:{}@{}", token.text(), server.listen()));
        Self::run(server, Some(&token))
    }

    fn run(server: OtgServer, token: Option<&Token>) -> Self {
        let authorization =
            token.map(|token| format!("authorization: Bearer {}\r\n", token.text())).unwrap_or_default();
        let (listen, stopper) = (server.listen().clone(), server.stopper());
        Self { listen, authorization, stopper, thread: Some(std::thread::spawn(move || server.run())) }
    }

    fn connect(&self) -> TcpStream {
        let Listen::Tcp(address) = &self.listen else { panic!("{} is a path", self.listen) };
        TcpStream::connect(address).unwrap()
    }

    /// Sends a request, and returns the status and the document of the reply.
    fn ask(&self, method: &str, path: &str, kind: &str, body: &str) -> (u16, Value) {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\n{}",
            self.authorization
        );
        exchange(self.connect(), &head, body)
    }

    /// Sends a request without the token, and returns the status of the reply.
    fn ask_without_token(&self, headers: &str, body: &str) -> u16 {
        exchange(self.connect(), &format!("POST /config HTTP/1.1\r\n{headers}"), body).0
    }
}

fn exchange(mut stream: impl Read + Write, head: &str, body: &str) -> (u16, Value) {
    let length = body.len();
    // A server that refuses a request may close the connection before it has read the whole request.
    let _ = write!(stream, "{head}connection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    let mut response = String::new();
    let _ = stream.read_to_string(&mut response);
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-type: application/json"), "{head}");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap())
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.stopper.stop();
        let ended = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}

const JSON: &str = "application/json";

#[test]
fn unknown_requests_get_the_models_error_object() {
    let server = RunningServer::start();
    let long = format!("\"{}\"", "x".repeat(MAX_REQUEST_BYTES));
    for (method, path, kind, body, status, words) in [
        (
            "GET",
            "/nothing",
            JSON,
            "",
            404,
            "GET /nothing: the Open Traffic Generator model has no such request",
        ),
        ("DELETE", "/config", JSON, "", 404, "DELETE /config"),
        ("POST", "/config", JSON, "", 400, "the request has no configuration"),
        ("POST", "/config", JSON, "[]", 400, "the request has no configuration"),
        ("POST", "/config", JSON, "{", 400, "the request is not JSON"),
        (
            "POST",
            "/config",
            "text/plain",
            "{}",
            415,
            "content type \"text/plain\" given; give application/json",
        ),
        ("POST", "/config", JSON, long.as_str(), 413, "the request cannot be read"),
        ("POST", "/config", JSON, &"[".repeat(100_000), 400, "the request is not JSON"),
        ("POST", "/config", JSON, &"[0,".repeat(600_000), 413, "the request has more than 1048576 values"),
        ("POST", "/control/state", JSON, "5", 400, "5 given; give an object"),
        ("POST", "/monitor/metrics", JSON, r#"{"choice": "bgpv4"}"#, 400, "bgpv4: not supported"),
        (
            "POST",
            "/monitor/metrics",
            JSON,
            r#"{"choice": "flow", "flow": {"tagged_metrics": {"metric_names": ["frames_rx"]}}}"#,
            400,
            "flow.tagged_metrics: not supported",
        ),
        ("POST", "/control/action", JSON, "{}", 400, "actions are not supported"),
    ] {
        let (found, document) = server.ask(method, path, kind, body);
        let text = document["errors"][0].as_str().unwrap_or_default();
        assert!(found == status && text.starts_with(words), "{method} {path}: {found} {document}");
        assert_eq!((&document["code"], &document["kind"]), (&status.into(), &"validation".into()));
    }
}

#[test]
fn a_server_without_a_configuration_has_an_empty_one() {
    let server = RunningServer::start();
    assert_eq!(server.ask("GET", "/config", JSON, ""), (200, json!({})));
    let (status, version) = server.ask("GET", "/capabilities/version", JSON, "");
    assert_eq!((status, &version["app_version"]), (200, &env!("CARGO_PKG_VERSION").into()));
    let (status, metrics) = server.ask("POST", "/monitor/metrics", JSON, "{}");
    assert_eq!((status, metrics), (200, json!({"choice": "port_metrics", "port_metrics": []})));
    let untagged = r#"{"choice": "flow", "flow": {"tagged_metrics": {"include": false}}}"#;
    let (status, metrics) = server.ask("POST", "/monitor/metrics", JSON, untagged);
    assert_eq!((status, metrics), (200, json!({"choice": "flow_metrics", "flow_metrics": []})));
    let (status, answer) = server.ask("POST", "/config", JSON, "{}");
    assert_eq!((status, answer), (200, json!({"warnings": []})));
}

#[test]
fn a_taken_address_is_named() {
    let server = RunningServer::start();
    let taken = ServerOptions { listen: server.listen.clone(), ..options(None) };
    let error = OtgServer::bind(&taken).unwrap_err().to_string();
    assert!(error.starts_with(&format!("listening on {}", server.listen)), "{error}");
}

/// Makes a configuration with two ports; one is a file.
fn writing_to(file: &Path) -> Value {
    json!({"ports": [
        {"name": "p", "location": format!("pcap:out={}", file.display())},
        {"name": "q", "location": "null:no-rx=1"},
    ]})
}

#[test]
fn requests_without_the_token_are_refused_first() {
    let server = RunningServer::start();
    assert_eq!(
        server.ask("POST", "/config", JSON, r#"{"ports": [{"name": "q", "location": "null:"}]}"#).0,
        200
    );
    let json = "host: localhost\r\ncontent-type: application/json\r\n";
    for headers in [
        json.to_owned(),
        format!("{json}authorization: Bearer {}\r\n", Token::random().unwrap().text()),
        "host: localhost\r\n".to_owned(),
    ] {
        for body in ["{}", "{", "x"] {
            assert_eq!(server.ask_without_token(&headers, body), 401, "{headers}");
        }
    }
    let authorization = &server.authorization;
    assert_eq!(server.ask_without_token(&format!("host: evil.example\r\n{authorization}"), "{}"), 421);
    let origin = "origin: https://evil.example\r\n";
    assert_eq!(server.ask_without_token(&format!("{json}{origin}{authorization}"), "{}"), 403);
    // The configuration of the authorised client is still applied.
    assert_eq!(server.ask("GET", "/config", JSON, "").1["ports"][0]["name"], "q");
}

#[test]
fn a_refused_sender_of_a_long_body_gets_one_answer() {
    let server = RunningServer::start();
    let body = "x".repeat(200_000);
    assert_eq!(server.ask_without_token("host: localhost\r\n", &body), 401);
    let mut stream = server.connect();
    write!(stream, "GET /config HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 401 ") && answer.contains("www-authenticate: Bearer\r\n"),
        "{answer}"
    );
}

#[test]
fn held_connections_without_token_keep_no_client_out() {
    let server = RunningServer::start();
    let mut known = server.connect();
    write!(known, "GET /config HTTP/1.1\r\nhost: localhost\r\n{}\r\n", server.authorization).unwrap();
    let mut status = [0; 12];
    known.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");

    let mut unauthenticated: Vec<TcpStream> = (0..2 * MAX_CONNECTIONS).map(|_| server.connect()).collect();
    for connection in &mut unauthenticated {
        // The server may have closed the first connections by now.
        let _ = connection.write_all(b"POST /config HTTP/1.1\r\n");
    }
    assert_eq!(server.ask("GET", "/config", JSON, "").0, 200);
    // The server has closed the oldest connection without a token, but not the authorised client's.
    match unauthenticated[0].read(&mut status) {
        Ok(0) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("{other:?}"),
    }
    write!(
        known,
        "GET /config HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{}\r\n",
        server.authorization
    )
    .unwrap();
    let mut rest = String::new();
    known.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("HTTP/1.1 200"), "{rest}");
}

#[test]
fn garbage_ends_its_connection() {
    let server = RunningServer::start();
    for nonsense in [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        [&b"GET / HTTP/1.1\r\nhost: "[..], &b"x".repeat(100_000)].concat(),
        b"\x16\x03\x01\x02\x00\x01".repeat(100),
    ] {
        let mut stream = server.connect();
        let _ = stream.write_all(&nonsense);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(
            answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"),
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }
    assert_eq!(server.ask("GET", "/config", JSON, "").0, 200);
}

#[test]
fn files_are_opened_only_if_the_command_line_allows_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f.pcap");
    std::fs::write(&file, "root's").unwrap();
    let server = RunningServer::start();
    let (status, answer) = server.ask("POST", "/config", JSON, &writing_to(&file).to_string());
    let told = answer["errors"][0].as_str().unwrap();
    assert!(
        status == 400
            && told.starts_with("ports[0].location: only the server's command line can allow files"),
        "{answer}"
    );
    assert!(told.contains(&format!("--allow-location 'pcap:out={}'", file.display())), "{told}");
    assert_eq!(std::fs::read(&file).unwrap(), b"root's");

    let pattern = format!("pcap:out={}/*.pcap", folder.path().display());
    let locations = Locations::allowing(&[pattern]).unwrap();
    let server =
        RunningServer::run(OtgServer::bind(&ServerOptions { locations, ..options(None) }).unwrap(), None);
    assert_eq!(server.ask("POST", "/config", JSON, &writing_to(&file).to_string()).0, 200);
    assert_ne!(std::fs::read(&file).unwrap(), b"root's");
}

#[test]
fn the_socket_is_private_and_removed_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("otg.sock");
    let listen: Listen = format!("unix:{}", path.display()).parse().unwrap();
    let server = OtgServer::bind(&ServerOptions { listen: listen.clone(), ..options(None) }).unwrap();
    assert_eq!(server.url(None), listen.to_string());
    let running = RunningServer::run(server, None);
    assert_eq!(std::fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let head = "GET /config HTTP/1.1\r\nhost: otg\r\n";
    assert_eq!(exchange(UnixStream::connect(&path).unwrap(), head, ""), (200, json!({})));
    drop(running);
    assert!(!path.exists());
}

#[test]
fn a_public_address_requires_a_token() {
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let open = ServerOptions { listen: listen.parse().unwrap(), ..options(None) };
        assert!(matches!(OtgServer::bind(&open), Err(OtgServerError::Exposed(_))), "{listen}");
    }
    assert!("localhost".parse::<Listen>().is_err() && "unix:".parse::<Listen>().is_err());
}
