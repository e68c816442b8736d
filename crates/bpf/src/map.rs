//! Maps: tables that programs look into.
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
// SAFETY: repr(C), integers without hidden padding; `XskMap` fills in addresses of locals that outlive the call and
// are as large as the map's keys and values.
unsafe impl Attribute for Element {}

/// A map from receive queue number to AF_XDP socket (`BPF_MAP_TYPE_XSKMAP`, Linux 4.18). A socket that is closed
/// leaves the map by itself.
#[derive(Debug)]
pub struct XskMap {
    descriptor: OwnedFd,
    queues: u32,
}

impl XskMap {
    /// An empty map for queues 0 to `queues` - 1.
    ///
    /// # Errors
    /// [`BpfError`] where the kernel refuses.
    pub fn create(queues: u32) -> Result<Self, BpfError> {
        let mut attribute = Create {
            kind: TYPE_XSKMAP,
            key_bytes: 4,
            value_bytes: 4,
            entries: queues,
            flags: 0,
            inner_map: 0,
            numa_node: 0,
            name: *b"ringroad_xsks\0\0\0",
        };
        const STEP: &str = "making a map of AF_XDP sockets";
        match bpf_descriptor(Command::MapCreate, &mut attribute) {
            Ok(descriptor) => Ok(Self { descriptor, queues }),
            Err(source @ (Errno::NOSYS | Errno::INVAL)) if queues > 0 => {
                Err(BpfError::Unsupported { step: STEP, needs: "4.18 (CONFIG_XDP_SOCKETS)", source })
            }
            Err(source) => Err(BpfError::new(STEP, source)),
        }
    }

    /// Number of queues it has room for.
    #[must_use]
    pub fn queues(&self) -> u32 {
        self.queues
    }

    /// Has the frames of receive queue `queue` go to `socket`, which is bound to that queue.
    ///
    /// # Errors
    /// [`BpfError::System`]: no such queue in the map (E2BIG), or not an AF_XDP socket that is bound (EBADF, EOPNOTSUPP).
    pub fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), BpfError> {
        let value = socket.as_raw_fd();
        let mut attribute = self.element(&queue, std::ptr::from_ref(&value) as u64);
        bpf(Command::MapUpdate, &mut attribute)
            .map(drop)
            .map_err(|source| BpfError::new("entering an AF_XDP socket in the map", source))
    }

    /// Takes the socket of queue `queue` off the map; its frames go to the host stack again. No socket there is no error.
    ///
    /// # Errors
    /// [`BpfError`] where the kernel refuses.
    pub fn clear(&self, queue: u32) -> Result<(), BpfError> {
        let mut attribute = self.element(&queue, 0);
        match bpf(Command::MapDelete, &mut attribute) {
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(source) => Err(BpfError::new("taking an AF_XDP socket off the map", source)),
        }
    }

    fn element(&self, key: &u32, value: u64) -> Element {
        let map = self.descriptor.as_raw_fd().cast_unsigned();
        Element { map, padding: 0, key: std::ptr::from_ref(key) as u64, value, flags: 0 }
    }
}

impl AsFd for XskMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
