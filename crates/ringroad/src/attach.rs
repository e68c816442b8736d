//! Opens a port of the daemon: sends the request, receives the region and eventfds, maps the region, and finds the
//! rings.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use ringroad_control::Connection;
use ringroad_control::connection::{DEFAULT_TIMEOUT, Introduction};
use ringroad_control::message::{OpenedPort, PortBackend, Reply, Request};
use ringroad_drivers::shm::QueueEvents;
use ringroad_port_table::opening::ProgramSide;
use ringroad_ring::region::Region;

use crate::daemon_start::ensure_daemon;
use crate::embedded::take_up;
use crate::error::OpenError;
use crate::port::{OpenOptions, Port, PortInfo};
use crate::queue::Queue;
use crate::waiter::Binding;

/// Request for a port of the daemon. A reconnect repeats it.
#[derive(Debug, Clone)]
pub(crate) struct OpenRequest {
    pub(crate) text: String,
    pub(crate) options: OpenOptions,
}

/// A port as opened by one daemon.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) info: PortInfo,
    pub(crate) queues: Vec<Queue>,
    pub(crate) binding: Arc<Binding>,
    pub(crate) daemon: Introduction,
}

/// Opens a port of the daemon.
pub(crate) fn open(text: &str, options: &OpenOptions) -> Result<Port, OpenError> {
    let request = OpenRequest { text: text.to_owned(), options: options.clone() };
    let attachment = connect(&request, !options.no_start, DEFAULT_TIMEOUT)?.attach(&request, 0)?;
    if options.reconnect {
        return crate::renewal::renewable(request, attachment);
    }
    Port::new(attachment.info, attachment.queues)
}

/// A daemon that has accepted the hello.
#[derive(Debug)]
pub(crate) struct DaemonConnection {
    connection: Connection,
    pub(crate) daemon: Introduction,
}

/// Connects to the daemon. Starts the daemon if none runs and `may_start` is set.
pub(crate) fn connect(
    request: &OpenRequest,
    may_start: bool,
    timeout: Duration,
) -> Result<DaemonConnection, OpenError> {
    let socket = request.options.socket.clone();
    let socket = socket.unwrap_or_else(ringroad_control::socket_path::default_socket_path);
    if may_start {
        ensure_daemon(&socket)?;
    }
    let mut connection = Connection::connect_within(&socket, timeout)?;
    let daemon = connection.hello(program_name())?;
    Ok(DaemonConnection { connection, daemon })
}

impl DaemonConnection {
    /// Opens the port; `generation` is the number of earlier openings.
    pub(crate) fn attach(self, open_request: &OpenRequest, generation: u64) -> Result<Attachment, OpenError> {
        let Self { mut connection, daemon } = self;
        // The daemon parses the options in the name.
        let request =
            Request::Open { name: open_request.text.clone(), properties: open_request.options.properties() };
        let (reply, descriptors) = connection.request(&request)?;
        let Reply::Opened(opened) = reply else { return Err(OpenError::UnexpectedReply) };
        let side = program_side(&opened, descriptors)?;
        let binding = Arc::new(Binding::new(Some(connection), None, generation));
        let queues = take_up(side, &binding, None)?;
        let driver = match opened.kind {
            PortBackend::PipeEnd => "pipe",
            PortBackend::Device => opened.driver.as_deref().unwrap_or("device"),
            _ => "shm",
        };
        let info = PortInfo {
            name: opened.name,
            driver: driver.into(),
            mode: opened.mode,
            max_frame_bytes: opened.max_frame_bytes.map_or(usize::MAX, |bytes| bytes as usize),
            switch_index: opened.switch_index,
        };
        Ok(Attachment { info, queues, binding, daemon })
    }
}

/// Checks the daemon's reply and makes the program's side. The descriptors are the region's memfd, then kick and notify
/// of each queue.
fn program_side(opened: &OpenedPort, descriptors: Vec<OwnedFd>) -> Result<ProgramSide, OpenError> {
    if descriptors.len() != 1 + 2 * opened.placement.tx_rings.len() {
        return Err(OpenError::UnexpectedReply);
    }
    let mut descriptors = descriptors.into_iter();
    let memory = descriptors.next().ok_or(OpenError::UnexpectedReply)?;
    let region = Arc::new(Region::open(opened.geometry, memory)?);
    let mut events = Vec::new();
    while let (Some(kick), Some(notify)) = (descriptors.next(), descriptors.next()) {
        events.push(QueueEvents { kick, notify });
    }
    let peer = opened.peer_placement.clone().filter(|_| opened.kind == PortBackend::PipeEnd);
    for placement in std::iter::once(&opened.placement).chain(&peer) {
        placement.check(&opened.geometry)?;
    }
    Ok(ProgramSide { region, placement: opened.placement.clone(), peer, events })
}

fn program_name() -> String {
    std::env::args_os()
        .next()
        .map(|path| std::path::Path::new(&path).file_name().unwrap_or(&path).to_string_lossy().into_owned())
        .unwrap_or_else(|| "unknown".into())
}
