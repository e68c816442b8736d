//! Ports that stay open from one session to the next.

use ringroad::{OpenOptions, Port, PortInfo, Queue};

use crate::error::SessionError;
use crate::plan::PlannedPort;

/// A port of a session: each queue is served by its own thread.
#[derive(Debug)]
pub(crate) struct OpenPort {
    pub(crate) info: PortInfo,
    pub(crate) queues: Vec<Queue>,
}

impl From<Port> for OpenPort {
    fn from(port: Port) -> Self {
        Self { info: port.info().clone(), queues: port.into_queues() }
    }
}

/// Ports that a session left open, for the next session over them ([`crate::TestSession::open_keeping`]). Dropping the
/// value closes the ports.
#[derive(Debug, Default)]
pub struct KeptPorts {
    /// Ports with their names in plans, including options.
    pub(crate) ports: Vec<(String, OpenPort)>,
    /// Number on the wire of the next session's first stream.
    pub(crate) next_wire_stream: u16,
}

impl KeptPorts {
    /// Closes the ports that are not `planned`, opens those that are missing, and returns them in the plan's order. If
    /// a port cannot be opened, all ports stay here.
    pub(crate) fn take(
        &mut self,
        planned: &[PlannedPort],
        options: &OpenOptions,
    ) -> Result<Vec<OpenPort>, SessionError> {
        let mut kept = std::mem::take(&mut self.ports);
        // Unplanned ports close first: a missing port may be one of them with other options.
        kept.retain(|(name, _)| planned.iter().any(|port| port.name == *name));
        let mut taken: Vec<(String, OpenPort)> = Vec::with_capacity(planned.len());
        for PlannedPort { name, .. } in planned {
            let port = match kept.iter().position(|(known, _)| known == name) {
                Some(index) => Ok(kept.remove(index).1),
                None => Port::open_with(name, options).map(OpenPort::from),
            };
            match port {
                Ok(port) => taken.push((name.clone(), port)),
                Err(source) => {
                    self.ports = kept;
                    self.ports.append(&mut taken);
                    return Err(SessionError::Open { port: name.clone(), source });
                }
            }
        }
        Ok(taken.into_iter().map(|(_, port)| port).collect())
    }
}
