//! A learning switch alone, between ports without rings or bytes.

use crate::paths::ProgramTurn;
use crate::replay::replay;
use crate::testbed::{Testbed, frame};
use crate::{Failure, counted};

/// Number of receiving ports.
const RECEIVERS: u8 = 4;
/// Station that no port has.
const NOBODY: u8 = 99;

/// Makes a switch whose first port sends bursts to the stations `to` in turn.
fn set_up(burst: u32, to: &[u8]) -> Result<ProgramTurn, Failure> {
    let mut site = Testbed::new();
    for station in 1..=RECEIVERS {
        // One frame from each station lets the switch learn its port.
        site.attach(&format!("to{station}"), replay(&[frame(station, 0)], 1, 1))?;
    }
    site.step();
    let frames: Vec<_> = to.iter().map(|&to| frame(0, to)).collect();
    site.attach("from", replay(&frames, burst, u64::MAX))?;
    Ok(Box::new(move |moved| {
        counted(|| site.step());
        *moved += u64::from(burst);
        Ok(())
    }))
}

pub(crate) fn to_one(burst: u32) -> Result<ProgramTurn, Failure> {
    set_up(burst, &[1])
}

pub(crate) fn to_four(burst: u32) -> Result<ProgramTurn, Failure> {
    set_up(burst, &[1, 2, 3, 4])
}

pub(crate) fn flood(burst: u32) -> Result<ProgramTurn, Failure> {
    set_up(burst, &[NOBODY])
}
