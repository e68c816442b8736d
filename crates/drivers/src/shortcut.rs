//! The path within the kernel between the ports of a switch that are veth pairs.
//!
//! The kernel may pass a frame by itself only if the switch would deliver it to one port unchanged. So the switch's
//! owner gives each port the addresses that were learned there ([`Shortcut::keep_only`], [`Shortcut::add`]), and
//! repeats this after each change. Until then, and for all other addresses, frames pass through the datapath.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

pub use ringroad_bpf::error::BpfError;
use ringroad_bpf::program::TcxProgram;
use ringroad_bpf::shortcut::{GroupCell, MAX_ENDS, Passed, ShortcutEnd, ShortcutKey, ShortcutTable};
use ringroad_port::counters::BypassedFrames;

/// A MAC address, first octet first.
pub type Octets = [u8; 6];

/// Maximum number of a port's addresses that the kernel knows. Frames of others pass through the datapath.
const MOST_ADDRESSES: usize = 1024;

/// The kernel's table for all ports of this process.
#[derive(Debug)]
struct KernelTable {
    table: ShortcutTable,
    /// Numbers of counters in use.
    counters: Mutex<BTreeSet<u32>>,
}

/// A port's end of the path within the kernel. The port does not use this path before [`Shortcut::keep_only`].
#[derive(Debug)]
pub struct Shortcut {
    ends: &'static KernelTable,
    group: GroupCell,
    interface: u32,
    counter: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the group, 0 without one.
    group: u16,
    addresses: BTreeSet<Octets>,
    counted: Passed,
    has_given_up: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl KernelTable {
    /// The table, which the first port that needs it creates.
    fn of_process() -> Result<&'static Self, BpfError> {
        static ENDS: OnceLock<KernelTable> = OnceLock::new();
        if let Some(ends) = ENDS.get() {
            return Ok(ends);
        }
        let made = Self { table: ShortcutTable::create()?, counters: Mutex::default() };
        Ok(ENDS.get_or_init(|| made))
    }
}

impl Shortcut {
    /// Creates the control of the path for the veth end with index `interface`. `None` if there are too many ports.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn new(interface: u32) -> Result<Option<Self>, BpfError> {
        let ends = KernelTable::of_process()?;
        let group = GroupCell::create()?;
        let counter = {
            let mut counters = lock(&ends.counters);
            let Some(counter) = (0..MAX_ENDS).find(|counter| !counters.contains(counter)) else {
                return Ok(None);
            };
            counters.insert(counter);
            counter
        };
        let this = Self { ends, group, interface, counter, state: Mutex::default() };
        // The counters continue from the values of their last user.
        let counted = ends.table.passed(counter)?;
        lock(&this.state).counted = counted;
        Ok(Some(this))
    }

    /// Program for the ingress of the end. Frames that it does not pass on go to the interface `tap`.
    pub(crate) fn program(&self, tap: u32) -> Result<TcxProgram, BpfError> {
        let end = ShortcutEnd { interface: self.interface, counter: self.counter, tap };
        TcxProgram::shortcut(&self.ends.table, &self.group, end)
    }

    /// Joins `group` (from 1) and removes all addresses but `addresses` from the kernel's table. Returns the remaining
    /// addresses that have sent since the last call.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn keep_only(&self, group: u16, addresses: &BTreeSet<Octets>) -> Result<Vec<Octets>, BpfError> {
        let mut state = lock(&self.state);
        if state.has_given_up {
            return Ok(Vec::new());
        }
        if state.group != group {
            self.forget(&mut state)?;
            self.group.set(group)?;
            state.group = group;
        }
        let mut seen = Vec::new();
        for mac in state.addresses.clone() {
            let at = ShortcutKey { mac, group };
            if !addresses.contains(&mac) {
                self.ends.table.remove(at)?;
                state.addresses.remove(&mac);
            } else if self.ends.table.take_seen(at)? {
                seen.push(mac);
            }
        }
        Ok(seen)
    }

    /// Adds `addresses` to the kernel's table: frames with such a source pass from this end to others of its group, and
    /// frames with such a destination pass from others to this end. No other end of the group may still have these
    /// addresses.
    ///
    /// # Errors
    /// The kernel's error. Frames of addresses for which the table has no room pass through the datapath.
    pub fn add(&self, addresses: &BTreeSet<Octets>) -> Result<(), BpfError> {
        let mut state = lock(&self.state);
        let group = state.group;
        if group == 0 {
            return Ok(());
        }
        for &mac in addresses {
            if state.addresses.len() == MOST_ADDRESSES {
                break;
            }
            if !state.addresses.contains(&mac) {
                if !self.ends.table.set(ShortcutKey { mac, group }, self.interface, self.counter)? {
                    break;
                }
                state.addresses.insert(mac);
            }
        }
        Ok(())
    }

    /// Whether the port uses the path within the kernel.
    #[must_use]
    pub fn is_on_way(&self) -> bool {
        lock(&self.state).group != 0
    }

    /// Leaves the path within the kernel for good, after a refusal of the kernel.
    pub fn give_up(&self) {
        let _ = self.leave();
        lock(&self.state).has_given_up = true;
    }

    /// Leaves the path within the kernel: all frames from and to the end pass through the datapath.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn leave(&self) -> Result<(), BpfError> {
        let mut state = lock(&self.state);
        if state.group == 0 {
            return Ok(());
        }
        self.group.set(0)?;
        self.forget(&mut state)?;
        state.group = 0;
        Ok(())
    }

    fn forget(&self, state: &mut State) -> Result<(), BpfError> {
        let group = state.group;
        while let Some(mac) = state.addresses.pop_first() {
            self.ends.table.remove(ShortcutKey { mac, group })?;
        }
        Ok(())
    }

    /// Frames that passed within the kernel since the last call.
    pub(crate) fn take_passed(&self) -> BypassedFrames {
        let mut state = lock(&self.state);
        let Ok(now) = self.ends.table.passed(self.counter) else { return BypassedFrames::default() };
        let before = std::mem::replace(&mut state.counted, now);
        BypassedFrames {
            received_frames: now.received_frames.wrapping_sub(before.received_frames),
            received_bytes: now.received_bytes.wrapping_sub(before.received_bytes),
            delivered_frames: now.delivered_frames.wrapping_sub(before.delivered_frames),
            delivered_bytes: now.delivered_bytes.wrapping_sub(before.delivered_bytes),
        }
    }
}

impl Drop for Shortcut {
    fn drop(&mut self) {
        let _ = self.leave();
        lock(&self.ends.counters).remove(&self.counter);
    }
}
