use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::JoinHandle;

use super::*;

/// A server over plain HTTP in a thread of its own, stopped even when a test fails.
struct Running {
    address: SocketAddr,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<(), ServerError>>>,
}

impl Running {
    fn start() -> Self {
        let options = ServerOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            encryption: Encryption::None,
            ports: OpenOptions { no_start: true, ..OpenOptions::default() },
            session: SessionOptions::default(),
        };
        let server = Server::bind(&options).unwrap();
        assert_eq!(server.url(), format!("http://{}", server.address()));
        let (address, stopper) = (server.address(), server.stopper());
        Self { address, stopper, thread: Some(std::thread::spawn(move || server.run())) }
    }

    /// The status and the document that a request is answered with.
    fn ask(&self, method: &str, path: &str, kind: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let length = body.len();
        // A server that refuses a request may close before it has read all of it.
        let _ = write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-type: {kind}\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        let mut response = String::new();
        let _ = stream.read_to_string(&mut response);
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("content-type: application/json"), "{head}");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
        let ended = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

const JSON: &str = "application/json";

#[test]
fn requests_that_the_model_does_not_have_are_answered_with_its_error_object() {
    let server = Running::start();
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
        ("POST", "/control/state", JSON, "5", 400, "5 given; give an object"),
        ("POST", "/monitor/metrics", JSON, r#"{"choice": "bgpv4"}"#, 400, "bgpv4: not supported"),
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
    let server = Running::start();
    assert_eq!(server.ask("GET", "/config", JSON, ""), (200, serde_json::json!({})));
    let (status, version) = server.ask("GET", "/capabilities/version", JSON, "");
    assert_eq!((status, &version["app_version"]), (200, &env!("CARGO_PKG_VERSION").into()));
    let (status, metrics) = server.ask("POST", "/monitor/metrics", JSON, "{}");
    assert_eq!((status, metrics), (200, serde_json::json!({"choice": "port_metrics", "port_metrics": []})));
    let (status, answer) = server.ask("POST", "/config", JSON, "{}");
    assert_eq!((status, answer), (200, serde_json::json!({"warnings": []})));
}

#[test]
fn an_address_that_is_taken_is_named() {
    let server = Running::start();
    let options = ServerOptions {
        listen: server.address,
        encryption: Encryption::SelfSigned,
        ports: OpenOptions::default(),
        session: SessionOptions::default(),
    };
    let error = Server::bind(&options).unwrap_err().to_string();
    assert!(error.starts_with(&format!("listening on {}", server.address)), "{error}");
}
