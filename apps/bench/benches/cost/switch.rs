//! Datapath at programs' rings, without the programs' work.

use crate::paths::ProgramTurn;
use crate::testbed::{Testbed, frame};
use crate::{Failure, counted};

/// Path: take from one ring, learn, look up, copy once, publish in another ring.
pub(crate) fn shm(burst: u32) -> Result<ProgramTurn, Failure> {
    let mut site = Testbed::new();
    let (mut a, mut b) = (site.attach_program("a")?, site.attach_program("b")?);
    // A first frame teaches the switch the receiver's port.
    b.send(&frame(2, 1), 1)?;
    site.step();
    let to_b = frame(1, 2);
    Ok(Box::new(move |moved| {
        a.send(&to_b, burst)?;
        counted(|| site.step());
        *moved += b.receive(burst)?;
        Ok(())
    }))
}

/// Path: take from a device, copy once, publish in a ring.
pub(crate) fn wire(burst: u32) -> Result<ProgramTurn, Failure> {
    let mut site = Testbed::new();
    let mut program = site.wire_device("null:size=60")?;
    Ok(Box::new(move |moved| {
        counted(|| site.step());
        *moved += program.receive(burst)?;
        Ok(())
    }))
}
