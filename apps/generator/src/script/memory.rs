//! Memory that LuaJIT code writes by itself: frames of a task, values for a histogram, the flag that ends the run.
//!
//! Only this module passes addresses to scripts. A script is a program of its user, with the user's rights: like any
//! program with pointers it can write past its buffers (`pkt.payload.uint8[100000] = 0`), and then anything can happen
//! to this process. The ports limit the effect on other processes: frames lie in private memory, and are copied into
//! rings with their lengths checked. Rust reads only through addresses of its own and takes no length unchecked.
//!
//! The invariant of all blocks: a script runs on the thread that owns its Lua state, and calls into Rust from there. So
//! while Rust code holds a borrow of a block, no Lua code runs that could write it.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mlua::{LightUserData, Lua, LuaOptions, StdLib};

/// Bytes before the frame in each buffer: the size of `ringroad_buf` in prelude/packet.lua.
const HEADER_BYTES: usize = 64;
/// Offset of the arrival time in the header; the length is at the header's start, followed by the capacity.
const ARRIVAL_OFFSET: usize = 8;

/// Zeroed memory of fixed address and length.
#[derive(Debug)]
struct Block {
    start: NonNull<u8>,
    layout: Layout,
}

impl Block {
    fn new(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes.max(1), HEADER_BYTES).ok()?;
        // SAFETY: the layout has a size above 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { start, layout })
    }

    /// The bytes from `offset` on.
    fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.layout.size()), "outside of a block");
        // SAFETY: the range was just checked to be within the block.
        let start = unsafe { self.start.add(offset) };
        // SAFETY: the block has `len` initialised bytes from `start` on. By the module's invariant they are not written
        // meanwhile.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), len) }
    }

    /// The writable bytes from `offset` on.
    fn bytes_mut(&mut self, offset: usize, len: usize) -> &mut [u8] {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.layout.size()), "outside of a block");
        // SAFETY: the range was just checked to be within the block.
        let start = unsafe { self.start.add(offset) };
        // SAFETY: as in `bytes`, and `self` is borrowed mutably, so this is the only borrow.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) }
    }

    fn address(&self) -> LightUserData {
        LightUserData(self.start.as_ptr().cast())
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout, and is freed only here.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// Buffers of one size, shared by script and sender. Each buffer follows a header of 64 bytes.
#[derive(Debug)]
pub(super) struct FrameBlock {
    block: Block,
    count: usize,
    capacity: usize,
    stride: usize,
}

impl FrameBlock {
    /// Makes `count` buffers for frames of up to `capacity` bytes. `None` if there is not enough memory.
    pub(super) fn new(count: usize, capacity: usize) -> Option<Self> {
        let stride = HEADER_BYTES + capacity.next_multiple_of(HEADER_BYTES);
        let mut block = Block::new(Self::bytes_for(count, capacity))?;
        for index in 0..count {
            block.bytes_mut(index * stride + 4, 4).copy_from_slice(&(capacity as u32).to_ne_bytes());
        }
        Some(Self { block, count, capacity, stride })
    }

    /// Number of bytes that a block of these sizes takes.
    pub(super) fn bytes_for(count: usize, capacity: usize) -> usize {
        count.saturating_mul(HEADER_BYTES + capacity.next_multiple_of(HEADER_BYTES))
    }

    /// Address of the first buffer's header, for FFI.
    pub(super) fn address(&self) -> LightUserData {
        self.block.address()
    }

    /// Distance from one header to the next, bytes.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Longest frame that fits a buffer, bytes.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The length of frame `index` as set by the script. It can exceed the buffer.
    #[inline]
    pub(super) fn claimed_len(&self, index: usize) -> usize {
        let mut len = [0; 4];
        len.copy_from_slice(self.block.bytes(index * self.stride, 4));
        u32::from_ne_bytes(len) as usize
    }

    /// The first `len` bytes of buffer `index`, at most its capacity.
    #[inline]
    pub(super) fn frame(&self, index: usize, len: usize) -> &[u8] {
        self.block.bytes(index * self.stride + HEADER_BYTES, len.min(self.capacity))
    }

    /// The first `len` bytes of buffer `index`, at most its capacity, writable.
    #[inline]
    pub(super) fn frame_mut(&mut self, index: usize, len: usize) -> &mut [u8] {
        self.block.bytes_mut(index * self.stride + HEADER_BYTES, len.min(self.capacity))
    }

    /// Tells the script that buffer `index` has a frame of `len` bytes that arrived at `arrival_ns`.
    #[inline]
    pub(super) fn received(&mut self, index: usize, len: usize, arrival_ns: u64) {
        let header = self.block.bytes_mut(index * self.stride, HEADER_BYTES);
        header[..4].copy_from_slice(&(len as u32).to_ne_bytes());
        header[ARRIVAL_OFFSET..ARRIVAL_OFFSET + 8].copy_from_slice(&arrival_ns.to_ne_bytes());
    }
}

/// Numbers that a script gathers for Rust.
#[derive(Debug)]
pub(super) struct NumberBlock {
    block: Block,
    count: usize,
}

impl NumberBlock {
    /// Makes room for `count` numbers. `None` if there is not enough memory.
    pub(super) fn new(count: usize) -> Option<Self> {
        Some(Self { block: Block::new(count * 8)?, count })
    }

    /// Address of the first number, for FFI.
    pub(super) fn address(&self) -> LightUserData {
        self.block.address()
    }

    /// Greatest count of numbers.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The first `count` numbers.
    pub(super) fn numbers(&self, count: usize) -> impl Iterator<Item = f64> + '_ {
        let bytes = self.block.bytes(0, count.min(self.count) * 8);
        bytes.chunks_exact(8).map(|bytes| {
            let mut number = [0; 8];
            number.copy_from_slice(bytes);
            f64::from_ne_bytes(number)
        })
    }
}

/// Address of the flag that ends the run, for [`flag_reader`]. The Lua state must keep a clone of the `Arc` as long as
/// the state lives.
pub(super) fn flag_address(flag: &Arc<AtomicBool>) -> LightUserData {
    LightUserData(flag.as_ptr().cast::<c_void>())
}

/// Address of a C function `uint8_t (*)(const void *)` that reads such a flag. Compiled code may move a plain load,
/// even a volatile one, out of a loop; it repeats a call.
pub(super) fn flag_reader() -> LightUserData {
    extern "C" fn read(flag: *const AtomicBool) -> u8 {
        // SAFETY: only the prelude calls this, with an address from `flag_address`, whose flag its state keeps.
        let flag = unsafe { &*flag };
        u8::from(flag.load(Ordering::Relaxed))
    }
    let read: extern "C" fn(*const AtomicBool) -> u8 = read;
    LightUserData(read as *mut c_void)
}

/// A Lua state with all of LuaJIT's libraries, FFI among them.
pub(super) fn new_state() -> Lua {
    // SAFETY: mlua cannot guarantee that scripts stay within their memory when they use FFI. Scripts are the user's own
    // programs; see the comment of this module.
    unsafe { Lua::unsafe_new_with(StdLib::ALL, LuaOptions::default()) }
}
