//! A program written for netmap, over pipes and switches: with Ringroad's object before the C library, beside the
//! native workers.

use std::path::{Path, PathBuf};

use super::{Programs, Ringroad, preloaded_object};
use crate::contestant::CorePair;
use crate::peers::Absent;
use crate::plan::FramePath;
use crate::runner::Contestants;
use crate::stop::StopFlag;
use crate::worker::NetmapCalls;

/// Object that `ringroad run` preloads into a program written for netmap.
const OBJECT: &str = "libringroad_preload_netmap.so";

/// Use of netmap by workers.
#[derive(Clone, Debug)]
pub(super) struct NetmapProgram {
    pub(super) calls: NetmapCalls,
    pub(super) object: PathBuf,
}

impl NetmapProgram {
    /// Returns the contestant's name in tables.
    pub(super) const fn name(&self) -> &'static str {
        match self.calls {
            NetmapCalls::Sync => "netmap program, ioctl",
            NetmapCalls::Poll => "netmap program, poll",
        }
    }
}

/// Adds netmap programs as Ringroad's contestants, and the native workers as their peers.
pub(super) fn enter(contestants: &mut Contestants, programs: &Programs, cores: CorePair, stop: &StopFlag) {
    let Some(object) = preloaded_object(&programs.worker, OBJECT) else {
        contestants.absent.push(absent(&programs.worker));
        return;
    };
    for path in FramePath::NETMAP {
        let field = contestants.field_mut(path);
        for calls in [NetmapCalls::Sync, NetmapCalls::Poll] {
            let program = NetmapProgram { calls, object: object.clone() };
            let ours = Ringroad::as_netmap_program(path, program, programs.clone(), cores, stop);
            field.ours.push(Box::new(ours));
        }
        field.peers.push(Box::new(Ringroad::new(path, programs.clone(), cores, stop)));
    }
}

fn absent(worker: &Path) -> Absent {
    Absent {
        name: "Ringroad's object for netmap programs".into(),
        reason: format!("it is not beside {}: make build", worker.display()),
    }
}
