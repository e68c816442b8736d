//! The generator into a port that accepts all frames. The generator's clock is stopped: reading a real clock would be
//! counted too, and costs more on some machines than on others.

use ringroad::Embedded;
use ringroad_bench::worker::{self, WorkerRole};
use ringroad_generator::{SessionClock, SessionOptions, Threads};

use crate::paths::ProgramTurn;
use crate::{Failure, counted, workers};

/// Index of the plan's only load.
const LOAD: usize = 0;

pub(crate) fn unsigned(burst: u32) -> Result<ProgramTurn, Failure> {
    set_up(WorkerRole::GenerateUnsigned, burst)
}

pub(crate) fn signed(burst: u32) -> Result<ProgramTurn, Failure> {
    set_up(WorkerRole::Generate, burst)
}

fn set_up(role: WorkerRole, burst: u32) -> Result<ProgramTurn, Failure> {
    let port = Embedded::new().open("null:size=60,no-rx=1")?;
    let session = SessionOptions {
        clock: SessionClock::manual(1),
        threads: Threads::Caller,
        ..SessionOptions::default()
    };
    let mut session = worker::generator_session(&workers::options(role, &[], burst), port, session)?;
    session.start();
    Ok(Box::new(move |moved| {
        counted(|| session.turn())?;
        *moved = session.sent(LOAD).frames;
        Ok(())
    }))
}
