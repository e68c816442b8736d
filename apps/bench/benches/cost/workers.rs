//! The work of the benchmark's workers, over null ports and pipes: program, rings, datapath and drivers, all in one
//! thread.

use ringroad::{Embedded, OpenError, Port};
use ringroad_bench::worker::{self, WorkerCounts, WorkerOptions, WorkerRole};

use crate::paths::ProgramTurn;
use crate::testbed::{fill, frame, take};
use crate::{Failure, counted};

/// Length of a frame, FCS included.
const FRAME_BYTES: u32 = 64;

/// Names of the two ends of a pipe.
const PIPE: [&str; 2] = ["cost{1", "cost}1"];

/// Makes the arguments of a worker with this role.
pub(crate) fn options(role: WorkerRole, ports: &[&str], burst: u32) -> WorkerOptions {
    WorkerOptions {
        role,
        ports: ports.iter().map(|&port| port.into()).collect(),
        frame_bytes: FRAME_BYTES,
        burst_frames: burst,
        cpu: 0,
    }
}

fn turns(
    role: WorkerRole,
    ports: [&str; 2],
    burst: u32,
    open: &dyn Fn(&str) -> Result<Port, OpenError>,
) -> Result<ProgramTurn, Failure> {
    let mut role = worker::turns(&options(role, &ports, burst), open)?;
    let mut tally = WorkerCounts::default();
    Ok(Box::new(move |moved| {
        counted(|| role.turn(&mut tally))?;
        *moved = tally.directions_frames.iter().sum();
        match tally.lost_or_reordered_frames {
            0 => Ok(()),
            lost => Err(format!("{lost} frames were lost or reordered").into()),
        }
    }))
}

/// Forwards between null ports with separate regions: the program copies.
pub(crate) fn null_copy(burst: u32) -> Result<ProgramTurn, Failure> {
    turns(WorkerRole::Null, ["null:size=60", "null:size=60"], burst, &|name| Port::open(name))
}

/// Forwards between null ports with one region: the program exchanges buffers.
pub(crate) fn null_swap(burst: u32) -> Result<ProgramTurn, Failure> {
    let datapath = Embedded::new();
    let ports = ["null:size=60", "null:size=60@share=null:size=60"];
    turns(WorkerRole::Forward, ports, burst, &|name| datapath.open(name))
}

pub(crate) fn pipe(burst: u32) -> Result<ProgramTurn, Failure> {
    let datapath = Embedded::new();
    turns(WorkerRole::OneWay, PIPE, burst, &|name| datapath.open(name))
}

/// Runs a netmap program on a pipe.
pub(crate) fn netmap_syncs(burst: u32) -> Result<ProgramTurn, Failure> {
    turns(WorkerRole::NetmapSyncOneWay, PIPE, burst, &|name| Port::open(name))
}

/// Makes the calls of a native program on the same pipe, without its work on the frames.
pub(crate) fn native_syncs(burst: u32) -> Result<ProgramTurn, Failure> {
    let [from, to] = PIPE;
    let (mut from, mut to) = (Port::open(from)?, Port::open(to)?);
    let frame = frame(1, 2);
    Ok(Box::new(move |moved| {
        fill(&mut from, &frame, burst);
        counted(|| from.tx().sync())?;
        counted(|| to.rx().sync())?;
        *moved += take(&mut to, burst);
        Ok(())
    }))
}
