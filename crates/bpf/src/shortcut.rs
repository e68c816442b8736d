//! Frames that pass within the kernel, from the outer end of one veth pair to the inner end of another.
//!
//! A program at the ingress of each outer end looks up both addresses of a frame in a table. It passes the frame on if
//! the source is known at this end and the destination at another one. All other frames go to a TAP interface. So the
//! table holds only addresses that the owner of TAP and table has learned from those other frames.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::Errno;

use crate::error::BpfError;
use crate::instruction::Instruction as I;
use crate::map::{Map, Shape};
use crate::program::TcxProgram;

const TYPE_HASH: u32 = 1;
const TYPE_ARRAY: u32 = 2;
const TYPE_PERCPU_ARRAY: u32 = 6;
/// Flag: entries take memory only when they are made (`BPF_F_NO_PREALLOC`).
const NO_PREALLOCATION: u32 = 1;
/// Maximum number of addresses of all groups.
const ADDRESSES: u32 = 16384;
/// Maximum number of ends.
pub const MAX_ENDS: u32 = 1024;

/// Kernel functions (`enum bpf_func_id`); redirect_peer from Linux 5.10.
const MAP_LOOKUP: i32 = 1;
const REDIRECT: i32 = 23;
const CHANGE_TYPE: i32 = 32;
const REDIRECT_PEER: i32 = 155;
/// Fields of `struct __sk_buff`.
const SKB_LEN: i16 = 0;
const SKB_DATA: i16 = 76;
const SKB_DATA_END: i16 = 80;
/// `PACKET_HOST`: the frame is for the station that receives it.
const PACKET_HOST: i32 = 0;

const KEY_BYTES: usize = 8;
/// Bytes of an address's value: index of the outer end, number of its counters, whether the address has sent since the
/// owner's last query; 32 bits each, then 32 unused bits.
const VALUE_BYTES: usize = 16;
/// Bytes of an end's counters: frames and bytes received, frames and bytes delivered; 64 bits each.
const COUNTER_BYTES: usize = 32;

/// A MAC address in a group of ends between which frames pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShortcutKey {
    pub mac: [u8; 6],
    /// Number of the group, from 1.
    pub group: u16,
}

impl ShortcutKey {
    fn key(self) -> [u8; KEY_BYTES] {
        let [a, b, c, d, e, f] = self.mac;
        let [g, h] = self.group.to_ne_bytes();
        [a, b, c, d, e, f, g, h]
    }
}

/// Counters of the frames that an end passed to other ends and received from them within the kernel.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    /// Frames that came in by the end and left by another.
    pub received_frames: u64,
    /// Bytes of these frames.
    pub received_bytes: u64,
    /// Frames that came in by another end and left by this one.
    pub delivered_frames: u64,
    /// Bytes of these frames.
    pub delivered_bytes: u64,
}

/// The table of addresses and the counters of all ends of this process.
#[derive(Debug)]
pub struct ShortcutTable {
    addresses: Map,
    counters: Map,
    processors: usize,
}

impl ShortcutTable {
    /// An empty table.
    ///
    /// # Errors
    /// [`BpfError`] where the kernel refuses.
    pub fn create() -> Result<Self, BpfError> {
        let failed = |source| BpfError::new("making the maps of the way within the kernel", source);
        let processors = possible_processors();
        let addresses = Shape {
            kind: TYPE_HASH,
            key_bytes: KEY_BYTES,
            value_bytes: VALUE_BYTES,
            cell_bytes: VALUE_BYTES,
            entries: ADDRESSES,
            flags: NO_PREALLOCATION,
            name: *b"ringroad_macs\0\0\0",
        };
        let counters = Shape {
            kind: TYPE_PERCPU_ARRAY,
            key_bytes: 4,
            value_bytes: COUNTER_BYTES * processors,
            cell_bytes: COUNTER_BYTES,
            entries: MAX_ENDS,
            flags: 0,
            name: *b"ringroad_passed\0",
        };
        Ok(Self {
            addresses: Map::create(addresses).map_err(failed)?,
            counters: Map::create(counters).map_err(failed)?,
            processors,
        })
    }

    /// Stores that an address is behind the outer end with index `interface`, whose counters have the number `counter`.
    /// Returns `false` if the table is full.
    ///
    /// # Errors
    /// [`BpfError`] if the kernel refuses.
    pub fn set(&self, address: ShortcutKey, interface: u32, counter: u32) -> Result<bool, BpfError> {
        let mut value = [0; VALUE_BYTES];
        value[..4].copy_from_slice(&interface.to_ne_bytes());
        value[4..8].copy_from_slice(&counter.to_ne_bytes());
        match self.addresses.set(&address.key(), &value) {
            Ok(()) => Ok(true),
            Err(Errno::TOOBIG) => Ok(false),
            Err(source) => Err(BpfError::new("entering an address in the map", source)),
        }
    }

    /// Removes an address. A missing address is not an error.
    ///
    /// # Errors
    /// [`BpfError`] if the kernel refuses.
    pub fn remove(&self, address: ShortcutKey) -> Result<(), BpfError> {
        let removed = self.addresses.remove(&address.key());
        removed.map(drop).map_err(|source| BpfError::new("removing an address from the map", source))
    }

    /// Whether the address has sent since the last call.
    ///
    /// # Errors
    /// [`BpfError`] if the kernel refuses.
    pub fn take_seen(&self, address: ShortcutKey) -> Result<bool, BpfError> {
        let failed = |source| BpfError::new("looking an address up in the map", source);
        let mut value = [0; VALUE_BYTES];
        if !self.addresses.get(&address.key(), &mut value).map_err(failed)? || value[8..12] == [0; 4] {
            return Ok(false);
        }
        value[8..12].fill(0);
        self.addresses.set(&address.key(), &value).map_err(failed)?;
        Ok(true)
    }

    /// Traffic that the end with counters number `counter` has received and sent.
    ///
    /// # Errors
    /// [`BpfError`] if the kernel refuses.
    pub fn passed(&self, counter: u32) -> Result<Passed, BpfError> {
        let mut cells = vec![0; COUNTER_BYTES * self.processors];
        self.counters
            .get(&counter.to_ne_bytes(), &mut cells)
            .map_err(|source| BpfError::new("reading an account from the map", source))?;
        let mut sum = [0_u64; 4];
        for cell in cells.as_chunks::<COUNTER_BYTES>().0 {
            for (sum, bytes) in sum.iter_mut().zip(cell.as_chunks::<8>().0) {
                *sum = sum.wrapping_add(u64::from_ne_bytes(*bytes));
            }
        }
        let [received_frames, received_bytes, delivered_frames, delivered_bytes] = sum;
        Ok(Passed { received_frames, received_bytes, delivered_frames, delivered_bytes })
    }
}

/// Number of processors for which the kernel keeps values, absent ones included.
fn possible_processors() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<usize>().ok());
    // The kernel would write beyond a buffer that is too small. If it does not report the number, its maximum is 8192.
    last.map_or(8192, |last| last + 1)
}

/// Group of an end. It can change while its program runs.
#[derive(Debug)]
pub struct GroupCell(Map);

impl GroupCell {
    /// A cell without a group, so that no frame passes within the kernel.
    ///
    /// # Errors
    /// [`BpfError`] if the kernel refuses.
    pub fn create() -> Result<Self, BpfError> {
        let shape = Shape {
            kind: TYPE_ARRAY,
            key_bytes: 4,
            value_bytes: 4,
            cell_bytes: 4,
            entries: 1,
            flags: 0,
            name: *b"ringroad_group\0\0",
        };
        let made = Map::create(shape);
        made.map(Self).map_err(|source| BpfError::new("making the map of a group", source))
    }

    /// Puts the end into a group; group 0 removes it from any group.
    ///
    /// # Errors
    /// [`BpfError`] if the kernel refuses.
    pub fn set(&self, group: u16) -> Result<(), BpfError> {
        let set = self.0.set(&0_u32.to_ne_bytes(), &u32::from(group).to_ne_bytes());
        set.map_err(|source| BpfError::new("setting a group", source))
    }
}

/// An outer end, and the destination of its frames that do not pass within the kernel.
#[derive(Debug, Clone, Copy)]
pub struct ShortcutEnd {
    /// Index of the outer end.
    pub interface: u32,
    /// Number of the end's counters, below [`MAX_ENDS`].
    pub counter: u32,
    /// Index of the TAP interface.
    pub tap: u32,
}

/// Instructions, and the positions of the jumps to the end.
#[derive(Default)]
struct Code {
    instructions: Vec<I>,
    leaving: Vec<usize>,
}

impl Code {
    fn add(&mut self, instructions: &[I]) {
        self.instructions.extend_from_slice(instructions);
    }

    /// Adds a jump behind the last instruction.
    fn leave(&mut self, jump: I) {
        self.leaving.push(self.instructions.len());
        self.instructions.push(jump);
    }

    /// Looks up the key at `key` bytes from the frame pointer, and puts its value into registers 0 and 1. Leaves if the
    /// key has no value.
    fn lookup(&mut self, map: BorrowedFd<'_>, key: i32) {
        self.add(&I::set_map(1, map.as_raw_fd()));
        self.add(&[I::copy(2, 10), I::add(2, key), I::call(MAP_LOOKUP)]);
        self.leave(I::skip_if_zero(0, 0));
    }

    /// Adds one frame, with its bytes in register 7, to the counters at `offset` from register `counter`.
    fn count(&mut self, counter: u8, offset: i16) {
        self.add(&[
            I::load_64(1, counter, offset),
            I::add(1, 1),
            I::store_64(counter, offset, 1),
            I::load_64(1, counter, offset + 8),
            I::add_register(1, 7),
            I::store_64(counter, offset + 8, 1),
        ]);
    }

    fn end(mut self, last: &[I]) -> Vec<I> {
        let end = self.instructions.len();
        for at in self.leaving {
            if let Some(jump) = self.instructions.get_mut(at) {
                *jump = jump.skipping((end - at - 1) as i16);
            }
        }
        self.instructions.extend_from_slice(last);
        self.instructions
    }
}

impl TcxProgram {
    /// The program for the ingress of an outer end, which the module's documentation describes.
    ///
    /// # Errors
    /// [`BpfError`] if the kernel refuses.
    pub fn shortcut(table: &ShortcutTable, group: &GroupCell, end: ShortcutEnd) -> Result<Self, BpfError> {
        const SOURCE: i16 = -16;
        const DESTINATION: i16 = -8;
        const OWN_COUNTER: i16 = -20;
        const OTHER_COUNTER: i16 = -24;
        let mut code = Code::default();
        // Registers: 6 has the frame; 7 its group, then its length; 8 the index of the other end; 9 the counters of the
        // other end.
        code.add(&[I::copy(6, 1), I::load_32(2, 6, SKB_DATA), I::load_32(3, 6, SKB_DATA_END)]);
        code.add(&[I::copy(4, 2), I::add(4, 14)]);
        code.leave(I::skip_if_above(4, 3, 0));
        code.add(&I::set_map_value(7, group.0.as_fd().as_raw_fd()));
        code.add(&[I::load_32(7, 7, 0)]);
        code.leave(I::skip_if_zero(7, 0));
        for (key, at) in [(DESTINATION, 0), (SOURCE, 6)] {
            code.add(&[I::load_32(4, 2, at), I::store_32(10, key, 4)]);
            code.add(&[I::load_16(4, 2, at + 4), I::store_16(10, key + 4, 4), I::store_16(10, key + 6, 7)]);
        }

        code.lookup(table.addresses.as_fd(), SOURCE.into());
        code.add(&[I::load_32(1, 0, 0)]);
        code.leave(I::skip_unless_equal_32(1, end.interface, 0));
        // Written only if it changes, so that processors share the cache line.
        code.add(&[I::load_32(1, 0, 8), I::skip_unless_equal_32(1, 0, 1), I::store_value_32(0, 8, 1)]);

        code.lookup(table.addresses.as_fd(), DESTINATION.into());
        code.add(&[I::load_32(8, 0, 0), I::load_32(1, 0, 4), I::store_32(10, OTHER_COUNTER, 1)]);
        code.leave(I::skip_if_equal_32(8, end.interface, 0));

        code.lookup(table.counters.as_fd(), OTHER_COUNTER.into());
        code.add(&[I::copy(9, 0), I::store_value_32(10, OWN_COUNTER, end.counter)]);
        code.lookup(table.counters.as_fd(), OWN_COUNTER.into());
        code.add(&[I::load_32(7, 6, SKB_LEN)]);
        code.count(0, 0);
        code.count(9, 16);
        // The kernel takes it for a frame to another station, because the outer end has another address than the inner
        // one.
        code.add(&[I::copy(1, 6), I::set(2, PACKET_HOST), I::call(CHANGE_TYPE)]);
        code.add(&[I::copy(1, 8), I::set(2, 0), I::call(REDIRECT_PEER), I::exit()]);
        let program = code.end(&[I::set_32(1, end.tap), I::set(2, 0), I::call(REDIRECT), I::exit()]);
        Self::load("ringroad_short", &program)
    }
}
