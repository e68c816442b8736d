//! Maps: tables that programs and this process share.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::error::BpfError;
use crate::syscall::{Attribute, Command, bpf, bpf_descriptor};

const TYPE_XSKMAP: u32 = 17;

#[repr(C)]
struct Create {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
    inner_map: u32,
    numa_node: u32,
    name: [u8; 16],
}
// SAFETY: repr(C), integers without padding, no addresses.
unsafe impl Attribute for Create {}

#[repr(C)]
struct Element {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}
// SAFETY: repr(C), integers without hidden padding; `Map` fills in addresses of slices that outlive the call and are as
// large as the map's keys and values.
unsafe impl Attribute for Element {}

/// The shape of a map.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// `enum bpf_map_type`.
    pub(crate) kind: u32,
    pub(crate) key_bytes: usize,
    /// Bytes of a value as bpf(2) reads and writes it. A map with a value for each processor has the bytes of all of
    /// them here.
    pub(crate) value_bytes: usize,
    /// Bytes of a value that a program accesses.
    pub(crate) cell_bytes: usize,
    pub(crate) entries: u32,
    pub(crate) flags: u32,
    pub(crate) name: [u8; 16],
}

/// A map of any kind.
#[derive(Debug)]
pub(crate) struct Map {
    descriptor: OwnedFd,
    key_bytes: usize,
    value_bytes: usize,
}

impl Map {
    pub(crate) fn create(shape: Shape) -> Result<Self, Errno> {
        let Shape { kind, key_bytes, value_bytes, cell_bytes, entries, flags, name } = shape;
        let mut attribute = Create {
            kind,
            key_bytes: key_bytes as u32,
            value_bytes: cell_bytes as u32,
            entries,
            flags,
            inner_map: 0,
            numa_node: 0,
            name,
        };
        let descriptor = bpf_descriptor(Command::MapCreate, &mut attribute)?;
        Ok(Self { descriptor, key_bytes, value_bytes })
    }

    pub(crate) fn set(&self, key: &[u8], value: &[u8]) -> Result<(), Errno> {
        let mut attribute = self.element(key, value.len(), value.as_ptr() as u64)?;
        bpf(Command::MapUpdate, &mut attribute).map(drop)
    }

    /// Reads the value of `key` into `value`. Returns whether there is one.
    pub(crate) fn get(&self, key: &[u8], value: &mut [u8]) -> Result<bool, Errno> {
        let mut attribute = self.element(key, value.len(), value.as_mut_ptr() as u64)?;
        found(bpf(Command::MapLookup, &mut attribute))
    }

    /// Removes the value of `key`. Returns whether there was one.
    pub(crate) fn remove(&self, key: &[u8]) -> Result<bool, Errno> {
        let mut attribute = self.element(key, self.value_bytes, 0)?;
        found(bpf(Command::MapDelete, &mut attribute))
    }

    /// Describes an operation on one element. Refuses slices of other lengths than the kernel reads or writes.
    fn element(&self, key: &[u8], value_bytes: usize, value: u64) -> Result<Element, Errno> {
        if key.len() != self.key_bytes || value_bytes != self.value_bytes {
            return Err(Errno::INVAL);
        }
        let map = self.descriptor.as_raw_fd().cast_unsigned();
        Ok(Element { map, padding: 0, key: key.as_ptr() as u64, value, flags: 0 })
    }
}

fn found(result: Result<i64, Errno>) -> Result<bool, Errno> {
    match result {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// A map from receive queue number to AF_XDP socket (`BPF_MAP_TYPE_XSKMAP`, Linux 4.18). A socket that is closed
/// leaves the map by itself.
#[derive(Debug)]
pub struct XskMap {
    map: Map,
    queues: u32,
}

impl XskMap {
    /// An empty map for queues 0 to `queues` - 1.
    ///
    /// # Errors
    /// [`BpfError`] if the kernel refuses.
    pub fn create(queues: u32) -> Result<Self, BpfError> {
        let shape = Shape {
            kind: TYPE_XSKMAP,
            key_bytes: 4,
            value_bytes: 4,
            cell_bytes: 4,
            entries: queues,
            flags: 0,
            name: *b"ringroad_xsks\0\0\0",
        };
        const STEP: &str = "making a map of AF_XDP sockets";
        match Map::create(shape) {
            Ok(map) => Ok(Self { map, queues }),
            Err(source @ (Errno::NOSYS | Errno::INVAL)) if queues > 0 => {
                Err(BpfError::Unsupported { step: STEP, needs: "4.18 (CONFIG_XDP_SOCKETS)", source })
            }
            Err(source) => Err(BpfError::new(STEP, source)),
        }
    }

    /// Number of queues that the map has room for.
    #[must_use]
    pub fn queues(&self) -> u32 {
        self.queues
    }

    /// Directs the frames of receive queue `queue` to `socket`, which is bound to that queue.
    ///
    /// # Errors
    /// [`BpfError::System`]: no such queue in the map (E2BIG), or not an AF_XDP socket that is bound (EBADF,
    /// EOPNOTSUPP).
    pub fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), BpfError> {
        self.map
            .set(&queue.to_ne_bytes(), &socket.as_raw_fd().to_ne_bytes())
            .map_err(|source| BpfError::new("entering an AF_XDP socket in the map", source))
    }

    /// Takes the socket of queue `queue` off the map; its frames go to the host stack again. No socket there is not an
    /// error.
    ///
    /// # Errors
    /// [`BpfError`] if the kernel refuses.
    pub fn clear(&self, queue: u32) -> Result<(), BpfError> {
        let removed = self.map.remove(&queue.to_ne_bytes());
        removed.map(drop).map_err(|source| BpfError::new("taking an AF_XDP socket off the map", source))
    }
}

impl AsFd for XskMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}
