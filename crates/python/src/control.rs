//! Requests to the daemon, and its replies, as JSON.

use std::path::PathBuf;
use std::sync::Mutex;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use ringroad::ProcessMark;
use ringroad::control::{Connection, Reply, Request, socket_path};

use crate::errors::{PortBusy, RingroadError, expect_own_process, of_control};

/// A connection to the daemon. `ringroad.Daemon` gives its replies their types.
#[pyclass(frozen, subclass, module = "ringroad")]
#[derive(Debug)]
pub(crate) struct Daemon {
    connection: Mutex<Connection>,
    /// Process that made the connection.
    process: ProcessMark,
}

#[pymethods]
impl Daemon {
    /// Connects to the daemon at `socket`, by default at the usual path. Starts no daemon.
    #[new]
    #[pyo3(signature = (socket = None))]
    fn new(py: Python<'_>, socket: Option<PathBuf>) -> PyResult<Self> {
        let socket = socket.unwrap_or_else(socket_path::default_socket_path);
        let connected = py.detach(|| {
            let mut connection = Connection::connect(&socket)?;
            connection.hello("python").map(|_| connection)
        });
        let connection = connected.map_err(|error| of_control(py, &error))?;
        Ok(Self { connection: Mutex::new(connection), process: ProcessMark::here() })
    }

    /// Sends a request in JSON. Returns the reply in JSON.
    fn request_json(&self, py: Python<'_>, request: &str) -> PyResult<String> {
        expect_own_process(self.process)?;
        let request: Request =
            serde_json::from_str(request).map_err(|error| PyValueError::new_err(error.to_string()))?;
        if matches!(request, Request::Open { .. } | Request::NetmapOpen | Request::Netmap { .. }) {
            return Err(PyValueError::new_err("ports are opened by ringroad.Port"));
        }
        let busy = || PortBusy::new_err("another thread waits for a reply on this connection");
        let mut held = self.connection.try_lock().map_err(|_| busy())?;
        let connection = &mut *held;
        let reply = py.detach(|| match request {
            // The report of many ports comes in several replies.
            Request::Status => connection.status().map(Reply::Status),
            Request::List => connection.list().map(Reply::List),
            Request::MacTable { ref switch, after: None, .. } => {
                connection.mac_table(switch).map(Reply::MacTable)
            }
            _ => connection.request(&request).map(|(reply, _)| reply),
        });
        let reply = reply.map_err(|error| of_control(py, &error))?;
        serde_json::to_string(&reply).map_err(|error| RingroadError::new_err(error.to_string()))
    }
}
