//! The daemon's workers, as far as programs depend on their progress.

use crate::arguments::Global;

/// The workers of the daemon that a command uses, if it uses one.
#[derive(Debug)]
pub(crate) struct Workers<'run>(pub(crate) Option<&'run Global>);

impl Workers<'_> {
    /// Waits until each worker has made a whole turn over its ports: what their drivers could receive before is then in
    /// the rings of programs, as far as there was room.
    pub(crate) fn await_turn(&self) {
        let Some(Ok(mut daemon)) = self.0.map(Global::connect) else { return };
        // Each worker is asked between two turns, so it has made one between two answers.
        for _ in 0..2 {
            if daemon.list().is_err() {
                return;
            }
        }
    }
}
