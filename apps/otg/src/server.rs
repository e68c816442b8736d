//! Listening, TLS, and the connections.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::pin::pin;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use ringroad::OpenOptions;
use ringroad::control::listening_socket::{ListeningSocket, ListeningSocketError};
use ringroad_generator::SessionOptions;
use rustix::net::SocketType;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::access::{Gate, Token};
use crate::certificate::Certificate;
use crate::connection_limit::{ConnectionLimit, ConnectionPermit, FIRST_REQUEST_TIME};
use crate::controller::Controller;
use crate::locations::Locations;
use crate::requests::RequestHandler;
use crate::traffic::SessionSettings;

/// Time limit for requests in progress when the server stops.
const LAST_REQUESTS: Duration = Duration::from_secs(5);
/// Longest head of a request, and maximum number of bytes per read of a connection.
const READ_BYTES: usize = 32 << 10;
/// Pause in accepting connections when the process has no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// Settings of a server: how clients reach it, and how it opens ports.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The address to listen on.
    pub listen: Listen,
    /// Encryption of connections; connections at a UNIX socket are not encrypted.
    pub encryption: Encryption,
    /// The token that clients must send; `None` accepts every client that reaches the server.
    pub token: Option<Token>,
    /// Names that requests can use, besides localhost and the address itself.
    pub host_names: Vec<String>,
    /// The ports that clients can open.
    pub locations: Locations,
    /// Settings for opening the ports of a configuration.
    pub ports: OpenOptions,
    /// Settings for the session that serves the ports.
    pub session: SessionOptions,
}

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// An address and a TCP port; port 0 takes a free port.
    Tcp(SocketAddr),
    /// A UNIX socket, which only the server's user can open.
    Unix(PathBuf),
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err("the path of the socket is missing".to_owned()),
            Some(path) => Ok(Self::Unix(path.into())),
            None => text.parse().map(Self::Tcp).map_err(|_| "give ADDR:PORT or unix:PATH".to_owned()),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Encryption of connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Encryption {
    /// No TLS: plain HTTP.
    None,
    /// TLS with a certificate generated at the start, which clients cannot verify.
    SelfSigned,
    /// TLS with a certificate from files.
    Files {
        /// Path of the certificate and the certificates that vouch for it, PEM.
        certificate: PathBuf,
        /// Path of its private key, PEM.
        key: PathBuf,
    },
}

/// Reasons why the server cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OtgServerError {
    /// No socket can listen at the address.
    #[error("listening on {address}: {source}; choose another address or port")]
    Listen {
        /// Address to listen at.
        address: SocketAddr,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The UNIX socket cannot be used.
    #[error(transparent)]
    Socket(#[from] ListeningSocketError),
    /// Without a token, every host on the network could use the server.
    #[error(
        "listening on {0} without a token would allow every host that reaches it to send any traffic from this \
         machine; leave --no-token out, or listen on 127.0.0.1"
    )]
    Exposed(SocketAddr),
    /// No token could be generated.
    #[error("cannot make a token: {reason}; give one by --token-file")]
    Token { reason: String },
    /// No certificate could be generated, or TLS does not accept it.
    #[error("the certificate cannot be used: {reason}")]
    Certificate { reason: String },
    /// A file cannot be used.
    #[error("{}: {reason}", path.display())]
    File {
        path: PathBuf,
        /// The reason, and advice.
        reason: String,
    },
    /// A pattern of locations is invalid.
    #[error("location pattern {pattern:?}: {reason}; * is for any characters but /, ** for any folders")]
    Pattern {
        /// The invalid pattern.
        pattern: String,
        reason: String,
    },
    /// Serving failed.
    #[error("serving: {0}")]
    Serve(io::Error),
}

/// A listening server. Connections wait until [`OtgServer::run`].
#[derive(Debug)]
pub struct OtgServer {
    runtime: Runtime,
    listener: Listener,
    listen: Listen,
    tls: Option<Arc<ServerConfig>>,
    handler: RequestHandler,
    stop: Arc<watch::Sender<bool>>,
}

/// Handle that stops a server from another thread.
#[derive(Debug, Clone)]
pub struct Stopper(Arc<watch::Sender<bool>>);

impl Stopper {
    /// Waits for the requests in progress, for at most 5 s; then [`OtgServer::run`] returns.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl OtgServer {
    /// Begins to listen.
    ///
    /// # Errors
    /// [`OtgServerError`] for an address, a path or a certificate that cannot be used, or if the runtime cannot start.
    pub fn bind(options: &ServerOptions) -> Result<Self, OtgServerError> {
        let settings = SessionSettings { ports: options.ports.clone(), session: options.session.clone() };
        let controller = Controller::new(settings, options.locations.clone());
        let token = options.token.clone();
        let serving = OtgServerError::Serve;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(serving)?;
        let entered = runtime.enter();
        let (listener, listen, tls, gate) = match &options.listen {
            Listen::Unix(path) => {
                let file = ListeningSocket::bind(path, SocketType::STREAM, None)?;
                let listener = file.as_fd().try_clone_to_owned().map_err(serving)?.into();
                let listener = tokio::net::UnixListener::from_std(listener).map_err(serving)?;
                let listener = Listener::Unix { listener, _file: file };
                (listener, options.listen.clone(), None, Gate::at_path(token))
            }
            Listen::Tcp(address) => {
                if token.is_none() && !address.ip().is_loopback() {
                    return Err(OtgServerError::Exposed(*address));
                }
                let certificate = match &options.encryption {
                    Encryption::None => None,
                    Encryption::SelfSigned => {
                        Some(Certificate::self_signed(address.ip(), &options.host_names)?)
                    }
                    Encryption::Files { certificate, key } => Some(Certificate::read(certificate, key)?),
                };
                let tls = certificate.map(Certificate::into_config).transpose()?;
                let scheme = if tls.is_some() { "https" } else { "http" };
                let gate = Gate::at_address(token, address.ip(), &options.host_names, scheme);
                let failed = |source| OtgServerError::Listen { address: *address, source };
                let listener = TcpListener::bind(address).map_err(failed)?;
                // A non-blocking socket is what the runtime requires.
                listener.set_nonblocking(true).map_err(failed)?;
                let listen = Listen::Tcp(listener.local_addr().map_err(failed)?);
                let listener = tokio::net::TcpListener::from_std(listener).map_err(serving)?;
                (Listener::Tcp(listener), listen, tls, gate)
            }
        };
        drop(entered);
        let (handler, stop) = (RequestHandler::new(gate, controller), Arc::new(watch::Sender::new(false)));
        Ok(Self { runtime, listener, listen, tls, handler, stop })
    }

    /// Returns the listening address, with the port that was chosen for port 0.
    #[must_use]
    pub fn listen(&self) -> &Listen {
        &self.listen
    }

    /// Returns the server's URL for clients, like `https://127.0.0.1:8443`. `token` is included in the form that
    /// clients take from a URL.
    #[must_use]
    pub fn url(&self, token: Option<&Token>) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        match (&self.listen, token) {
            (Listen::Tcp(address), Some(token)) => format!("{scheme}://otg:{}@{address}", token.text()),
            (Listen::Tcp(address), None) => format!("{scheme}://{address}"),
            (path @ Listen::Unix(_), _) => path.to_string(),
        }
    }

    /// Returns a handle that stops the server.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.stop))
    }

    /// Serves until the server is stopped. On return, traffic has stopped and all ports are closed.
    pub fn run(self) {
        let Self { runtime, listener, tls, handler, stop, .. } = self;
        runtime.block_on(serve(listener, tls, handler, &stop));
    }
}

async fn serve(
    door: Listener,
    tls: Option<Arc<ServerConfig>>,
    handler: RequestHandler,
    stop: &watch::Sender<bool>,
) {
    let (connections, handler) = (Arc::new(ConnectionLimit::default()), Arc::new(handler));
    let tls = tls.map(TlsAcceptor::from);
    let mut stopped = stop.subscribe();
    let mut tasks = JoinSet::new();
    loop {
        let stream = tokio::select! {
            biased;
            _ = stopped.wait_for(|stop| *stop) => break,
            Some(_) = tasks.join_next() => continue,
            came = door.accept() => match came {
                Ok(stream) => stream,
                Err(_) => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            },
        };
        let Some(permit) = connections.admit() else { continue };
        let (number, handler, tls, stopped) =
            (permit.number(), Arc::clone(&handler), tls.clone(), stopped.clone());
        let task = tasks.spawn(async move {
            tokio::select! {
                () = attend(stream, tls, &handler, &permit, stopped) => {}
                () = permit.overdue(FIRST_REQUEST_TIME) => {}
            }
        });
        connections.serve_by(number, task);
    }
    drop(door);
    let all = async { while tasks.join_next().await.is_some() {} };
    // Dropping the set ends requests that take longer.
    let _ = tokio::time::timeout(LAST_REQUESTS, all).await;
}

/// Serves a connection to its end. Once the server is stopped, the connection ends after the current request.
async fn attend(
    stream: Stream,
    tls: Option<TlsAcceptor>,
    handler: &RequestHandler,
    permit: &ConnectionPermit,
    mut stopped: watch::Receiver<bool>,
) {
    let stream: Stream = match tls {
        Some(tls) => match tls.accept(stream).await {
            Ok(stream) => Box::new(stream),
            Err(_) => return,
        },
        None => stream,
    };
    let service = service_fn(|request| handler.answer(permit, request));
    let mut connection =
        pin!(http1::Builder::new().max_buf_size(READ_BYTES).serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopped.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    // A broken connection has no recipient for the error.
    let _ = connection.await;
}

/// A connection of any transport.
trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for T {}
type Stream = Box<dyn ByteStream>;

#[derive(Debug)]
enum Listener {
    Tcp(tokio::net::TcpListener),
    /// A UNIX socket, whose file is removed with the listener.
    Unix {
        listener: tokio::net::UnixListener,
        _file: ListeningSocket,
    },
}

impl Listener {
    async fn accept(&self) -> io::Result<Stream> {
        Ok(match self {
            Self::Tcp(listener) => Box::new(listener.accept().await?.0),
            Self::Unix { listener, .. } => Box::new(listener.accept().await?.0),
        })
    }
}

#[cfg(test)]
mod tests;
