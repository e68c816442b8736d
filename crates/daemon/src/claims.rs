//! Claims on the sides of network interfaces. Only one port has a side, by any mechanism. Otherwise two ports would
//! receive its frames, or frames would leave by the interface that they came from. Interfaces belong to the machine, so
//! the process has one list.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringroad_control::message::ErrorKind;
use ringroad_drivers::device::{Device, InterfaceSide};

use crate::refusal::{Refusal, refuse};

static CLAIMS: Mutex<BTreeMap<InterfaceSide, String>> = Mutex::new(BTreeMap::new());

fn claims() -> MutexGuard<'static, BTreeMap<InterfaceSide, String>> {
    CLAIMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Claim on a side of an interface, which ends when it is dropped; a device without an interface claims nothing.
#[derive(Debug)]
pub(crate) struct Claim(Option<InterfaceSide>);

impl Claim {
    /// Claims `side` for `holder`, which names a port and its program, if it has one.
    ///
    /// # Errors
    /// Another port has the side.
    pub(crate) fn take(side: Option<InterfaceSide>, holder: &str) -> Result<Self, Refusal> {
        if let Some(side) = side {
            let mut claims = claims();
            if let Some(other) = claims.get(&side) {
                return Err(refuse(
                    ErrorKind::PortTaken,
                    format!("{holder}: the interface is taken already, by {other}"),
                    "one port has it at a time: take that one off (ringroad detach), or end its program",
                ));
            }
            claims.insert(side, holder.to_owned());
        }
        Ok(Self(side))
    }

    /// Moves the claim into `device` for the device's lifetime.
    pub(crate) fn give_to(self, device: &mut Device) {
        device.keep = Some(Box::new((device.keep.take(), self)));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(side) = self.0 {
            claims().remove(&side);
        }
    }
}

/// Holder of `side`.
pub(crate) fn holder_of(side: InterfaceSide) -> Option<String> {
    claims().get(&side).cloned()
}
