//! Network interfaces: programs that open one end of a veth pair, in their own network namespace. The kernel's work is
//! not counted.

use ringroad::{Embedded, OpenError, Port};
use ringroad_bench::veth::Lab;
use ringroad_netdev::in_namespace;

use crate::paths::ProgramTurn;
use crate::testbed::{frame, receive, send};
use crate::{Failure, counted};

const NEAR: &str = "bench0";
const FAR: &str = "bench1";

/// Opens a port in the lab, with its own datapath.
fn open(lab: &Lab, name: &str) -> Result<Port, Failure> {
    Ok(in_namespace(&lab.namespace(), || -> Result<Port, OpenError> { Embedded::new().open(name) })??)
}

fn tx(name: &str, burst: u32) -> Result<ProgramTurn, Failure> {
    let lab = Lab::create(&[[NEAR, FAR]])?;
    let mut port = open(&lab, name)?;
    let frame = frame(1, 2);
    Ok(Box::new(move |moved| {
        let _ = &lab;
        *moved += counted(|| send(&mut port, &frame, burst))?;
        Ok(())
    }))
}

fn rx(name: &str, burst: u32) -> Result<ProgramTurn, Failure> {
    let lab = Lab::create(&[[NEAR, FAR]])?;
    let mut port = open(&lab, name)?;
    let mut source = open(&lab, &format!("packet:{NEAR}"))?;
    let frame = frame(1, 2);
    Ok(Box::new(move |moved| {
        let _ = &lab;
        send(&mut source, &frame, burst)?;
        *moved += counted(|| receive(&mut port, burst))?;
        Ok(())
    }))
}

pub(crate) fn xdp_tx(burst: u32) -> Result<ProgramTurn, Failure> {
    tx("xdp:bench0", burst)
}

pub(crate) fn xdp_rx(burst: u32) -> Result<ProgramTurn, Failure> {
    rx("xdp:bench1", burst)
}

pub(crate) fn packet_tx(burst: u32) -> Result<ProgramTurn, Failure> {
    tx("packet:bench0", burst)
}

/// Receives frame by frame. Otherwise the kernel would hand over blocks when they are full or after a timeout, whose
/// cost would be counted too.
pub(crate) fn packet_rx(burst: u32) -> Result<ProgramTurn, Failure> {
    rx("packet:bench1@immediate=1", burst)
}
