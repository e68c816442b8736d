//! Traces: the path of some frames through a switch.

use std::sync::Arc;

use ringroad_port::trace::{Trace, TracedFrame};

use super::{Fabric, FabricError};
use crate::forwarding::QueueRef;

impl Fabric {
    /// Traces the next frames of a switch, at most [`MAX_TRACED`](ringroad_port::trace::MAX_TRACED), or only frames of
    /// a port if one is given. A datapath has one trace at a time; an earlier one ends.
    ///
    /// # Errors
    /// [`FabricError::NoSuchPort`], or a worker that is gone.
    pub fn start_trace(&mut self, switch: &str, from: Option<&str>, count: u32) -> Result<(), FabricError> {
        self.stop_trace()?;
        let no_port = || FabricError::NoSuchPort(format!("{switch}:{}", from.unwrap_or("any")));
        let state = self.switches.get(switch).ok_or_else(no_port)?;
        let index = |port| state.ports.get(port).map(|port| port.index).ok_or_else(no_port);
        let trace = Arc::new(Trace::new(from.map(index).transpose()?, count));
        self.trace = Some((switch.to_owned(), Arc::clone(&trace)));
        for runner in &self.runners {
            let trace = Arc::clone(&trace);
            runner.call(move |engine| engine.set_trace(Some(trace)))?;
        }
        let Some(state) = self.switches.get(switch) else { return Ok(()) };
        self.install_forwarding_planes(switch, state, &state.mirrors)
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// A worker that is gone.
    pub fn stop_trace(&mut self) -> Result<(), FabricError> {
        let Some((switch, _)) = self.trace.take() else { return Ok(()) };
        for runner in &self.runners {
            runner.call(|engine| engine.set_trace(None))?;
        }
        match self.switches.get(&switch) {
            Some(state) => self.install_forwarding_planes(&switch, state, &state.mirrors),
            None => Ok(()),
        }
    }

    /// Switch of the running trace, its frames so far, and the number of frames that are still to come.
    #[must_use]
    pub fn traced(&self) -> Option<(&str, Vec<TracedFrame>, u32)> {
        let (switch, trace) = self.trace.as_ref()?;
        let (frames, left) = trace.frames();
        Some((switch, frames, left))
    }

    /// Name of the port of a switch that has the queue at `queue_index` of `worker`, and the queue's number in the
    /// port.
    #[must_use]
    pub fn queue_at(&self, switch: &str, worker: u16, queue_index: u32) -> Option<(&str, usize)> {
        self.switches.get(switch)?.ports.iter().find_map(|(name, port)| {
            let is_it = |queue: &QueueRef| (queue.worker, queue.index) == (worker, queue_index);
            Some((name.as_str(), port.queues.iter().position(is_it)?))
        })
    }
}
