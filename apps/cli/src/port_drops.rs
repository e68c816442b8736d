//! The drops that the daemon counted while a command ran.

use std::collections::BTreeMap;

use crate::options::Global;

/// Number of frames by cause.
pub(crate) type Causes = BTreeMap<String, u64>;

/// Drop counters of one port before a run.
#[derive(Debug)]
pub(crate) struct PortDrops<'run> {
    global: &'run Global,
    port: String,
    before: Causes,
}

impl<'run> PortDrops<'run> {
    /// Reads the counters of an open port; `None` if the program itself has the port.
    pub(crate) fn start(global: &'run Global, port: &str) -> Option<Self> {
        let before = drops(global, port)?;
        Some(Self { global, port: port.to_owned(), before })
    }

    /// Returns the drops since the start. The port must still be open. `None` if the daemon is gone.
    pub(crate) fn end(self) -> Option<Causes> {
        Some(growth(&self.before, &drops(self.global, &self.port)?))
    }

    /// Waits until each worker of the daemon has made a whole turn over its ports. Frames that drivers could receive
    /// before are then in the rings of programs, if there was room. Returns whether the kernel had no more frames for
    /// the port. A daemon that is gone hands over no more.
    pub(crate) fn await_turn(&self) -> bool {
        let Ok(mut daemon) = self.global.connect() else { return true };
        // Each worker replies between two turns, so it has made a turn between two replies.
        let Ok(list) = daemon.list() else { return true };
        let mut ports = list.ports.into_iter();
        let hidden = ports.find(|port| port.name == self.port).map_or(0, |port| port.counters.hidden_frames);
        daemon.list().is_err() || hidden == 0
    }
}

fn drops(global: &Global, name: &str) -> Option<Causes> {
    let ports = global.connect().ok()?.list().ok()?.ports;
    Some(ports.into_iter().find(|port| port.name == name)?.counters.drops)
}

/// Returns the drops since `before`. A port that was opened again counts from 0.
pub(crate) fn growth(before: &Causes, after: &Causes) -> Causes {
    let anew = after.iter().any(|(cause, frames)| before.get(cause).is_some_and(|before| frames < before));
    if anew { less(after, &Causes::new()) } else { less(after, before) }
}

/// Returns `from` without `taken`, and without zeros.
pub(crate) fn less(from: &Causes, taken: &Causes) -> Causes {
    let left = from.iter().map(|(cause, frames)| {
        (cause.clone(), frames.saturating_sub(taken.get(cause).copied().unwrap_or(0)))
    });
    left.filter(|(_, frames)| *frames > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_was_opened_anew_counts_from_zero() {
        let causes = |frames| Causes::from([("no_space".to_owned(), frames)]);
        assert_eq!(growth(&causes(9), &causes(3)), causes(3));
        assert_eq!(growth(&causes(3), &causes(9)), causes(6));
        assert_eq!(growth(&causes(3), &causes(3)), Causes::new());
    }
}
