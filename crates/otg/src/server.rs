//! HTTP and TLS: requests become calls of the [`Controller`], what it says becomes responses.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use ringroad::OpenOptions;
use ringroad_generator::SessionOptions;
use rustls::ServerConfig;
use serde_json::Value;

use crate::certificate::Certificate;
use crate::controller::Controller;
use crate::refusal::Refusal;
use crate::traffic::Opening;

/// Largest request, bytes: room for lists of 65536 addresses in several fields.
const MAX_REQUEST_BYTES: usize = 32 << 20;
/// How long requests under way may take when the server is told to stop.
const LAST_REQUESTS: Duration = Duration::from_secs(5);

/// How the server is reached, and how it opens ports.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Whether and how connections are encrypted.
    pub encryption: Encryption,
    /// How the ports of a configuration are opened.
    pub ports: OpenOptions,
    /// How they are served.
    pub session: SessionOptions,
}

/// How connections are encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Encryption {
    /// Not at all: plain HTTP.
    None,
    /// By a certificate made at the start, which clients cannot verify.
    SelfSigned,
    /// By a certificate from files.
    Files {
        /// The certificate and those that vouch for it, PEM.
        certificate: PathBuf,
        /// Its private key, PEM.
        key: PathBuf,
    },
}

/// Why the server cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The address cannot be listened on.
    #[error("listening on {address}: {source}; choose another address or port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's words.
        source: io::Error,
    },
    /// No certificate could be made, or TLS does not take it.
    #[error("the certificate cannot be used: {reason}")]
    Certificate {
        /// Why not.
        reason: String,
    },
    /// A file of the certificate cannot be used.
    #[error("{}: {reason}; give PEM files of a certificate and its key", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// Serving failed.
    #[error("serving: {0}")]
    Serve(io::Error),
}

/// A server that listens. Connections wait until [`Server::run`].
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<Arc<ServerConfig>>,
    controller: Controller,
    handle: Handle<SocketAddr>,
}

/// Stops a server from another thread.
#[derive(Debug, Clone)]
pub struct Stopper(Handle<SocketAddr>);

impl Stopper {
    /// Lets the requests under way end, for at most 5 s, and then [`Server::run`] return.
    pub fn stop(&self) {
        self.0.graceful_shutdown(Some(LAST_REQUESTS));
    }
}

impl Server {
    /// Begins to listen.
    ///
    /// # Errors
    /// [`ServerError`] for an address or a certificate that cannot be used.
    pub fn bind(options: &ServerOptions) -> Result<Self, ServerError> {
        let certificate = match &options.encryption {
            Encryption::None => None,
            Encryption::SelfSigned => Some(Certificate::self_signed(options.listen.ip())?),
            Encryption::Files { certificate, key } => Some(Certificate::read(certificate, key)?),
        };
        let tls = certificate.map(Certificate::into_config).transpose()?;
        let listen = |source| ServerError::Listen { address: options.listen, source };
        let listener = TcpListener::bind(options.listen).map_err(listen)?;
        // The runtime takes it so.
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let controller =
            Controller::new(Opening { ports: options.ports.clone(), session: options.session.clone() });
        Ok(Self { listener, address, tls, controller, handle: Handle::new() })
    }

    /// Where it listens, with the port that was taken.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What clients give as their server, like `https://127.0.0.1:8443`.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// By which it is stopped.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(self.handle.clone())
    }

    /// Serves until it is stopped. Then traffic has stopped and all ports are closed.
    ///
    /// # Errors
    /// [`ServerError::Serve`].
    pub fn run(self) -> Result<(), ServerError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ServerError::Serve)?;
        let service = router(self.controller).into_make_service();
        let served = runtime.block_on(async {
            match self.tls {
                Some(tls) => {
                    let tls = RustlsConfig::from_config(tls);
                    let server = axum_server::from_tcp_rustls(self.listener, tls)?;
                    server.handle(self.handle).serve(service).await
                }
                None => axum_server::from_tcp(self.listener)?.handle(self.handle).serve(service).await,
            }
        });
        served.map_err(ServerError::Serve)
    }
}

type Shared = Arc<Mutex<Controller>>;
type Action = fn(&mut Controller, Value) -> Result<Value, Refusal>;

/// The requests of the model, and one of our own.
fn action(method: &Method, path: &str) -> Option<Action> {
    Some(match (method.as_str(), path) {
        ("GET", "/config") => Controller::config,
        ("POST", "/config") => Controller::set_config,
        ("PATCH", "/config") => Controller::update_config,
        ("PATCH", "/config/append") => Controller::append_config,
        ("PATCH", "/config/delete") => Controller::delete_config,
        ("POST", "/control/state") => Controller::set_state,
        ("POST", "/control/action") => Controller::action,
        ("POST", "/monitor/metrics") => Controller::metrics,
        ("POST", "/monitor/states") => Controller::states,
        ("POST", "/monitor/capture") => Controller::capture,
        ("GET", "/capabilities/version") => Controller::version,
        ("GET", "/ringroad/flows") => Controller::flows,
        _ => return None,
    })
}

fn router(controller: Controller) -> Router {
    Router::new()
        .fallback(answer)
        .layer(DefaultBodyLimit::max(MAX_REQUEST_BYTES))
        .with_state(Arc::new(Mutex::new(controller)))
}

async fn answer(
    State(controller): State<Shared>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refusal> {
    let action = action(&method, uri.path()).ok_or_else(|| {
        Refusal::invalid(format!(
            "{method} {}: the Open Traffic Generator model has no such request",
            uri.path()
        ))
        .with_status(StatusCode::NOT_FOUND)
    })?;
    let body = body.map_err(|rejection| {
        Refusal::invalid(format!("the request cannot be read: {}", rejection.body_text()))
            .with_status(rejection.status())
    })?;
    let work = move || {
        let request = read(&headers, &body)?;
        action(&mut controller.lock().unwrap_or_else(PoisonError::into_inner), request)
    };
    // On a thread that may wait: opening ports takes its time.
    let done = tokio::task::spawn_blocking(work).await;
    let document =
        done.map_err(|_| Refusal::internal("the request failed; this is a defect: please report it"))??;
    Ok(json(StatusCode::OK, document.to_string()))
}

/// The document that a request carries; none is `null`.
fn read(headers: &HeaderMap, body: &[u8]) -> Result<Value, Refusal> {
    if body.is_empty() {
        return Ok(Value::Null);
    }
    // A page in a browser can send other types to any server without being asked.
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    if !kind.starts_with("application/json") {
        return Err(Refusal::invalid(format!("content type \"{kind}\" given; give application/json"))
            .with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE));
    }
    serde_json::from_slice(body)
        .map_err(|error| Refusal::invalid(format!("the request is not JSON: {error}")))
}

fn json(status: StatusCode, body: String) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        json(status, serde_json::to_string(&self).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests;
