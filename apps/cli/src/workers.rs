//! Progress of the daemon's workers, for commands that depend on it.

use crate::options::Global;

/// The workers of the daemon that a command uses, if it uses one.
#[derive(Debug)]
pub(crate) struct Workers<'run>(pub(crate) Option<&'run Global>);

impl Workers<'_> {
    /// Waits until each worker has made a whole turn over its ports. Frames that drivers could receive before are then
    /// in the rings of programs, if there was room.
    pub(crate) fn await_turn(&self) {
        let Some(Ok(mut daemon)) = self.0.map(Global::connect) else { return };
        // Each worker replies between two turns, so it has made a turn between two replies.
        for _ in 0..2 {
            if daemon.list().is_err() {
                return;
            }
        }
    }
}
