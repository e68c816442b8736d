//! Addresses that an operator has put onto ports: they do not age, and no frame moves them.
//!
//! A worker reads them only if the table of addresses would change. So they cost the path of frames nothing, and a
//! switch without any takes no lock.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ringroad_port::port_index::PortIndex;
use ringroad_wire::mac::Mac;

/// The static addresses of a switch.
#[derive(Debug, Default)]
pub(crate) struct StaticAddresses {
    /// Whether there are static addresses: most switches have none, and their workers take no lock.
    any: AtomicBool,
    ports: RwLock<BTreeMap<Mac, PortIndex>>,
    /// Number of times that a frame would have moved a static address.
    refused_moves: AtomicU64,
}

impl StaticAddresses {
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<Mac, PortIndex>> {
        self.ports.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<Mac, PortIndex>> {
        self.ports.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Port of `mac`, if the address is static.
    pub(crate) fn port_of(&self, mac: Mac) -> Option<PortIndex> {
        if self.any.load(Ordering::Relaxed) { self.read().get(&mac).copied() } else { None }
    }

    /// All static addresses, with their ports.
    pub(crate) fn all(&self) -> Vec<(Mac, PortIndex)> {
        self.read().iter().map(|(&mac, &port)| (mac, port)).collect()
    }

    pub(crate) fn set(&self, mac: Mac, port: PortIndex) {
        self.write().insert(mac, port);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Removes a static address; returns whether it was one.
    pub(crate) fn unset(&self, mac: Mac) -> bool {
        self.write().remove(&mac).is_some()
    }

    pub(crate) fn unset_port(&self, port: PortIndex) {
        self.write().retain(|_, of| *of != port);
    }

    pub(crate) fn refuse_move(&self) {
        self.refused_moves.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused_moves(&self) -> u64 {
        self.refused_moves.load(Ordering::Relaxed)
    }
}
